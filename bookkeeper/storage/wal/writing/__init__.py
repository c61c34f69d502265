"""Writing a log: from a submission to synced bytes and a seal.

In the order of the data: ``submission``, ``submission_queue``, ``block_merge`` (small blocks of a group become one),
``group_committer`` (one thread, one sync a group), ``active_wal`` (the log that is written now, and when it is full),
``wal_writer`` (the file), ``seal`` (the end of a log, as a file of its own). ``commit_limits`` has the bounds.
"""
