"""The metadata table: the books of one cluster, in HBase or in one SQLite file.

Reading order: ``table`` (the protocol and why a cell's timestamp is a rank), ``keys`` and ``values`` (what the
cells are called and hold), ``sqlite`` and ``hbase`` (two stores that pass one contract suite), ``opening``.
"""
