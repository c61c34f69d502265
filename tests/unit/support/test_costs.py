"""The costs of tests: the meter counts what children do, the plugin charges shared fixtures apart, tables add up."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.costs.meter import Meter
from tests.support.costs.table import Cost, tables

ROOT = Path(__file__).parents[3]
BURN = "import time\nwhile time.process_time() < 0.3: pass\n"
SUITE = f"""
import subprocess, sys
import pytest

@pytest.fixture(scope="module")
def shared():
    subprocess.run([sys.executable, "-S", "-c", {BURN!r}])

def test_asks_first(shared):
    pass

def test_starts_one():
    subprocess.run([sys.executable, "-S", "-c", {BURN!r}])
"""


@pytest.fixture
def meter() -> Iterator[Meter]:
    made = Meter()
    yield made
    made.close()


def test_the_cpu_of_a_grandchild_is_counted_and_its_start(meter: Meter) -> None:
    before = meter.read()
    grandchild = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {BURN!r}])"
    subprocess.run([sys.executable, "-S", "-c", grandchild], check=True)
    used = meter.read() - before
    assert used.cpu_s >= 0.3, "the CPU of a grandchild is not counted"
    assert used.processes == 2
    assert used.jvms == 0


def test_a_shared_fixture_is_charged_apart_from_the_test_that_asks_first(tmp_path: Path) -> None:
    (tmp_path / "test_suite.py").write_text(SUITE)
    lines = tmp_path / "costs.jsonl"
    arguments = ["-c", "/dev/null", "-p", "tests.support.costs.plugin", f"--costs={lines}", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    costs = {cost.name.split("::")[-1].split(" ")[0]: cost for cost in map(_read, lines.read_text().splitlines())}
    assert costs["shared"].cpu_s >= 0.3
    assert costs["test_asks_first"].cpu_s < 0.3, "the fixture is charged to the test"
    assert costs["test_asks_first"].processes == 0
    assert costs["test_starts_one"].cpu_s >= 0.3
    assert costs["test_starts_one"].processes == 1
    assert "2 passed" in done.stdout.splitlines()[-1], "the table comes behind pytest's closing lines"


def test_the_dearest_comes_first_and_nothing_is_left_out() -> None:
    costs = [Cost("test", f"tests/unit/a/test_{n}.py::test_it", float(n), n, 0, 1.0) for n in range(1, 101)]
    text = tables(json.dumps(cost.as_json()) for cost in costs)
    by_test = text.split("by test\n")[1].splitlines()
    assert by_test[0].split()[:3] == ["5050.00", "100.00", "5050"]
    assert by_test[1].split()[0] == "100.00"
    assert sum(float(line.split()[0]) for line in by_test[1:]) == 5050.0
    assert "60 others" in by_test[-1]


def _read(line: str) -> Cost:
    return Cost(**json.loads(line))
