"""The master's memory for one outstanding file, up to a million files, for several numbers of tablets.

The inputs are the numbers of files and tablets, and the number of tablets that use one log. The first figure is the
size of all objects that a snapshot holds for files between two cycles, in bytes a file. The other figures are the
growth of the process since two cycles over the same tablets without files: between two cycles, at the peak of a
reign's first two cycles with files, and at the peak of a third cycle, which finds all files complete.
Each case runs in a process of its own, whose store makes its rows as they are read, long ones in parts as SQLite does.

Tablets use logs by chance, so the fewer of them use one, the more logs its barriers are in (R24): each waits for the
log that it used before. Tservers begin anew every ten thousand logs, in one case every hundred; in one only one log
of ten is outstanding. All are CLOSED, half of them shipped in part.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass
from itertools import pairwise
from pathlib import Path

import click
import numpy as np

import combiners
from bookkeeper.coordination.config_changes import define_cluster
from bookkeeper.coordination.config_tree import PeerCluster
from bookkeeper.log_homes.opening import open_homes
from bookkeeper.master.books.books_cycle import Books, Owners
from bookkeeper.master.cycle.assigner import PeerQueue
from bookkeeper.master.index.snapshot import Snapshot
from bookkeeper.master.reign.leader import Reign, campaign
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, CellKey, Column, Row, RowPut
from bookkeeper.metadata.sqlite.sqlite_cells import PART_CELLS
from bookkeeper.model import TargetKey, TargetShare
from bookkeeper.storage.volume.opening import open_volume
from tests.benchmarks.figure import Figure
from tests.benchmarks.master_cycle import full_look
from tests.support.tservers import Ground

USERS = 4
LOGS_OF_SESSION, LOGS_OF_SHORT_SESSION = 10_000, 100
APART = 10
NEEDED = 8_000_000
DRAWN = 1_000
BYTES_MAX = 400.0
FORGET_PEAK = "5"
"""Written to a process's ``clear_refs``: from now on ``VmHWM`` is the peak since then."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Few and many files, numbers of tablets, and for numbers of tablets that use one log a number of files: as many as
    have that many cells in all.
    """

    files: tuple[int, int]
    tablets: tuple[int, ...]
    users_of_few_files: dict[int, int]


SIZES = Sizes((10_000, 30_000), (1, 100), {8: 10_000})
LARGE_SIZES = Sizes((50_000, 200_000), (1, 100, 10_000), {8: 50_000, 40: 10_000, 400: 1_000})


@dataclass(frozen=True, slots=True)
class Case:
    """So many files, tablets, and tablets that use one log; logs of a session; how far outstanding logs are apart."""

    files: int
    tablets: int
    users: int
    logs_of_session: int = LOGS_OF_SESSION
    apart: int = 1

    def name(self, number: int) -> str:
        """The name of an outstanding log."""
        session, log = divmod(number * self.apart, self.logs_of_session)
        return f"wal/tserver-1-{session:08x}/{log + 1:06d}.wal"


@dataclass(frozen=True, slots=True)
class Found:
    """Bytes a file: of retained objects, of the process between cycles, at the peak, and at that of a cycle that
    removes all; earlier logs that a file waits for, as the cells name them.
    """

    kept: float
    resident: float
    peak: float
    removal: float
    waits_for: float


class MadeRows:
    """A store that makes its rows as they are read, and forgets what is written."""

    def __init__(self, case: Case, target: TargetKey) -> None:
        self._case, self._needed, self._done = case, keys.needed_column(target), keys.done_column(target)
        self._target = target
        self._written = False
        self.files = 0
        self.barriers = 0
        self.are_complete = False

    def put(self, rows: Sequence[RowPut], rank: int) -> None:  # noqa: ARG002
        """Needed cells: from now on they are there."""
        self._written = True

    def delete(self, cells: Sequence[CellKey], rank: int) -> None:
        """Nothing is."""

    def purge(self, cells: Sequence[CellKey]) -> None:
        """Nothing is."""

    def get(self, key: bytes, families: Collection[str] | None = None) -> Row | None:  # noqa: ARG002
        """Nobody asks for a single row."""
        return None

    def scan(
        self,
        start: bytes = b"",
        stop: bytes | None = None,  # noqa: ARG002
        families: Collection[str] | None = None,  # noqa: ARG002
    ) -> Iterator[Row]:
        """The rows of the books, the tablets' only in parts."""
        assert start.startswith(keys.REPL_PREFIX)
        return self._books() if self._written else iter(())

    def scan_parts(
        self,
        start: bytes,  # noqa: ARG002
        stop: bytes | None,  # noqa: ARG002
        families: Collection[str],  # noqa: ARG002
    ) -> Iterator[Row]:
        """The tablets' rows."""
        return self._tablets()

    def compact(self) -> None:
        """Nothing is hidden."""

    def close(self) -> None:
        """Nothing is open."""

    def _tablets(self) -> Iterator[Row]:
        ends = [b"%05d" % number for number in range(1, self._case.tablets)]
        self.barriers = 0
        for place, (prev, end) in enumerate(pairwise([None, *ends, None])):
            key = keys.tablet_row("1", end)
            cells: dict[Column, Cell] = {}
            for number, value in self._uses(place):
                if len(cells) == PART_CELLS:
                    yield Row(key, cells)
                    cells = {}
                cells[Column("repl", self._case.name(number).encode())] = Cell(2**62 + NEEDED + number, value)
            cells |= {keys.PREV_ROW: Cell(1, values.encode_prev_row(prev)), keys.DIR: Cell(1, b"t-%d" % place)}
            yield Row(key, cells)

    def _uses(self, place: int) -> Iterator[tuple[int, bytes]]:
        """The logs that a tablet used, and the values of their cells."""
        rng = np.random.default_rng(place)
        share = min(1.0, self._case.users / self._case.tablets)
        before = 0
        while True:
            gaps, offsets, ends = rng.geometric(share, DRAWN), *rng.integers(1, NEEDED, size=(2, DRAWN))
            for gap, offset, until in zip(gaps.tolist(), offsets.tolist(), ends.tolist(), strict=True):
                number = before + gap
                if number > self.files:
                    return
                status = _status(number)
                status.shares.extend(self._shares(number))
                if before:
                    status.barriers.add(offset=offset, file=self._case.name(before), until_offset=until)
                    self.barriers += 1
                yield number, status.SerializeToString(deterministic=True)
                before = number

    def _shares(self, number: int) -> list[combiners.Share]:
        """Nearly all of each log is the target's."""
        return values.encode_shares([TargetShare(self._target, NEEDED - 10 + number, NEEDED * 110)])

    def _books(self) -> Iterator[Row]:
        half = _finished(100)
        for number in range(1, self.files + 1):
            cells = {self._needed: Cell(2**32, _status(number).SerializeToString(deterministic=True))}
            if self.are_complete:
                cells[self._done] = _finished(NEEDED + number)
            elif number % 2:
                cells[self._done] = half
            yield Row(keys.repl_row(self._case.name(number)), cells)


