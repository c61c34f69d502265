"""The write times of the records that targets lack: how old the oldest one of each file is.

Arrives: the growth of a target's share of a file, as cycles see it, and times that block headers tell. Leaves: the time
at which the first missing record was written, or None: unknown. Times are those of the boot clock, so the wall clock
may jump. Pure.

The steps of a (file, target) count the target's own records, as shares do (R13): other tables' records in the file
change nothing. Steps that are close together become one: the error is at most a tenth of the age, or ``APART_NS``. So a
file has a few hundred steps at most, whatever its age and its rate, and one step when it is old.

A leader that finds a file with missing records has not seen when they were written. Such a file has no steps, or begins
with one without a time, until a header tells (``master.cycle.header_times``). Memory: the files that this leader saw
growing, and a bounded number of older ones.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from bookkeeper.model import TargetKey

APART_NS = 250_000_000
"""Steps that are not further apart become one, whatever their age."""

AGE_PARTS = 10
"""Steps become one when they are not further apart than this part of the age of the later one."""


NEVER_NS = 2**63


class Step(NamedTuple):
    """The target's records of the file up to number ``records``, from those of the step before: the first of them was
    written at ``first_ns``, the last at ``last_ns`` (boot clock). None: when is unknown.
    """

    records: int
    first_ns: int | None
    last_ns: int = 0


class Look(NamedTuple):
    """The time of a read that found growth (boot clock). ``is_timely``: it came soon enough behind the read before to
    tell when the new records were written.
    """

    at_ns: int
    is_timely: bool = True


Steps = tuple[Step, ...]
"""In order of their records. No step at all: no record is missing that was seen."""

_WorkKey = tuple[bytes, TargetKey]
RangeStart = tuple[bytes, TargetKey, int]
"""File, target and first offset of a range in quarantine."""


def first_behind(steps: Steps, finished: int) -> int:
    """The index of the step with the first record behind ``finished`` records."""
    return bisect_right(steps, finished, key=lambda step: step.records)


def with_growth(steps: Steps, finished: int, before: int, records: int, look: Look) -> Steps:
    """The steps after the share was seen to have grown from ``before`` to ``records``; those of finished records go."""
    steps = steps[first_behind(steps, finished) :]
    if look.is_timely:
        steps = without_unknown(steps, finished, before)
    if steps and records <= steps[-1].records:
        return steps
    grown = (*steps, Step(records, look.at_ns, look.at_ns) if look.is_timely else Step(records, None))
    return thinned(grown, look.at_ns) if len(grown) > 1 else grown


def without_unknown(steps: Steps, finished: int, before: int) -> Steps:
    """The steps up to ``before`` records, if the time of the others is unknown: a read of headers notes records without
    a time when it takes the file from a snapshot that this look has published a moment ago.
    """
    if not steps or steps[-1].first_ns is not None or steps[-1].records <= before:
        return steps
    known = steps[:-1]
    until = known[-1].records if known else finished
    return (*known, Step(before, None)) if before > until else known


def with_headers(steps: Steps | None, needed: int, read: Steps) -> Steps:
    """The steps after headers were read: ``read`` begins with the first missing record. ``needed``: the target's
    records in the file at the read. Records between those that were read and those that cycles saw stay unknown.
    """
    until = read[-1].records
    known = (Step(needed, None),) if steps is None else steps
    return (*read, *(step for step in known if step.records > until))


def thinned(steps: Iterable[Step], now_ns: int) -> Steps:
    """The same steps, those that are close together in one."""
    kept: list[Step] = []
    for step in steps:
        if kept and are_close(kept[-1], step, now_ns):
            kept[-1] = Step(step.records, kept[-1].first_ns, step.last_ns)
        else:
            kept.append(step)
    return tuple(kept)


def are_close(one: Step, later: Step, now_ns: int) -> bool:
    """Whether the time of the first step is good enough for the later one, too."""
    if one.first_ns is None or later.first_ns is None:
        return one.first_ns is later.first_ns
    return later.last_ns - one.first_ns <= max(APART_NS, (now_ns - later.last_ns) // AGE_PARTS)


class WriteTimes(Struct):
    """The steps of all (file, target) pairs, and the times of ranges in quarantine. The master's thread and the lane
    that reads headers change it; any thread may read it.
    """

    steps: dict[_WorkKey, Steps] = field(default_factory=dict)
    ranges: dict[RangeStart, int] = field(default_factory=dict)
    """When the first block of a range in quarantine was written."""
    is_unread: bool = True
    """Whether the header of any outstanding file may have to be read: a new leader has not seen one grow."""
    unread: set[_WorkKey] = field(default_factory=set)
    """Further ones of which a header has to be read."""
    looks_until_ns: int = NEVER_NS
    """Until then, the next read of the books is not late: growth that no read has noted yet is new."""
    _several: set[_WorkKey] = field(default_factory=set)
    """Those with more than one step."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    # ---- reads

    def is_known(self, key: _WorkKey, finished: int) -> bool:
        """Whether the time of the first record behind ``finished`` records is known."""
        return self.written_ns(key, finished, 0) is not None

    def is_known_from(self, key: _WorkKey, finished: int) -> bool:
        """Whether the times of all records behind ``finished`` are known."""
        steps = self.steps.get(key)
        return steps is not None and all(step.first_ns is not None for step in steps[first_behind(steps, finished) :])

    def written_ns(self, key: _WorkKey, finished: int, now_ns: int) -> int | None:
        """When the first missing record behind ``finished`` records was written; None: unknown. A record that no read
        has noted yet is new, unless that read is late.
        """
        steps = self.steps.get(key)
        if steps is None:
            return None
        index = first_behind(steps, finished)
        if index < len(steps):
            return steps[index].first_ns
        return now_ns if now_ns <= self.looks_until_ns else None

    # ---- growth, as cycles see it

    def note_look(self, until_ns: int) -> None:
        """A read has noted all growth; the next one is late after ``until_ns``."""
        self.looks_until_ns = until_ns

    def note_growth(self, key: _WorkKey, finished: int, before: int, records: int, look: Look) -> None:
        """A file has grown from ``before`` records of the target; a new one from none."""
        with self._lock:
            steps = self.steps.get(key)
            if steps is None:
                steps = () if finished >= before else (Step(before, None),)
            grown = with_growth(steps, finished, before, records, look)
            if any(step.first_ns is None for step in grown):
                self.unread.add(key)
            self._put(key, grown)

    def note_found(self, key: _WorkKey) -> None:
        """A file was found, and it is unknown when its records were written."""
        with self._lock:
            self.unread.add(key)

    def thin(self, now_ns: int) -> None:
        """Steps that are old enough by now become one."""
        with self._lock:
            for key in list(self._several):
                self._put(key, thinned(self.steps[key], now_ns))

    # ---- headers

    def note_headers(self, key: _WorkKey, finished: int, needed: int, read: Steps) -> None:
        """Headers told the times of the records behind ``finished``. A cycle may have seen more since."""
        with self._lock:
            if read and not self.is_known(key, finished):
                self._put(key, with_headers(self.steps.get(key), needed, read))

    def take_unread(self) -> set[_WorkKey]:
        """The further files whose headers have to be read; what is noted from now on counts for the next call."""
        with self._lock:
            taken, self.unread = self.unread, set()
            return taken

    def all_are_looked_at(self, is_left_out: bool) -> None:
        """All outstanding files are looked at, unless some were left out."""
        self.is_unread = is_left_out

    # ---- ranges in quarantine

    def note_range(self, key: RangeStart, written_ns: int | None) -> None:
        """A range enters the quarantine, or its first header was read."""
        if written_ns is not None:
            with self._lock:
                self.ranges[key] = written_ns

    def keep_ranges(self, ranges: Collection[RangeStart]) -> None:
        """Forget the ranges that are not in quarantine any more."""
        with self._lock:
            for key in [key for key in self.ranges if key not in ranges]:
                del self.ranges[key]

    # ---- ends

    def forget_all_but(self, files: Collection[bytes]) -> None:
        """Forget the files that are not outstanding any more."""
        with self._lock:
            for key in [key for key in self.steps if key[0] not in files]:
                del self.steps[key]
                self._several.discard(key)

    def _put(self, key: _WorkKey, steps: Steps) -> None:
        self.steps[key] = steps
        if len(steps) > 1:
            self._several.add(key)
        else:
            self._several.discard(key)


def from_headers(read: Sequence[tuple[int, int]], now_ns: int, now_ms: int) -> Steps:
    """Steps of the records and write times (wall clock, ms) that headers tell, in order of the log.

    A record is not younger than a later one of its log, nor than this moment: so a clock that was ahead for a while
    counts for nothing.
    """
    latest_ms = now_ms
    steps: list[Step] = []
    for records, write_ms in reversed(read):
        latest_ms = min(latest_ms, write_ms)
        written_ns = now_ns - (now_ms - latest_ms) * 1_000_000
        steps.append(Step(records, written_ns, written_ns))
    return thinned(reversed(steps), now_ns)
