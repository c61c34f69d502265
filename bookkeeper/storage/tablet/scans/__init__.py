"""Scans: pages of merged cells.

``scan`` makes a page. It asks ``cell_versions`` which versions count, ``visibility`` which labels the reader may see,
and ends the page with a ``scan_position``, from which the next page starts.
"""
