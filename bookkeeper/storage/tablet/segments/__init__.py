"""Segments: immutable sorted files of one tablet.

``segment_format`` has names and versions, ``locality_groups`` the group of each family. ``segment_writer`` writes
with ``bloom`` and ``segment_index``; ``segment_reader`` reads through ``block_cache``; ``middle_row`` finds the middle
of a tablet in the indexes; ``segment_check`` decodes a complete file, page by page (``parquet_pages``), and raises the
first damage.
"""
