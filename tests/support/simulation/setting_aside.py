"""Records that a peer refuses for good, what operators do about them, and what may be missing because of it.

Arrives: values that are too long for the peer, commands about ranges, `~quar_` rows as they are put. Leaves: which
records a target may lack: those of a block that holds such a value, once its range has a row, and for good once an
operator has said skip. Independent of the product's decisions: it knows the limit, and what was commanded.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Column
from bookkeeper.model import TargetKey
from bookkeeper.rpc.contract.messages import QuarantinedRange
from tests.support.simulation.tablets import Entry

LONGEST = 16
"""Bytes of the longest value that a peer with this limit takes."""

TOO_LONG = b"-is-too-long-for-the-peer"

Place = tuple[str, TargetKey]


def is_refused(entries: Iterable[Entry]) -> bool:
    """A block that holds these is refused by a peer that has the limit: it may be set aside, and no other."""
    return any(len(entry.value) > LONGEST for entry in entries)


@dataclass(eq=False)
class SettingAside:
    """``rows``: file and target with the first records of ranges that have had a row. ``skipped``: first and last."""

    rows: dict[Place, set[int]] = field(default_factory=dict)
    skipped: dict[Place, set[tuple[int, int]]] = field(default_factory=dict)

    def put(self, key: bytes, column: Column) -> None:
        """A row of a range is in the books."""
        target, first = keys.parse_quar_column(column.qualifier)
        self.rows.setdefault((keys.parse_quar_row(key), target), set()).add(first)

    def skip(self, given_up: QuarantinedRange) -> None:
        """An operator is about to give a range up."""
        place = (given_up.file, given_up.target)
        self.skipped.setdefault(place, set()).add((given_up.blocks.first, given_up.blocks.last))

    def may_be_passed(self, file: str, target: TargetKey, first: int, entries: Sequence[Entry]) -> bool:
        """A target's queue may go on without this block."""
        return is_refused(entries) and any(row <= first for row in self.rows.get((file, target), ()))

    def may_be_missing(self, file: str, target: TargetKey, first: int, entries: Sequence[Entry]) -> bool:
        """A target need never get this block."""
        given_up = self.skipped.get((file, target), ())
        return is_refused(entries) and any(low <= first <= high for low, high in given_up)
