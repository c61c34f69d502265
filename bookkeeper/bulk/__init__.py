"""Segments that do not come from a memtable: an operator's imports, and tables that are copied as files.

The input is Parquet and CSV files, or exported segments. The output is segments, and manifests that name them.
Read ``import_inputs`` (the files to import), ``segment_conversion`` (sort, divide, write), ``adoption`` (the files that
tablets take), ``file_holds`` (rows that keep these files), ``manifest``, ``log_segments`` (the files with a log's
records, for peers).
"""

from bookkeeper.bulk.adoption import INCOMING
from bookkeeper.bulk.booked_segment import part_of_segment, segment_entry, segment_ref
from bookkeeper.bulk.import_inputs import read_inputs
from bookkeeper.bulk.segment_conversion import convert

__all__ = ["INCOMING", "convert", "part_of_segment", "read_inputs", "segment_entry", "segment_ref"]
