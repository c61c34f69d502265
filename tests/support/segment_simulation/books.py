"""The books and the logs of tablets, as the simulation has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bookkeeper.replicas.instructions import Name
from bookkeeper.replicas.placements import TabletRow
from bookkeeper.replicas.values import Positions


@dataclass(slots=True, eq=False)
class LogFile:
    """The log of one session of a host: all tablets that the host leads write it."""

    host: str
    is_sealed: bool = False
    """A fence stops its writer, for all its tablets."""
    is_deleted: bool = False
    needed_by: list[str] = field(default_factory=list)
    """For each part that still counts, its tablet."""


@dataclass(slots=True)
class Log:
    """The part of a log that one term of one tablet has written."""

    writer: str
    file: LogFile
    rows: list[str] = field(default_factory=list)
    is_closed: bool = False
    """The term has ended, though the session may go on."""
    merged: set[str] = field(default_factory=set)
    """Rows that came by a merge: their records name their origin."""

    @property
    def is_sealed(self) -> bool:
        """Whether its term can write no more."""
        return self.is_closed or self.file.is_sealed


@dataclass(slots=True)
class Books:
    """What the books say about a tablet: its row, its newest named state, its logs, and the logs given up."""

    row: TabletRow
    term: int = 0
    named: Name | None = None
    logs: dict[int, Log] = field(default_factory=dict)
    given_up: dict[int, int] = field(default_factory=dict)
    """By term: the offset from which records are missing until the log's tail is merged."""
    once_given_up: set[int] = field(default_factory=set)
    """Terms of logs that some term did not replay: names of that term may still come."""
    merged_from: dict[int, int] = field(default_factory=dict)
    """By term of a log whose tail was merged in this term: the offset from which it was."""
    table: str = ""
    """The tablet from which it descends: its family shares terms and rows."""
    children: tuple[str, ...] = ()
    is_gone: bool = False
    """Others took its place; a peer may still need its logs."""
    copies_min: int = 2

    @property
    def given_up_positions(self) -> Positions:
        """The given-up logs as the machine takes them."""
        return tuple(sorted(self.given_up.items()))

    def close_given_up(self, heard: Mapping[str, int]) -> None:
        """A given-up log whose end the current chain has is an ordinary log again. Its end is known once its writer
        is back: ``heard`` has, for each host that runs, the newest term that it has heard of.
        """
        for term, missing_from in list(self.given_up.items()):
            log = self.logs[term]
            if heard.get(log.writer, 0) > term and missing_from >= len(log.rows):
                del self.given_up[term]

    def release(self, is_needed_by_peer: Callable[[int], bool]) -> None:
        """Let go of the sealed logs that the named state covers. A log that was given up stays until it is merged, and
        until the current term has named a state: a name of the term that gave it up can no longer count then.
        """
        covered = dict(self.named.logs) if self.named is not None else {}
        is_current = self.named is not None and self.named.term == self.term
        gone = [
            term
            for term, log in self.logs.items()
            if log.is_sealed
            and term not in self.given_up
            and (is_current or self.is_gone or term not in self.once_given_up)
            and (self.is_gone or covered.get(term, 0) >= self.merged_from.get(term, len(log.rows)))
            and not is_needed_by_peer(term)
        ]
        for term in gone:
            self.logs.pop(term).file.needed_by.remove(self.row.tablet)


@dataclass(slots=True)
class Import:
    """An import: rows of one tablet, which is LIVE when its leader takes them."""

    rows: tuple[str, ...]
    is_named: bool = False
    """The books name a state of the tablet of its rows that has it, so its operation has ended."""


@dataclass(slots=True)
class Peer:
    """A cluster behind this one: it gets the records of each log in their order, and each import."""

    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    """By tablet and term: up to which offset it has the log."""
    rows: list[str] = field(default_factory=list)
    told: set[str] = field(default_factory=set)
    """Rows that came with their origin."""
    imports: set[int] = field(default_factory=set)

    def take(self, row: str, has_origin: bool) -> None:
        """Apply a record. A record that names its origin is known again, whatever log brings it."""
        if (has_origin and row in self.rows) or row in self.told:
            return
        self.rows.append(row)
        if has_origin:
            self.told.add(row)
