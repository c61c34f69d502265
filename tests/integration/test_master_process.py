"""Real master processes, killed, stopped and ended, with tservers beside them and a peer that receives."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest

from bookkeeper.errors import BookkeeperError, NotServingError, UnavailableError
from bookkeeper.metadata import keys
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import ScanRequest, WriteBatch
from bookkeeper.rpc.contract.services import Master
from bookkeeper.standalone.ports import free_ports
from bookkeeper.storage.wal.blocks.block import decode_batch, encode_batch
from tests.support.local_replay import LocalReplay
from tests.support.masters import MasterNode, eventually
from tests.support.standstill import stand_still
from tests.support.tservers import Ground, ProcessNode, cells_of, records, wait_until

pytestmark = pytest.mark.integration

QUICK: dict[str, object] = {
    "master.scan_interval_ms": 500,
    "master.gc_interval_ms": 300,
    "master.backoff_max_ms": 500,
    "tserver.stream_idle_timeout_ms": 1_000,
    "coordination.session_lease_ms": 10_000,
    "coordination.session_renew_ms": 500,
    "coordination.session_margin_ms": 500,
}
"""Files and streams go within seconds; leases outlive a busy machine."""


class _Persistent:
    """Each attribute is a method of the leading master."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *arguments: eventually(lambda: getattr(self._cluster.leader(), name)(*arguments))


class Cluster:
    """Processes of one cluster, and a client that finds its way."""

    def __init__(self, directory: Path, name: str, stack: ExitStack) -> None:
        self.ground = Ground(directory, name, QUICK)
        stack.callback(self.ground.close)
        self._stack = stack

    def master(self, port: int | None = None) -> MasterNode:
        """One more master process."""
        settings = self.ground.settings
        number = port or settings.master.port
        node = MasterNode(settings, settings.logs_dir / f"master-{number}.log", port)
        self._stack.callback(node.end)
        eventually(lambda: self.ground.pool.master(node.address).leader())
        return node

    @property
    def calls(self) -> Master:
        """Calls to the master that leads at the time of the call, repeated while they fail for now."""
        return cast(Master, _Persistent(self))

    def leader(self) -> Master:
        """The master that leads now."""
        address = self.leading()
        if address is None:
            raise UnavailableError("no master leads")
        return self.ground.pool.master(address)

    def leading(self) -> str | None:
        """The address of the leader; None while no master leads."""
        leader = self.ground.coordination.leader()
        return None if leader is None else leader.address

    def tservers(self, count: int) -> list[ProcessNode]:
        """Tserver processes."""
        return [self.ground.process() for _ in range(count)]

    def replay(self) -> LocalReplay:
        """A replay process inside the test."""
        return self._stack.enter_context(LocalReplay(self.ground.settings, self.ground.coordination))

    def write(self, table_id: str, rows: list[tuple[bytes, bytes]]) -> None:
        """Write until acknowledged at sync."""
        for extent in [location.extent for location in self.calls.locate(table_id)]:
            share = [row for row in rows if extent.contains(row[0])]
            if share:
                eventually(lambda extent=extent, share=share: self._write(table_id, extent, share))  # type: ignore[misc]

    def _write(self, table_id: str, extent: Extent, share: list[tuple[bytes, bytes]]) -> None:
        batch = WriteBatch(extent, encode_batch(records(share)).to_pybytes())
        answer = self.ground.pool.tserver(self._home(table_id, extent)).write([batch], "sync", "", 0)
        if answer.not_serving:
            raise NotServingError("not there")

    def _home(self, table_id: str, extent: Extent) -> str:
        for location in self.leader().locate(table_id):
            if location.extent == extent and location.address is not None:
                return location.address
        raise NotServingError("nowhere")

    def rows(self, table_id: str) -> set[bytes]:
        """All rows of a table."""
        found: set[bytes] = set()
        for extent in [location.extent for location in self.calls.locate(table_id)]:
            found |= eventually(lambda extent=extent: self._rows(table_id, extent))  # type: ignore[misc]
        return found

    def _rows(self, table_id: str, extent: Extent) -> set[bytes]:
        request = ScanRequest(extent, None, None, (), (), None, 1 << 22)
        page = self.ground.pool.tserver(self._home(table_id, extent)).scan(request)
        return {row for row, _, _ in cells_of(decode_batch(page.records))}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    """Everything that has to end."""
    with ExitStack() as held:
        yield held


@pytest.fixture
def west(tmp_path: Path, stack: ExitStack) -> Cluster:
    """A cluster without processes."""
    return Cluster(tmp_path / "west", "west", stack)


def _batch(name: str, count: int = 50) -> list[tuple[bytes, bytes]]:
    """Rows spread over both tablets."""
    return [(f"{'az'[n % 2]}-{name}-{n:04d}".encode(), b"v") for n in range(count)]


def _paired(tmp_path: Path, west: Cluster, stack: ExitStack, tservers: int = 2) -> tuple[Cluster, str, str]:
    """Table ``t`` of west goes to east; everything runs. Returns east and the two table ids."""
    east = Cluster(tmp_path / "east", "east", stack)
    for one in (west, east):
        one.tservers(tservers)
        if one is east:
            one.master()
    ids = [one.calls.create_table("t", [b"m"], [], {}).table_id for one in (west, east)]
    west.replay()
    west.calls.define_cluster("east", east.ground.settings.master.address)
    west.calls.enable_replication("t", [], "east", "")
    return east, ids[0], ids[1]


