"""Segments that do not come from a memtable: an operator's imports, and tables that are copied as files.

The input is Parquet and CSV files, or exported segments. The output is segments, and manifests that name them.
Read ``import_inputs`` (the files to import), ``segment_conversion`` (sort, divide, write), ``adoption`` (the files that
tablets take), ``file_holds`` (rows that keep these files), ``manifest``, ``log_segments`` (the files with a log's
records, for peers).
"""
