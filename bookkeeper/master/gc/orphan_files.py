"""Segment files that no tablet names: left by flushes and compactions that were cut before they were in the books.

Arrives: files on disk; all tablet rows, read within a proven round and in whole chains (R16). Leaves: `~del_` marks;
the collector deletes what is marked and still not named. Survives a crash: the marks; how long a stray has been known
is counted anew by each reign, which only delays.

Which flush wrote a file is in its name, and flush ids rise: a file of an id that its tablet has passed, or that belongs
to an earlier holder, is named by now, or never will be once no write can be in flight any more (rule R4). The name of a
compaction's file says which holder's it is. Whatever a present holder may be writing is left alone.

Files that other clusters were sending to a tserver lie in a directory of its session and go with the session: tablets
that took them have names of their own. Segments beside a log go with the log, and alone when a process that was stopped
put them there after it.
Rules: R1, R4 and R17; law L2.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bookkeeper.bulk import incoming_dir
from bookkeeper.clock import Clock
from bookkeeper.errors import unavailable
from bookkeeper.master.index.log_files import LOG_SUFFIX
from bookkeeper.master.index.snapshot import chained, online_tables
from bookkeeper.master.reign.books_proof import Rounds
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Row, RowPut
from bookkeeper.storage.tablet import leftovers, parse_name
from bookkeeper.storage.wal import uri_of
from bookkeeper.storage.wal.reading.wal_recovery import SEGMENT_SUFFIX

LOOK_INTERVAL_MS = 60_000
"""ms between looks at all segment files; only disk space waits."""

MARKS_MAX = 2_000
"""Most strays marked by one look; the others wait for the next."""

FAMILIES = ("tablet", "segment")


@dataclass(frozen=True, slots=True)
class Holding:
    """How far the flushes of a tablet are: the first id of its latest holder, and the last one in the books."""

    first_flush_id: int
    last_flush_id: int


@dataclass(frozen=True, slots=True)
class Named:
    """What the books say of segments: URIs that are named, and the holding for each directory below that of tables."""

    segments: frozenset[str]
    holdings: Mapping[str, Holding]


def read_named(rows: Iterable[Row]) -> Named:
    """Take tablet rows with :data:`FAMILIES` apart. Raises CorruptionError."""
    segments: set[str] = set()
    holdings: dict[str, Holding] = {}
    for row in rows:
        if not keys.is_tablet(row):
            continue
        table_id, _ = keys.parse_tablet_row(row.key)
        segments.update(keys.parse_file(uri) for uri in row.family("segment"))
        serial, flush, directory = (row.cells.get(column) for column in (keys.SERIAL, keys.FLUSH, keys.DIR))
        if directory is not None:
            holdings[f"{table_id}/{values.decode_dir(directory.value)}"] = Holding(
                0 if serial is None else keys.first_flush_id(serial.rank),
                0 if flush is None else values.FlushState.decode(flush.value).flush_id,
            )
    return Named(frozenset(segments), holdings)


def is_left(name: str, holding: Holding | None) -> bool:
    """Whether an unnamed file of this name is left by what was cut: a flush that its tablet has passed, or a compaction
    of an earlier holder; the present one takes away what it gives up. None: there is no such tablet.
    """
    parsed = parse_name(name)
    if parsed is None:
        return False
    flush_id, is_merged = parsed
    if is_merged:
        return holding is None or flush_id < holding.first_flush_id
    return is_stray(flush_id, holding)


def is_stray(flush_id: int, holding: Holding | None) -> bool:
    """An unnamed file of this flush is not one that a present holder may still name; None: there is no such tablet."""
    return holding is None or flush_id < holding.first_flush_id or flush_id <= holding.last_flush_id


def note_strays(known: Mapping[str, int], found: Iterable[str], now_ns: int) -> dict[str, int]:
    """Stray to when it was first seen (boot clock, ns)."""
    return {uri: known.get(uri, now_ns) for uri in found}


def is_over(since_ns: int, now_ns: int, flight_ns: int) -> bool:
    """Rule R4: seen for longer than any write to the books can be in flight."""
    return now_ns - since_ns > flight_ns


def of_dead_sessions(directories: Iterable[Path], live: Collection[str]) -> list[Path]:
    """Directories of sessions that are over. ``live`` was read after the directories were: a session begins before its
    directory does.
    """
    return [directory for directory in directories if directory.name not in live]


def without_log(directory: Path) -> list[Path]:
    """Segments beside a log that is gone. A log is there before its segments are, so none is taken from a new one.

    Raises UnavailableError when it can't be told which logs there are.
    """
    found = sorted(directory.glob(f"*{LOG_SUFFIX}{SEGMENT_SUFFIX}*"))
    if not found:
        return []
    try:
        names = {path.name for path in directory.iterdir()}
    except OSError as error:
        raise unavailable(f"{directory} can't be listed", error) from error
    return [path for path in found if log_beside(path) not in names]


def log_beside(segment: Path) -> str:
    """The name of the log that a segment lies beside."""
    return segment.name.partition(SEGMENT_SUFFIX)[0]


@dataclass(frozen=True, slots=True)
class DataDirectories:
    """Where the segments of all tables are, and the logs of all sessions."""

    tables: Path
    wals: Path


@dataclass(slots=True)
class OrphanFiles:
    """One reign's look for strays; used by the collector's thread. ``flight_ms``: see :class:`GcRunner`. ``live``:
    sessions of tservers.
    """

    stores: ReignStores
    rounds: Rounds
    clock: Clock
    directories: DataDirectories
    live: Callable[[], Collection[str]]
    flight_ms: int
    known: dict[str, int] = field(init=False, default_factory=dict)
    _next_look_ns: int = field(init=False, default=0)

    def run_once(self) -> list[str]:
        """Look if it is due, and mark what has been a stray for long; returns it. Raises TransientError."""
        now_ns = self.clock.boot_ns()
        if now_ns < self._next_look_ns:
            return []
        incoming = sorted(incoming_dir(self.directories.tables).glob("*"))
        live = self.live()
        self.stores.reign.check()
        for directory in of_dead_sessions(incoming, live):
            shutil.rmtree(directory, ignore_errors=True)
        for directory in sorted(self.directories.wals.glob("*")):
            for path in without_log(directory):
                path.unlink(missing_ok=True)
        named = self.rounds.proven(self._named)
        self.known = note_strays(self.known, self._find(named), now_ns)
        over = sorted(uri for uri, since in self.known.items() if is_over(since, now_ns, self.flight_ms * 1_000_000))
        marked = over[:MARKS_MAX]
        if marked:
            self.stores.reign.check()
            self.stores.table.put(
                [RowPut(keys.del_row(uri), {keys.DEL: values.EMPTY}) for uri in marked], keys.ONCE_RANK
            )
        self._next_look_ns = now_ns + LOOK_INTERVAL_MS * 1_000_000
        return marked

    def _named(self) -> Named:
        online = online_tables(self.stores.config())
        return read_named(chained(self.stores.table.scan(keys.TABLETS_START, keys.TABLETS_STOP, FAMILIES), online))

    def _find(self, named: Named) -> Iterator[str]:
        for directory in sorted(self.directories.tables.glob("*/*")):
            holding = named.holdings.get(f"{directory.parent.name}/{directory.name}")
            for path in leftovers(directory, named.segments):
                if is_left(path.name, holding):
                    yield uri_of(path)
