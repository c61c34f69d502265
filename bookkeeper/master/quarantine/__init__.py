"""Ranges that fail for good (``quarantined_ranges``): set aside, so that others pass.

Operators act on them through :mod:`bookkeeper.master.queries.quarantine_admin` and
:mod:`bookkeeper.master.operations.quarantine`.
"""
