"""The tables of costs, from the lines of the plugin. ``python -m tests.support.costs.table FILE`` prints them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

DEAREST_FILES = 60
DEAREST_TESTS = 40
COLUMNS = f"{'CPU s':>9} {'wall s':>9} {'proc.':>6} {'JVMs':>5} {'tests':>6}"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one test, one shared fixture or the rest of a worker used."""

    kind: str
    name: str
    cpu_s: float
    processes: int
    jvms: int
    wall_s: float

    def as_json(self) -> dict[str, object]:
        """As it is written."""
        return asdict(self)


def tables(lines: Iterable[str]) -> str:
    """Total, by layer, by file, by shared fixture, and the dearest tests."""
    costs = [Cost(**json.loads(line)) for line in lines]
    tests = [cost for cost in costs if cost.kind == "test"]
    parts = [
        _table("all", costs, lambda cost: {"test": "tests", "fixture": "shared fixtures"}.get(cost.kind, "rest"), None),
        _table("by layer", tests, lambda cost: "/".join(cost.name.split("/")[:2]), None),
        _table("by file", tests, lambda cost: cost.name.split("::")[0], DEAREST_FILES),
        _table("by shared fixture", [cost for cost in costs if cost.kind == "fixture"], lambda cost: cost.name, None),
        _table("by test", tests, lambda cost: cost.name, DEAREST_TESTS),
    ]
    return "\n\n".join(parts)


def _table(title: str, costs: list[Cost], key: Callable[[Cost], str], most: int | None) -> str:
    groups: dict[str, list[Cost]] = {}
    for cost in costs:
        groups.setdefault(key(cost), []).append(cost)
    ordered = sorted(groups.items(), key=lambda group: -sum(cost.cpu_s for cost in group[1]))
    rows = [_row(found, name) for name, found in ordered[:most]]
    if left := [cost for _, found in ordered[most:] for cost in found] if most is not None else []:
        rows.append(_row(left, f"{len(ordered) - len(rows)} others"))
    return "\n".join([f"{COLUMNS}  {title}", _row(costs, "sum"), *rows])


def _row(costs: list[Cost], name: str) -> str:
    cpu_s, wall_s = sum(cost.cpu_s for cost in costs), sum(cost.wall_s for cost in costs)
    processes, jvms = sum(cost.processes for cost in costs), sum(cost.jvms for cost in costs)
    return f"{cpu_s:9.2f} {wall_s:9.2f} {processes:6} {jvms:5} {len(costs):6}  {name}"


if __name__ == "__main__":
    sys.stdout.write(tables(Path(sys.argv[1]).read_text().splitlines()) + "\n")
