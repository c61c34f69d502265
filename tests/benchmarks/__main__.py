"""``make bench``: runs the benchmarks, prints a table, writes every figure as JSON.

The arguments are names of benchmark modules (none: all). Those of the main figures come first; the growth of a cost is
measured at two or three sizes, and at larger ones by ``NAME_large``. The JSON file ``build/bench/figures.json`` is
written behind each module. A slow benchmark does not fail: a missed target is printed as missed.
"""

from __future__ import annotations

import importlib
import json
import os
import platform
import time
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from tests.benchmarks.figure import Figure, met

MAIN = ("starts", "rpc", "wal", "tablet", "ingest", "client", "drain", "lag", "small_batches", "replicas")
BOOKS = ("master_cycle", "master_memory", "collector_memory", "tablets_growth", "master_cycle_hbase")
GROWTH = ("backlog", *BOOKS, "replica_joins", "replica_splits", "replica_growth")
MODULES = (*MAIN, *GROWTH)
LARGE = {
    f"{name}_large": name
    for name in ("tablet", "lag", "replicas", "backlog", *BOOKS, "replica_joins", "replica_growth")
}
LONG = ("replica_rounds", "machine_failures", *LARGE)
"""Run only when they are named: they take minutes each, ``replica_rounds`` the better part of an hour."""
RESULT = Path("build/bench/figures.json")
VERDICTS = {None: "", True: "met", False: "MISSED"}


def _machine() -> dict[str, object]:
    measured = time.strftime("%Y-%m-%d", time.gmtime())
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "measured": measured,
        "load of others": round(os.getloadavg()[0], 1),
    }


def _table(name: str, figures: list[Figure]) -> Table:
    table = Table(title=name, title_justify="left")
    for heading in ("figure", "measured", "reference", "ratio", "target", ""):
        table.add_column(heading, justify="left" if heading == "figure" else "right")
    for figure in figures:
        target = figure.get("target")
        table.add_row(
            figure["name"],
            f"{figure['value']:,.4g} {figure['unit']}",
            f"{figure['reference']:,.4g} {figure['reference_unit']} ({figure['reference_name']})",
            f"{figure['ratio']:.3g}",
            "" if target is None else f"{target:,.4g}",
            VERDICTS[met(figure)],
        )
    return table


@click.command()
@click.argument("modules", nargs=-1, type=click.Choice((*MODULES, *LONG)))
@click.option("--keep", is_flag=True, help="Leave the figures of the other benchmarks as they were measured before.")
def main(modules: tuple[str, ...], keep: bool) -> None:
    """Run the named benchmarks, or all."""
    console = Console(width=150)
    machine = _machine()
    results: dict[str, list[Figure]] = json.loads(RESULT.read_text())["figures"] if keep and RESULT.exists() else {}
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    for name in modules or MODULES:
        module, began = LARGE.get(name, name), time.monotonic()
        console.print(f"[bold]{name}[/bold] …")
        run = importlib.import_module(f"tests.benchmarks.{module}").run
        results[module] = run(large=True) if name in LARGE else run()
        console.print(_table(f"{name}, {time.monotonic() - began:.0f} s", results[module]))
        RESULT.write_text(json.dumps({"machine": machine, "figures": results}, indent=2) + "\n")
    missed = [f["name"] for figures in results.values() for f in figures if met(f) is False]
    console.print(f"figures written to {RESULT}; targets missed: {', '.join(missed) if missed else 'none'}")


if __name__ == "__main__":
    main()
