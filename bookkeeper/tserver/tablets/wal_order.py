"""Order across WALs: what must be at a peer before a tablet's records of another WAL may follow (rule R24).

Arrives: where a tablet's latest logged record lies (or the latest ones of tablets that were merged into it), and the
WAL that its next one goes to. Leaves: the predecessors for the block's header and the barriers for the books. Survives
a crash: both, in the block header and in the ``repl:`` cell, and ``last_wals`` in ``tablet:flush``. Pure; the
simulation drives the same functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bookkeeper.model import Barrier


@dataclass(frozen=True, slots=True)
class WalPosition:
    """A record's place: file URI and offset (records, from 1)."""

    file: str
    offset: int


def predecessors(last: Iterable[WalPosition], wal: str) -> list[WalPosition]:
    """What a tablet's next block in ``wal`` must say it comes after: the latest records elsewhere. Those in ``wal``
    come before it anyway.
    """
    return [place for place in last if place.file != wal]


def barrier_at(offset: int, after: WalPosition) -> Barrier:
    """The same fact for the books: records from ``offset`` on wait until the file is finished up to ``after``."""
    return Barrier(offset, after.file, after.offset)
