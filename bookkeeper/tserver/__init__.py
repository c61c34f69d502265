"""The tserver: takes writes, serves tablets, receives from other clusters, ships through its worker.

Durable are its WALs up to the last synced block, its segments, and its cells in the metadata table. The next holder of
a tablet recovers it from those.

The rooms, in the order in which the data passes them:

- ``tablets``: the state of a served tablet; ``write``: from a request to a durable block;
- ``books``: the tserver's cells in the metadata table; ``origins``: the memory of several paths (rule R22);
- ``maintenance``: loads, flushes, compactions; ``receive``: ranges of other clusters;
- ``bulk``: segments that come whole; ``shipping``: the replication worker.

``service`` answers calls; ``master_link`` calls the master; ``authorizations`` says what a scan may see; ``process``
starts and ends the parts; ``run`` and ``__main__`` run one tserver.
"""
