"""``python -m tests.benchmarks.plots``: draws how figures grow with their size, from the output of ``make bench``.

The input is ``build/bench/figures.json``. Each figure that was measured at two sizes or more gets an SVG in
``docs/plots/``, with the figures themselves beside it; a figure of one size has no growth and gets none. A plot shows
measured sizes only, and plots of an earlier run are deleted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import matplotlib as mpl
from matplotlib.figure import Figure as Canvas

from tests.benchmarks.__main__ import RESULT
from tests.benchmarks.figure import Figure

PLOTS = Path("docs/plots")
_SIZE = re.compile(r"(?<![A-Za-z\d])\d[\d,.]*( ?[kM]\b)?")
"""A number, but not the one of p99."""
_WIDE = 8
"""A span of sizes or values beyond this factor is drawn logarithmically."""


@dataclass(frozen=True, slots=True)
class Series:
    """One figure at several sizes, ascending."""

    module: str
    title: str
    points: Sequence[Figure]

    @property
    def file_name(self) -> str:
        """Of its plot."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.module} {self.title}".lower()).strip("-") + ".svg"


def series(results: Mapping[str, Sequence[Figure]]) -> list[Series]:
    """The figures of two sizes or more, by module; figures whose names differ in numbers only are one series."""
    found: dict[tuple[str, str, str], dict[int, Figure]] = {}
    for module, figures in results.items():
        for figure in figures:
            if "size" in figure:
                title = " ".join(_SIZE.sub("N", figure["name"]).split())
                found.setdefault((module, title, figure["unit"]), {})[figure["size"]] = figure
    return [
        Series(module, title, [points[size] for size in sorted(points)])
        for (module, title, _), points in found.items()
        if len(points) > 1
    ]


def draw(wanted: Series, machine: Mapping[str, object], path: Path) -> None:
    """Write one plot; the same figures give the same bytes."""
    points = wanted.points
    sizes, values = [point["size"] for point in points], [point["value"] for point in points]
    unit, references = points[0]["unit"], [point["reference"] for point in points]
    with mpl.rc_context({"svg.hashsalt": wanted.file_name, "svg.fonttype": "none", "font.size": 10}):
        canvas = Canvas(figsize=(7, 4), layout="constrained")
        axes = canvas.subplots()
        axes.plot(sizes, values, marker="o", color="#1f6feb", label="measured")
        shown = list(values)
        if all(point["reference_unit"] == unit for point in points):
            axes.plot(sizes, references, marker="s", color="#888888", label=points[0]["reference_name"])
            shown += references
        if all("target" in point and point.get("target_of") != "ratio" for point in points):
            targets = [point["target"] for point in points]
            axes.plot(sizes, targets, linestyle="--", color="#d1242f", label="target")
        axes.set_xscale("log" if sizes[-1] > _WIDE * sizes[0] else "linear")
        axes.set_yscale("log" if min(shown) > 0 and max(shown) > _WIDE * min(shown) else "linear")
        axes.set_xlabel("size (N)")
        axes.set_ylabel(unit)
        axes.set_title(f"{wanted.title}\n{', '.join(f'{key} {value}' for key, value in machine.items())}", fontsize=10)
        axes.grid(alpha=0.3)
        axes.legend()
        path.parent.mkdir(parents=True, exist_ok=True)
        canvas.savefig(path, format="svg", metadata={"Date": None})


@click.command()
@click.option("--figures", type=click.Path(path_type=Path, exists=True), default=RESULT, help="The figures to plot.")
@click.option("--into", type=click.Path(path_type=Path), default=PLOTS, help="The directory of the plots.")
def main(figures: Path, into: Path) -> None:
    """Draw a plot of each figure that was measured at two sizes or more."""
    content = figures.read_text()
    measured = json.loads(content)
    wanted = series(measured["figures"])
    for earlier in into.glob("*.svg"):
        earlier.unlink()
    for found in wanted:
        draw(found, measured["machine"], into / found.file_name)
        click.echo(f"{into / found.file_name}: {len(found.points)} sizes")
    if wanted:
        (into / RESULT.name).write_text(content)
    else:
        click.echo(f"{figures}: no figure was measured at two sizes")


if __name__ == "__main__":
    main()
