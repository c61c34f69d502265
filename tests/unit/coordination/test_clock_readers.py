"""The readers of clocks: each gets its clock as an argument, so that a test can set it and let it jump."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = ("bookkeeper", "shell", "combiners")

CLOCK = "bookkeeper/clock.py"
ALLOWED = {
    CLOCK: frozenset({"time.time_ns", "time.clock_gettime_ns", "time.CLOCK_BOOTTIME", "time.thread_time_ns"}),
    # The default sleep between two tries of one call: it reads no clock.
    "bookkeeper/metadata/hbase/hbase_calls.py": frozenset({"time.sleep"}),
    "bookkeeper/metadata/sqlite/sqlite_store.py": frozenset({"time.sleep"}),
}
"""The allowed uses of ``time`` and of the clocks of ``datetime``, by module."""

NOW = frozenset({"now", "utcnow", "today", "uuid1"})


def readings(tree: ast.AST) -> Iterator[str]:
    """A module's uses of ``time``, under any name, and of other readers of the current time."""
    nodes = list(ast.walk(tree))
    names = {
        alias.asname or alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names
        if alias.name == "time"
    }  # fmt: skip
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "uuid"):
            yield from (
                f"{node.module}.{alias.name}" for alias in node.names if alias.name in NOW or node.module == "time"
            )
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            yield f"time.{node.attr}"
        elif isinstance(node, ast.Attribute) and node.attr in NOW:
            yield ast.unparse(node)


def test_modules_read_only_the_clock_of_their_arguments() -> None:
    found: dict[str, frozenset[str]] = {}
    for path in sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        used = frozenset(readings(ast.parse(path.read_text(), str(path))))
        if used:
            found[path.relative_to(ROOT).as_posix()] = used
    assert found == ALLOWED


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import time\ntime.time()", {"time.time"}),
        ("import time as t\nx = t.monotonic", {"time.monotonic"}),
        ("from time import time_ns as now", {"time.time_ns"}),
        ("from datetime import datetime\ndatetime.now(UTC)", {"datetime.now"}),
        ("import datetime\ndatetime.date.today()", {"datetime.date.today"}),
        ("import uuid\nuuid.uuid1()", {"uuid.uuid1"}),
        ("import uuid\nuuid.uuid4()\ndatetime.fromtimestamp(0)\nrow.time", set()),
    ],
)
def test_each_reading_of_a_clock_is_found(source: str, expected: set[str]) -> None:
    assert set(readings(ast.parse(source))) == expected
