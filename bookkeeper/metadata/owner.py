"""Whose books a metadata table holds, and whether it is an older copy of them: checked before anything else is done.

Arrives: the owner row as a store reads it, an instance id, the latest round that is known. Leaves: the round of the
books, or an error that names the table, the reason and the next step. ``init`` makes the row together with the table;
every other process opens a table that has one. A *round* is a number that only rises: a leader writes the next one into
the books before it reads all of them, then into the coordination store. So the books are never behind the store, and
one number ahead of it at most; any other difference proves that one of the two is an older copy. A copy that is younger
than the latest round can't be told from the original. Pure.
"""

from __future__ import annotations

from bookkeeper.errors import IncompatibleError, LostBooksError, NotFoundError, PermanentError, RefusedError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import OWNER_FAMILY, MetadataTable, OwnerReader, Row

FORMAT_VERSION = 3
"""Of the rows, columns and values that :mod:`bookkeeper.metadata.keys` and ``values`` define."""

ROUND_NAME = "books"
"""Name of the number in the coordination store."""

COPY_STEP = (
    "put the newest copy back, or restore the directory of the cluster and its books as they were at one moment "
    "(docs: operations, backup)"
)


def owner_value(instance_id: str) -> bytes:
    """What ``init`` writes into ``owner:instance``."""
    return values.Owner(instance_id, FORMAT_VERSION).encode()


def owner_of(row: Row | None) -> values.Owner | None:
    """The owner that the row names, None when it names none. Raises CorruptionError."""
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
    if is_owned_by(owner, instance_id):
        return
    if owner is None:
        raise NotFoundError(
            f"{table} has no owner row: it is not the one that 'bookkeeper init' made, or it was emptied; correct "
            f"metadata.url, or {COPY_STEP}"
        )
    if owner.format_version != FORMAT_VERSION:
        raise IncompatibleError(
            f"{table} has format {owner.format_version}; this version knows {FORMAT_VERSION} only: use the version "
            "that wrote it"
        )
    raise RefusedError(
        f"{table} holds the books of instance {owner.instance_id}, not of {instance_id}; correct metadata.url, or "
        f"{COPY_STEP}"
    )


def is_owned_by(owner: values.Owner | None, instance_id: str) -> bool:
    """Whether books with this owner are those of the instance, in the format that this version knows."""
    return owner == values.Owner(instance_id, FORMAT_VERSION)


def check_round(table: str, held: int, known: int) -> None:
    """Raise RefusedError when the books, of round ``held``, are an older copy: round ``known`` had begun in them."""
    if is_older(held, known):
        raise RefusedError(f"{table} is an older copy: it is of round {held}, and round {known} had begun; {COPY_STEP}")


def is_older(held: int, known: int) -> bool:
    """Whether books of round ``held`` are older than books in which round ``known`` had begun."""
    return held < known


def is_ahead(held: int, known: int) -> bool:
    """Whether books of round ``held`` are younger than a coordination store that knows of round ``known``: a cut leaves
    one number between them, and no more.
    """
    return held > known + 1


def look_at_owner(table: MetadataTable) -> Row | None:
    """The owner row, read anew. Raises as ``get`` does."""
    return table.owner_row() if isinstance(table, OwnerReader) else table.get(keys.owner_row(), (OWNER_FAMILY,))


def lost(error: PermanentError) -> LostBooksError:
    """The same error for a process that had opened the right table: it waits until that one is back."""
    return LostBooksError(error.message)
