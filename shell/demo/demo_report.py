"""The report at the end of the demo: comparisons, shipped records, lag, times and the verdict."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from msgspec import Struct

from shell.demo.comparison import Comparison
from shell.demo.screen import Screen
from shell.demo.shipped_totals import Totals


class Measurements(Struct, frozen=True):
    """All figures of a run. ``comparisons``: by table and cluster. ``written``: acknowledged changes of cells on west,
    each a record to ship. ``times_s``: times at which the clusters were ready, loaded, drained, compared, and had gone
    on without hosts.
    """

    comparisons: Mapping[str, Mapping[str, Comparison]]
    totals: Totals
    written: int
    lags_ms: Sequence[float]
    times_s: tuple[float, float, float, float, float]


def print_report(screen: Screen, measurements: Measurements) -> None:
    """Print the report."""
    found = {
        f"{cluster} {table}": one for table, sides in measurements.comparisons.items() for cluster, one in sides.items()
    }
    rows = [
        [
            name,
            f"{v.cells:,}",
            f"{v.missing:,}",
            f"{v.unexpected:,}",
            f"{v.different:,}",
            "equal" if v.equal else "DIFFERS",
        ]
        for name, v in found.items()
    ]
    screen.table(("table", "cells", "missing", "unexpected", "different", "with the input"), rows)
    for name, comparison in found.items():
        for example in comparison.examples:
            screen.line(f"{name}: {example}")
    screen.line(shipped_text(measurements.totals, measurements.written))
    for reason in measurements.totals.undercount_reasons:
        screen.line(f"the true figures may be higher: {reason}")
    screen.line(f"lag of a row while loading: {lag_text(measurements.lags_ms)}")
    ready, loaded, drained, compared, lost = measurements.times_s
    screen.line(
        f"time: start {ready:.1f} s, load {loaded - ready:.1f} s, zero lag {drained - loaded:.1f} s later, "
        f"compare {compared - drained:.1f} s, with lost hosts {lost - compared:.1f} s"
    )
    equal = all(comparison.equal for comparison in found.values())
    same = all(len({one.digest for one in sides.values()}) == 1 for sides in measurements.comparisons.values())
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
