"""Group commit: from a submission to a synced log, applied records and an answer.

In the order of the data: ``submission`` (the request of a caller), ``submission_queue``, ``group_committer`` (two
threads; one sync a group), ``active_wal`` (the log that is written now). ``wal_opener`` makes the logs of a session,
``commit_limits`` has the bounds. A group goes down once, through ``bookkeeper.storage.wal`` to the disk, and comes back
once: nothing below this room calls it.
"""
