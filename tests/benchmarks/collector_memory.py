"""The memory of the garbage collector for one file, at the peak of a run, up to a million files.

Each figure is the growth of the master's process, in bytes a file, between the start and the peak of a run: while every
log is outstanding, when all of them are complete and get their marks, while all are marked and the first of them are
deleted, and when their books are left and the files are gone. The last figure is that of a cycle that finds needed
cells of as many files which no tablet names (orphans). Each case runs in a process of its own. Store and disk make
their rows and logs as they are read; each log is of one of the tablets, and has one target.
"""

from __future__ import annotations

import json
import logging
import random
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias, get_args
from unittest.mock import patch

import click

from bookkeeper.clock import SteadyWall
from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.log_homes.opening import open_homes
from bookkeeper.master.books.books_cycle import Books
from bookkeeper.master.calls.tservers import TServers
from bookkeeper.master.fate.engine import Args, FateEngine, Running
from bookkeeper.master.fate.fate_store import FIRST_STEP, FateStore, format_txid
from bookkeeper.master.gc.gc_runner import ABSENT_MAX, GcRunner
from bookkeeper.master.origins.origin_gc import OriginGc
from bookkeeper.master.origins.origin_index import OriginIndex, OriginMemory
from bookkeeper.master.reign.books_proof import Rounds
from bookkeeper.master.reign.leader import Reign, campaign
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Cell, CellKey, Column, Row, RowPut
from bookkeeper.metadata.owner import owner_value
from bookkeeper.metadata.sqlite.sqlite_cells import PART_CELLS
from bookkeeper.metadata.values import FateOp
from bookkeeper.model import TargetKey
from bookkeeper.storage.volume.names import log_directory
from bookkeeper.storage.volume.opening import open_volume
from tests.benchmarks.figure import Figure
from tests.benchmarks.master_memory import BYTES_MAX, forget_peak, resident_bytes
from tests.support.jumping_clock import TestClock
from tests.support.tservers import Ground

FILES, LARGE_FILES, TABLETS, LOGS_OF_SESSION = 50_000, 200_000, 100, 10_000
TARGET = TargetKey("east", "r1", "1", 1)
FLIGHT_MS = 60_000

Moment: TypeAlias = Literal["outstanding", "complete", "marked", "missing", "orphaned"]


@dataclass(frozen=True, slots=True)
class Case:
    """So many files and tablets, at one moment of the files' life."""

    files: int
    tablets: int
    moment: Moment

    def session(self, number: int) -> str:
        """The session that wrote the log of this number."""
        return f"tserver-1-{number // LOGS_OF_SESSION:08x}"


class MadeBooks:
    """A store that makes its rows as they are read; of the writes it keeps the round alone."""

    def __init__(self, case: Case, instance_id: str) -> None:
        self._case = case
        self._owner = {keys.OWNER: Cell(1, owner_value(instance_id))}
        self.are_there = False
        self.written = 0

    def name(self, number: int) -> str:
        """The name of a log."""
        return f"{log_directory(self._case.session(number))}/{number % LOGS_OF_SESSION + 1:06d}.wal"

    def put(self, rows: Sequence[RowPut], rank: int) -> None:
        """Rounds and marks."""
        self.written += len(rows)
        for row in rows:
            if row.key == keys.owner_row():
                self._owner[keys.ROUND] = Cell(rank, b"")

    def delete(self, cells: Sequence[CellKey], rank: int) -> None:  # noqa: ARG002
        """Needed cells of orphans."""
        self.written += len(cells)

    def purge(self, cells: Sequence[CellKey]) -> None:
        """Books of missing files."""
        self.written += len(cells)

    def get(self, key: bytes, families: Collection[str] | None = None) -> Row | None:  # noqa: ARG002
        """The owner, and the books of one file."""
        if key == keys.owner_row():
            return Row(key, self._owner)
        return Row(key, {keys.done_column(TARGET): Cell(5, b"")}) if key.startswith(keys.REPL_PREFIX) else None

    def scan(
        self, start: bytes = b"", stop: bytes | None = None, families: Collection[str] | None = None
    ) -> Iterator[Row]:
        """Every section; nothing is in quarantine, and nothing is known of other clusters."""
        del stop
        return self.scan_parts(start, None, families or ())

    def scan_parts(self, start: bytes, stop: bytes | None, families: Collection[str]) -> Iterator[Row]:
        """The same; the tablets' rows come in parts."""
        del stop
        moment, files = self._case.moment, range(self._case.files if self.are_there else 0)
        if start == keys.TABLETS_START:
            return self._tablets(moment in ("outstanding", "missing") and "repl" in families)
        if start == keys.REPL_PREFIX:
            done, needed = keys.done_column(TARGET), keys.needed_column(TARGET)
            cells = {done: Cell(5, b"")} | ({} if moment in ("complete", "marked") else {needed: Cell(5, b"")})
            return (Row(keys.repl_row(self.name(number)), cells) for number in files)
        if start == keys.DEL_PREFIX and moment == "marked":
            return (Row(keys.del_row(self.name(number)), {keys.DEL: Cell(1, b"")}) for number in files)
        return iter(())

    def compact(self) -> None:
        """Nothing is hidden."""

    def close(self) -> None:
        """Nothing is open."""

    def _tablets(self, with_files: bool) -> Iterator[Row]:
        tablets = self._case.tablets
        for place in range(tablets):
            prev = b"%05d" % place if place else None
            end = b"%05d" % (place + 1) if place < tablets - 1 else None
            cells: dict[Column, Cell] = {
                keys.PREV_ROW: Cell(1, values.encode_prev_row(prev)),
                keys.DIR: Cell(1, b"t-%d" % place),
            }
            key = keys.tablet_row("1", end)
            for number in range(place, self._case.files if with_files and self.are_there else 0, tablets):
                if len(cells) >= PART_CELLS:
                    yield Row(key, cells)
                    cells = {}
                cells[keys.repl_column(self.name(number))] = Cell(2**62, b"")
            yield Row(key, cells)


