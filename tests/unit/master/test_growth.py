"""The cost of one split or one new table: it reads no row of other tablets, however many there are."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.config.sections import Settings
from bookkeeper.errors import BookkeeperError
from bookkeeper.master import leadership
from bookkeeper.metadata.metadata_table import MetadataTable, Row
from tests.support import masters
from tests.support.books import books_of
from tests.support.faults import fault
from tests.support.master_world import UNHURRIED
from tests.support.masters import LocalMaster
from tests.support.tservers import Ground, wait_until

SELDOM: dict[str, object] = {"master.scan_interval_ms": 3_600_000, "master.gc_interval_ms": 3_600_000}
"""No full cycle and no collection begins by itself while a test lasts."""

FEW, MANY = 10, 400


@dataclass
class Counting:
    """A table that counts the rows which it reads."""

    inner: MetadataTable
    rows: int = 0

    def get(self, key: bytes, families: Collection[str] | None = None) -> Row | None:
        self.rows += 1
        return self.inner.get(key, families)

    def scan(
        self, start: bytes = b"", stop: bytes | None = None, families: Collection[str] | None = None
    ) -> Iterator[Row]:
        for row in self.inner.scan(start, stop, families):
            self.rows += 1
            yield row

    def __getattr__(self, name: str) -> Any:
        if name in ("scan_parts", "get_slice"):
            raise AttributeError(name)
        return getattr(self.inner, name)


@dataclass(frozen=True)
class Work:
    """The cost of one new table and of one split of a large one."""

    rows: int
    full_cycles: int


def _work_beside(directory: Path, tablets: int, monkeypatch: pytest.MonkeyPatch) -> Work:
    tables: list[Counting] = []

    def counted(settings: Settings) -> MetadataTable:
        tables.append(Counting(books_of(settings)))
        return tables[-1]

    monkeypatch.setattr(masters, "books_of", counted)
    monkeypatch.setattr(leadership, "SESSIONS_POLL_MS", 3_600_000)  # the one tserver is there before the master
    ground = Ground(directory, overrides={**UNHURRIED, **SELDOM})
    tserver = ground.local()
    with LocalMaster(ground.settings) as master:
        calls, health = master.calls, master.leadership.cycle.health
        held = ground.tserver(tserver).tablets
        calls.create_table("large", [b"%04d" % number for number in range(1, tablets)], [], {})
        wait_until(lambda: len(held().extents) == tablets, "all tablets loaded")
        wait_until(lambda: _is_quiet(calls), "nothing under way")
        (table,) = tables
        rows, full = table.rows, health.full_cycles
        calls.create_table("small", [], [], {})
        calls.add_splits("large", [b"0005x"], [])
        wait_until(lambda: len(held().extents) == tablets + 2, "the new ones loaded")
        found = Work(table.rows - rows, health.full_cycles - full)
    ground.close()
    return found


def _is_quiet(calls: Any) -> bool:
    try:
        return not calls.operations()
    except BookkeeperError:
        return False


def check_that_work_does_not_grow(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = _work_beside(directory / "few" / "west", FEW, monkeypatch)
    many = _work_beside(directory / "many" / "west", MANY, monkeypatch)
    assert (few.full_cycles, many.full_cycles) == (0, 0), "a change looks at all tablets"
    assert many.rows < few.rows + MANY / 4, "waiting is polled, so a few rows more or fewer are read"


def test_a_table_and_a_split_read_their_own_tablets_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_that_work_does_not_grow(tmp_path, monkeypatch)


def test_red_every_change_reads_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with fault("every-change-needs-a-full-cycle"), pytest.raises(AssertionError, match="a change looks at all tablets"):
        check_that_work_does_not_grow(tmp_path, monkeypatch)
