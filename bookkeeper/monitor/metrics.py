"""Prometheus metrics of the latest sample. :data:`METRICS` is the list in the documentation, too.

Labels are tables, peers, phases and reasons, so the configuration bounds their number, never the files. Known third
party: prometheus_client, here only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from msgspec import Struct
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from bookkeeper.monitor import views
from bookkeeper.monitor.observation import Books, Lag
from bookkeeper.monitor.sampler import Sample

CONTENT_TYPE = CONTENT_TYPE_LATEST

Rows = Iterable[tuple[tuple[str, ...], float]]


class Metric(Struct, frozen=True):
    """One metric: its kind (gauge or counter), its labels, its meaning, and the function that reads its values. A
    counter starts again with each reign.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    meaning: str
    values: Callable[[Sample, Books], Rows]


def _one(value: float) -> Rows:
    return [((), value)]


def _lags(number: Callable[[Lag], float | None]) -> Callable[[Sample, Books], Rows]:
    """A pair whose number is unknown has no sample."""
    return lambda _sample, books: [
        ((lag.table, lag.cluster), found) for lag in books.lags if (found := number(lag)) is not None
    ]


def _retained(unit: str) -> Callable[[Sample, Books], Rows]:
    return lambda sample, _books: [((kind,), sums[unit]) for kind, sums in views.retained_sums(sample.retained).items()]


def _quarantined(_sample: Sample, books: Books) -> Rows:
    states = [quarantined.state for quarantined in books.quarantined]
    return [((state,), states.count(state)) for state in sorted(set(states))]


PAIR = ("table", "peer")

