"""The last page of the demo: what was shipped, how late, and the verdict.

Arrives: comparisons, counts and samples. Leaves: text; the figures are those that were measured, nothing else.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shell.demo.screen import Screen
from shell.demo.tally import Totals
from shell.demo.verdict import Comparison


@dataclass(frozen=True, slots=True)
class Ending:
    """Everything that was measured. ``written``: changes of cells that were acknowledged on west, so many records are
    to be shipped. ``times_s``: when both were ready, loaded, drained, compared.
    """

    verdicts: Mapping[str, Comparison]
    totals: Totals
    written: int
    lags_ms: Sequence[float]
    times_s: tuple[float, float, float, float]


def print_report(screen: Screen, ending: Ending) -> None:
    """Print it."""
    rows = [
        [
            name,
            f"{v.cells:,}",
            f"{v.missing:,}",
            f"{v.unexpected:,}",
            f"{v.different:,}",
            "equal" if v.equal else "DIFFERS",
        ]
        for name, v in ending.verdicts.items()
    ]
    screen.table(("table on", "cells", "missing", "unexpected", "different", "with the input"), rows)
    for name, verdict in ending.verdicts.items():
        for example in verdict.examples:
            screen.line(f"{name}: {example}")
    screen.line(shipped_text(ending.totals, ending.written))
    for doubt in ending.totals.doubts:
        screen.line(f"more may have been sent: {doubt}")
    screen.line(f"lag of a row while loading: {lag_text(ending.lags_ms)}")
    ready, loaded, drained, compared = ending.times_s
    screen.line(
        f"time: start {ready:.1f} s, load {loaded - ready:.1f} s, zero lag {drained - loaded:.1f} s later, "
        f"compare {compared - drained:.1f} s"
    )
    equal = all(verdict.equal for verdict in ending.verdicts.values())
    same = len({verdict.digest for verdict in ending.verdicts.values()}) == 1
    if equal:
        screen.line(f"verdict: every cell is right on both clusters, timestamps {'equal' if same else 'NOT equal'} too")
    else:
        screen.line("verdict: THE TABLES DIFFER FROM THE INPUT")


def shipped_text(totals: Totals, written: int) -> str:
    """What went over, against what was written; see :class:`Totals` for what each figure counts."""
    records = f"{totals.records:,} of {written:,} records"
    sent = f"{totals.bytes_sent / 1e6:,.1f} MB sent"
    return f"shipped: {totals.files} files, {records}, {sent}, {totals.sent_again:,} records sent again"


def lag_text(samples_ms: Sequence[float]) -> str:
    """p50 and maximum, in milliseconds."""
    if not samples_ms:
        return "no probe arrived"
    return f"p50 {statistics.median(samples_ms):,.0f} ms, max {max(samples_ms):,.0f} ms ({len(samples_ms)} probe rows)"
