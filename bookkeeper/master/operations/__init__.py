"""The FATE operations: JSON arguments in, a table of steps out, one module for each subject.

``context`` is what steps act on. Tables: ``tables``, ``properties``, ``read_only``, ``split_merge``. Users: ``users``.
Files: ``bulk_import``, ``export``, with ``requests`` for what both check. Replication: ``clusters``, ``replication``,
``quarantine``, ``streams``. :mod:`bookkeeper.master.operation_kinds` lists them all by name.
"""
