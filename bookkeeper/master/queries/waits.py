"""The waits of each table and peer, summed up by their cause. Pure.

Arrives: the states of files at targets, ranges in quarantine. Leaves: one :class:`Wait` for each target and kind of
cause; memory grows with these, not with the files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.shipments import Shipments
from bookkeeper.master.queries.causes import DONE, Cause, Now
from bookkeeper.master.queries.target_states import TargetState, all_states
from bookkeeper.model import Target, TargetKey

RECENT_NS, LOOK_FACTOR = 500_000_000, 10
"""Waits count for half a second, and for ten times as long as the look took."""

WaitKey = tuple[TargetKey, str]
"""A target and the kind of the cause."""


class Wait(Struct):
    """The files of which one target lacks records for one kind of cause.

    ``cause`` and ``file`` are those of the file that waits longest; ``records`` and ``size`` sum up what the peer
    lacks.
    """

    target: Target
    cause: Cause
    file: str
    files: int = 0
    records: int = 0
    size: int = 0

    @property
    def root(self) -> str:
        """The file that all others wait for."""
        return self.cause.root.decode() or self.file

    def add(self, file: str, cause: Cause, records: int, size: int) -> None:
        """One more file."""
        self.files += 1
        self.records += records
        self.size += size
        if is_older(cause, self.cause):
            self.cause, self.file = cause, file


class Waits(Struct):
    """The waits of any number of files."""

    found: dict[WaitKey, Wait] = field(default_factory=dict)

    def add(self, target: Target, file: str, cause: Cause, records: int, size: int) -> None:
        """One file and target; one that is done waits for nothing."""
        if cause.kind == DONE:
            return
        key = target.key, cause.kind
        known = self.found.get(key)
        if known is None:
            known = self.found[key] = Wait(target, cause, file)
        known.add(file, cause, records, size)

    def counted(self, states: Iterable[TargetState]) -> Iterator[TargetState]:
        """The same states; adds each that waits."""
        for state in states:
            if state.waits:
                self.add(state.target, state.file, state.cause, state.lag_records, state.lag_bytes)
            yield state

    def all(self) -> list[Wait]:
        """All waits, by target and kind."""
        return [wait for _, wait in sorted(self.found.items())]


def is_older(one: Cause, other: Cause) -> bool:
    """Whether a cause is known for longer; an unknown time is the shortest."""
    since_ns, other_ns = one.lasts_since_ns, other.lasts_since_ns
    return since_ns is not None and (other_ns is None or since_ns < other_ns)


def waits_at(files: Outstanding, shipping: Shipments, now: Now, tries: int) -> Waits:
    """All waits at a moment, without ranges in quarantine. ``tries``: see :func:`is_blocking`."""
    waits = Waits()
    for _ in waits.counted(all_states(files, shipping, now, lambda _target: True, tries)):
        pass
    return waits


class RecentWaits(Struct):
    """The latest waits. A look at all files takes long where there are many of them, so they count for longer then."""

    found: Waits | None = None
    until_ns: int = 0

    def get(self, now_ns: int) -> Waits | None:
        """The waits, while they are recent."""
        return self.found if now_ns < self.until_ns else None

    def note(self, found: Waits, began_ns: int, ended_ns: int) -> None:
        """These are all waits, from a look that took so long."""
        self.until_ns = ended_ns + max(RECENT_NS, LOOK_FACTOR * (ended_ns - began_ns))
        self.found = found
