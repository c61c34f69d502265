"""The quarantine of ranges that fail for good (``quarantined_ranges``): their queue goes on without them.

Operators act on them through :mod:`bookkeeper.master.queries.quarantine_admin` and
:mod:`bookkeeper.master.operations.quarantine`.
"""
