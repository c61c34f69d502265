"""The replica system ``parquet``: a peer that is a directory on any filesystem, and a change log in it.

Arrives: messages of streams, like at any peer. Leaves: Parquet files, one row a record, that DuckDB, Spark and others
read while they appear. Survives a crash: every file, whole; there is nothing else to remember, because the files are
their own books. Reading order: ``layout``, ``records``, ``store``, ``system``.
"""

from bookkeeper.peers.parquet.system import ParquetSystem

__all__ = ["ParquetSystem"]
