"""The books and the logs of one tablet, as the simulation has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bookkeeper.replicas.instructions import Name
from bookkeeper.replicas.placements import TabletRow
from bookkeeper.replicas.values import Positions, term_of


@dataclass(slots=True)
class Log:
    """The log of one term: its records, and whether a fence stops its writer."""

    writer: str
    rows: list[str] = field(default_factory=list)
    is_sealed: bool = False


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
    children: tuple[str, ...] = ()
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

    def release(self) -> list[int]:
        """Delete the sealed logs that the named state covers. A log that was given up stays until it is merged, and
        until the current term has named a state: a name of the term that gave it up can no longer count then.
        """
        covered = dict(self.named.logs) if self.named is not None else {}
        is_current = self.named is not None and term_of(self.named.state_id) == self.term
        gone = [
            term
            for term, log in self.logs.items()
            if log.is_sealed
            and term not in self.given_up
            and (is_current or term not in self.once_given_up)
            and covered.get(term, 0) >= self.merged_from.get(term, len(log.rows))
        ]
        for term in gone:
            del self.logs[term]
        return gone
