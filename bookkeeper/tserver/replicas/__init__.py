"""The replicas that this host holds on its own disk, besides the tablets on the cluster's Volume.

``held_replica`` owns the manifest of one replica: each event is decided by the machine (``bookkeeper.replicas``) and
durable before its decision is known. ``held_replicas`` has all replicas of the host. ``replica_books`` reads rows of
tablets. ``replica_receiver`` takes segments from other hosts; ``offer_checks`` decides what it believes of an offer,
``wire_forms`` turns messages into values of the machine and back. ``replica_collector`` deletes what the books no
longer need here, ``replica_contents`` reads files for exports. ``replica_divider`` links the files of tablets that were
split or merged for the new ones. ``replica_stores`` copies files from the Volume and to it. ``file_checker`` compares
files with their checksums, ``file_repair`` marks damaged ones and gets sound copies, which ``file_source`` of another
host sends. ``candidacies`` stands for the lead of tablets in the coordination store. ``served_logs`` lets the other
processes of the cluster reach the logs on this disk.
"""
