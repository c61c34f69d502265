"""The tserver: takes writes, serves tablets, receives from other clusters, ships through its worker.

Durable are its WALs up to the last synced block, its segments, and its cells in the metadata table. The next holder of
a tablet recovers it from those.

The rooms, in the order in which the data passes them:

- ``tablets``: the state of a served tablet; ``write``: requests, judged and numbered in the order of the log;
- ``commit``: a group of writes to the disk and back; ``books``: the tserver's cells in the metadata table;
- ``origins``: the memory of several paths (rule R22); ``maintenance``: loads, flushes, compactions;
- ``leading``: tablets with replicas: states on this host's disk, copies to other hosts, names in the books;
- ``receive``: ranges of other clusters, as records; ``bulk``: segments of imports and of other clusters;
- ``shipping``: the replication worker; ``replicas``: the replicas that this host holds on its own disk.

``service`` answers calls: each method delegates to one of the ``parts``, those of clients to ``client_requests``.
``assembly`` builds the parts, ``process`` starts and ends them, ``run`` and ``__main__`` run one tserver.
``master_notices`` calls the master; ``authorizations`` decides which labels a scan may read.
"""