def _status(number: int) -> combiners.ReplicationStatus:
    return combiners.ReplicationStatus(
        state=combiners.CLOSED,
        created_time=1_700_000_000_000 + number,
        replication_needed_offset=NEEDED + number,
        needed_bytes=NEEDED * 120,
    )


def _finished(offset: int) -> Cell:
    done = combiners.ReplicationStatus(
        replication_finished_offset=offset,
        finished_bytes=offset * 120,
        finished_share_records=offset - 10,
        finished_share_bytes=offset * 110,
    )
    return Cell(keys.done_rank(offset), values.encode_status(done))


def run(large: bool = False) -> list[Figure]:
    """Takes half a minute, or a few minutes, most of them to make and fold rows; a million files by hand, see
    :func:`main`.
    """
    sizes = LARGE_SIZES if large else SIZES
    fewest, most = sizes.files
    many = sizes.tablets[-1]
    by_tablets = {tablets: _measured(Case(most, tablets, USERS)) for tablets in sizes.tablets}
    by_files = {fewest: _measured(Case(fewest, many, USERS)), most: by_tablets[many]}
    by_logs = [_measured(Case(files, many, users)) for users, files in sizes.users_of_few_files.items()]
    others = {
        f"of a file, a session for {LOGS_OF_SHORT_SESSION} logs": (LOGS_OF_SHORT_SESSION, 1),
        f"of a file, one log of {APART} outstanding": (LOGS_OF_SESSION, APART),
    }
    figures: list[Figure] = []
    for what, (logs, apart) in others.items():
        figures += _figures(what, most, _measured(Case(most, sizes.tablets[1], USERS, logs, apart)))
    for tablets, found in by_tablets.items():
        figures += _figures(f"of one file beside {tablets:,} tablets", tablets, found)
    for files, found in by_files.items():
        figures += _figures(f"of one of {files:,} outstanding files", files, found)
    for found in (by_files[most], *by_logs):
        logs = round(found.waits_for)
        figures += _figures(f"of a file whose tablets wait for {logs:,} earlier logs", logs, found)[:1]
    for figure in figures if large else ():  # with few files, the constant costs show
        figure["target"] = BYTES_MAX
    return figures


