"""A write to books in an HBase cluster, whose way stands still: how late it arrives (R4)."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

import happybase
import psutil
import pytest
from happybase.pool import TException

from bookkeeper.clock import SystemClock
from bookkeeper.config.sections import Settings
from bookkeeper.metadata.flight import books_flight_ms, gateway_silence_ms
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.standalone.hbase.gateway import Gateway
from bookkeeper.standalone.hbase.gateway_watch import GatewayWatch
from tests.support.cluster import Cluster
from tests.support.faults import fault
from tests.support.hbase_cluster import SESSION_MS, HBaseCluster
from tests.support.namespaces import Namespace, why_no_namespaces
from tests.support.tservers import wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.hbase,
    pytest.mark.long,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("hbase_cluster_is_left_whole"),
]

CALL_MS = 1_500
LATE, FAMILY = b"~late", b"fate"
"""A row of the books in which nobody looks for this family."""
TABLE = "alone_metadata"
CLOCK = SystemClock()
LONG_SESSION_MS = 150_000
"""ZooKeeper hears from an idle server three times in its session: it outlives a standstill of two thirds of it."""
STOPPED_S = 85.0
ENDS = "ABORTING region server"
CUT_S = 30.0
"""Longer than the gateway tries."""
SENT_AGAIN_S = 65.0
"""The kernel sends again what is unconfirmed after 0.2 s, 0.4 s and so on: 51 s after the first time, too."""
KERNEL_HOLDS = "the kernel keeps a write of a gateway that was killed, for a link that was cut"


def now() -> float:
    return CLOCK.boot_ns() / 1e9


def wait_s(seconds: float) -> None:
    """The fault lasts so long."""
    CLOCK.wait(threading.Event(), seconds * 1_000)


@pytest.fixture(scope="module")
def settings(hbase_cluster: HBaseCluster, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    directory, url = tmp_path_factory.mktemp("made") / "alone", hbase_cluster.url("alone")
    return init_cluster(directory, "alone", metadata_url=url, overrides={"metadata.region_session_ms": LONG_SESSION_MS})


@contextmanager
def watched(settings: Settings) -> Iterator[GatewayWatch]:
    """The host's gateway, and its watch as the supervisor runs it."""
    silence_ms = gateway_silence_ms(settings)
    watch, stop = GatewayWatch(Gateway.of_host(settings), silence_ms, lambda _: None, CLOCK), threading.Event()
    thread = threading.Thread(target=watch.run, args=(stop,))
    thread.start()
    try:
        assert watch.has_answered.wait(60)
        yield watch
    finally:
        stop.set()
        thread.join()


@contextmanager
def connected(settings: Settings, timeout_ms: int = 60_000) -> Iterator[happybase.Table]:
    with closing(happybase.Connection("127.0.0.1", settings.standalone.gateway_port, timeout=timeout_ms)) as books:
        yield books.table(TABLE)


def put_and_give_up(settings: Settings) -> float:
    """A client writes, gives up, and ends. Returns when it ended."""
    with pytest.raises(TimeoutError), connected(settings, CALL_MS) as books:
        books.put(LATE, {FAMILY + b":q": b"v"})
    return now()


def prepared(settings: Settings) -> None:
    """The row is not there, and the gateway knows its region."""
    with connected(settings) as books:
        books.delete(LATE)
        books.put(b"~warm", {FAMILY + b":q": b"v"})


def arrival_s(settings: Settings, ended: float, until_s: float) -> float | None:
    """How long after its client's end the write was there; None when it was not within ``until_s``."""
    while now() - ended < until_s:
        with suppress(OSError, TException), connected(settings) as books:
            if books.row(LATE):
                print(f"a write arrived {now() - ended:.1f} s after its writer's end")
                return now() - ended
        wait_s(0.5)
    with connected(settings) as books:
        assert not books.row(LATE), "HBase serves again"
    return None


def late_through_cut_link(hbase: HBaseCluster, settings: Settings, *, killed: bool) -> float | None:
    """``killed``: the gateway, too, while the link is cut."""
    network = hbase.network
    if not isinstance(network, Namespace):
        pytest.skip(why_no_namespaces() or "the servers share the network of the test")
    with watched(settings) as watch:
        prepared(settings)
        port = hbase.ports[hbase.server_of(TABLE, LATE)]
        network.cut(port)
        try:
            ended = put_and_give_up(settings)
            if killed:
                pid = watch.gateway.pid
                assert pid is not None
                os.kill(pid, signal.SIGKILL)
            wait_s(CUT_S)
            # A region server drops a late write if it sees the end of the connection first, so the kernel is asked.
            assert not (killed and is_held(network.address, port)), KERNEL_HOLDS
        finally:
            network.join(port)
        return arrival_s(settings, ended, SENT_AGAIN_S)


def is_held(address: str, port: int) -> bool:
    """Whether the kernel keeps bytes of a process that has ended for this server."""
    connections = psutil.net_connections("tcp")
    return any(one.raddr == (address, port) and one.status == psutil.CONN_FIN_WAIT1 for one in connections)


