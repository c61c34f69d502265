"""Tablets that are served without a log whose host is away, and the log's tail when it returns (N6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.log_homes.log_recovery import recover_log
from bookkeeper.metadata import keys, lost_logs
from bookkeeper.metadata.metadata_table import CellKey, Row, RowPut
from bookkeeper.metadata.values import LogHome
from bookkeeper.model import Extent, StreamKey
from bookkeeper.storage.wal.writing.seal import SEAL_SUFFIX
from tests.support.faults import fault
from tests.support.host_logs import ON_HOSTS, logs_of
from tests.support.led_hosts import Hosts, hosts
from tests.support.tservers import LocalNode, records, replicate_request, source_block, wait_until

pytestmark = pytest.mark.integration

HOME = LogHome("host1", "9f3a")
AHEAD_MS = 300_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Hosts]:
    with hosts(tmp_path, "host1", "host2", "host3") as made:
        yield made


def write(world: Hosts, host: str, extent: Extent, *rows: bytes, value: bytes = b"v") -> None:
    assert world.ground.write(world.node(host), extent, records([(row, value) for row in rows])) == ()


def rows(world: Hosts, host: str, extent: Extent) -> dict[bytes, bytes]:
    return {row: value for (row, _, _), value in world.ground.scan(world.node(host), extent).items()}


def flush(world: Hosts, host: str, extent: Extent) -> None:
    world.ground.tserver(world.node(host)).flush_tablet(extent)


def row_of(world: Hosts, extent: Extent) -> Row:
    row = world.ground.metadata.get(keys.tablet_row(extent.table_id, extent.end_row))
    assert row is not None
    return row


def give_up(world: Hosts, extent: Extent, home: LogHome = HOME) -> str:
    """Give up the one log that the tablet's row names, as the master does; returns it."""
    (log,) = world.logs(extent)
    row = row_of(world, extent)
    put = RowPut(row.key, {keys.lost_column(log): home.encode()})
    world.ground.metadata.put([put], row.cells[keys.SERIAL].rank)
    return log


def merge(world: Hosts, host: str) -> None:
    world.node(host).process.parts.tablets.leading.tails.run_once()


def led_with_tail(world: Hosts) -> tuple[Extent, str, LocalNode]:
    """A tablet that host2 leads without a log of host1, which has two records; the log, and the node that wrote it."""
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    write(world, "host1", extent, b"a", b"b")
    flush(world, "host1", extent)
    world.wait_named(extent, "host1")
    world.wait_same(extent, "host1", "host2", "host3")
    write(world, "host1", extent, b"b", b"c", value=b"w")
    away = world.lose("host1")
    log = give_up(world, extent)
    world.lead(extent, "host2")
    return extent, log, away


@pytest.fixture
def apart(tmp_path: Path) -> Iterator[Hosts]:
    """Hosts with logs of their own."""
    with hosts(tmp_path, "host1", "host2", overrides=ON_HOSTS) as made:
        yield made


def later_write_wins(world: Hosts, monkeypatch: pytest.MonkeyPatch) -> bool:
    """The clock of a host is ahead, and the host is lost. Another one takes a write of the same cell; then the log is
    back.
    """
    extent = world.table("host1", "host2")
    world.lead(extent, "host1")
    right, times = SystemClock.wall_ms, world.node("host1").process.parts.writing.times
    with monkeypatch.context() as patch:
        patch.setattr(SystemClock, "wall_ms", lambda clock: right(clock) + AHEAD_MS)
        wait_until(lambda: times.now_ms() >= right(SystemClock()) + AHEAD_MS - 1_000, "the time follows the clock")
        write(world, "host1", extent, b"a", b"c", value=b"ahead")
    home = LogHome("host1", world.incarnation("host1"))
    away = world.lose("host1")
    wait_until(lambda: not world.ground.is_alive(away), "the end of a session")
    log = give_up(world, extent, home)
    world.lead(extent, "host2")
    write(world, "host2", extent, b"a", b"b", value=b"later")
    world.start("host1")
    recover_log(logs_of(world.ground), log)
    merge(world, "host2")
    found = rows(world, "host2", extent)
    assert found.keys() == {b"a", b"b", b"c"}, "the tail is not merged"
    return found[b"a"] == b"later"


