"""Random schedules of exports: compactions, the collector and a master's death at any write or read of an export.

Arrives: a world with one table, a seed. Leaves: an export; :func:`check_export` says in words what is wrong with it.
A dead master's put of holds may arrive later than the export's end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.bulk.exported_table import Exported
from bookkeeper.bulk.log_segments import sha256_of
from bookkeeper.master.fate.engine import Running
from bookkeeper.master.operations.export import copy_args
from bookkeeper.master.splits.split_rules import facts_of
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, RowPut
from bookkeeper.metadata.values import FlushState
from bookkeeper.rpc.contract.messages import CopyRequest
from tests.support.cuts import Crash
from tests.support.exports import make_export
from tests.support.master_world import LATE_MS, Master, World
from tests.support.volumes import MACHINE, name_at

NAME = "held"
"""The table that is exported."""

STEPS_MAX = 400
"""Steps after which a schedule is stuck."""


@dataclass
class Exports:
    """One cluster with the table :data:`NAME`; ``rng`` None: nothing happens that a test does not ask for."""

    world: World
    master: Master
    table_id: str
    rng: random.Random | None = None
    busy: set[str] = field(default_factory=set)
    """The deeds under way: an export's step, a run of the collector, a compaction, a take-over."""
    flights: list[Callable[[], None]] = field(default_factory=list)
    """Puts of dead masters that have not arrived yet."""
    made: int = 0
    """Segments that compactions wrote."""
    deaths: int = 0
    """Masters that died."""

    def rows(self) -> list[bytes]:
        """The keys of the table's tablets."""
        return [row.key for row in self.world.table.scan(*keys.table_section(self.table_id), ("tablet",))]

    def named(self) -> set[str]:
        """The segments that tablets name now."""
        rows = self.world.table.scan(*keys.table_section(self.table_id), ("tablet", "segment"))
        return {name for row in rows for name in facts_of(row).segments}

    def held(self) -> set[str]:
        """The segments that operations hold now."""
        rows = self.world.table.scan(*keys.section(keys.HOLD_PREFIX), ("fate",))
        return {keys.parse_hold_row(row.key) for row in rows}

    def files(self) -> set[str]:
        """The table's segments on disk."""
        root = self.world.settings.directory
        return {name_at(path, root) for path in (root / "tables" / self.table_id).rglob("*.parquet")}

    def compact(self, key: bytes) -> None:
        """A tablet's segments become others with the same records; the old ones are marked for deletion."""
        row = self.world.table.get(key, ("tablet", "segment"))
        assert row is not None
        facts, rank = facts_of(row), row.cells[keys.FLUSH].rank + 1
        cells = {}
        for name, entry in facts.segments.items():
            self.made += 1
            new = f"{name.rpartition('/')[0]}/c{self.made:06d}.parquet"
            self.world.path(new).write_bytes(self.world.path(name).read_bytes())
            cells[new] = entry
        assert facts.flush is not None
        state = FlushState(rank, {}, facts.flush.last_seq, facts.flush.last_time_ms, {}, (), tuple(cells))
        named = {keys.segment_column(new): entry.encode() for new, entry in cells.items()}
        self.world.table.put([RowPut(key, {keys.FLUSH: state.encode()} | named)], rank)
        self.world.table.delete([CellKey(key, keys.segment_column(name)) for name in facts.segments], rank)
        marks = [RowPut(keys.del_row(name), {keys.DEL: values.EMPTY}) for name in facts.segments]
        self.world.table.put(marks, keys.ONCE_RANK)

    def begin(self, directory: Path, request_id: str) -> Running:
        """Ask for an export."""
        return self.master.fate.submit("export_table", copy_args(CopyRequest(request_id, NAME, str(directory))))

    def step(self) -> None:
        """One step of an operation; its master may die in it."""
        self.world.clock.jump(1_000)
        with self._doing("export"):
            try:
                self.master.fate.step_once()
            except Crash:
                self.deaths += 1
                self.replace_master()

    def replace_master(self) -> None:
        """The master is deposed, and another one leads."""
        with self._doing("take-over"):
            self.master = self.world.depose(self.master)

    def collect(self) -> None:
        """A run of the collector."""
        with self._doing("collector"):
            self.master.collect(1)

    def is_over(self) -> bool:
        """Whether no export runs."""
        pending = self.master.fate.pending()
        return not any(run.op.type == "export_table" and not run.ended for run in pending)

    def settle(self) -> None:
        """All operations end, late puts arrive, and the collector has time."""
        self.rng = None
        for arrive in self.flights:
            arrive()
        self.flights.clear()
        for _ in range(STEPS_MAX):
            self.world.clock.jump(LATE_MS)
            if not any(not run.ended for run in self.master.fate.pending()):
                break
            self.master.fate.step_once()
        for _ in range(3):
            self.master.collect(1)

    def disturb(self) -> None:
        """Between two calls of whatever is under way, anything else may happen."""
        if self.rng is None or self.busy & {"compaction", "take-over"}:
            return
        chance = self.rng.random()
        if chance < 0.25:
            with self._doing("compaction"):
                self.compact(self.rng.choice(self.rows()))
        elif chance < 0.45 and "collector" not in self.busy:
            self.collect()
        elif chance < 0.55 and "export" not in self.busy:
            self.step()

    def dies(self) -> bool:
        """Whether the master dies at this write of an export."""
        return self.rng is not None and self.busy == {"export"} and self.rng.random() < 0.06

    @contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        self.busy.add(what)
        try:
            yield
        finally:
            self.busy.discard(what)


