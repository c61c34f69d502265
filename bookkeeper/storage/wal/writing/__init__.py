"""Writing a log: from drafts to synced bytes and a seal.

In the order of the data: ``block_merge`` (drafts become blocks, small neighbours one block), ``wal_writer`` (the file),
``seal`` (the end of a log, as a file of its own). The tserver's room ``commit`` decides when a group is written and
synced.
"""
