"""Plots show what was measured, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from tests.benchmarks.figure import Figure
from tests.benchmarks.plots import main, series

MACHINE = {"cores": 2}


def figure(name: str, size: int | None, value: float) -> Figure:
    made = Figure(
        name=name, value=value, unit="s", reference=1.0, reference_name="scan", reference_unit="s", ratio=value
    )
    return made if size is None else {**made, "size": size}


def test_a_figure_at_several_sizes_is_one_series() -> None:
    figures = [
        figure("cycle, 100,000 files", 100_000, 4.0),
        figure("cycle, 10,000 files", 10_000, 0.5),
        figure("alone", 7, 1.0),
        figure("without size", None, 1.0),
    ]
    (found,) = series({"master": figures})
    assert (found.module, found.title) == ("master", "cycle, N files")
    assert [(point["size"], point["value"]) for point in found.points] == [(10_000, 0.5), (100_000, 4.0)]
    assert found.file_name == "master-cycle-n-files.svg"


def test_percentiles_are_no_sizes() -> None:
    figures = [figure(f"read of {n} M p{percent}", n, 1.0) for n in (1, 10) for percent in (50, 99)]
    assert [found.title for found in series({"tablet": figures})] == ["read of N p50", "read of N p99"]


def test_the_same_figures_give_the_same_plot(tmp_path: Path) -> None:
    source = tmp_path / "figures.json"
    measured = [figure("drain 1 M", 1_000_000, 3.0), {**figure("drain 10 M", 10_000_000, 9.0)}]
    source.write_text(json.dumps({"machine": MACHINE, "figures": {"drain": measured, "rpc": [figure("x", 1, 1.0)]}}))
    drawn = []
    for place in (tmp_path / "a", tmp_path / "b"):
        result = CliRunner().invoke(main, ["--figures", str(source), "--into", str(place)], catch_exceptions=False)
        assert result.output == f"{place / 'drain-drain-n.svg'}: 2 sizes\n"
        assert (place / "figures.json").read_text() == source.read_text()
        (plot,) = place.glob("*.svg")
        drawn.append(plot.read_bytes())
    assert drawn[0] == drawn[1]
    assert b"drain N" in drawn[0]
    assert b"cores 2" in drawn[0]


def test_where_nothing_has_two_sizes_nothing_is_drawn(tmp_path: Path) -> None:
    source = tmp_path / "figures.json"
    source.write_text(json.dumps({"machine": MACHINE, "figures": {"rpc": [figure("x", 1, 1.0)]}}))
    result = CliRunner().invoke(main, ["--figures", str(source), "--into", str(tmp_path / "p")], catch_exceptions=False)
    assert "no figure was measured at two sizes" in result.output
    assert not (tmp_path / "p").exists()
