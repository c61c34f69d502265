"""The quarantine of ranges with permanent errors (``quarantined_ranges``): their stream continues without them.

Operators act on them through :mod:`bookkeeper.master.queries.quarantine_admin` and
:mod:`bookkeeper.master.operations.quarantine`.
"""
