"""Scans: pages of merged cells.

``scan`` makes a page. ``cell_versions`` selects the versions that count, ``visibility`` the labels that the reader may
see, and ``scan_position`` is the end of a page, from which the next one starts.
"""
