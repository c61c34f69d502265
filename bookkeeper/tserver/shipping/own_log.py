"""The logs that this session writes, and wrote, as the decision to ship them needs them.

Arrives: what the commit threads do to the log. Leaves: for each log an :class:`OwnLog`, and a call to each listener
when records became durable. A crash loses all of it: the logs of a dead session are the master's.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.model import Barrier
from bookkeeper.replicas.naming import UNLIMITED
from bookkeeper.storage.volume.names import session_of_numbered
from bookkeeper.tserver.shipping.unnamed_records import TabletKey, UnnamedRecords

SEALED_WITH_BARRIERS_MAX = 64
"""Sealed logs whose barriers stay in memory; the master hands out the older ones."""

LOOKS_PER_LOG = 8
"""Sealed logs that are looked for whenever one more is sealed."""


class Growth(NamedTuple):
    """Records of a table became durable in a log, or a cell of the table names it. ``table`` None: more has changed."""

    log: str
    table: str | None


class OwnLog(Struct, frozen=True):
    """A log that this session's committer writes, or wrote and sealed.

    ``end`` is the last record that was synced before a check of the lease, so no recovery cuts it off (R15).
    ``barriers`` (R24) are those of the tablets with a `repl:` cell for the log, in order of their offsets; a tablet
    names a barrier before the block that waits for it is appended, so none is missing up to ``end``. ``tables`` have
    such a cell: the books of all others say nothing about this log. ``through_master``: this session has forgotten the
    barriers, so the master alone knows how far the log may go. ``named_until``: of a log on a host's own disk, named
    states have all records up to here (R15). ``late`` counts the times when barriers came below known ones: a tablet
    gets its cell only with its first block for a target, and then names the barriers of earlier blocks, too.
    """

    name: str
    end: int = 0
    is_sealed: bool = False
    barriers: tuple[Barrier, ...] = ()
    tables: frozenset[str] = frozenset()
    through_master: bool = False
    named_until: int = UNLIMITED
    late: int = 0

    @property
    def reach(self) -> int:
        """The last record that a peer may have, when no barrier comes before it."""
        return min(self.end, self.named_until)


class OwnLogs:
    """All logs of one session whose files are there. Thread-safe."""

    def __init__(self, session_id: str, are_on_host: bool = False) -> None:
        """``are_on_host``: the logs lie on a host's own disk."""
        self.session_id = session_id
        self._unnamed: dict[str, UnnamedRecords] | None = {} if are_on_host else None
        self._lock = threading.Lock()
        self._logs: dict[str, OwnLog] = {}
        self._current = ""
        self._sealed: list[str] = []
        self._looked_at = 0
        self._news: OrderedDict[Growth, int] = OrderedDict()
        """Each one with the number of its last time, in the order of these."""
        self._number = 0
        self._listeners: list[Callable[[], None]] = []
        self._ask_followed: Callable[[], bool] = lambda: False

    def listen(self, on_end: Callable[[], None]) -> None:
        """Call ``on_end``, which must not wait, whenever records became durable."""
        self._listeners.append(on_end)

    def ask_followed(self, is_followed: Callable[[], bool]) -> None:
        """``is_followed`` answers :meth:`is_followed` from now on."""
        self._ask_followed = is_followed

    def is_followed(self) -> bool:
        """Whether tasks ship all records of these logs at once. Then the peer has them before the master can help."""
        return self._ask_followed()

    def is_own(self, name: str) -> bool:
        """Whether this session made a log of that name, now or earlier."""
        return session_of_numbered(name) == self.session_id

    def names(self) -> list[str]:
        """The logs up to the one that is written, in order."""
        return self.later_than("")

    def find(self, name: str) -> OwnLog | None:
        """A log whose file is there; None for a log that is gone, and for those of other sessions."""
        with self._lock:
            return self._logs.get(name)

    def later_than(self, name: str) -> list[str]:
        """The names of the logs behind one of these, in order, up to the one that is written."""
        with self._lock:
            names = list(self._logs)
            last = names.index(self._current) if self._current in self._logs else -1
            return names[names.index(name) + 1 : last + 1] if name in self._logs else names[: last + 1]

    def news_since(self, number: int) -> tuple[int, list[Growth]]:
        """The changes behind the one with this number, each once, and the number of the last one."""
        found = []
        with self._lock:
            for news, at in reversed(self._news.items()):
                if at <= number:
                    break
                found.append(news)
            return self._number, found[::-1]

    def _note(self, log: str, tables: Iterable[str | None]) -> None:
        for table in tables:
            self._number += 1
            self._news[Growth(log, table)] = self._number
            self._news.move_to_end(Growth(log, table))

    # ---- in the commit threads

    def begin(self, name: str) -> None:
        """A file for a later log is there."""
        with self._lock:
            self._logs[name] = OwnLog(name)
            if self._unnamed is not None:
                self._unnamed[name] = UnnamedRecords()

    def enter(self, name: str) -> None:
        """The log is written from now on."""
        self._current = name

    def note_uses(self, name: str, tables: frozenset[str], barriers: tuple[Barrier, ...]) -> None:
        """More tables have a `repl:` cell of the log, and more barriers, in order; before a block that waits for one is
        appended.
        """
        with self._lock:
            log = self._logs[name]
            self._note(name, tables - log.tables)
            known, late = log.barriers + barriers, log.late
            if log.barriers and barriers and barriers[0] < log.barriers[-1]:
                known, late = tuple(sorted(known)), late + 1
            self._logs[name] = replace(log, barriers=known, tables=log.tables | tables, late=late)

    def note_records(self, name: str, blocks: Iterable[tuple[TabletKey, int, int]]) -> None:
        """Blocks for peers are about to be appended, each of a tablet, with its first and last offset. On a host's own
        disk they hold the log back until named states have them (R15).
        """
        if self._unnamed is None:
            return
        with self._lock:
            unnamed = self._unnamed[name]
            for tablet, first, last in blocks:
                unnamed.append(tablet, first, last)
            self._logs[name] = replace(self._logs[name], named_until=unnamed.until)

    def note_end(self, name: str, end: int, tables: Collection[str] | None = None) -> None:
        """Records up to ``end`` are durable, and no recovery has begun. ``tables`` may have some of these; None: all
        that a cell names.
        """
        with self._lock:
            before = self._logs[name]
            log = self._logs[name] = replace(before, end=max(end, before.end))
            if self._unnamed is not None:  # the last of the named records may be of any table
                tables = log.tables if log.reach > before.reach else ()
            self._note(name, log.tables if tables is None else tables)
        if tables is None or tables:
            self._tell()

    def note_seal(self, name: str, end: int) -> None:
        """The log is sealed at ``end``."""
        with self._lock:
            self._logs[name] = replace(self._logs[name], end=end, is_sealed=True)
            self._sealed.append(name)
            self._note(name, (None,))
            for older in self._sealed[-SEALED_WITH_BARRIERS_MAX - 1 : -SEALED_WITH_BARRIERS_MAX]:
                self._logs[older] = replace(self._logs[older], barriers=(), through_master=True)
        self._tell()

    # ---- names of states

    def note_named(self, tablet: TabletKey, logs: Mapping[str, int]) -> None:
        """The named state of a tablet has its records of ``logs``, each up to an offset, whoever comes next (R15)."""
        self._change_unnamed(logs, lambda name, unnamed: unnamed.name(tablet, logs[name]))

    def forget_tablet(self, tablet: TabletKey) -> None:
        """The tablet is deleted."""
        self._change_unnamed(self._unnamed or (), lambda _, unnamed: unnamed.forget(tablet))

    def _change_unnamed(self, names: Iterable[str], change: Callable[[str, UnnamedRecords], None]) -> None:
        has_grown = False
        with self._lock:
            known = self._unnamed or {}
            for name, unnamed in [(name, known[name]) for name in names if name in known]:
                before = unnamed.until
                change(name, unnamed)
                if unnamed.until != before:
                    self._logs[name] = replace(self._logs[name], named_until=unnamed.until)
                    self._note(name, self._logs[name].tables)
                    has_grown = True
        if has_grown:
            self._tell()

    def _tell(self) -> None:
        for on_end in self._listeners:
            on_end()

    # ---- in the books thread

    def forget_gone(self, exists: Callable[[str], bool]) -> None:
        """Look for the files of a few sealed logs, in turn, and forget those that are gone."""
        with self._lock:
            start = self._looked_at if self._looked_at < len(self._sealed) else 0
            looked_for = self._sealed[start : start + LOOKS_PER_LOG]
        gone = {name for name in looked_for if not exists(name)}
        with self._lock:
            self._sealed = [name for name in self._sealed if name not in gone]
            for name in gone:
                del self._logs[name]
                if self._unnamed is not None:
                    del self._unnamed[name]
            if gone:
                self._news = OrderedDict((news, number) for news, number in self._news.items() if news.log not in gone)
                self._note("", (None,))
            self._looked_at = start + len(looked_for) - len(gone)
