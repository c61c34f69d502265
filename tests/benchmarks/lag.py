"""One-row lag: from a mutation's acknowledgement at west to the moment a reader at east sees it.

Arrives: nothing. Leaves: p50 and p99 over 200 samples with default settings, beside the same question asked of west
itself (written and read back on one cluster), measured in the same run.
"""

from __future__ import annotations

import statistics

from tests.benchmarks.figure import Figure
from tests.benchmarks.pair import TABLE, Pair, replicated_pair, write_row

SAMPLES = 200
POLL_MS = 2.0
TARGET_P50_MS = 500.0
TARGET_P99_MS = 1_000.0


def run() -> list[Figure]:
    """Measure; takes about a minute and a half."""
    with replicated_pair() as pair:
        lags = [_lag_ms(pair, b"lag%06d" % number) for number in range(SAMPLES)]
        local = [_local_ms(pair, b"loc%06d" % number) for number in range(SAMPLES)]
    return [
        _figure("one-row lag p50", lags, local, 50, TARGET_P50_MS),
        _figure("one-row lag p99", lags, local, 99, TARGET_P99_MS),
    ]


def _lag_ms(pair: Pair, row: bytes) -> float:
    write_row(pair.west, row)
    acknowledged_ns = pair.clock.boot_ns()
    pair.wait_for_row(row, POLL_MS)
    return (pair.clock.boot_ns() - acknowledged_ns) / 1e6


def _local_ms(pair: Pair, row: bytes) -> float:
    started_ns = pair.clock.boot_ns()
    write_row(pair.west, row)
    found = sum(batch.num_rows for batch in pair.west.scan(TABLE, row, row + b"\x00"))
    if found != 1:
        raise AssertionError(f"{found} cells of an acknowledged row {row!r}")
    return (pair.clock.boot_ns() - started_ns) / 1e6


def _figure(name: str, lags: list[float], local: list[float], percent: int, target: float) -> Figure:
    value, reference = _percentile(lags, percent), _percentile(local, percent)
    return Figure(
        name=name,
        value=value,
        unit="ms",
        reference=reference,
        reference_name=f"write and read back on one cluster, p{percent}",
        reference_unit="ms",
        ratio=value / reference,
        target=target,
        lower_is_better=True,
        size=SAMPLES,
    )


def _percentile(values: list[float], percent: int) -> float:
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]
