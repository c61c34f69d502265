"""Two clusters and the ZooKeeper of one of them, each on a machine of its own, with boot clocks a day apart.

A link fails in one direction, and the peer's master gets another port meanwhile. The test is on a fourth machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from bookkeeper.client import Client, Mutation
from tests.support.hbase import HBaseUnavailableError
from tests.support.machine_hosts import READY_MS, ClusterThere
from tests.support.machines import Machines, why_no_machines
from tests.support.tservers import wait_until
from tests.support.zookeeper import Member, ZooKeeperServer

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.machines,
    pytest.mark.spark,
    pytest.mark.timeout(300),
]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    if (reason := why_no_machines()) is not None:
        pytest.skip(reason)
    with ExitStack() as made:
        yield made


def put(client: Client, row: str) -> None:
    with client.writer("t") as writer:
        writer.add(Mutation(row.encode()).put(b"f", b"q", b"1"))


def rows(client: Client) -> list[str]:
    return [cell.row.decode() for cell in client.scan("t").cells()]


def test_a_peer_on_another_machine_is_found_again_behind_a_cut_in_one_direction(
    stack: ExitStack, tmp_path: Path
) -> None:
    machines = stack.enter_context(Machines(tmp_path, 4))
    there, at_east, at_west, here = machines.all
    stack.enter_context(here.network())
    server = ZooKeeperServer(there.directory / "zookeeper", member=Member(0, (), there))
    try:
        stack.enter_context(server)
    except HBaseUnavailableError as error:
        pytest.skip(f"NO ZOOKEEPER, so no peer on another machine was tested: {error}")
    url = f"zk://{server.quorum}/east"
    east, west = ClusterThere(at_east, "east", {"coordination.url": url}), ClusterThere(at_west, "west")
    for cluster in (east, west):
        stack.callback(cluster.stop)
    reader, writer = stack.enter_context(east.start()), stack.enter_context(west.start())
    for client in (reader, writer):
        client.tables.create("t")
    writer.replication.define_cluster("east", url)
    writer.replication.enable("t", "east")
    put(writer, "before")
    assert not writer.replication.wait("t", timeout_ms=60_000)

    machines.cut_one_way(at_east, at_west)
    put(writer, "cut")
    wait_until(lambda: machines.dropped(at_east, at_west) > 0, "an answer that is lost")
    east.stop()
    east.move_master()
    stack.enter_context(east.start())
    put(writer, "moved")
    machines.join_all()
    assert not writer.replication.wait("t", timeout_ms=120_000)
    with Client.connect(url, budget_ms=READY_MS) as again:
        assert rows(again) == rows(writer) == ["before", "cut", "moved"]