def _drained(west: Cluster) -> Callable[[], bool]:
    """Whether everything that was acknowledged before has arrived."""
    marks = list(west.calls.replication_mark("t"))

    return lambda: not west.calls.replication_pending(marks, "t", "")


def test_when_the_leader_is_killed_another_master_leads_and_knows_everything(west: Cluster) -> None:
    first, second = west.master(), west.master(free_ports(1)[0])
    assert west.ground.pool.master(second.address).leader() == first.address
    table = west.calls.create_table("t", [b"m"], [], {})
    before = west.ground.coordination.leader()
    first.kill9()
    wait_until(lambda: west.leading() == second.address, "the other master leads")
    assert list(west.calls.tables()) == [table]
    after = west.ground.coordination.leader()
    assert before is not None
    assert after is not None
    assert after.epoch > before.epoch


def test_a_master_ends_cleanly_when_it_is_told_to_and_another_leads_at_once(west: Cluster) -> None:
    first, second = west.master(), west.master(free_ports(1)[0])
    assert first.terminate() == 0
    wait_until(lambda: west.leading() == second.address, "the other master leads")
    assert second.terminate() == 0


def test_a_leader_that_was_stopped_for_longer_than_its_lease_ends(west: Cluster) -> None:
    first, second = west.master(), west.master(free_ports(1)[0])
    west.calls.create_table("t", [], [], {})
    stand_still(first.process.pid, west.ground.settings)
    wait_until(lambda: west.leading() == second.address, "the other master leads")
    west.calls.create_table("u", [], [], {})
    first.signal(signal.SIGCONT)
    assert first.process.wait(60) == 70
    assert sorted(table.name for table in west.calls.tables()) == ["t", "u"]


def test_an_operation_that_outlives_its_master_is_finished_by_the_next(west: Cluster) -> None:
    """A tserver is stopped, so deleting a table waits for it; then the master is killed."""
    first = west.master()
    (held,) = west.tservers(1)
    west.calls.create_table("t", [], [], {})
    stand_still(held.process.pid, west.ground.settings)
    failed: list[BookkeeperError] = []
    asking: list[threading.Thread] = []

    def delete() -> None:
        try:
            west.leader().delete_table("t")
        except BookkeeperError as error:
            failed.append(error)

    def under_way() -> bool:
        return any(row for row in west.ground.metadata.scan(*keys.section(keys.FATE_PREFIX)))

    def begun() -> bool:
        """A busy leader may not take the request at once."""
        if not under_way() and not any(thread.is_alive() for thread in asking):
            failed.clear()
            asking.append(threading.Thread(target=delete))
            asking[-1].start()
        return under_way()

    wait_until(begun, "the operation in the books")
    first.kill9()
    asking[-1].join(60)
    assert failed, "the caller lost its master"
    west.master(free_ports(1)[0])
    held.signal(signal.SIGCONT)
    wait_until(lambda: not west.calls.tables(), "the table deleted")
    wait_until(lambda: not under_way(), "the operation ended")


@pytest.mark.long
def test_nothing_acknowledged_is_lost_when_tservers_and_masters_are_killed_and_all_of_it_arrives(
    tmp_path: Path, west: Cluster, stack: ExitStack
) -> None:
    masters = [west.master(), west.master(free_ports(1)[0])]
    east, source, target = _paired(tmp_path, west, stack)
    written: set[bytes] = set()
    for round_ in range(3):
        batch = _batch(f"r{round_}")
        west.write(source, batch)
        written |= {row for row, _ in batch}
        if round_ == 0:
            victim = next(node for node in west.ground._nodes if isinstance(node, ProcessNode))
            victim.kill9()
        if round_ == 1:
            next(node for node in masters if node.address == west.leading()).kill9()
    assert west.rows(source) == written
    wait_until(_drained(west), "everything at the peer")
    assert east.rows(target) == written


@pytest.mark.long
def test_files_go_when_everything_has_arrived_and_the_peer_forgets_their_streams(
    tmp_path: Path, west: Cluster, stack: ExitStack
) -> None:
    west.master()
    east, source, target = _paired(tmp_path, west, stack)
    west.write(source, _batch("one"))
    victim = next(node for node in west.ground._nodes if isinstance(node, ProcessNode))
    logs = west.ground.logs_of(victim)
    victim.kill9()
    west.write(source, _batch("two"))
    wait_until(_drained(west), "everything at the peer")
    assert len(east.rows(target)) == 100
    west.calls.flush_table("t")

    def nothing_is_left() -> bool:
        rows = list(west.ground.metadata.scan(keys.TABLETS_START, keys.TABLETS_STOP, ("repl", "log")))
        named = {name for row in rows for column in row.cells for name in logs if column.qualifier == name.encode()}
        return not named and not west.ground.logs_of(victim)

    wait_until(nothing_is_left, "the dead tserver's logs gone")
    wait_until(lambda: not _books_of(west, logs), "their finished cells gone")
    wait_until(lambda: not _received_of(east, logs), "the peer has forgotten them")
    wait_until(lambda: victim.session_id not in _sessions(west), "the dead session forgotten")


def _sessions(west: Cluster) -> set[str]:
    return {info.session_id for info in west.ground.coordination.sessions("tserver")}


def _books_of(west: Cluster, logs: list[str]) -> list[bytes]:
    return [name.encode() for name in logs if west.ground.metadata.get(keys.repl_row(name)) is not None]


def _received_of(east: Cluster, logs: list[str]) -> list[bytes]:
    rows = east.ground.metadata.scan(*keys.section(keys.RECV_PREFIX))
    return [row.key for row in rows if any(name in row.key.decode() for name in logs)]
