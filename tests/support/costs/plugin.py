"""The pytest plugin that writes what each test costs: ``-p tests.support.costs.plugin --costs=FILE``.

Each worker appends a line of JSON to the file behind each test, and behind each fixture that several tests share: its
set-up is charged to the fixture, not to the test that asked first.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.costs.meter import NOTHING, Meter, Reading
from tests.support.costs.table import Cost, tables

METER = pytest.StashKey["Costs"]()


class Costs:
    """The meter of one worker, and its lines."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._meter = Meter()
        self._charged = [(NOTHING, 0.0)]

    def open(self) -> tuple[Reading, float]:
        """Begin something whose parts may be charged elsewhere."""
        self._charged.append((NOTHING, 0.0))
        return self._meter.read(), time.perf_counter()

    def close(self, began: tuple[Reading, float], kind: str, name: str) -> None:
        """Write what was used since ``open``, without what was charged to something inside."""
        used, took = self._meter.read() - began[0], time.perf_counter() - began[1]
        inner, inner_took = self._charged.pop()
        outer, outer_took = self._charged[-1]
        self._charged[-1] = (outer + used, outer_took + took)
        own = used - inner
        cost = Cost(kind, name, round(own.cpu_s, 4), own.processes, own.jvms, round(took - inner_took, 4))
        with self._path.open("a") as lines:
            lines.write(json.dumps(cost.as_json()) + "\n")

    def end(self) -> None:
        """Write what belongs to no test: imports, collection, ends of shared fixtures."""
        used = self._meter.read() - self._charged[0][0]
        name = "exact" if self._meter.is_exact else "without orphans"
        cost = Cost("rest", name, round(used.cpu_s, 4), used.processes, used.jvms, 0.0)
        with self._path.open("a") as lines:
            lines.write(json.dumps(cost.as_json()) + "\n")
        self._meter.close()


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--costs=FILE``."""
    parser.addoption("--costs", type=Path, help="write what each test costs to this file")


def pytest_configure(config: pytest.Config) -> None:
    """The controller of a parallel run empties the file; whoever runs tests measures."""
    path: Path | None = config.getoption("--costs")
    if path is None:
        return
    if not _is_worker():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    if _is_worker() or not config.getoption("numprocesses", None):
        config.stash[METER] = Costs(path.resolve())


def pytest_unconfigure(config: pytest.Config) -> None:
    """The worker's last line."""
    if (costs := config.stash.get(METER, None)) is not None:
        costs.end()
        del config.stash[METER]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Charge a test."""
    costs = item.config.stash.get(METER, None)
    if costs is None:
        return (yield)
    began = costs.open()
    try:
        return (yield)
    finally:
        costs.close(began, "test", item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest) -> Iterator[None]:
    """Charge a fixture that several tests share."""
    costs = request.config.stash.get(METER, None)
    if costs is None or fixturedef.scope == "function":
        return (yield)
    began = costs.open()
    try:
        return (yield)
    finally:
        costs.close(began, "fixture", f"{fixturedef.argname} ({fixturedef.scope}, {fixturedef.baseid or 'all'})")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The table, above pytest's closing lines."""
    path: Path | None = config.getoption("--costs")
    if path is None or _is_worker():
        return
    if (costs := config.stash.get(METER, None)) is not None:
        costs.end()
        del config.stash[METER]
    terminalreporter.section("costs")
    terminalreporter.write_line(tables(path.read_text().splitlines()))


def _is_worker() -> bool:
    return "PYTEST_XDIST_WORKER" in os.environ
