"""The master's cycle beside a bare scan of the same rows.

Up to 100,000 outstanding CLOSED files of two tablets each (with the barriers that a rolled log has), one target, half
of them partly shipped: the backlog of an offline peer. A full cycle reads, folds, joins, and rebuilds the queues;
it is to cost at most one and a half bare scans. A quick cycle is the cost of one nudge in the middle of that backlog.
Both sides of a ratio are CPU seconds of the thread that works, so that a busy machine does not show.
"""

from __future__ import annotations

import gc
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

import combiners
from bookkeeper.coordination.config_changes import define_cluster
from bookkeeper.coordination.config_tree import PeerCluster
from bookkeeper.log_homes.opening import open_homes
from bookkeeper.master.books.books_cycle import Books, Owners
from bookkeeper.master.books.work_maker import BOOKS_FAMILIES
from bookkeeper.master.cycle.assigner import PeerQueue, in_order, waiting_work
from bookkeeper.master.index.snapshot import SNAPSHOT_FAMILIES
from bookkeeper.master.reign.leader import Reign, campaign
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import MetadataTable, RowPut
from bookkeeper.model import Extent, Target, TargetShare
from bookkeeper.storage.volume.opening import open_volume
from tests.benchmarks.figure import Figure
from tests.support.tservers import Ground

FILES = (10_000, 30_000)
LARGE_FILES = (*FILES, 100_000)
TABLETS = 8
TABLETS_OF_FILE = 2
NEEDED = 5_000
SESSION = "tserver-1-0badcafe"
ROUNDS = 5
BATCH_ROWS = 4_000
NONE: Mapping[str, object] = {}
CYCLE_RATIO_MAX = 1.5
QUICK_MS_MAX = 10.0
Clock = Callable[[], float]


def _log(session: str, number: int) -> str:
    return f"wal/{session}/{number:06d}.wal"


def _status(number: int, closed: bool, needed: int) -> combiners.ReplicationStatus:
    barriers = []
    if number > 1:
        barriers = [combiners.Barrier(offset=3, file=_log(SESSION, number - 1), until_offset=NEEDED)]
    opened = combiners.ReplicationStatus(created_time=1_700_000_000_000 + number, barriers=barriers)
    status = combiners.append(opened, needed, needed_bytes=needed * 120)
    return combiners.close(status) if closed else status


def _fill(ground: Ground, extents: list[Extent], files: int, target: Target) -> None:
    """Rows as tservers leave them: tablet rows with CLOSED cells, and one OPEN file of a live session."""
    rows = [keys.tablet_row(extent.table_id, extent.end_row) for extent in extents]
    puts: list[RowPut] = []
    for number in range(1, files + 1):
        name = _log(SESSION, number)
        status = _status(number, True, NEEDED)
        status.shares.extend(values.encode_shares([TargetShare(target.key, NEEDED - 10, NEEDED * 110)]))
        value = values.encode_status(status)
        users = [rows[(number + step) % TABLETS] for step in range(TABLETS_OF_FILE)]
        puts += [RowPut(row, {keys.repl_column(name): value}) for row in users]
        if len(puts) >= BATCH_ROWS or number == files:
            ground.metadata.put(puts, keys.closed_rank(NEEDED))
            puts = []


def _half_done(ground: Ground, target: Target, files: int) -> None:
    column = keys.done_column(target.key)
    for first in range(1, files + 1, BATCH_ROWS):
        puts = []
        for number in range(first, min(first + BATCH_ROWS, files + 1), 2):
            done = combiners.ReplicationStatus(
                replication_finished_offset=100,
                finished_bytes=12_000,
                finished_share_records=90,
                finished_share_bytes=11_000,
            )
            puts.append(RowPut(keys.repl_row(_log(SESSION, number)), {column: values.encode_status(done)}))
        ground.metadata.put(puts, keys.done_rank(100))


def _scan(table: MetadataTable) -> None:
    """Read the rows of a cycle and drop them."""
    tablets = table.scan(keys.TABLETS_START, keys.TABLETS_STOP, SNAPSHOT_FAMILIES)
    books = table.scan(*keys.section(keys.REPL_PREFIX), BOOKS_FAMILIES)
    deque(tablets, 0)
    deque(books, 0)


def full_look(books: Books, owners: Owners, queue: PeerQueue) -> None:
    """A full cycle without placing tablets and handing out work."""
    view = books.read()
    books.close(view, lambda: owners)
    books.keep(view)
    books.publish(view, books.remove(view))
    waiting = waiting_work(view.behind)
    queue.refill(in_order(waiting.get("east", ()), "east", True))


def _cycle(books: Books, owners: Owners, queue: PeerQueue, files: int) -> None:
    full_look(books, owners, queue)
    assert len(books.snapshot.files) >= files


