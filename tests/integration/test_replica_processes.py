"""Three hosts as processes: leaders are killed under load, followers lose their disks, and no acknowledged row goes."""

from __future__ import annotations

import random
import shutil
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from bookkeeper.config.file import load_settings
from bookkeeper.errors import RefusedError, TransientError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import ReplicaCell
from bookkeeper.model import Extent
from bookkeeper.standalone.joining import join_cluster
from tests.support.standstill import stand_still
from tests.support.tservers import Ground, ProcessNode, flush_of, ground, logs_in_row, records, wait_until

pytestmark = pytest.mark.integration

NAMES = ("host1", "host2", "host3")
ROUNDS = 4


class Machines:
    """Three hosts, each with a process, and a tablet that one of them leads."""

    def __init__(self, west: Ground, directory: Path) -> None:
        self.west = west
        self.homes = {NAMES[0]: west.settings.directory}
        for name in NAMES[1:]:
            self.homes[name] = join_cluster(directory / name, west.settings.directory, name).directory
        self.nodes = {name: west.process(self.homes[name]) for name in NAMES}
        (self.extent,) = west.create_table("1")
        west.set_properties("1", {"table.replicas": "3", "table.compaction.segments_max": "3"})
        self._ranks = 0
        for name in NAMES:
            self.place(name)
        self.leader = NAMES[0]
        self.lead(self.leader)

    def place(self, name: str) -> None:
        """Give a host a replica, with its disk of this moment."""
        self._ranks += 1
        incarnation = (load_settings(self.homes[name]).replicas_dir / "incarnation").read_text()
        cell = ReplicaCell(f"p{self._ranks}", incarnation, "voter").encode()
        row = RowPut(keys.tablet_row("1", None), {keys.replica_column(name): cell})
        self.west.metadata.put([row], keys.master_rank(1, self._ranks))

    def lead(self, name: str) -> None:
        """Let a host lead."""
        self.west.assign(self.nodes[name], self.extent)
        self.leader = name

    def node(self) -> ProcessNode:
        """The leader's process."""
        return self.nodes[self.leader]

    def root(self, name: str) -> int | None:
        """The newest state on a host."""
        held = self.west.tserver(self.nodes[name]).replicas("", False).replicas
        return held[0].root if held else None

    def wait_same(self) -> None:
        """Wait until all hosts have the leader's newest state."""
        wait_until(lambda: len({self.root(name) for name in NAMES}) == 1, "three equal replicas")

    def kill(self) -> None:
        """Kill the leader."""
        self.node().kill9()
        self.west.recover_logs(self.node())

    def start(self, name: str) -> None:
        """Start a host again."""
        self.nodes[name] = self.west.process(self.homes[name])

    def wipe(self, name: str) -> None:
        """A follower's disk is destroyed, and the host gets a new replica on an empty one."""
        self.nodes[name].kill9()
        self.west.recover_logs(self.nodes[name])
        shutil.rmtree(load_settings(self.homes[name]).replicas_dir)
        self.start(name)
        self.place(name)


@pytest.fixture
def machines(tmp_path: Path) -> Iterator[Machines]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20}) as west:
        yield Machines(west, tmp_path)


class Writer:
    """Writes one row after the other until its leader dies; knows which ones were acknowledged."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self.acked: dict[bytes, bytes] = {}
        self.tried = 0

    def write_until_it_fails(self, node: ProcessNode, extent: Extent) -> None:
        """Raises nothing: the leader's death ends it."""
        with suppress(TransientError):
            while True:
                row = b"%06d" % self.tried
                self.tried += 1
                if self._machines.west.write(node, extent, records([(row, row)])):
                    return
                self.acked[row] = row


class Round:
    """One leader under load, until it is killed."""

    def __init__(self, machines: Machines, writer: Writer, rng: random.Random) -> None:
        self._machines = machines
        self._writer = writer
        self._rng = rng

    def play(self, pool: ThreadPoolExecutor) -> str:
        """Write and flush, then kill the leader; returns its name."""
        machines, dead = self._machines, self._machines.leader
        writing = pool.submit(self._writer.write_until_it_fails, machines.node(), machines.extent)
        for _ in range(self._rng.randrange(4)):
            wanted = len(self._writer.acked) + self._rng.randrange(5, 40)
            wait_until(lambda: len(self._writer.acked) >= wanted or writing.done(), "acknowledged rows")  # noqa: B023
            machines.west.tserver(machines.node()).flush_tablet(machines.extent)
        machines.kill()
        writing.result(60.0)
        return dead

    def check(self) -> None:
        """The present leader has each acknowledged row."""
        found = self._machines.west.scan(self._machines.node(), self._machines.extent)
        missing = [row for row in self._writer.acked if (row, b"f", b"q") not in found]
        assert not missing, f"{len(missing)} acknowledged rows are missing, the first is {missing[0]!r}"


@pytest.mark.long
def test_leaders_are_killed_and_disks_are_lost_and_nothing_acknowledged_is_missing(machines: Machines) -> None:
    rng = random.Random(1)
    each = Round(machines, Writer(machines), rng)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(ROUNDS):
            dead = each.play(pool)
            first, second = rng.sample([name for name in NAMES if name != dead], 2)
            try:
                machines.lead(first)
            except RefusedError:  # two hosts have the named state: the dead one, and the other one
                machines.lead(second)
            each.check()
            machines.start(dead)
            machines.wait_same()
            if rng.random() < 0.5:
                machines.wipe(rng.choice([name for name in NAMES if name != machines.leader]))
                machines.wait_same()


def test_a_stopped_host_delays_neither_writes_nor_the_copies_of_others(machines: Machines) -> None:
    stopped = machines.nodes["host3"]
    stand_still(stopped.process.pid, machines.west.settings)
    try:
        for row in (b"a", b"b"):
            assert machines.west.write(machines.node(), machines.extent, records([(row, row)])) == ()
            machines.west.tserver(machines.node()).flush_tablet(machines.extent)
        wait_until(lambda: machines.root("host2") == machines.root("host1"), "the copy of the other host")
        wait_until(lambda: flush_of(machines.west, machines.extent).flush_id == machines.root("host1"), "a name")
        wait_until(lambda: not logs_in_row(machines.west, machines.extent), "a row without logs")
    finally:
        stopped.signal(signal.SIGCONT)
    machines.wait_same()
