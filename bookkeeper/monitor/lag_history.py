"""The lag of each cluster over the last half hour, for the plots: one point a sample.

Memory is bounded by points and clusters. A plot starts again with its master.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from bookkeeper.monitor.observation import Lag, greatest_age

POINTS_MAX = 900
CLUSTERS_MAX = 50
"""Clusters in one point, the first by name; the plots leave out further ones, the tables do not."""


class Point(Struct, frozen=True):
    """Lag of each cluster at one moment: records, bytes, seconds (None: unknown)."""

    at_ms: int
    lags: dict[str, tuple[int, int, float | None]]


def point_of(at_ms: int, lags: Iterable[Lag]) -> Point:
    """The lag of each cluster: sums of records and bytes over its tables, the maximum of their seconds."""
    found: dict[str, tuple[int, int, float | None]] = {}
    for lag in sorted(lags, key=lambda lag: lag.cluster):
        if lag.cluster not in found and len(found) >= CLUSTERS_MAX:
            continue
        records, size, seconds = found.get(lag.cluster, (0, 0, 0.0))
        found[lag.cluster] = (records + lag.records, size + lag.bytes, greatest_age([seconds, lag.seconds]))
    return Point(at_ms, found)


class History:
    """The latest points. One thread adds points; readers get copies."""

    def __init__(self, points_max: int = POINTS_MAX) -> None:
        self._points: deque[Point] = deque(maxlen=points_max)

    def add(self, point: Point) -> None:
        """Add the newest point; beyond ``points_max`` the oldest one goes."""
        self._points.append(point)

    def columns(self) -> dict[str, Any]:
        """``at_ms``, and the lag of each cluster as lists; None at times at which the cluster was not defined, and at
        which the age was unknown.
        """
        points = tuple(self._points)
        clusters = sorted({cluster for point in points for cluster in point.lags})
        none = (None, None, None)
        series = []
        for cluster in clusters:
            triples = [point.lags.get(cluster, none) for point in points]
            columns = {name: [triple[index] for triple in triples] for index, name in enumerate(_NAMES)}
            series.append({"cluster": cluster, **columns})
        return {"at_ms": [point.at_ms for point in points], "series": series}


_NAMES = ("lag_records", "lag_bytes", "lag_seconds")
