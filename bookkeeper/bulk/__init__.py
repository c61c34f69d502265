"""Segments that do not come from a memtable: an operator's imports, and tables that are copied as files.

The input is Parquet and CSV files, or exported segments. The output is segments, and manifests that name them.
Read ``import_inputs`` (the files to import), ``segment_conversion`` (sort, divide, write), ``adoption`` (links in a
tablet's directory), ``manifest``, ``log_segments`` (segments beside a log, for peers).
"""

from bookkeeper.bulk.adoption import INCOMING, link_segments
from bookkeeper.bulk.booked_segment import part_of_segment, segment_entry, segment_ref
from bookkeeper.bulk.import_inputs import read_inputs
from bookkeeper.bulk.segment_conversion import convert

__all__ = ["INCOMING", "convert", "link_segments", "part_of_segment", "read_inputs", "segment_entry", "segment_ref"]