def _seconds(work: Callable[[], None], clock: Clock) -> float:
    gc.collect()
    start = clock()
    work()
    return clock() - start


def _quick_ms(ground: Ground, books: Books, session: str, row: bytes) -> float:
    """A needed offset is written, then the session is looked at twice, as after a nudge."""
    name = _log(session, 1)
    times = []
    for needed in range(1, 40):
        put = RowPut(row, {keys.repl_column(name): values.encode_status(_status(1, False, needed))})
        ground.metadata.put([put], keys.needed_rank(needed))
        start = time.perf_counter()
        for _ in range(2):
            books.refresh(session, _log(session, 1).rpartition("/")[0].encode() + b"/")
        times.append(time.perf_counter() - start)
        assert not books.unsafe()
    return sorted(times)[len(times) // 2] * 1000


def measure(
    directory: Path,
    files: int,
    *,
    rounds: int = ROUNDS,
    overrides: Mapping[str, object] = NONE,
    clock: Clock = time.thread_time,
) -> dict[str, float]:
    """Seconds of a bare scan, of a reign's first cycle and of a later one by a clock; milliseconds of a quick one.
    ``overrides``: settings of the cluster.
    """
    ground = Ground(directory, overrides=overrides)
    extents = ground.create_table("1", [b"%02d" % n for n in range(1, TABLETS)])
    define_cluster(ground.coordination, PeerCluster("east", "localhost:1", "east-instance", "east"))
    target = ground.enable("1")
    live = ground.coordination.open_session("tserver", "localhost:1")
    row = keys.tablet_row("1", None)
    location = values.Location(live.session_id, "localhost:1").encode()
    ground.metadata.put([RowPut(row, {keys.LOCATION: location})], 1)
    _fill(ground, extents, files, target)
    _half_done(ground, target, files)
    session = ground.coordination.open_session("master", "localhost:2")
    reign = campaign(ground.coordination, session)
    assert isinstance(reign, Reign)
    owners = Owners(lambda name: name.rsplit("/", 2)[1], {live.session_id})
    queue = PeerQueue(4_000)
    volume = open_volume(ground.settings)
    stores = ReignStores(ground.metadata, reign, ground.coordination)
    books = Books(stores, volume, open_homes(ground.metadata, volume))
    first = _seconds(lambda: _cycle(books, owners, queue, files), clock)
    scans, cycles = [], []
    for _ in range(rounds):
        scans.append(_seconds(lambda: _scan(ground.metadata), clock))
        cycles.append(_seconds(lambda: _cycle(books, owners, queue, files), clock))
    quick_ms = _quick_ms(ground, books, live.session_id, row)
    found = {"first": first, "scan": min(scans), "cycle": min(cycles), "quick": quick_ms}
    ground.close()
    return found


def run(large: bool = False) -> list[Figure]:
    """A full cycle, the first one of a reign, and a quick one, at several numbers of files."""
    figures: list[Figure] = []
    for files in LARGE_FILES if large else FILES:
        with tempfile.TemporaryDirectory() as name:
            figures += _figures(measure(Path(name) / "west", files), files)
    return figures


def _figures(found: dict[str, float], files: int) -> list[Figure]:
    scan = found["scan"]
    return [
        full_cycle(f"master full cycle, {files:,} outstanding files", found, files),
        {
            "name": f"master first cycle of a reign, writes {files:,} rows",
            "value": found["first"],
            "unit": "CPU s",
            "reference": scan,
            "reference_name": "bare scan of the same rows",
            "reference_unit": "CPU s",
            "ratio": found["first"] / scan,
            "size": files,
        },
        {
            "name": f"master quick cycle, one nudge beside {files:,} files",
            "value": found["quick"],
            "unit": "ms",
            "reference": scan * 1000,
            "reference_name": "bare scan of all rows",
            "reference_unit": "ms",
            "ratio": found["quick"] / (scan * 1000),
            "target": QUICK_MS_MAX,
            "lower_is_better": True,
            "size": files,
        },
    ]


def full_cycle(
    name: str, found: Mapping[str, float], files: int, ratio_max: float = CYCLE_RATIO_MAX, unit: str = "CPU s"
) -> Figure:
    """A full cycle beside a bare scan. The aim is for many files: with few, the constant costs show."""
    figure = Figure(
        name=name,
        value=found["cycle"],
        unit=unit,
        reference=found["scan"],
        reference_name="bare scan of the same rows",
        reference_unit=unit,
        ratio=found["cycle"] / found["scan"],
        lower_is_better=True,
        size=files,
    )
    if files >= LARGE_FILES[-1]:
        figure["target"], figure["target_of"] = ratio_max, "ratio"
    return figure
