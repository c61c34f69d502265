"""The FATE operations: JSON arguments in, a table of steps out, one module for each subject.

``context`` is what steps act on. Tables: ``table_lifecycle``, ``properties``, ``read_only``, ``split_merge``. Users:
``user_changes``. Files: ``bulk_import``, ``export``, with ``requests`` for the checks of both. Replication:
``clusters``, ``replicated_tables``, ``quarantine``, ``streams``. :mod:`bookkeeper.master.operation_kinds` lists them
all by name.
"""
