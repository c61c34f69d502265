"""The open orders to load and unload tablets, by tserver.

Arrives: orders, each for one tablet at one tserver. Leaves: calls in the lanes of that tserver. Tables take turns, so
the many tablets of one table do not delay another table. A tablet that a client waits for goes first. The next leader
compares locations with reports of tservers and orders again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable

from msgspec import Struct, field

from bookkeeper.master.calls.keyed_executors import Job, KeyedExecutors

ORDER_LANES = 2
"""Concurrent orders at one tserver: while one waits for the disk, the other one computes."""

HURRIED_MAX = 100
"""Most rows of tablets that clients wait for; others take their turn."""


def order_lanes(session: str) -> list[str]:
    """The lanes of a tserver's orders; the first one also has the questions to it."""
    return [session, *(f"{session}/{number}" for number in range(1, ORDER_LANES))]


class _Backlog(Struct):
    """The waiting orders of one tserver, by table, and its idle lanes (``free``)."""

    waiting: dict[str, dict[bytes, Job]] = field(default_factory=dict)
    free: list[str] = field(default_factory=list)

    def add(self, table_id: str, row: bytes, job: Job) -> None:
        self.waiting.setdefault(table_id, {})[row] = job

    def take(self, hurried: Iterable[bytes], table_of: Callable[[bytes], str]) -> tuple[bytes, Job] | None:
        """The next order: for a tablet that a client waits for, else of the table whose turn it is."""
        for row in hurried:
            jobs = self.waiting.get(table_of(row), {})
            if row in jobs:
                return row, self._taken(table_of(row), row)
        for table_id in self.waiting:
            row = next(iter(self.waiting[table_id]))
            return row, self._taken(table_id, row)
        return None

    def take_lane(self) -> str | None:
        """A lane for the next order; None when all are busy or no order waits."""
        return self.free.pop() if self.free and self.waiting else None

    def free_lane(self, lane: str) -> None:
        self.free.append(lane)

    def _taken(self, table_id: str, row: bytes) -> Job:
        jobs = self.waiting.pop(table_id)
        job = jobs.pop(row)
        if jobs:
            self.waiting[table_id] = jobs  # behind the other tables
        return job


class TabletOrders:
    """The open orders. A tablet has one order at a tserver at a time; a second one is dropped. Thread-safe."""

    def __init__(self, lanes: KeyedExecutors, table_of: Callable[[bytes], str]) -> None:
        """``table_of``: the table of a tablet's row."""
        self._lanes = lanes
        self._table_of = table_of
        self._lock = threading.Lock()
        self._backlogs: dict[str, _Backlog] = {}
        self._open: set[tuple[str, bytes]] = set()
        self._hurried: dict[bytes, None] = {}

    def give(self, session: str, row: bytes, job: Job) -> None:
        """Add an order for a tablet at a tserver, unless one is open there."""
        with self._lock:
            backlog = self._backlogs.setdefault(session, _Backlog(free=order_lanes(session)))
            if (session, row) not in self._open:
                self._open.add((session, row))
                backlog.add(self._table_of(row), row, job)
            lane = backlog.take_lane()
        if lane is not None:
            self._go_on(session, lane)

    def hurry(self, session: str, row: bytes) -> None:
        """Put the open order of this tablet first, because a client waits; does nothing without one."""
        with self._lock:
            if (session, row) in self._open and len(self._hurried) < HURRIED_MAX:
                self._hurried[row] = None

    def retain(self, sessions: Collection[str]) -> None:
        """Drop the waiting orders of all other tservers: they are dead."""
        with self._lock:
            for session in [session for session in self._backlogs if session not in sessions]:
                for jobs in self._backlogs.pop(session).waiting.values():
                    self._open.difference_update((session, row) for row in jobs)
                    for row in jobs:
                        self._hurried.pop(row, None)

    def _go_on(self, session: str, lane: str) -> None:
        """Queue one order in a lane; questions to the tserver come between two orders."""
        if not self._lanes.submit(lane, lambda: self._carry_out(session, lane)):
            with self._lock:
                self._rest(session, lane)  # the next added order starts the waiting ones

    def _carry_out(self, session: str, lane: str) -> None:
        with self._lock:
            backlog = self._backlogs.get(session)
            taken = None if backlog is None else backlog.take(list(self._hurried), self._table_of)
            if taken is None:
                self._rest(session, lane)
                return
        row, job = taken
        try:
            job()
        finally:
            with self._lock:
                self._open.discard((session, row))
                self._hurried.pop(row, None)
            self._go_on(session, lane)

    def _rest(self, session: str, lane: str) -> None:
        """Mark a lane idle. The caller has the lock."""
        backlog = self._backlogs.get(session)
        if backlog is not None:
            backlog.free_lane(lane)
