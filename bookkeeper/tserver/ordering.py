"""Order across WALs: what must be at a peer before a tablet's records of another WAL may follow (rule R24).

Arrives: where a tablet's latest logged record lies, and the WAL that its next one goes to. Leaves: the predecessor
for the block's header and the barrier for the books, or None. Survives a crash: both, in the block header and in
the ``repl:`` cell, and ``last_wal`` in ``tablet:flush``. Pure; the simulation drives the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.model import Barrier


@dataclass(frozen=True, slots=True)
class WalPlace:
    """A record's place: file URI and offset (records, from 1)."""

    file: str
    offset: int


def predecessor(last: WalPlace | None, wal: str) -> WalPlace | None:
    """What a tablet's next block in ``wal`` must say it comes after; None when its latest record is there too.

    That is the first block of a tablet in a WAL, and also the first after the tablet came back from elsewhere to a
    tserver that still writes the WAL it used before.
    """
    if last is None or last.file == wal:
        return None
    return last


def barrier_at(offset: int, after: WalPlace) -> Barrier:
    """The same fact for the books: records from ``offset`` on wait until the file is finished up to ``after``."""
    return Barrier(offset, after.file, after.offset)
