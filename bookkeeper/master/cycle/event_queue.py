"""The events of the master's thread: nudges, reports of workers, requests for a cycle.

Arrives: calls from any thread, which never wait. Leaves: all events since the last read. A lost nudge or report costs
latency only: the next full cycle reads the same facts from the books.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from msgspec import Struct, field

from bookkeeper.master.index.shipments import Report, WorkKey

REPORTS_MAX = 100_000


TablePart = tuple[bytes, bytes]
"""Keys of tablet rows of one table: the first one, and the one behind the last."""

PARTS_MAX = 1_000
"""Most parts of tables that are read one by one; when more change at once, a full cycle reads all tablets."""


class News(Struct):
    """The events: sessions with new records, reports, ranges that did not reach a worker, requests. ``rows``: tablets
    that may be placed now; ``parts``: parts of tables with changed tablets.
    """

    sessions: set[str] = field(default_factory=set)
    reports: list[Report] = field(default_factory=list)
    returned: list[tuple[WorkKey, str]] = field(default_factory=list)
    is_wanted: bool = False
    """Somebody asked for a cycle."""
    full: bool = False
    place: bool = False
    rows: set[bytes] = field(default_factory=set)
    parts: list[TablePart] = field(default_factory=list)
    fresh_replay: bool = False
    retries: list[WorkKey] = field(default_factory=list)

    def ask_full(self) -> None:
        """A full cycle is wanted."""
        self.full = True

    def ask_place(self, rows: set[bytes]) -> None:
        """These tablets may be placed; an empty set: all."""
        self.rows |= rows
        self.place = self.place or not rows

    def note_tablets(self, part: TablePart) -> None:
        """The tablets of a part of a table changed."""
        if part not in self.parts:
            self.parts.append(part)
        if len(self.parts) > PARTS_MAX:
            self.full = True
            self.parts.clear()

    def note_replay(self) -> None:
        """A replay process is new."""
        self.fresh_replay = True

    @property
    def has_only_progress(self) -> bool:
        """Whether workers report finished ranges, without an error, and there is no other event."""
        others = self.sessions or self.returned or self.rows or self.parts or self.retries
        asked = self.is_wanted or self.full or self.place or self.fresh_replay
        return bool(self.reports) and not (others or asked) and all(report.error is None for report in self.reports)


class EventQueue:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._news = News()
        self._reports: deque[Report] = deque(maxlen=REPORTS_MAX)
        self.event = threading.Event()

    def nudge(self, session: str) -> None:
        """A tserver wrote to its part of the books."""
        with self._lock:
            self._news.sessions.add(session)
        self.event.set()

    def report(self, reports: Iterable[Report]) -> None:
        """Workers report their progress. When the queue is full, the oldest reports are dropped."""
        with self._lock:
            self._reports.extend(reports)
        self.event.set()

    def give_back(self, works: Iterable[tuple[WorkKey, str]]) -> None:
        """Return ranges, with their transactions, that did not reach their tserver."""
        with self._lock:
            self._news.returned.extend(works)
        self.event.set()

    def ask_full(self) -> None:
        """A full cycle is wanted soon: the configuration, sessions or files changed."""
        with self._lock:
            self._news.ask_full()
        self.event.set()

    def ask_place(self, rows: Iterable[bytes] = ()) -> None:
        """These tablets may be placed (none named: any); no full cycle is needed."""
        wanted = set(rows)
        with self._lock:
            self._news.ask_place(wanted)
        self.event.set()

    def tablets_changed(self, start: bytes, stop: bytes) -> None:
        """An operation has made or changed tablets with rows from ``start`` (included) to ``stop`` (excluded)."""
        with self._lock:
            self._news.note_tablets((start, stop))
        self.event.set()

    def replay_started(self) -> None:
        """A replay process is new: work that failed for lack of one may be tried at once."""
        with self._lock:
            self._news.note_replay()
        self.event.set()

    def press(self, key: WorkKey) -> None:
        """An operator wants this stream to be tried at once."""
        with self._lock:
            self._news.retries.append(key)
        self.event.set()

    def wake(self) -> None:
        """A cycle is wanted."""
        with self._lock:
            self._news.is_wanted = True
        self.event.set()

    def take(self) -> News:
        """All events since the last call."""
        with self._lock:
            self.event.clear()
            news, self._news = self._news, News()
            news.reports.extend(self._reports)
            self._reports.clear()
        return news
