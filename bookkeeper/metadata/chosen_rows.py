"""Reads many rows at once: neighbours by a scan, and rows far apart one by one."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bookkeeper.metadata.metadata_table import MetadataTable, Row

SCANNED_FOR_ONE = 4
"""Rows that a scan may read for each row that is wanted: a read of one row costs more than these."""


def chosen_rows(table: MetadataTable, keys: Iterable[bytes], families: Collection[str]) -> dict[bytes, Row]:
    """The rows with these keys that are there. A scan reads them while it meets enough of them; the rest are read
    alone. Each row is atomic, all together are not. Raises TransientError, CorruptionError: never a part of them.
    """
    wanted = sorted(set(keys))
    if not wanted:
        return {}
    found: dict[bytes, Row] = {}
    passed = 0
    for scanned, row in enumerate(table.scan(wanted[0], wanted[-1] + b"\x00", families), 1):
        while passed < len(wanted) and wanted[passed] < row.key:
            passed += 1
        if passed < len(wanted) and wanted[passed] == row.key:
            found[row.key] = row
        if scanned >= SCANNED_FOR_ONE * (passed + 1):
            break
    else:
        return found
    for key in wanted[passed:]:
        if key not in found and (row_alone := table.get(key, families)) is not None:
            found[key] = row_alone
    return found
