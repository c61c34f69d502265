"""The operations about hosts: they read and write which hosts have a tablet, and use the other operations' steps.

``replica_moves`` moves tablets to chosen hosts, ``change_store`` moves the tablets of a table between the cluster's
Volume and hosts, and ``lost_disks`` accepts that the logs on a disk are lost. A new table gets its hosts by
:mod:`bookkeeper.master.operations.replica_hosts`, because the operations on tables need that, too.
"""
