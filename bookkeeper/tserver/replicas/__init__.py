"""The replicas that this host holds, besides the tablets on the cluster's Volume.

``held_replica`` owns the manifest of one replica: each event is decided by the machine (``bookkeeper.replicas``) and
durable before its decision is known. ``held_replicas`` has all replicas of the host.
"""
