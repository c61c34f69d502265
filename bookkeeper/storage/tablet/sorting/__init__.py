"""The order of a tablet's entries, and operations on sorted runs of them.

``entries`` has the columns of an entry and ``order`` the order of keys. ``take`` picks rows by index,
``constant_columns`` stores a repeated value once, ``merge`` joins sorted runs, ``range_select`` cuts a range of rows
out of them.
"""
