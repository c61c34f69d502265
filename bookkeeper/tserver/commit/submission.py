"""A submission: one request to the commit threads. The protocols of both sides, and values.

Commit threads call all methods, one at a time. So the methods may touch tablet state without locks, and must not wait
for another submission. Rules: R12, R14, R15 and R18.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol

from bookkeeper.errors import BookkeeperError
from bookkeeper.storage.wal.blocks.block import Block, DraftBlock, PlacedBlock
from bookkeeper.storage.wal.writing.seal import Seal


class Durability(IntEnum):
    """The moment at which a write is acknowledged; a higher level includes the guarantees of the lower ones.

    NONE: not logged, lost with the process (acts as LOG where a block carries targets or an origin: the primary must
    have logged what a peer gets). LOG: before it is written to the log. FLUSH: after write(), survives the process.
    SYNC: after fdatasync, survives the machine.
    """

    NONE = 0
    LOG = 1
    FLUSH = 2
    SYNC = 3

    @classmethod
    def parse(cls, name: str) -> Durability:
        """From ``none``, ``log``, ``flush`` or ``sync``; raises ValueError."""
        if name != name.lower() or name.upper() not in cls.__members__:
            raise ValueError(f"unknown durability {name!r}: use none, log, flush or sync")
        return cls[name.upper()]


class AppendPoint(NamedTuple):
    """The log of a submission's group, and the offset that the submission's first logged record gets there."""

    wal_name: str
    next_offset: int


class Submission(Protocol):
    """One request to the commit threads.

    The committer calls ``prepare``, then exactly one of ``applied`` and ``failed``. Two threads call, but never two
    methods at a time, also of different submissions. ``prepare`` of a submission may come before ``applied`` of those
    of its own group and of the group before it, unless it begins a group.
    """

    @property
    def durability(self) -> Durability:
        """Read after ``prepare``, which may decide it."""

    @property
    def approx_bytes(self) -> int:
        """Size of the records, for the limits of queue and group; read once, at submit."""

    def prepare(self, point: AppendPoint) -> list[DraftBlock]:
        """Turn the request into drafts, which will lie in the log from ``point`` on.

        With an empty list, ``applied`` follows when everything submitted before is as durable as this submission
        requires. A BookkeeperError fails this submission alone, so tablet state must be as it
        was before; any other exception ends the process.
        """

    def applied(self, blocks: list[PlacedBlock]) -> object:
        """The drafts are as durable as requested and the fence has passed: make them visible. The value answers the
        future. Must not raise: the log holds the records already.
        """

    def failed(self, error: BookkeeperError) -> None:
        """The committer gave the group up after ``prepare`` had succeeded, and logged nothing. Undo ``prepare``; called
        in reverse order of ``prepare``. Must not raise.
        """


class Listener(Protocol):
    """Keeps the books about the log. Commit threads call it: ``before_append`` of a group may come while ``synced`` or
    ``answered`` of the group before it runs.
    """

    def before_append(self, wal_name: str, blocks: Sequence[Block]) -> None:
        """Write the cells that must be in the books before these blocks are acknowledged (rule R12).

        A BookkeeperError fails the whole group: nothing is appended, nothing acknowledged.
        """

    def synced(self, wal_name: str, offset: int, position: int) -> None:
        """Everything up to ``offset`` (a block end) is durable; called before any of it is acknowledged at sync.
        Must not raise or wait.
        """

    def answered(self) -> None:
        """Whoever waited for what ``synced`` told is answered: work for others no longer delays a writer. Must not
        raise.
        """

    def may_begin_log(self) -> bool:
        """Whether a log that is due to end may end now: the first uses of the next one wait for the books. Must not
        raise or wait.
        """

    def rolled(self, wal_name: str, seal: Seal) -> None:
        """The log is sealed and another one, or none, follows. Must not raise."""
