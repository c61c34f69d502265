"""What a tserver hands to the group committer, and what the committer tells back: protocols only.

All methods are called in the commit thread, one at a time, so they may touch tablet state without locks and must
not wait for another submission. Rules: R12, R14, R15 and R18.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from bookkeeper.errors import BookkeeperError
from bookkeeper.storage.wal.blocks.block import Block, DraftBlock, PlacedBlock


class Durability(IntEnum):
    """When a write is acknowledged; a higher level keeps every promise of the lower ones.

    NONE: not logged, lost with the process (acts as LOG where a block carries targets or an origin: what a peer
    gets, the primary must have logged). LOG: before it is written to the log. FLUSH: after write(), survives the
    process. SYNC: after fdatasync, survives the machine.
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


@dataclass(frozen=True, slots=True)
class Seal:
    """The end of a log, for ever: last record (0 when there is none) and the byte position behind its block.

    Made once per file, by its owner or by recovery; every reader stops at it (rule R15).
    """

    offset: int
    position: int


class Submission(Protocol):
    """One request to write. The committer calls ``prepare``, then exactly one of ``applied`` and ``failed``; never two
    of these calls at a time, of whatever submissions, but from two threads. ``prepare`` of a submission may come before
    ``applied`` of those of its own group and of the group before it, unless it begins a group.
    """

    @property
    def durability(self) -> Durability:
        """Read after ``prepare``, which may decide it."""

    @property
    def approx_bytes(self) -> int:
        """Size of the records, for the limits of queue and group; read once, at submit."""

    def prepare(self, next_offset: int) -> list[DraftBlock]:
        """Turn the request into drafts; the first logged record gets ``next_offset`` in ``committer.wal_uri``.

        An empty list is a barrier: ``applied`` comes after everything submitted before is as durable as this
        submission's durability asks. A BookkeeperError fails this submission alone, so it must leave tablet
        state as it was; any other exception ends the process.
        """

    def applied(self, blocks: list[PlacedBlock]) -> object:
        """The drafts are as durable as asked and the fence has passed: make them visible. The value answers the
        future. Must not raise: the log holds the records already.
        """

    def failed(self, error: BookkeeperError) -> None:
        """The group was given up after ``prepare`` had succeeded: nothing was logged. Take back what ``prepare``
        changed; called in reverse order of ``prepare``. Must not raise.
        """


class Listener(Protocol):
    """Who keeps the books about the log. Called in commit threads: ``before_append`` of a group may come while
    ``synced`` of the group before it runs.
    """

    def before_append(self, wal_uri: str, blocks: Sequence[Block]) -> None:
        """Write what must be in the books before these blocks are acknowledged (rule R12).

        A BookkeeperError fails the whole group: nothing is appended, nothing acknowledged.
        """

    def synced(self, wal_uri: str, offset: int, position: int) -> None:
        """Everything up to ``offset`` (a block end) is durable; called before any of it is acknowledged at sync.
        Must not raise or wait.
        """

    def rolled(self, wal_uri: str, seal: Seal) -> None:
        """The log is sealed and another one, or none, follows. Must not raise."""
