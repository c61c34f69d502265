"""Checks that a metadata table has the books of this instance, and not an older copy of them.

A process checks this before it does anything else with the table; an error names the table, the reason and the next
step. ``init`` writes the owner row when it creates the table, and every other process expects one. A *round* is a
number that only rises: a leader writes the next one into the books before it reads all of them, and then into the
coordination store. So the round of the books is that of the store or one more; any other difference means that one of
the two is an older copy. A copy from after the latest round is indistinguishable from the original. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from bookkeeper.errors import IncompatibleError, LostBooksError, NotFoundError, PermanentError, RefusedError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import OWNER_FAMILY, MetadataTable, OwnerReader, Row

FORMAT_VERSION = 4
"""Format of the rows, columns and values that :mod:`bookkeeper.metadata.keys` and ``values`` define."""

ROUND_NAME = "books"
"""Name of the round in the coordination store."""

COPY_STEP = (
    "put the newest copy back, or restore the directory of the cluster and its books as they were at one moment "
    "(docs: operations, backup)"
)


def owner_value(instance_id: str) -> bytes:
    """The value of ``owner:instance``, which ``init`` writes."""
    return values.Owner(instance_id, FORMAT_VERSION).encode()


def owner_of(row: Row | None) -> values.Owner | None:
    """The owner in the row, None when there is none. Raises CorruptionError."""
    cell = None if row is None else row.cells.get(keys.OWNER)
    return None if cell is None else values.Owner.decode(cell.value)


def round_of(row: Row | None) -> int:
    """The latest round of the books, 0 before the first one."""
    cell = None if row is None else row.cells.get(keys.ROUND)
    return 0 if cell is None else cell.rank


def check_owner(table: str, row: Row | None, instance_id: str) -> None:
    """Raise NotFoundError when ``table`` has no owner, RefusedError when it is another instance, IncompatibleError when
    its format is another one, CorruptionError when the row does not parse.
    """
    owner = owner_of(row)
    if owner == values.Owner(instance_id, FORMAT_VERSION):
        return
    if owner is None:
        raise NotFoundError(
            f"{table} has no owner row: it is not the one that 'bookkeeper init' made, or it was emptied; correct "
            f"metadata.url, or {COPY_STEP}"
        )
    if owner.format_version != FORMAT_VERSION:
        raise IncompatibleError(
            f"{table} has format {owner.format_version}; this version supports {FORMAT_VERSION} only: use the version "
            "that wrote it"
        )
    raise RefusedError(
        f"{table} holds the books of instance {owner.instance_id}, not of {instance_id}; correct metadata.url, or "
        f"{COPY_STEP}"
    )


def check_round(table: str, round_number: int, latest_round: int) -> None:
    """Raise RefusedError when the round of the books is lower than the latest one: then they are an older copy."""
    if round_number < latest_round:
        raise RefusedError(
            f"{table} is an older copy: its round is {round_number}, and the latest round is {latest_round}; "
            f"{COPY_STEP}"
        )


class OwnerCheck(Struct):
    """What the connections of a process check before their use. Several threads use it; ``round`` is the latest one
    that a check has read, at first that of the coordination store.
    """

    table: str
    instance_id: str
    round: int

    def check(self, read: Callable[[], Row | None]) -> None:
        """Read the owner row, and compare it. Raises as ``read``, :func:`check_owner` and :func:`check_round`."""
        known = self.round  # before the read: another thread may see a later round than this one reads
        row = read()
        check_owner(self.table, row, self.instance_id)
        check_round(self.table, round_of(row), known)
        self.round = max(self.round, round_of(row))


def is_ahead(round_number: int, stored_round: int) -> bool:
    """Whether books of this round are newer than the coordination store: a crash between two writes leaves a difference
    of one at most.
    """
    return round_number > stored_round + 1


def read_owner_row(table: MetadataTable) -> Row | None:
    """The owner row, read again from the store. Raises as ``get`` does."""
    return table.owner_row() if isinstance(table, OwnerReader) else table.get(keys.owner_row(), (OWNER_FAMILY,))


def lost(error: PermanentError) -> LostBooksError:
    """The same error for a process that had opened the right table: it waits until the right table is back."""
    return LostBooksError(error.message)
