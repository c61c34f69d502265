"""The client against real clusters: acknowledged writes are there, even when processes of the clusters fail."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable

import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import ExistsError, InvalidInputError, NotFoundError
from bookkeeper.model import LocalityGroup
from tests.support.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SPLITS = [b"3", b"6"]


def _row(number: int) -> bytes:
    return b"%d-%06d" % (number % 10, number)


def _write_until(client: Client, table: str, enough: Callable[[int], bool]) -> int:
    """Write numbered rows, flushing now and then, until ``enough``; returns how many."""
    count = 0
    with client.writer(table) as writer:
        while not enough(count):
            writer.add(Mutation(_row(count)).put(b"f", b"n", b"%d" % count))
            count += 1
            if count % 500 == 0:
                writer.flush()
    return count


def _numbers(client: Client, table: str) -> list[int]:
    return sorted(int(cell.value) for cell in client.scan(table).cells())


def test_tables_are_made_changed_and_deleted(west: Cluster) -> None:
    tables = west.client.tables
    made = tables.create("made", SPLITS, [LocalityGroup("g", (b"f",))], {"table.custom.note": "x"})
    assert (made.name, made.state, made.groups) == ("made", "online", (LocalityGroup("g", (b"f",)),))
    assert len(tables.locate(made.table_id)) == 3
    with pytest.raises(ExistsError):
        tables.create("made")
    tables.set_groups("made", [LocalityGroup("h", (b"k",))])
    assert tables.get("made").groups == (LocalityGroup("h", (b"k",)),)
    with pytest.raises(InvalidInputError):
        tables.set_groups("made", [LocalityGroup("default", (b"k",))])
    tables.delete("made")
    with pytest.raises(NotFoundError):
        tables.get("made")
    with pytest.raises(NotFoundError):
        tables.delete("made")


def test_a_client_that_remembers_a_deleted_table_sees_nothing_of_it_any_more(west: Cluster) -> None:
    def write(value: bytes) -> None:
        west.client.tables.create("passing", SPLITS)
        with west.client.writer("passing") as writer:
            writer.add_all(Mutation(row).put(b"f", b"n", value) for row in (b"1", b"5", b"9"))

    def values(client: Client) -> list[bytes]:
        return [cell.value for cell in client.scan("passing").cells()]

    with Client.connect(west.directory) as other:
        for value in (b"first", b"second"):
            write(value)
            assert values(other) == [value] * 3
            west.client.tables.delete("passing")
        with pytest.raises(NotFoundError):
            values(other)


def test_the_newest_change_of_a_cell_shows_and_a_flush_changes_nothing(west: Cluster) -> None:
    client = west.client
    client.tables.create("cells", SPLITS)
    with client.writer("cells") as writer:
        for row in (b"1", b"5", b"9"):
            writer.add(Mutation(row).put(b"f", b"a", b"1").put(b"f", b"b", b"1").put(b"g", b"a", b"1"))
            writer.add(Mutation(row).put(b"f", b"a", b"2").delete(b"f", b"b"))
    expected = [(row, f, b"a", v) for row in (b"1", b"5", b"9") for f, v in ((b"f", b"2"), (b"g", b"1"))]
    for _ in range(2):
        seen = [(c.row, c.family, c.qualifier, c.value) for c in client.scan("cells").cells()]
        assert seen == expected
        assert client.scan("cells", families=[b"g"]).table().num_rows == 3
        assert client.scan("cells", b"5", b"9", columns=[(b"f", b"a")]).table().num_rows == 1
        client.tables.flush("cells")
    client.tables.delete("cells")


def test_nothing_acknowledged_is_lost_when_tservers_and_the_master_are_killed(west: Cluster) -> None:
    client = west.client
    client.tables.create("killed", SPLITS)
    over = threading.Event()

    def outages() -> None:
        try:
            for role in ("tserver1", "master", "tserver2"):
                west.wait_restarted(role, west.kill9(role))
        finally:
            over.set()

    trouble = threading.Thread(target=outages)
    trouble.start()
    count = _write_until(client, "killed", lambda count: over.is_set() and count >= 2_000)
    trouble.join()
    assert _numbers(client, "killed") == list(range(count))
    client.tables.delete("killed")


def test_a_stopped_tserver_is_replaced_while_a_client_writes(west: Cluster) -> None:
    client = west.client
    client.tables.create("stopped", SPLITS)
    count = _write_until(client, "stopped", lambda count: count >= 1_000)
    pid = west.pid("tserver1")
    coordination = open_coordination(west.settings)
    before = {info.session_id for info in coordination.sessions("tserver") if info.alive}
    os.kill(pid, signal.SIGSTOP)
    try:
        west.wait_until(
            lambda: any(i.session_id in before and not i.alive for i in coordination.sessions("tserver")),
            "the stopped tserver to count as dead",
        )
        with client.writer("stopped") as writer:
            for number in range(count, count + 500):
                writer.add(Mutation(_row(number)).put(b"f", b"n", b"%d" % number))
    finally:
        with contextlib.suppress(ProcessLookupError):  # the supervisor has ended it, unless the test failed early
            os.kill(pid, signal.SIGCONT)
        coordination.close()
    assert _numbers(client, "stopped") == list(range(count + 500))
    west.wait_restarted("tserver1", pid)
    assert _numbers(client, "stopped") == list(range(count + 500))
    client.tables.delete("stopped")


def test_waiting_for_replication_ends_while_others_go_on_writing(west: Cluster, east: Cluster) -> None:
    source, peer = west.client, east.client
    source.tables.create("waited", SPLITS)
    peer.tables.create("waited")
    source.replication.define_cluster("east", east.quorum)
    source.replication.enable("waited", "east")
    before = _write_until(source, "waited", lambda count: count >= 1_000)
    over = threading.Event()
    writing = threading.Thread(
        target=_write_until, args=(source, "waited", lambda count: over.is_set() and count > before)
    )
    writing.start()
    try:
        assert not source.replication.wait("waited", "east")
        assert set(range(before)) <= set(_numbers(peer, "waited"))
    finally:
        over.set()
        writing.join()
    assert not source.replication.wait("waited", "east")
    assert _numbers(peer, "waited") == _numbers(source, "waited")
    source.replication.disable("waited", "east")
    for client in (source, peer):
        client.tables.delete("waited")
