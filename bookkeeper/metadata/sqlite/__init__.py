"""The metadata table in one SQLite file.

In the order of a call: ``sqlite_store`` (the protocol of :mod:`bookkeeper.metadata.metadata_table`), ``sqlite_books``
(creates and checks the file) and ``sqlite_cells`` (statements).
"""
