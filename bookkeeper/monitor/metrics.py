"""Prometheus metrics of the latest look. :data:`METRICS` is the list in the documentation, too.

Arrives: a sample. Leaves: the text format. Labels are tables, peers, phases and reasons: bounded by the configuration,
never by files. Known third party: prometheus_client, here only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from bookkeeper.monitor import views
from bookkeeper.monitor.observation import Books, Lag
from bookkeeper.monitor.sampler import Sample

CONTENT_TYPE = CONTENT_TYPE_LATEST

Rows = Iterable[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its kind (gauge or counter), its labels, what it means, and where its values come from. A counter
    begins anew with each reign.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    values: Callable[[Sample, Books], Rows]


def _one(value: float) -> Rows:
    return [((), value)]


def _lags(number: Callable[[Lag], float]) -> Callable[[Sample, Books], Rows]:
    return lambda _sample, books: [((lag.table, lag.cluster), number(lag)) for lag in books.lags]


def _kept(unit: str) -> Callable[[Sample, Books], Rows]:
    return lambda sample, _books: [((kind,), sums[unit]) for kind, sums in views.kept_sums(sample.kept).items()]


def _quarantined(_sample: Sample, books: Books) -> Rows:
    states = [held.state for held in books.quarantined]
    return [((state,), states.count(state)) for state in sorted(set(states))]


PAIR = ("table", "peer")

METRICS = (
    Metric(
        "replication_lag_records",
        "gauge",
        PAIR,
        "Records of the table that the peer has not got yet",
        _lags(lambda lag: lag.records),
    ),
    Metric(
        "replication_lag_bytes",
        "gauge",
        PAIR,
        "Size of the logs' blocks with records that the peer has not got yet",
        _lags(lambda lag: lag.bytes),
    ),
    Metric(
        "replication_lag_seconds",
        "gauge",
        PAIR,
        "Age of the oldest record that the peer lacks, at most",
        _lags(lambda lag: lag.seconds),
    ),
    Metric(
        "replication_files",
        "gauge",
        (*PAIR, "phase"),
        "Log files that are not done with, by phase",
        lambda _sample, books: [
            ((lag.table, lag.cluster, phase), count) for lag in books.lags for phase, count in lag.phases.items()
        ],
    ),
    Metric(
        "shipped_records",
        "counter",
        ("peer",),
        "Records that the peer acknowledged, as workers report them",
        lambda _sample, books: [((peer.cluster,), peer.records) for peer in books.peers],
    ),
    Metric(
        "shipped_bytes",
        "counter",
        ("peer",),
        "Bytes sent to the peer, those sent again included",
        lambda _sample, books: [((peer.cluster,), peer.sent_bytes) for peer in books.peers],
    ),
    Metric(
        "resent_records",
        "counter",
        ("peer",),
        "Records that were sent again",
        lambda _sample, books: [((peer.cluster,), peer.resends) for peer in books.peers],
    ),
    Metric(
        "peer_failures",
        "gauge",
        ("peer",),
        "Tries that failed in a row; 0 when the last one worked",
        lambda _sample, books: [((peer.cluster,), peer.failures) for peer in books.peers],
    ),
    Metric("quarantined_ranges", "gauge", ("state",), "Ranges that block their queue or are set aside", _quarantined),
    Metric("tservers", "gauge", (), "Tservers that live", lambda _sample, books: _one(len(books.tservers))),
    Metric(
        "tablets",
        "gauge",
        ("table",),
        "Tablets",
        lambda _sample, books: [((table.name,), table.tablets) for table in books.tables],
    ),
    Metric(
        "unassigned_tablets",
        "gauge",
        ("table",),
        "Tablets that no tserver serves",
        lambda _sample, books: [((table.name,), table.unassigned) for table in books.tables],
    ),
    Metric(
        "outstanding_files",
        "gauge",
        (),
        "Log files with replication books",
        lambda _sample, books: _one(books.files_outstanding),
    ),
    Metric("kept_files", "gauge", ("reason",), "Files that are kept, by reason; one may have several", _kept("files")),
    Metric("kept_bytes", "gauge", ("reason",), "Size of the files that are kept, by reason", _kept("bytes")),
    Metric(
        "deleted_files",
        "counter",
        (),
        "Files that the collector deleted",
        lambda _sample, books: _one(books.files_deleted),
    ),
    Metric(
        "operations",
        "gauge",
        (),
        "FATE operations under way or failed",
        lambda _sample, books: _one(len(books.operations)),
    ),
    Metric(
        "cycles",
        "counter",
        ("kind",),
        "Cycles of the master: full, quick or failed",
        lambda _sample, books: [
            (("full",), books.cycles.full),
            (("quick",), books.cycles.quick),
            (("failed",), books.cycles.failed),
        ],
    ),
    Metric(
        "cycle_seconds",
        "gauge",
        ("kind",),
        "How long the last cycle of a kind took",
        lambda _sample, books: [
            (("full",), books.cycles.full_ms / 1000),
            (("quick",), books.cycles.quick_ms / 1000),
        ],
    ),
    Metric(
        "books_age_seconds",
        "gauge",
        (),
        "How long ago the master began the full look at the books that these numbers are from",
        lambda _sample, books: _one(books.age_ms / 1000),
    ),
    Metric(
        "problems",
        "gauge",
        (),
        "Errors that the overview shows; 0 is well",
        lambda _sample, books: _one(len(books.problems)),
    ),
    Metric(
        "look_seconds",
        "gauge",
        (),
        "How long the monitor's last look at the master took",
        lambda sample, _books: _one(sample.took_ms / 1000),
    ),
)
"""Of the leader; each name is preceded by ``bookkeeper_``, and that of a counter followed by ``_total``."""

PREFIX = "bookkeeper_"


def exposition(sample: Sample) -> bytes:
    """The text format of all metrics."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Latest(sample))
    return generate_latest(registry)


class _Latest(Collector):
    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        seen = self._sample.seen
        labels = {"cluster": seen.cluster, "instance_id": seen.instance_id, "master": seen.address}
        yield _family("leads", "gauge", "1 when this master leads, else 0", [(labels, float(seen.leads))])
        meaning = "1 when this master leads and has read the books, else 0: then it has no other numbers"
        yield _family("master_knows", "gauge", meaning, [(labels, float(seen.books is not None))])
        if seen.books is None:
            return
        for metric in METRICS:
            rows = metric.values(self._sample, seen.books)
            found = [(dict(zip(metric.labels, texts, strict=True)), value) for texts, value in rows]
            yield _family(metric.name, metric.kind, metric.meaning, found, metric.labels)


def _family(
    name: str,
    kind: str,
    meaning: str,
    rows: Iterable[tuple[Mapping[str, str], float]],
    labels: Iterable[str] = ("cluster", "instance_id", "master"),
) -> GaugeMetricFamily | CounterMetricFamily:
    make = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
    family = make(PREFIX + name, meaning, labels=list(labels))
    for texts, value in rows:
        family.add_metric(list(texts.values()), value)
    return family