def test_n7_a_later_write_wins_against_a_tail_from_a_clock_that_was_ahead(
    apart: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert later_write_wins(apart, monkeypatch)


def test_n7_red_the_next_leader_trusts_its_own_clock(apart: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    with fault("leaders-trust-their-clock"):
        assert not later_write_wins(apart, monkeypatch)


def test_a_tablet_is_served_without_its_log_and_gets_the_tail_once(world: Hosts) -> None:
    extent, log, away = led_with_tail(world)
    assert rows(world, "host2", extent) == {b"a": b"v", b"b": b"v"}
    merge(world, "host2")
    write(world, "host2", extent, b"b", b"d", value=b"x")
    flush(world, "host2", extent)
    world.wait_named(extent, "host2")
    assert world.logs(extent) == {log}, "N6: a flush lets the log of an open tail go"
    world.ground.recover_logs(away)
    merge(world, "host2")
    everything = {b"a": b"v", b"b": b"x", b"c": b"w", b"d": b"x"}
    assert rows(world, "host2", extent) == everything
    merge(world, "host2")
    flush(world, "host2", extent)
    world.wait_named(extent, "host2")
    assert world.logs(extent) == set()
    assert not lost_logs.lost_cells(row_of(world, extent)), "the cell of a merged log stays"
    world.lead(extent, "host3")
    assert rows(world, "host3", extent) == everything


# ---- several logs

STREAM = StreamKey("east-instance", "their/1.wal", "7", "1", 1)


def send(world: Hosts, host: str, extent: Extent, after: int, *rows: bytes) -> None:
    """Records of another cluster's stream, one block each, from ``after`` on."""
    blocks = [source_block(after + n, records([(row, b"r")], timestamp=5)) for n, row in enumerate(rows, 1)]
    tserver = world.ground.tserver(world.node(host))
    token = tserver.open_stream(STREAM)
    sent = tserver.replicate(replicate_request(token, STREAM, after, after, after + len(rows), blocks))
    assert sent.records_applied == len(rows), extent


def led_with_two_tails(world: Hosts) -> tuple[Extent, list[str]]:
    """A tablet that host3 leads without a log of host1 and one of host2, which have seals. The second leader had
    replayed the log of the first one, and went on behind it in the stream. The logs in this order.
    """
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    flush(world, "host1", extent)
    send(world, "host1", extent, 0, b"a", b"b")
    first = world.kill("host1").session_id
    world.lead(extent, "host2")
    send(world, "host2", extent, 2, b"c")
    write(world, "host2", extent, b"d")
    world.kill("host2")
    logs = sorted(world.logs(extent), key=lambda log: first not in log)
    assert len(logs) == 2
    row = row_of(world, extent)
    cells = {keys.lost_column(log): HOME.encode() for log in logs}
    world.ground.metadata.put([RowPut(row.key, cells)], row.cells[keys.SERIAL].rank)
    world.lead(extent, "host3")
    return extent, logs


@contextmanager
def unreadable(world: Hosts, log: str) -> Iterator[None]:
    """The seal of a log can't be read."""
    seal = world.ground.path(log + SEAL_SUFFIX)
    content = seal.read_bytes()
    seal.write_bytes(b"no seal")
    yield
    seal.write_bytes(content)


RECEIVED = {b"a": b"r", b"b": b"r", b"c": b"r", b"d": b"v"}


def check_order_does_not_matter(world: Hosts, first: int) -> None:
    """One of two logs can be read before the other one."""
    extent, logs = led_with_two_tails(world)
    with unreadable(world, logs[1 - first]):
        merge(world, "host3")
    merge(world, "host3")
    assert rows(world, "host3", extent) == RECEIVED, "R18: records of a tail are lost, because another one came first"
    world.start("host1")
    flush(world, "host3", extent)
    world.wait_named(extent, "host3")
    assert not lost_logs.lost_cells(row_of(world, extent))


@pytest.mark.parametrize("first", [0, 1])
def test_r18_the_order_in_which_lost_logs_come_back_does_not_matter(world: Hosts, first: int) -> None:
    check_order_does_not_matter(world, first)


def test_r18_red_a_later_log_comes_first(world: Hosts) -> None:
    with (
        fault("tails-wait-for-no-other"),
        pytest.raises(AssertionError, match="R18: records of a tail are lost"),
    ):
        check_order_does_not_matter(world, 1)


def check_tails_are_not_lost(world: Hosts) -> None:
    """The source asks for a block that the tablet acknowledged; the log that has it is away."""
    led_with_two_tails(world)
    block = source_block(1, records([(b"a", b"r")], timestamp=5))
    request = replace(replicate_request("", STREAM, 0, 0, 1, [block]), confirms=True)
    answer = world.ground.tserver(world.node("host3")).replicate(request)
    assert answer.records_missing == 0, "a record in a log that may come back counts as lost"


def test_a_record_in_a_log_that_may_come_back_is_not_missing(world: Hosts) -> None:
    check_tails_are_not_lost(world)


def test_if_tails_do_not_count_the_peer_seems_to_be_older(world: Hosts) -> None:
    with fault("tails-count-as-lost"), pytest.raises(AssertionError, match="in a log that may come back"):
        check_tails_are_not_lost(world)


def test_a_log_that_stays_away_keeps_no_other_tail_waiting(world: Hosts) -> None:
    """Users' records alone: whichever log can be read is merged."""
    extent = world.table("host1", "host2", "host3")
    for host, row in (("host1", b"a"), ("host2", b"b")):
        world.lead(extent, host)
        write(world, host, extent, row)
        world.kill(host)
    logs = sorted(world.logs(extent))
    books = row_of(world, extent)
    cells = {keys.lost_column(log): HOME.encode() for log in logs}
    world.ground.metadata.put([RowPut(books.key, cells)], books.cells[keys.SERIAL].rank)
    world.lead(extent, "host3")
    given_up = world.chain("host3", extent).tablet.given_up
    with unreadable(world, logs[0]):
        merge(world, "host3")
        assert set(given_up.waiting) == {logs[0]}, "a tail waits, because another log can't be read"
    merge(world, "host3")
    assert rows(world, "host3", extent) == {b"a": b"v", b"b": b"v"}


def versions(world: Hosts, host: str, extent: Extent) -> int:
    """The entries of a tablet in memory and in segments."""
    data = world.chain(host, extent).tablet.data
    return data.memory_records + sum(ref.records for ref in data.segments)


def fail_over(world: Hosts) -> int:
    """A leader dies between the merge of a tail and the name of its state; returns the entries at the next one."""
    extent, log, away = led_with_tail(world)
    write(world, "host2", extent, b"d")
    world.ground.recover_logs(away)
    merge(world, "host2")
    world.kill("host2")
    world.lead(extent, "host3")
    assert log in world.logs(extent)
    merge(world, "host3")
    merge(world, "host3")
    assert rows(world, "host3", extent) == {b"a": b"v", b"b": b"w", b"c": b"w", b"d": b"v"}
    return versions(world, "host3", extent)


def test_n6_a_leader_that_dies_before_the_name_leaves_the_tail_to_the_next_one(world: Hosts) -> None:
    assert fail_over(world) == 5, "N6: records of a tail are applied twice"


def check_deletes_stay(world: Hosts) -> None:
    """A record in the tail is deleted while its host is away, and a compaction comes before the host does."""
    extent, _, away = led_with_tail(world)
    deleted = records([(b"c", b"")], delete=True)
    assert world.ground.write(world.node("host2"), extent, deleted) == ()
    flush(world, "host2", extent)
    world.wait_same(extent, "host2", "host3")
    world.compact(extent, "host2")
    world.ground.recover_logs(away)
    merge(world, "host2")
    found = rows(world, "host2", extent)
    assert b"c" not in found, "P17: a tail brings a deleted record back"


def test_p17_a_compaction_forgets_no_delete_while_a_tail_may_come(world: Hosts) -> None:
    check_deletes_stay(world)


def test_red_p17_compactions_ignore_tails(world: Hosts) -> None:
    with fault("compactions-ignore-tails"), pytest.raises(AssertionError, match="P17: a tail brings a deleted record"):
        check_deletes_stay(world)


def test_an_operator_accepts_the_loss_and_the_tablet_awaits_no_tail(world: Hosts) -> None:
    extent, log, _ = led_with_tail(world)
    row = row_of(world, extent)
    world.ground.metadata.delete([CellKey(row.key, keys.lost_column(log))], row.cells[keys.SERIAL].rank)
    merge(world, "host2")
    assert not world.chain("host2", extent).tablet.given_up.awaits_tails
    assert rows(world, "host2", extent) == {b"a": b"v", b"b": b"v"}