class MadeLogs(TServers, frozen=True):
    """Sealed logs that are on no disk; ``case`` says how many."""

    case: Case | None = None

    def directories(self) -> list[str]:
        """The sessions, and one that lives and has a log that is open."""
        case = self.case
        assert case is not None
        if case.moment == "missing":
            return ["live"]
        return [*(case.session(first) for first in range(0, case.files, LOGS_OF_SESSION)), "live"]

    def entries_of(self, session_id: str) -> Iterator[tuple[str, bool]]:
        """As many as one session wrote."""
        case, prefix = self.case, f"{log_directory(session_id)}/"
        assert case is not None
        if session_id == "live":
            yield f"{prefix}000001.wal", False
            return
        for number in range(1, min(case.files, LOGS_OF_SESSION) + 1):
            yield f"{prefix}{number:06d}.wal", False
            yield f"{prefix}{number:06d}.wal", True

    def sessions(self) -> list[SessionInfo]:
        """One tserver lives."""
        return [SessionInfo("live", "tserver", "localhost:1", True)]


def run(large: bool = False) -> list[Figure]:
    """Takes a quarter of a minute, or a minute; a million files by hand, see :func:`main`."""
    files = LARGE_FILES if large else FILES
    found = {moment: _measured(Case(files, TABLETS, moment)) for moment in get_args(Moment)}
    figures = [
        Figure(
            name=f"collector memory of one of {files:,} {moment} files",
            value=bytes_a_file,
            unit="bytes",
            reference=BYTES_MAX,
            reference_name="aim",
            reference_unit="bytes",
            ratio=bytes_a_file / BYTES_MAX,
            lower_is_better=True,
            size=files,
        )
        for moment, bytes_a_file in found.items()
    ]
    for figure in figures if large else ():  # with few files, the constant costs show
        figure["target"] = BYTES_MAX
    return figures


def _measured(case: Case) -> float:
    """One case, in a process of its own."""
    arguments = [str(case.files), str(case.tablets), case.moment]
    done = subprocess.run([sys.executable, "-m", __name__, *arguments], check=True, stdout=subprocess.PIPE)
    return float(json.loads(done.stdout))


def measure(case: Case, directory: Path) -> float:
    """Two runs without files, then three with them; bytes a file at the peak."""
    ground = Ground(directory)
    ground.create_table("1", [])
    reign = campaign(ground.coordination, ground.coordination.open_session("master", "localhost:2"))
    assert isinstance(reign, Reign)
    store = MadeBooks(case, ground.settings.instance.instance_id)
    empty = Case(0, case.tablets, case.moment)
    clock = TestClock()
    before = 0
    for step, present in enumerate((empty, empty, case, case, case)):
        if step == 2:
            forget_peak()
            before = resident_bytes("VmRSS")
            store.are_there = True
        clock.jump(2 * FLIGHT_MS)
        if case.moment == "orphaned":
            if not step:
                volume = open_volume(ground.settings)
                homes = open_homes(ground.metadata, volume)
                books = Books(ReignStores(store, reign, ground.coordination), volume, homes)
            view = books.read()
            books.keep(view)
            books.publish(view, books.remove(view))
        else:
            if not step:
                collector = collector_of(ground, store, reign, clock)
            collector.tservers = MadeLogs(ground.coordination, ground.pool, open_volume(ground.settings), case=present)
            with patch("bookkeeper.master.gc.gc_runner.delete_log"):
                collector.run_once()
    peak = resident_bytes("VmHWM")
    ground.close()
    assert store.written > least_written(case), store.written
    return (peak - before) / case.files


def least_written(case: Case) -> int:
    """Rows and cells that a case writes at least: it would measure nothing else."""
    return {"complete": case.files, "orphaned": case.files, "missing": min(case.files, ABSENT_MAX)}.get(case.moment, 0)


def collector_of(ground: Ground, store: MadeBooks, reign: Reign, clock: TestClock) -> GcRunner:
    """As a leader assembles it, but for the engine."""
    own_id = ground.settings.instance.instance_id
    stores = ReignStores(store, reign, ground.coordination)
    fate = Accepting(FateStore(store, reign), {}, clock, random.Random(1))
    origin_gc = OriginGc(
        stores, clock, SteadyWall(clock), fate, OriginMemory(OriginIndex(open_volume(ground.settings)), own_id, 1e12)
    )
    rounds = Rounds(store, ground.coordination, reign, own_id, "made")
    tservers = MadeLogs(ground.coordination, ground.pool, open_volume(ground.settings))
    return GcRunner(stores, rounds, clock, tservers, fate, origin_gc, FLIGHT_MS)


class Accepting(FateEngine):
    """An engine which accepts every operation and retains none: the figures are those of the collector alone."""

    def submit(self, kind: str, args: Args) -> Running:
        """Accepted."""
        return Running(format_txid(1), FateOp(kind, args, 0), FIRST_STEP, {}, frozenset(), 0)


@click.command()
@click.argument("files", type=int)
@click.argument("tablets", type=int)
@click.argument("moment", type=click.Choice(get_args(Moment)))
def main(files: int, tablets: int, moment: Moment) -> None:
    """Measure one case, as in `python -m tests.benchmarks.collector_memory 1000000 100 complete`."""
    logging.getLogger("bookkeeper").setLevel(logging.CRITICAL)  # the collector names each missing file
    with tempfile.TemporaryDirectory() as name:
        click.echo(json.dumps(measure(Case(files, tablets, moment), Path(name) / "west")))


if __name__ == "__main__":
    main()