METRICS = (
    Metric(
        "replication_lag_records",
        "gauge",
        PAIR,
        "Records of the table that the peer lacks",
        _lags(lambda lag: lag.records),
    ),
    Metric(
        "replication_lag_bytes",
        "gauge",
        PAIR,
        "Size of the logs' blocks with records that the peer lacks",
        _lags(lambda lag: lag.bytes),
    ),
    Metric(
        "replication_lag_seconds",
        "gauge",
        PAIR,
        "Age of the oldest record that the peer lacks; no sample while a new master does not know it yet",
        _lags(lambda lag: lag.seconds),
    ),
    Metric(
        "replication_files",
        "gauge",
        (*PAIR, "phase"),
        "Log files with replication work, by phase",
        lambda _sample, books: [
            ((lag.table, lag.cluster, phase), count) for lag in books.lags for phase, count in lag.phases.items()
        ],
    ),
    Metric(
        "shipped_records",
        "counter",
        ("peer",),
        "Records that the peer acknowledged, from workers' reports",
        lambda _sample, books: [((peer.cluster,), peer.records) for peer in books.peers],
    ),
    Metric(
        "shipped_bytes",
        "counter",
        ("peer",),
        "Bytes sent to the peer, including bytes sent again",
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
        "Consecutive failed tries at the peer, or on the way to it; 0 after a successful one",
        lambda _sample, books: [((peer.cluster,), peer.failures) for peer in books.peers],
    ),
    Metric(
        "stalled_seconds",
        "gauge",
        (*PAIR, "cause"),
        "Time since which files wait for the peer for this cause: of a fault that of the fault, 0 = not known; of a "
        "wait in the course of things the age of the first lacking record, absent = not known",
        lambda _sample, books: [((stall.table, stall.cluster, stall.kind), stall.seconds) for stall in books.stalls],
    ),
    Metric("quarantined_ranges", "gauge", ("state",), "Ranges that block their queue or were skipped", _quarantined),
    Metric("tservers", "gauge", (), "Live tservers", lambda _sample, books: _one(len(books.tservers))),
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
        "Tablets without a tserver",
        lambda _sample, books: [((table.name,), table.unassigned) for table in books.tables],
    ),
    Metric(
        "outstanding_files",
        "gauge",
        (),
        "Log files with replication books",
        lambda _sample, books: _one(books.files_outstanding),
    ),
    Metric(
        "kept_files", "gauge", ("reason",), "Files that are kept, by reason; one may have several", _retained("files")
    ),
    Metric("kept_bytes", "gauge", ("reason",), "Size of the files that are kept, by reason", _retained("bytes")),
    Metric(
        "deleted_files",
        "counter",
        (),
        "Files that the garbage collector deleted",
        lambda _sample, books: _one(books.files_deleted),
    ),
    Metric(
        "split_tablets",
        "counter",
        (),
        "Tablets that the master split by itself, because they had more than table.split.bytes",
        lambda _sample, books: _one(books.tablets_split),
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
        "Duration of the last cycle of a kind",
        lambda _sample, books: [
            (("full",), books.cycles.full_ms / 1000),
            (("quick",), books.cycles.quick_ms / 1000),
        ],
    ),
    Metric(
        "books_age_seconds",
        "gauge",
        (),
        "Age of these numbers: time since the master began the full read of the books that they are from",
        lambda _sample, books: _one(books.age_ms / 1000),
    ),
    Metric(
        "tablets_under_replicated",
        "gauge",
        (),
        "Tablets of which fewer live hosts than table.replicas hold what the books name",
        lambda _sample, books: _one(books.replicas.under_replicated),
    ),
    Metric(
        "tablets_in_danger",
        "gauge",
        (),
        "Tablets of which fewer live hosts than table.copies_min hold what the books name; 0 is healthy",
        lambda _sample, books: _one(books.replicas.in_danger),
    ),
    Metric(
        "replicas_joining",
        "gauge",
        (),
        "Replicas that are being copied to another host, by a repair, a drain or the balance",
        lambda _sample, books: _one(books.replicas.joining),
    ),
    Metric(
        "replica_lacking_segments",
        "gauge",
        (),
        "Replication delay on hosts: the most segments of one tablet that another of its hosts has not acknowledged",
        lambda _sample, books: _one(books.replicas.lacking_segments),
    ),
    Metric(
        "replica_damaged_files",
        "gauge",
        (),
        "Segment files that live hosts have found damaged and get again from other hosts; 0 is healthy",
        lambda _sample, books: _one(books.replicas.damaged_files),
    ),
    Metric(
        "tablets_without_logs",
        "gauge",
        (),
        "Tablets that are served without a log, because its host is away or its disk is lost; 0 is healthy",
        lambda _sample, books: _one(books.tablets_without_logs),
    ),
    Metric(
        "replica_lacking_bytes",
        "gauge",
        (),
        "Replication delay on hosts: bytes of segments that hosts have not acknowledged, over all tablets",
        lambda _sample, books: _one(books.replicas.lacking_bytes),
    ),
    Metric(
        "replicas_joining_bytes",
        "gauge",
        (),
        "Size of the replicas that are being copied to another host, when they are complete",
        lambda _sample, books: _one(books.replicas.joining_bytes),
    ),
    Metric(
        "replicas_joined_bytes",
        "gauge",
        (),
        "Progress of a repair: the part of replicas_joining_bytes that has arrived",
        lambda _sample, books: _one(books.replicas.joined_bytes),
    ),
    Metric(
        "problems",
        "gauge",
        (),
        "Errors on the overview page; 0 is healthy",
        lambda _sample, books: _one(len(books.problems)),
    ),
    Metric(
        "sample_seconds",
        "gauge",
        (),
        "Duration of the monitor's last sample of the master",
        lambda sample, _books: _one(sample.took_ms / 1000),
    ),
)
"""Metrics of the leader. Each name gets the prefix ``bookkeeper_``, and that of a counter the suffix ``_total``."""

PREFIX = "bookkeeper_"


def exposition(sample: Sample) -> bytes:
    """All metrics of a sample in the text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Latest(sample))
    return generate_latest(registry)


class _Latest(Collector):
    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        observation = self._sample.observation
        labels = {"cluster": observation.cluster, "instance_id": observation.instance_id, "master": observation.address}
        yield _family("leads", "gauge", "1 when this master leads, else 0", [(labels, float(observation.leads))])
        meaning = "1 when this master leads and has read the books, else 0; at 0 there are no other metrics"
        yield _family("master_has_books", "gauge", meaning, [(labels, float(observation.books is not None))])
        if observation.books is None:
            return
        for metric in METRICS:
            rows = metric.values(self._sample, observation.books)
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
