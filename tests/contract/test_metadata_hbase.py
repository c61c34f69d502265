"""The contract of HBase's store beyond the common one: dead connections, restarted servers, shared names."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import happybase
import pytest

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import IncompatibleError, InvalidInputError, NotFoundError, OverloadedError, UnavailableError
from bookkeeper.metadata import keys
from bookkeeper.metadata.hbase.hbase_calls import CallLimits, HBaseAddress
from bookkeeper.metadata.hbase.hbase_cells import column_name
from bookkeeper.metadata.hbase.hbase_pool import IDLE_MS
from bookkeeper.metadata.hbase.hbase_store import PART_CELLS, HBaseMetadataTable
from bookkeeper.metadata.hbase.hbase_table import ALL_FAMILIES
from bookkeeper.metadata.metadata_table import Cell, CellKey, Column, MetadataTable, RowPut
from bookkeeper.metadata.opening import make_metadata, open_metadata
from bookkeeper.metadata.owner import owner_value
from tests.support.books import OWNER, made_books
from tests.support.hbase import HBaseInstance
from tests.support.jumping_clock import TestClock
from tests.support.metadata_stores import hbase_url
from tests.support.tcp_proxy import TcpProxy

pytestmark = [pytest.mark.hbase, pytest.mark.integration]

REPL = Column("repl", b"f")
CLOCK = SystemClock()


@pytest.fixture
def proxy(hbase: HBaseInstance) -> Iterator[TcpProxy]:
    with TcpProxy(hbase.host, hbase.thrift_port) as running:
        yield running


def _through(
    proxy: TcpProxy,
    hbase: HBaseInstance,
    timeout_ms: int = 15_000,
    retry_for_ms: int = 30_000,
    connections_max: int = 16,
    clock: Clock = CLOCK,
) -> HBaseMetadataTable:
    """A new table, reached through the proxy."""
    url = hbase_url(hbase)
    make_metadata(url, OWNER)
    limits = CallLimits(timeout_ms, retry_for_ms, connections_max, rng=random.Random(1), clock=clock)
    return HBaseMetadataTable(HBaseAddress(proxy.host, proxy.port, url.rpartition("/")[2]), OWNER, 0, limits)


def _put(table: MetadataTable, rank: int, key: bytes = b"1<") -> None:
    table.put([RowPut(key, {REPL: b"%d" % rank})], rank)


def _value(table: MetadataTable, key: bytes = b"1<") -> Cell | None:
    row = table.get(key)
    return None if row is None else row.cells[REPL]


def test_a_connection_dropped_while_idle_is_replaced(proxy: TcpProxy, hbase: HBaseInstance) -> None:
    table = _through(proxy, hbase)
    for rank in (1, 2, 3):
        before = proxy.accepted
        proxy.drop()
        _put(table, rank)
        assert proxy.accepted == before + 1
    proxy.drop()
    assert _value(table) == Cell(3, b"3")
    proxy.drop()
    assert [row.key for row in table.scan()] == [b"1<"]
    proxy.drop()
    table.delete([CellKey(b"1<", REPL)], 3)
    assert _value(table) is None
    table.close()


def test_a_connection_that_was_idle_for_long_is_not_used_again(proxy: TcpProxy, hbase: HBaseInstance) -> None:
    """The server has closed it, and a caller that tries once would get an error."""
    clock = TestClock()
    table = _through(proxy, hbase, clock=clock)
    _put(table, 1)
    before = proxy.accepted
    table.probe()
    assert proxy.accepted == before, "a connection in use stays"
    proxy.drop()
    clock.jump(IDLE_MS)
    table.probe()
    assert proxy.accepted == before + 1
    table.close()


def test_a_scan_continues_where_its_connection_was_dropped(proxy: TcpProxy, hbase: HBaseInstance) -> None:
    table = _through(proxy, hbase)
    keys = [b"row-%05d" % n for n in range(1_500)]
    table.put([RowPut(key, {REPL: b"v"}) for key in keys], 5)
    seen: list[bytes] = []
    for row in table.scan():
        if len(seen) % 400 == 0:
            proxy.drop()
        seen.append(row.key)
    assert seen == keys
    table.close()


def test_a_long_row_is_complete_though_its_connection_is_dropped(proxy: TcpProxy, hbase: HBaseInstance) -> None:
    """A scan repeats complete rows on a new connection; one request reads a long row."""
    table = _through(proxy, hbase)
    columns = [Column("repl", b"file-%05d" % number) for number in range(5 * PART_CELLS)]
    table.put([RowPut(b"row-%d" % number, {REPL: b"v"}) for number in range(3)], 5)
    table.put([RowPut(b"row-3", dict.fromkeys(columns, b"v" * 100)), RowPut(b"row-4", {REPL: b"v"})], 5)
    parts = table.scan_parts(b"", None, ("repl",))
    assert [next(parts).key for _ in range(3)] == [b"row-0", b"row-1", b"row-2"]
    assert list(next(parts).cells) == columns[:PART_CELLS]
    proxy.drop()
    read = [(part.key, column) for part in parts for column in part.cells]
    assert read[:-1] == [(b"row-3", column) for column in columns[PART_CELLS:]]
    assert read[-1][0] == b"row-4"
    table.close()


def test_writes_survive_connections_dropped_in_the_middle(proxy: TcpProxy, hbase: HBaseInstance) -> None:
    table = _through(proxy, hbase)
    done = threading.Event()

    def disturb() -> None:
        while not CLOCK.wait(done, 60):
            proxy.drop()

    with ThreadPoolExecutor(5) as pool:
        disturbing = pool.submit(disturb)
        writes = [pool.submit(_put, table, rank, b"row-%d" % (rank % 4)) for rank in range(1, 121)]
        for write in writes:
            write.result()
        done.set()
        disturbing.result()
    assert [_value(table, b"row-%d" % n) for n in range(4)] == [Cell(r, b"%d" % r) for r in (120, 117, 118, 119)]
    table.close()


def test_a_server_that_hangs_is_left_after_the_socket_timeout(proxy: TcpProxy, hbase: HBaseInstance) -> None:
    table = _through(proxy, hbase, timeout_ms=3_000)
    proxy.hang()
    began = CLOCK.boot_ns()
    _put(table, 5)
    assert 2.9e9 < CLOCK.boot_ns() - began < 25e9
    assert _value(table) == Cell(5, b"5")
    table.close()


def test_a_server_that_stays_away_is_unavailable_within_the_limit(hbase: HBaseInstance) -> None:
    with TcpProxy(hbase.host, hbase.thrift_port) as proxy:
        table = _through(proxy, hbase, retry_for_ms=400)
        address = f"{proxy.host}:{proxy.port}"
    began = CLOCK.boot_ns()
    for use in (lambda: _put(table, 5), lambda: table.get(b"1<"), lambda: list(table.scan())):
        with pytest.raises(UnavailableError, match=address):
            use()
    with pytest.raises(UnavailableError, match=address):
        open_metadata(f"hbase://{address}/west", OWNER, retry_for_ms=400)
    assert CLOCK.boot_ns() - began < 40e9
    table.close()


def test_more_threads_than_connections_take_turns(proxy: TcpProxy, hbase: HBaseInstance) -> None:
    table = _through(proxy, hbase, connections_max=2)
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda rank: _put(table, rank), range(1, 61)))
    assert _value(table) == Cell(60, b"60")
    assert proxy.accepted <= 2
    table.close()


def test_a_thread_without_a_connection_gets_an_error(proxy: TcpProxy, hbase: HBaseInstance) -> None:
    table = _through(proxy, hbase, connections_max=1, timeout_ms=2_000)
    with table._calls.client(), pytest.raises(OverloadedError, match="in use"):
        _put(table, 5)
    _put(table, 5)
    table.close()


def test_clusters_with_different_prefixes_share_one_hbase(hbase: HBaseInstance) -> None:
    west, east = (made_books(hbase_url(hbase)) for _ in range(2))
    _put(west, 5)
    assert _value(east) is None
    east.purge([CellKey(b"1<", REPL)])
    assert _value(west) == Cell(5, b"5")
    west.close()
    east.close()


def test_a_table_that_init_did_not_create_is_refused(hbase: HBaseInstance) -> None:
    url = hbase_url(hbase)
    connection = happybase.Connection(hbase.host, hbase.thrift_port, timeout=30_000)
    connection.create_table(url.rpartition("/")[2] + "_metadata", {"repl": {"max_versions": 3}})
    connection.close()
    with pytest.raises(NotFoundError, match=r"is not a metadata table; correct metadata\.url"):
        open_metadata(url, OWNER)
    with pytest.raises(IncompatibleError, match="another prefix"):
        make_metadata(url, OWNER)


def test_a_table_whose_cells_expire_is_refused(hbase: HBaseInstance) -> None:
    url = hbase_url(hbase)
    families: dict[str, dict[str, int]] = {name: {"max_versions": 1} for name in ALL_FAMILIES}
    families["repl"]["time_to_live"] = 3_600
    connection = happybase.Connection(hbase.host, hbase.thrift_port, timeout=30_000)
    name = url.rpartition("/")[2] + "_metadata"
    connection.create_table(name, families)
    connection.table(name).put(keys.owner_row(), {column_name(keys.OWNER): owner_value(OWNER)})
    connection.close()
    with pytest.raises(IncompatibleError, match="those of the families repl, and HBase would drop the books"):
        make_metadata(url, OWNER)
    with pytest.raises(IncompatibleError, match="set their TTL to FOREVER"):
        open_metadata(url, OWNER)


@pytest.mark.parametrize("prefix", ["", "a/b", "a b", "-a", "ä", "a:b:c"])
def test_a_prefix_that_is_no_table_name_is_refused(hbase: HBaseInstance, prefix: str) -> None:
    with pytest.raises(InvalidInputError, match="HBase table"):
        HBaseAddress(hbase.host, hbase.thrift_port, prefix)


@pytest.mark.long
def test_kill_9_loses_nothing_that_was_acknowledged(hbase_to_kill: HBaseInstance) -> None:
    """An HBase is killed under load and started again; the same table object continues."""
    table = made_books(hbase_url(hbase_to_kill), retry_for_ms=120_000)
    _put(table, 7, b"gone")
    table.purge([CellKey(b"gone", REPL)])
    acknowledged: list[int] = []
    half = threading.Event()

    def write(numbers: range) -> None:
        for number in numbers:
            _put(table, number, b"row-%05d" % number)
            acknowledged.append(number)
            if len(acknowledged) == 300:
                half.set()

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, range(first, 1_201, 3)) for first in (1, 2, 3)]
        assert CLOCK.wait(half, 60_000)
        hbase_to_kill.kill9()
        hbase_to_kill.restart()
        for writer in writers:
            writer.result()
    assert len(acknowledged) == 1_200
    assert [(row.key, row.cells) for row in table.scan()] == [
        (b"row-%05d" % n, {REPL: Cell(n, b"%d" % n)}) for n in range(1, 1_201)
    ]
    assert _value(table, b"gone") is None
    table.close()
