"""Orphan files: segments that no tablet names, left by flushes, compactions and imports that a crash cut.

Arrives: files on disk; all tablet rows, read within a proven round and in complete chains (R16). Leaves: `~del_` marks;
the collector deletes marked files that are still unreferenced. Each reign counts the age of an orphan anew, which only
delays its deletion.

The name of a file has the id of its flush, and flush ids rise. So a file is an orphan when its tablet has passed the id
or the id is of an earlier holder, no row names the file, and no write can be in flight any more (rule R4). The name of
a compaction's file has the id of its holder. The search skips files that a present holder may be writing.

Files that tablets take as they are, of imports and from other clusters, have no flush id: such a file is an orphan when
no row names it, and nothing holds it (``bulk.file_holds``). A manifest beside a log is deleted with the log, and alone
when a stopped process put it there after it. Rules: R1, R4 and R17; law L2.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from bookkeeper.bulk.adoption import IMPORT_PREFIX, INCOMING
from bookkeeper.clock import Clock
from bookkeeper.errors import unavailable
from bookkeeper.master.gc.gc_rules import held_files
from bookkeeper.master.index.snapshot import chained, online_tables
from bookkeeper.master.reign.books_proof import Rounds
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Row, RowPut
from bookkeeper.storage.tablet.segments.segment_format import parse_name
from bookkeeper.storage.tablet.segments.segment_writer import leftovers
from bookkeeper.storage.volume.names import (
    LOG_SUFFIX,
    LOGS,
    SCRATCH_SUFFIX,
    TABLES,
    log_directory,
    tablet_directory,
)
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.reading.wal_recovery import SEGMENT_SUFFIX

SCAN_INTERVAL_MS = 60_000
"""ms between scans of all segment files; only disk space waits."""

MARKS_MAX = 2_000
"""Most orphans marked by one scan; the others wait for the next."""

FAMILIES = ("tablet", "segment")


class Holding(Struct, frozen=True):
    """The flush ids of a tablet: the first one of its latest holder, and the last one in the books."""

    first_flush_id: int
    last_flush_id: int


class Named(Struct, frozen=True):
    """The segments in the books: names of files, and the holding for each directory below that of tables; and the files
    that something holds.
    """

    segments: frozenset[str]
    holdings: Mapping[str, Holding]
    held: frozenset[str] = frozenset()


def read_named(rows: Iterable[Row]) -> Named:
    """The segments and holdings in tablet rows, read with :data:`FAMILIES`. Raises CorruptionError."""
    segments: set[str] = set()
    holdings: dict[str, Holding] = {}
    for row in rows:
        if not keys.is_tablet(row):
            continue
        table_id, _ = keys.parse_tablet_row(row.key)
        segments.update(keys.parse_file(name) for name in row.family("segment"))
        serial, flush, directory = (row.cells.get(column) for column in (keys.SERIAL, keys.FLUSH, keys.DIR))
        if directory is not None:
            holdings[f"{table_id}/{values.decode_dir(directory.value)}"] = Holding(
                0 if serial is None else keys.first_flush_id(serial.rank),
                0 if flush is None else values.FlushState.decode(flush.value).flush_id,
            )
    return Named(frozenset(segments), holdings)


def is_orphan_segment(name: str, holding: Holding | None) -> bool:
    """Whether an unnamed file of this name is an orphan: of a flush that its tablet has passed, or of a compaction of
    an earlier holder; the present holder deletes its own. None: there is no such tablet.
    """
    parsed = parse_name(name)
    if parsed is None:
        return False
    flush_id, is_merged = parsed
    if is_merged:
        return holding is None or flush_id < holding.first_flush_id
    return is_passed_flush(flush_id, holding)


def is_orphan_file(name: str, named: Named) -> bool:
    """Rule R17: whether nothing needs a file that tablets take as it is. Its scratch file counts as the file."""
    file = name.removesuffix(SCRATCH_SUFFIX)
    return file not in named.segments and file not in named.held


def is_passed_flush(flush_id: int, holding: Holding | None) -> bool:
    """Whether no present holder can still name an unnamed file of this flush; None: there is no such tablet."""
    return holding is None or flush_id < holding.first_flush_id or flush_id <= holding.last_flush_id


def note_orphans(known: Mapping[str, int], found: Iterable[str], now_ns: int) -> dict[str, int]:
    """Orphan to the time when it was first seen (boot clock, ns)."""
    return {file: known.get(file, now_ns) for file in found}


def is_over(since_ns: int, now_ns: int, flight_ns: int) -> bool:
    """Rule R4: whether the first notice is longer ago than any write to the books can be in flight."""
    return now_ns - since_ns > flight_ns


def without_log(volume: Volume, directory: str) -> list[str]:
    """Segments beside a missing log. A log exists before its segments do, so no segment of a new log is taken. Raises
    OSError.
    """
    found = sorted(name for name in volume.entries(directory) if LOG_SUFFIX + SEGMENT_SUFFIX in name)
    if not found:
        return []
    names = set(volume.entries(directory))
    return [name for name in found if name.partition(SEGMENT_SUFFIX)[0] not in names]


class OrphanFiles(Struct):
    """One reign's search for orphan files; used by the collector's thread. ``flight_ms``: see :class:`GcRunner`.
    ``live``: sessions of tservers.
    """

    stores: ReignStores
    rounds: Rounds
    clock: Clock
    volume: Volume
    live: Callable[[], Collection[str]]
    flight_ms: int
    known: dict[str, int] = field(default_factory=dict)
    empty: dict[str, int] = field(default_factory=dict)
    """Directories of such files without any file, and the time when they were first seen (boot clock, ns)."""
    _next_scan_ns: int = 0

    def run_once(self) -> list[str]:
        """Search if it is due, and mark the files that have been orphans for long; returns these. Raises
        TransientError.
        """
        now_ns = self.clock.boot_ns()
        if now_ns < self._next_scan_ns:
            return []
        try:
            self._remove_unlisted()
            named = self.rounds.read_with_proof(self._named)
            found = list(self._find(named))
            self._prune(now_ns)
        except OSError as error:
            raise unavailable("the directories of files can't be listed or cleared", error) from error
        self.known = note_orphans(self.known, found, now_ns)
        marked = self._over(self.known, now_ns)[:MARKS_MAX]
        if marked:
            self.stores.reign.check()
            self.stores.table.put(
                [RowPut(keys.del_row(file), {keys.DEL: values.EMPTY}) for file in marked], keys.ONCE_RANK
            )
        self._next_scan_ns = now_ns + SCAN_INTERVAL_MS * 1_000_000
        return marked

    def _over(self, since: Mapping[str, int], now_ns: int) -> list[str]:
        return sorted(name for name, at in since.items() if is_over(at, now_ns, self.flight_ms * 1_000_000))

    def _named(self) -> Named:
        """The holds are read before the tablets and after them: see ``bulk.file_holds``."""
        online, held = online_tables(self.stores.config()), self._held()
        rows = chained(self.stores.table.scan(keys.TABLETS_START, keys.TABLETS_STOP, FAMILIES), online)
        return replace(read_named(rows), held=held | self._held())

    def _held(self) -> frozenset[str]:
        return frozenset(held_files(self.stores.table.scan(*keys.section(keys.HOLD_PREFIX), keys.HOLD_FAMILIES)))

    def _remove_unlisted(self) -> None:
        """Delete manifests beside a missing log."""
        self.stores.reign.check()
        for session in self.volume.list_directories(LOGS.rstrip("/")):
            self.volume.discard(without_log(self.volume, log_directory(session)))

    def _adopted(self) -> Iterator[str]:
        """The directories of files that tablets take as they are: of sessions, and of attempts of imports."""
        for session in self.volume.list_directories(INCOMING):
            yield f"{INCOMING}/{session}"
        for table_id in self.volume.list_directories(TABLES.rstrip("/")):
            for directory in self.volume.list_directories(TABLES + table_id):
                if directory.startswith(IMPORT_PREFIX):
                    place = tablet_directory(table_id, directory)
                    yield from (f"{place}/{attempt}" for attempt in self.volume.list_directories(place))

    def _prune(self, now_ns: int) -> None:
        """Free directories that have been empty for long: of sessions that are over, and of attempts of imports."""
        live = self.live()
        found = [
            directory
            for directory in self._adopted()
            if directory.rpartition("/")[2] not in live and not any(True for _ in self.volume.entries(directory))
        ]
        self.empty = note_orphans(self.empty, found, now_ns)
        for directory in self._over(self.empty, now_ns):
            self.stores.reign.check()
            self.volume.prune(directory)
            if not directory.startswith(f"{INCOMING}/"):
                self.volume.prune(directory.rpartition("/")[0])

    def _find(self, named: Named) -> Iterator[str]:
        for table_id in self.volume.list_directories(TABLES.rstrip("/")):
            for directory in self.volume.list_directories(TABLES + table_id):
                holding = named.holdings.get(f"{table_id}/{directory}")
                for file in leftovers(self.volume.entries(tablet_directory(table_id, directory)), named.segments):
                    if is_orphan_segment(file.rpartition("/")[2], holding):
                        yield file
        for directory in self._adopted():
            yield from (file for file in self.volume.entries(directory) if is_orphan_file(file, named))
