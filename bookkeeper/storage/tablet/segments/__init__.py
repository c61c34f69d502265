"""Segments: immutable sorted files of one tablet.

``segment_format`` has names and versions, ``locality_groups`` says which file holds a family. ``segment_writer`` writes
with ``bloom`` and ``segment_index``; ``segment_reader`` reads through ``block_cache``; ``segment_check`` reads a whole
file, page by page (``parquet_pages``), and says what is damaged.
"""
