"""The report at the end of the demo: comparisons, shipped records, lag, times and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shell.demo.comparison import Comparison
from shell.demo.screen import Screen
from shell.demo.shipped_totals import Totals


@dataclass(frozen=True, slots=True)
class Measurements:
    """All figures of a run. ``written``: acknowledged changes of cells on west, each a record to ship. ``times_s``:
    times at which the clusters were ready, loaded, drained, compared.
    """

    comparisons: Mapping[str, Comparison]
    totals: Totals
    written: int
    lags_ms: Sequence[float]
    times_s: tuple[float, float, float, float]


def print_report(screen: Screen, measurements: Measurements) -> None:
    """Print the report."""
    rows = [
        [
            name,
            f"{v.cells:,}",
            f"{v.missing:,}",
            f"{v.unexpected:,}",
            f"{v.different:,}",
            "equal" if v.equal else "DIFFERS",
        ]
        for name, v in measurements.comparisons.items()
    ]
    screen.table(("table on", "cells", "missing", "unexpected", "different", "with the input"), rows)
    for name, comparison in measurements.comparisons.items():
        for example in comparison.examples:
            screen.line(f"{name}: {example}")
    screen.line(shipped_text(measurements.totals, measurements.written))
    for reason in measurements.totals.undercount_reasons:
        screen.line(f"the true figures may be higher: {reason}")
    screen.line(f"lag of a row while loading: {lag_text(measurements.lags_ms)}")
    ready, loaded, drained, compared = measurements.times_s
    screen.line(
        f"time: start {ready:.1f} s, load {loaded - ready:.1f} s, zero lag {drained - loaded:.1f} s later, "
        f"compare {compared - drained:.1f} s"
    )
    equal = all(comparison.equal for comparison in measurements.comparisons.values())
    same = len({comparison.digest for comparison in measurements.comparisons.values()}) == 1
    if equal:
        screen.line(f"verdict: every cell is right on both clusters, timestamps {'equal' if same else 'NOT equal'} too")
    else:
        screen.line("verdict: THE TABLES DIFFER FROM THE INPUT")


def shipped_text(totals: Totals, written: int) -> str:
    """The line with shipped files, records and bytes; :class:`Totals` defines each figure."""
    records = f"{totals.records:,} of {written:,} records"
    sent = f"{totals.bytes_sent / 1e6:,.1f} MB sent"
    return f"shipped: {totals.files} files, {records}, {sent}, {totals.sent_again:,} records sent again"


def lag_text(samples_ms: Sequence[float]) -> str:
    """Median and maximum lag, in milliseconds."""
    if not samples_ms:
        return "no probe arrived"
    return f"p50 {statistics.median(samples_ms):,.0f} ms, max {max(samples_ms):,.0f} ms ({len(samples_ms)} probe rows)"
