"""The replica system ``parquet``: a peer that is a directory on any filesystem, and a change log in it.

Messages of streams become Parquet files with one row for each record. DuckDB, Spark and others may read the directory
at any time: each file is complete, also after a crash. The files are the only state. Reading order: ``layout``,
``records``, ``file_store``, ``system``.
"""

from bookkeeper.peers.parquet.system import ParquetSystem

__all__ = ["ParquetSystem"]