def _figures(what: str, size: int, found: Found) -> list[Figure]:
    """The aim is for retained objects, and for the peaks."""
    found_by_name = {
        f"master memory {what}": found.kept,
        f"master memory at the peak of a cycle, {what}": found.peak,
        f"master memory at the peak of a cycle that removes all, {what}": found.removal,
    }
    return [
        Figure(
            name=name,
            value=value,
            unit="bytes",
            reference=BYTES_MAX,
            reference_name="aim",
            reference_unit="bytes",
            ratio=value / BYTES_MAX,
            lower_is_better=True,
            size=size,
        )
        for name, value in found_by_name.items()
    ]


def _measured(case: Case) -> Found:
    """One case, in a process of its own."""
    arguments = [str(number) for number in astuple(case)]
    done = subprocess.run([sys.executable, "-m", __name__, *arguments], check=True, stdout=subprocess.PIPE)
    return Found(**json.loads(done.stdout))


def measure(case: Case, directory: Path) -> Found:
    """Two full cycles without files, two with them, and one that removes them, of one reign in this process."""
    ground = Ground(directory)
    ground.create_table("1", [])
    define_cluster(ground.coordination, PeerCluster("east", "localhost:1", "east-instance", "east"))
    target = ground.enable("1")
    reign = campaign(ground.coordination, ground.coordination.open_session("master", "localhost:2"))
    assert isinstance(reign, Reign)
    owners = Owners(lambda name: name.rsplit("/", 2)[1], ())
    store = MadeRows(case, target.key)
    volume, queue = open_volume(ground.settings), PeerQueue(4_000)
    homes = open_homes(ground.metadata, volume)
    books = Books(ReignStores(store, reign, ground.coordination), volume, homes)
    for _ in range(2):
        full_look(books, owners, queue)
    before = resident_bytes("VmRSS")
    forget_peak()
    store.files = case.files
    for _ in range(2):
        full_look(books, owners, queue)
    snapshot = books.snapshot
    files = len(snapshot.files)
    resident, peak = ((resident_bytes(which) - before) / files for which in ("VmRSS", "VmHWM"))
    forget_peak()
    store.are_complete = True
    full_look(books, owners, queue)
    assert not len(books.snapshot.files)
    removal = (resident_bytes("VmHWM") - before) / files
    ground.close()
    return Found(snapshot_bytes(snapshot) / files, resident, peak, removal, store.barriers / files)


def forget_peak() -> None:
    """From now on the peak is that since then."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text(FORGET_PEAK)


def resident_bytes(which: str) -> int:
    """Of this process: ``VmRSS`` now, ``VmHWM`` at most."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{which}:"):
            return int(line.split()[1]) * 1024
    raise LookupError(which)


def snapshot_bytes(snapshot: Snapshot) -> int:
    """The sizes of all that a snapshot knows of files, each object once; scopes are shared by all files."""
    seen: set[int] = set()
    total = sys.getsizeof(snapshot.fresh)
    left: list[object] = [snapshot.files, snapshot.open_cells]
    scopes = {id(entry.scope) for entry in snapshot.files.values()}
    while left:
        found = left.pop()
        if id(found) in seen or id(found) in scopes or isinstance(found, type):
            continue
        seen.add(id(found))
        total += sys.getsizeof(found)
        left += gc.get_referents(found)
    return total


@click.command()
@click.argument("files", type=int)
@click.argument("tablets", type=int)
@click.argument("users", type=int)
@click.argument("logs_of_session", type=int, default=LOGS_OF_SESSION)
@click.argument("apart", type=int, default=1)
def main(files: int, tablets: int, users: int, logs_of_session: int, apart: int) -> None:
    """Measure one case: so many files and tablets, and tablets that use one log, as in
    `python -m tests.benchmarks.master_memory 1000000 10000 4`.
    """
    with tempfile.TemporaryDirectory() as name:
        found = measure(Case(files, tablets, users, logs_of_session, apart), Path(name) / "west")
    click.echo(json.dumps(asdict(found)))


if __name__ == "__main__":
    main()
