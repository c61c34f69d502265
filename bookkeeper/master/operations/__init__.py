"""The FATE operations, one module for each subject: each has JSON arguments and a table of steps.

``context`` has the stores and clients that all steps use. ``config_change`` is the base of operations that change the
configuration. Tables: ``table_lifecycle``, ``properties``, ``read_only``, ``split_merge``. Users: ``user_changes``.
Files: ``bulk_import``, ``export``, with ``requests`` for the receipts of both and
``holds`` for segments that an export reads. Replication: ``clusters``, ``replicated_tables``, ``quarantine``,
``streams``. Hosts: the package ``hosts``, and ``replica_hosts``, which chooses the hosts of a new table.
:mod:`bookkeeper.master.operation_kinds` lists all kinds by name.
"""