@pytest.mark.parametrize("killed", [False, True], ids=["gateway goes on", "gateway is killed"])
def test_r4_a_write_into_a_link_that_is_cut_never_arrives(
    hbase_cluster: HBaseCluster, settings: Settings, killed: bool
) -> None:
    late_s = late_through_cut_link(hbase_cluster, settings, killed=killed)
    assert late_s is None, f"a write arrived {late_s:.0f} s after its writer's end, through a link that was cut"


def test_r4_red_the_kernel_keeps_a_write_of_a_killed_gateway_until_the_link_is_back(
    hbase_cluster: HBaseCluster, settings: Settings
) -> None:
    with fault("gateways-leave-it-to-the-kernel"), pytest.raises(AssertionError, match=KERNEL_HOLDS):
        test_r4_a_write_into_a_link_that_is_cut_never_arrives(hbase_cluster, settings, killed=True)


def test_r4_red_a_gateway_with_time_limits_of_hbase_writes_when_the_link_is_back(
    hbase_cluster: HBaseCluster, settings: Settings
) -> None:
    with fault("gateways-try-for-long"), pytest.raises(AssertionError, match="through a link that was cut"):
        test_r4_a_write_into_a_link_that_is_cut_never_arrives(hbase_cluster, settings, killed=False)


def late_at_stopped_server(
    hbase: HBaseCluster, settings: Settings, stopped_s: float, *, ends: bool = False
) -> float | None:
    """``ends``: the session of the server is over then. When it goes on it serves what it has for a moment, also the
    write, which is in no log that counts; so the row is read after the server's end.
    """
    with watched(settings):
        prepared(settings)
        server = hbase.server_of(TABLE, LATE)
        hbase.stop(server)
        try:
            ended = put_and_give_up(settings)
            wait_s(stopped_s)
        finally:
            hbase.resume(server)
        if ends:
            wait_until(lambda: hbase.has_ended(server), "the end of the region server: its session is over", 60)
        return arrival_s(settings, ended, stopped_s + 30)


@pytest.fixture(scope="module")
def late_s(hbase_cluster: HBaseCluster, settings: Settings) -> float | None:
    """How late a write arrives at a region server that stood still, and whose session is longer."""
    server = hbase_cluster.server_of(TABLE, LATE)
    hbase_cluster.start_again(server, LONG_SESSION_MS)
    hbase_cluster.move(TABLE, LATE, server)
    found = late_at_stopped_server(hbase_cluster, settings, STOPPED_S)
    hbase_cluster.start_again(server)
    return found


def test_r4_a_region_server_that_stands_still_writes_within_the_time_of_a_write_in_flight(
    settings: Settings, late_s: float | None
) -> None:
    assert late_s is not None
    assert late_s < books_flight_ms(settings) / 1e3, f"a write arrived {late_s:.0f} s after its writer's end"


def test_r4_red_the_session_of_a_region_server_counts(settings: Settings, late_s: float | None) -> None:
    red = pytest.raises(AssertionError, match="s after its writer's end")
    with fault("region-servers-never-stand-still"), red:
        test_r4_a_region_server_that_stands_still_writes_within_the_time_of_a_write_in_flight(settings, late_s)


def test_r4_a_region_server_whose_session_is_over_writes_nothing(
    hbase_cluster: HBaseCluster, settings: Settings
) -> None:
    server = hbase_cluster.server_of(TABLE, LATE)
    ended = hbase_cluster.log(server).count(ENDS)
    assert late_at_stopped_server(hbase_cluster, settings, 3 * SESSION_MS / 1e3, ends=True) is None
    assert hbase_cluster.log(server).count(ENDS) > ended, "the region server went on"
    hbase_cluster.start_again(server)


def test_the_limit_of_r4_a_machine_that_was_paused_as_a_whole_writes_when_it_goes_on(
    hbase_cluster: HBaseCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Its supervisor can't know that its gateway stood still, because it did so, too."""
    directory = tmp_path_factory.mktemp("paused") / "paused"
    with Cluster(directory, "paused", 1, hbase_cluster.url("paused")) as cluster:
        settings = cluster.settings
        gateway = psutil.Process(cluster.pid("gateway"))
        supervisor = gateway.parent()
        assert supervisor is not None
        others = [supervisor, *(child for child in supervisor.children(recursive=True) if child != gateway)]
        for process in (*others, gateway):
            process.suspend()
        with (
            pytest.raises(TimeoutError),
            closing(happybase.Connection("127.0.0.1", settings.standalone.gateway_port, timeout=CALL_MS)) as late,
        ):
            late.table("paused_metadata").put(LATE, {FAMILY + b":q": b"v"})
        wait_s(2 * gateway_silence_ms(settings) / 1e3)
        for process in (gateway, *reversed(others)):  # a parent that goes on first ends a child that still stands
            process.resume()
        with closing(happybase.Connection("127.0.0.1", settings.standalone.gateway_port, timeout=60_000)) as after:
            table = after.table("paused_metadata")
            wait_until(lambda: bool(table.row(LATE)), "the write arrives: the limit that rules.md names", 30)