@contextmanager
def exports_in(world: World, master: Master, session: str) -> Iterator[Exports]:
    """The table is there, served by the tserver ``session``; its calls to the stores can be disturbed."""
    given = world.settings.directory / "given"
    make_export(given)
    running = master.fate.submit("import_table", copy_args(CopyRequest("1" * 32, NAME, str(given))))
    while master.fate.pending():
        world.clock.jump(LATE_MS)
        master.fate.step_once()
        for row in list(world.table.scan(keys.TABLETS_START, keys.TABLETS_STOP, ("location", "tablet"))):
            if not row.family("location"):
                world.locate(row.key, session)
    master.fate.wait(running, 0)
    made = Exports(world, master, world.config().table_named(NAME).table_id)
    with pytest.MonkeyPatch.context() as patch:
        _disturb_calls(made, patch)
        yield made


def _disturb_calls(made: Exports, patch: pytest.MonkeyPatch) -> None:
    table, coordination = made.world.table, made.world.coordination

    def reading(act: Callable[..., Any]) -> Callable[..., Any]:
        def read(*arguments: Any) -> Any:
            made.disturb()
            return act(*arguments)

        return read

    def writing(act: Callable[..., Any]) -> Callable[..., Any]:
        def write(*arguments: Any) -> Any:
            made.disturb()
            if not made.dies():
                return act(*arguments)
            assert made.rng is not None
            if made.rng.random() < 0.5:
                act(*arguments)
            elif _is_of_holds(arguments[0]):
                made.flights.append(lambda: act(*arguments))
            raise Crash

        return write

    for name in ("put", "delete", "purge"):
        patch.setattr(table, name, writing(getattr(table, name)))
    for name in ("put", "delete"):
        patch.setattr(coordination, name, writing(getattr(coordination, name)))
    patch.setattr(table, "scan", reading(table.scan))
    patch.setattr(type(made.master.tservers.volume), "read_range", _disturbed_read(made))


def _disturbed_read(made: Exports) -> Callable[..., bytes]:
    read = type(made.master.tservers.volume).read_range

    def read_range(volume: Any, name: str, position: int, length: int) -> bytes:
        made.disturb()
        return read(volume, name, position, length)

    return read_range


def _is_of_holds(what: Any) -> bool:
    return (
        isinstance(what, Sequence)
        and bool(what)
        and all(isinstance(put, RowPut) and put.key.startswith(keys.HOLD_PREFIX) for put in what)
    )


def run_schedule(made: Exports, seed: int, directory: Path) -> None:
    """One export, with accidents."""
    made.rng = random.Random(seed)
    running = made.begin(directory, f"{seed:032x}")
    for _ in range(STEPS_MAX):
        if made.is_over():
            break
        made.step()
        made.disturb()
        if made.flights and made.rng.random() < 0.1:
            made.flights.pop()()
    made.settle()
    assert made.is_over(), f"the export is stuck: {running.note}"


def check_export(made: Exports, directory: Path, wanted: Sequence[str]) -> None:
    """The export has the table's records; nothing is held any more; the disk has the named segments and no others."""
    failed = [run.error for run in made.master.fate.pending() if run.op.type == "export_table" and run.error]
    assert not failed, f"a file went while an export copied it: {failed}"
    exported = Exported.read(MACHINE, name_at(directory))
    found = {name: sha256_of(MACHINE, name_at(directory / name)) for name in exported.checksums}
    assert found == dict(exported.checksums), "an exported file is not the one of the manifest"
    assert sorted(found.values()) == sorted(wanted), "an export lacks records"
    assert not made.held(), f"files are held for operations that are over: {sorted(made.held())}"
    assert made.files() == made.named(), f"files that nothing needs stay: {sorted(made.files() - made.named())}"
