"""Starts of commands and processes, and how long a killed process is felt.

The reference of a start is the same interpreter that imports Arrow alone. The reference of a failover is a start of a
tserver's code from nothing: a restart that imported it anew could not be faster.
"""

from __future__ import annotations

import random
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import psutil

from bookkeeper.client import Mutation
from bookkeeper.client.client import Client
from bookkeeper.clock import SystemClock
from bookkeeper.standalone.children.forked_starts import STABLE_AFTER_MS
from bookkeeper.standalone.cluster_process import read_role
from tests.benchmarks.figure import Figure
from tests.support.cluster import Cluster

ROUNDS = 7
KILLS = 7
TABLE = "starts"
REPLICATED = "replicated"

PYTHON = sys.executable
ARROW = [PYTHON, "-c", "import pyarrow"]
COLD = [PYTHON, "-c", "import bookkeeper.tserver.run"]


def wall_ms(command: Sequence[str]) -> float:
    """The median time of a command as a process."""
    clock, found = SystemClock(), []
    for _ in range(ROUNDS):
        began_ns = clock.boot_ns()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found.append((clock.boot_ns() - began_ns) / 1e6)
    return statistics.median(found)


def cpu_ms(command: Sequence[str]) -> float:
    """The median CPU time of a command as a process."""
    found = []
    for _ in range(ROUNDS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3)
    return statistics.median(found)


def figure(name: str, value_ms: float, reference_ms: float, reference: str, most_ms: float) -> Figure:
    """One row; the least is best."""
    return {
        "name": name,
        "value": value_ms,
        "unit": "ms",
        "reference": reference_ms,
        "reference_name": reference,
        "reference_unit": "ms",
        "ratio": value_ms / reference_ms,
        "target": most_ms,
        "lower_is_better": True,
    }


def put(client: Client, table: str, row: bytes) -> None:
    """One acknowledged write."""
    with client.writer(table) as writer:
        mutation = Mutation(row)
        mutation.put(b"f", b"q", b"v")
        writer.add(mutation)


class Failovers:
    """Kills of one process after the other, each of which has lived long enough to be restarted at once."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._clock, self._never, self._rng = SystemClock(), threading.Event(), random.Random(1)

    def medians_ms(self, roles: Sequence[Callable[[], str]], table: str) -> list[float]:
        """For each role, the median of several: from a kill -9 to the next acknowledged write of a client that was
        connected. The roles die in turn, so that one wait serves all of them.
        """
        found: list[list[float]] = [[] for _ in roles]
        for number in range(KILLS):
            for role, times in zip(roles, found, strict=True):
                name = role()
                self._wait_stable(name)
                times.append(self._felt_ms(name, table, b"row%d" % number))
        return list(map(statistics.median, found))

    def _felt_ms(self, name: str, table: str, row: bytes) -> float:
        began_ns = self._clock.boot_ns()
        self._cluster.kill9(name)
        if name == "master":
            with Client.connect(self._cluster.directory) as client:  # one that knows no tablet asks the master
                put(client, table, row)
        else:
            put(self._cluster.client, table, row)
        return (self._clock.boot_ns() - began_ns) / 1e6

    def _wait_stable(self, role: str) -> None:
        """Wait until the process has lived for a while, and the kill falls at any moment of the master's interval."""
        process = psutil.Process(read_role(self._cluster.directory, role).pid)
        age_s = (self._clock.wall_ms() / 1e3) - process.create_time()
        self._clock.wait(self._never, max(0.0, STABLE_AFTER_MS - age_s * 1e3) + 500 * self._rng.random())


def leader_of(cluster: Cluster) -> str:
    """The role of the tserver that leads the only tablet of the replicated table."""
    table_id, found = cluster.client.tables.get(REPLICATED).table_id, ""

    def is_led() -> bool:
        nonlocal found
        tablets = cluster.client.hosts.replicas(table_id)
        found = next((one.host for tablet in tablets for one in tablet.replicas if one.leads), "")
        return bool(found)

    cluster.wait_until(is_led, "leader")
    return "tserver1" if found == cluster.settings.host.name else f"{found}.tserver1"


def process_cpu_ms(cluster: Cluster) -> float:
    """CPU of the master, the tserver and the replay process until the cluster answers, a process on average."""
    used = [psutil.Process(read_role(cluster.directory, role).pid).cpu_times() for role in ROLES]
    return 1e3 * sum(times.user + times.system for times in used) / len(ROLES)


ROLES = ("master", "tserver1", "replay")


def run() -> list[Figure]:
    """All figures."""
    arrow, cold = wall_ms(ARROW), wall_ms(COLD)
    alone, imports = "import of Arrow alone", "import of its code"
    found = [
        figure("bookkeeper --help", wall_ms([PYTHON, "-m", "shell.main", "--help"]), arrow, alone, 200),
        figure("import bookkeeper.client", wall_ms([PYTHON, "-c", "import bookkeeper.client"]), arrow, alone, 350),
    ]
    with tempfile.TemporaryDirectory() as name:
        with Cluster(Path(name) / "west", "west", tservers=1, overrides={"monitor.port": 0}) as west:
            used = process_cpu_ms(west)
            found.append(figure("CPU of a process until it serves", used, cpu_ms(COLD), imports, 400))
            west.client.tables.create(TABLE)
            command = [PYTHON, "-m", "shell.main", "shell", str(west.directory), "tables"]
            found.append(figure("bookkeeper shell DIR tables", wall_ms(command), arrow, alone, 450))
            roles = ("tserver1", "master")
            for role, value in zip(
                roles, Failovers(west).medians_ms([partial(str, r) for r in roles], TABLE), strict=True
            ):
                found.append(figure(f"kill -9 of {role} to the next acknowledged write", value, cold, imports, 350))
        three = {"monitor.port": 0, "standalone.hosts": 3}
        with Cluster(Path(name) / "east", "east", tservers=1, overrides=three) as east:
            east.client.tables.create(REPLICATED, properties={"table.replicas": "3"})
            put(east.client, REPLICATED, b"first")
            [value] = Failovers(east).medians_ms([partial(leader_of, east)], REPLICATED)
            found.append(figure("kill -9 of a leader to the next acknowledged write", value, cold, imports, 350))
    return found
