"""Rounds of kill -9 and of wiped segments under load, on three hosts: what was lost, what was repeated, how long a kill
is felt.

A round begins when each host holds what the books name. Then the tserver of a random host is killed, or its segments
are wiped under it, while two workloads are written. A kill is felt until a batch that began behind it is acknowledged
by all tablets. At the end each cell is compared with the acknowledged batches.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import load_settings
from bookkeeper.errors import TransientError
from bookkeeper.monitor.replica_views import leader_of
from bookkeeper.standalone.joining import local_directory
from tests.benchmarks.figure import Figure
from tests.benchmarks.replicas import exactly, outage
from tests.support.cluster import Cluster
from tests.support.workloads import LinkedList, Mix, Workload, undefined_pointers
from tests.support.workloads_run import Loader

ROUNDS = 200
SEED = 4
WIPES = 0.25
"""Part of the rounds that wipe a disk."""
HOSTS = ("host1", "host2", "host3")
SERVING_S = 3.0
LIMIT_S = 180.0
SETTINGS: dict[str, object] = {
    "standalone.hosts": len(HOSTS),
    "master.scan_interval_ms": 500,
    "replicas.repair_after_ms": 2_000,
}
PROPERTIES = {
    "table.replicas": str(len(HOSTS)),
    "table.flush.memtable_bytes": "32768",
    "table.compaction.segments_max": "4",
}
"""States are made, merged and named all the time."""


@dataclass(slots=True)
class Outcome:
    """The sums of all rounds. ``felt_s``: for each kill, the time until a batch behind it was acknowledged."""

    kills: int = 0
    wipes: int = 0
    lost: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    felt_s: list[float] = field(default_factory=list)

    def killed(self, felt_s: float) -> None:
        """Count a kill."""
        self.kills += 1
        self.felt_s.append(felt_s)

    def wiped(self) -> None:
        """Count a wipe."""
        self.wipes += 1


class Trial:
    """A cluster of three hosts and two workloads."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self._clock = SystemClock()
        self._rng = random.Random(seed)
        workloads: list[Workload] = [LinkedList(seed, splits=(b"8",)), Mix(seed)]
        for workload in workloads:
            cluster.client.tables.create(workload.table, workload.splits, workload.groups, PROPERTIES)
        self._loaders = [Loader(cluster.client, workload, self._clock) for workload in workloads]

    @contextmanager
    def load(self) -> Iterator[None]:
        """The workloads are written while the block runs."""
        with ExitStack() as stops:
            for loader in self._loaders:
                loader.start()
                stops.callback(loader.stop)
            yield

    def run(self, rounds: int) -> Outcome:
        """All rounds, and the comparison."""
        outcome = Outcome()
        with self.load():
            for _ in range(rounds):
                self.wait_whole()
                host = self._rng.choice(HOSTS)
                if self._rng.random() < WIPES:
                    self._wipe(host)
                    outcome.wiped()
                else:
                    outcome.killed(self._kill(host))
        self.wait_whole()
        for loader in self._loaders:
            self._compare(loader, outcome)
        return outcome

    def wait_whole(self) -> None:
        """Return when each host votes for each tablet and holds the state that the books name."""
        self._cluster.wait_until(self._is_whole, "each host to hold what the books name", LIMIT_S)

    def _is_whole(self) -> bool:
        client = self._cluster.client
        try:
            ids = [client.tables.get(loader.workload.table).table_id for loader in self._loaders]
            tablets = [tablet for table_id in ids for tablet in client.hosts.replicas(table_id)]
        except TransientError:
            return False
        return all(
            sum(
                one.role == "voter" and one.held is not None and (not tablet.named or tablet.named in one.held.complete)
                for one in tablet.replicas
            )
            == len(HOSTS)
            and leader_of(tablet) is not None
            for tablet in tablets
        )

    def _kill(self, host: str) -> float:
        role = role_of(host)
        counts = [loader.acknowledged for loader in self._loaders]
        began = time.perf_counter()
        killed = self._cluster.kill9(role)
        for loader, count in zip(self._loaders, counts, strict=True):
            loader.wait_acknowledged(count + 2, LIMIT_S)  # the first of them may have begun before
        felt_s = time.perf_counter() - began
        self._cluster.wait_restarted(role, killed)
        return felt_s

    def _wipe(self, host: str) -> None:
        """The process stands still while its directory goes, so that it never serves from half of one."""
        settings = self._cluster.settings
        home = settings if host == HOSTS[0] else load_settings(local_directory(settings, host))
        pid, gone = self._cluster.pid(role_of(host)), home.replicas_dir.with_name("replicas-wiped")
        os.kill(pid, signal.SIGSTOP)
        home.replicas_dir.rename(gone)
        self._cluster.kill9(role_of(host))
        self._cluster.wait_restarted(role_of(host), pid)
        shutil.rmtree(gone)

    def _compare(self, loader: Loader, outcome: Outcome) -> None:
        """The cells of a table beside those of the acknowledged batches."""
        workload = loader.workload
        expected = loader.expectation.after(loader.acknowledged)
        shown = self._cluster.client.scan(workload.table).table()
        keys = list(zip(*(shown.column(name).to_pylist() for name in ("row", "family", "qualifier")), strict=True))
        found = dict(zip(keys, shown.column("value").to_pylist(), strict=True))
        outcome.lost += [f"{workload.table}: {key}" for key in expected if found.get(key) != expected[key]]
        outcome.lost += [f"{workload.table}: {row!r} is pointed at" for row in undefined_pointers(found)]
        outcome.repeated += [f"{workload.table}: {key}" for key in found.keys() - expected.keys()]
        outcome.repeated += [f"{workload.table}: a cell is shown twice"] * (len(keys) - len(found))


def role_of(host: str) -> str:
    """The role of a host's tserver."""
    return "tserver1" if host == HOSTS[0] else f"{host}.tserver1"


def run() -> list[Figure]:
    """Measure; takes the better part of an hour."""
    return measure()


def measure(rounds: int = ROUNDS, seed: int = SEED) -> list[Figure]:
    """So many rounds on one cluster."""
    with ExitStack() as cleanup:
        base = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="bookkeeper-bench-")))
        cluster = cleanup.enter_context(Cluster(base / "own", "own", tservers=1, overrides=SETTINGS))
        lease_s = cluster.settings.coordination.session_lease_ms / 1e3
        return figures_of(Trial(cluster, seed).run(rounds), lease_s)


def figures_of(outcome: Outcome, lease_s: float) -> list[Figure]:
    """The figures of all rounds."""
    rounds = f"in {outcome.kills} kills and {outcome.wipes} wipes"
    found = [
        noted(exactly(f"acknowledged cells lost {rounds}", len(outcome.lost), 0, "none"), outcome.lost),
        noted(exactly(f"cells repeated, or back again, {rounds}", len(outcome.repeated), 0, "none"), outcome.repeated),
    ]
    if outcome.felt_s:
        name = f"kill -9 to the next acknowledged write of all tablets, slowest of {outcome.kills}"
        found.append(outage(name, max(outcome.felt_s), lease_s, SERVING_S))
    return found


def noted(figure: Figure, lines: list[str]) -> Figure:
    """The figure with its first lines."""
    return Figure(**{**figure, "note": "; ".join(lines[:3])}) if lines else figure
