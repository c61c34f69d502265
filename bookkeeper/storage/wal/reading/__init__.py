"""Reading a log: while it is written, when it is sealed, after a crash.

``log_formats`` opens a file by its first bytes. ``block_reader`` reads ranges of blocks, ``wal_view`` shows a log to
tools without changing it. ``wal_recovery`` finds the end of a log whose writer is gone, and ``seal_proof`` writes the
seal once the disk has every byte before it.
"""
