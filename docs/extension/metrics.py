"""The list of Prometheus metrics, from :mod:`bookkeeper.monitor.metrics`."""

from __future__ import annotations

from bookkeeper.monitor.metrics import METRICS, PREFIX
from docs.extension.markdown import code, table


def metrics(_: str) -> str:
    """Every metric of a leader."""
    rows = [
        [
            code(f"{PREFIX}{metric.name}{'_total' if metric.kind == 'counter' else ''}"),
            metric.kind,
            ", ".join(map(code, metric.labels)),
            metric.meaning,
        ]
        for metric in METRICS
    ]
    return table(("metric", "kind", "labels", "meaning"), rows)
