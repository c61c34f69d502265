"""Order across WALs: the records that a peer must have before a tablet's records of another WAL follow (rule R24).

From the position of a tablet's last logged record (or those of the tablets that were merged into it) come the
predecessors in the header of its first block in the next WAL, and the barriers in the books. Both survive a crash, and
so does ``last_wals`` in ``tablet:flush``. Pure; the simulation calls the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from bookkeeper.model import Barrier


class WalPosition(Struct, frozen=True):
    """The position of a record: file and offset (records, from 1)."""

    file: str
    offset: int


def predecessors(last: Iterable[WalPosition], wal: str) -> list[WalPosition]:
    """The predecessors of a tablet's next block in ``wal``: the latest records in other WALs. Those in ``wal`` come
    before it anyway.
    """
    return [position for position in last if position.file != wal]


def barrier_at(offset: int, after: WalPosition) -> Barrier:
    """The barrier for the books: records from ``offset`` on wait until the file is finished up to ``after``."""
    return Barrier(offset, after.file, after.offset)
