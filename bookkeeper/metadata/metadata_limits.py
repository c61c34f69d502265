"""Checks of arguments before a store writes anything, so that a wrong call never applies in part.

A wrong argument raises InvalidInputError. The limits are those of HBase (row keys of a signed 16-bit length, values of
10 MB with their key), rounded down; SQLite has the same limits, so that books can move between stores.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bookkeeper.errors import InvalidInputError
from bookkeeper.metadata.metadata_table import FAMILIES, MAX_RANK, OWNER_FAMILY, CellKey, Column, RowPut

KEY_BYTES_MAX = 32_767
"""Longest row key, and longest qualifier."""

VALUE_BYTES_MAX = 8 * 1024 * 1024
"""Largest value, and largest sum of the values of one row put."""

_FAMILIES = frozenset((*FAMILIES, OWNER_FAMILY))


def check_rank(rank: int) -> None:
    """Raise InvalidInputError unless 1 <= ``rank`` <= MAX_RANK."""
    if not 1 <= rank <= MAX_RANK:
        raise InvalidInputError(f"rank {rank} lies outside 1 to {MAX_RANK}")


def check_key(key: bytes) -> None:
    """Raise InvalidInputError unless ``key`` is a row key."""
    if not 1 <= len(key) <= KEY_BYTES_MAX:
        raise InvalidInputError(f"a row key has 1 to {KEY_BYTES_MAX} bytes, not {len(key)}")


def first_key(bound: bytes) -> bytes | None:
    """The smallest possible row key at or after ``bound``, as a limit of a scan; None when all keys lie before it.

    A bound may be longer than any key, and HBase refuses such bounds. A key that starts with the longest possible part
    of the bound is that part alone, so it lies before the bound.
    """
    if len(bound) <= KEY_BYTES_MAX:
        return bound
    head = bound[:KEY_BYTES_MAX].rstrip(b"\xff")
    return head[:-1] + bytes((head[-1] + 1,)) if head else None


def check_column(column: Column) -> None:
    """Raise InvalidInputError unless the family exists and the qualifier fits."""
    if column.family not in _FAMILIES:
        raise InvalidInputError(f"no family {column.family!r}; there are {', '.join(FAMILIES)}")
    if len(column.qualifier) > KEY_BYTES_MAX:
        raise InvalidInputError(f"a qualifier has up to {KEY_BYTES_MAX} bytes, not {len(column.qualifier)}")


def check_puts(rows: Sequence[RowPut], rank: int) -> None:
    """Raise InvalidInputError unless every row can be written at ``rank``."""
    check_rank(rank)
    for row in rows:
        check_key(row.key)
        for column in row.values:
            check_column(column)
        size = sum(map(len, row.values.values()))
        if size > VALUE_BYTES_MAX:
            raise InvalidInputError(f"row {row.key!r}: {size} bytes of values in one put; {VALUE_BYTES_MAX} at most")


def check_cells(cells: Sequence[CellKey]) -> None:
    """Raise InvalidInputError unless every cell can exist."""
    for cell in cells:
        check_key(cell.key)
        check_column(cell.column)


def check_families(families: Collection[str] | None) -> tuple[str, ...]:
    """The families to read, sorted and without repeats; None means :data:`FAMILIES`. Raises InvalidInputError on
    unknown ones.
    """
    if families is None:
        return tuple(sorted(FAMILIES))
    unknown = sorted(set(families) - _FAMILIES)
    if unknown:
        raise InvalidInputError(f"no families {', '.join(unknown)}; there are {', '.join(FAMILIES)}")
    return tuple(sorted(set(families)))
