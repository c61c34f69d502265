"""Replica systems: how to write to one kind of peer.

``protocol`` is all that a package of a third party needs. ``registry`` finds a system by its name. ``bookkeeper`` is
the system for other clusters of this project, with ``segment_files`` for its segment transfer and ``extensions`` for
its abilities beyond the protocol. The package ``parquet`` is the system for directories of Parquet files.
"""
