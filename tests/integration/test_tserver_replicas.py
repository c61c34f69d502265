"""Tablets with replicas on two or three hosts: copies, names, failover, compactions, hosts that are away or wiped."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from random import Random

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.config.table_properties import DEFAULT_PROPERTIES
from bookkeeper.errors import CorruptionError, RefusedError
from bookkeeper.model import Extent
from bookkeeper.replicas.events import ReplyArrived
from bookkeeper.replicas.messages import Decline, Purpose, Reason
from bookkeeper.replicas.values import Target
from bookkeeper.rpc.contract.messages import (
    CONTENT_BYTES_MAX,
    SegmentAck,
    SegmentTransit,
)
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.storage.wal.writing.seal import read_seal
from bookkeeper.tserver.books.tablet_books import TabletBooks
from bookkeeper.tserver.books.wal_cells import log_deletes
from bookkeeper.tserver.leading.copy_pace import CopyPace
from bookkeeper.tserver.leading.host_calls import HostCalls, HostLink, link_of
from bookkeeper.tserver.leading.namer import LATE_MS, Namer
from bookkeeper.tserver.leading.senders import Lane
from bookkeeper.tserver.leading.transfer import Outcome, SentCounters, Transfer
from bookkeeper.tserver.maintenance import loader
from bookkeeper.tserver.replicas.replica_collector import collect_replica
from tests.support.jumping_clock import TestClock
from tests.support.led_hosts import Hosts, hosts
from tests.support.tservers import records, wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Hosts]:
    with hosts(tmp_path, "host1", "host2", "host3") as made:
        yield made


def test_a_flush_reaches_all_hosts_byte_for_byte_and_is_named(world: Hosts) -> None:
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    node = world.node("host1")
    world.ground.write(node, extent, records([(b"a", b"1"), (b"b", b"2")]))
    world.ground.tserver(node).flush_tablet(extent)
    world.wait_same(extent, "host1", "host2", "host3")
    world.wait_named(extent, "host1")
    files = world.files("host1", extent)
    assert len(files) == 1
    assert world.files("host2", extent) == files
    assert world.files("host3", extent) == files
    state, named = world.named(extent)
    assert (state, set(named)) == (world.held("host1", extent).replica.root, set(files))
    assert world.logs(extent) == set()
    assert world.ground.scan(node, extent) == {(b"a", b"f", b"q"): b"1", (b"b", b"f", b"q"): b"2"}


def write(world: Hosts, host: str, extent: Extent, *rows: bytes, value: bytes = b"v") -> None:
    """Acknowledged records in one tablet."""
    assert world.ground.write(world.node(host), extent, records([(row, value) for row in rows])) == ()


def flush(world: Hosts, host: str, extent: Extent) -> None:
    world.ground.tserver(world.node(host)).flush_tablet(extent)


def rows(world: Hosts, host: str, extent: Extent) -> dict[bytes, bytes]:
    return {row: value for (row, _, _), value in world.ground.scan(world.node(host), extent).items()}


def status(world: Hosts, host: str) -> Mapping[str, str]:
    return world.node(host).process.parts.status()


def sent_bytes(world: Hosts, host: str) -> int:
    return int(status(world, host)["segment_bytes_sent"])


def test_a_killed_leader_loses_nothing_and_no_file_moves(world: Hosts) -> None:
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    write(world, "host1", extent, b"a", b"b")
    flush(world, "host1", extent)
    world.wait_named(extent, "host1")
    world.wait_same(extent, "host1", "host2", "host3")
    write(world, "host1", extent, b"b", b"c", value=b"w")
    world.kill("host1")
    world.lead(extent, "host2")
    assert rows(world, "host2", extent) == {b"a": b"v", b"b": b"w", b"c": b"w"}
    world.wait_same(extent, "host2", "host3")
    assert sent_bytes(world, "host2") == 0, "hosts that have all files get some again"
    flush(world, "host2", extent)
    world.wait_named(extent, "host2")
    assert world.logs(extent) == set()
    world.start("host1")
    world.wait_same(extent, "host2", "host1", "host3")
    assert rows(world, "host2", extent) == {b"a": b"v", b"b": b"w", b"c": b"w"}
    assert world.files("host1", extent).keys() >= world.files("host2", extent).keys()


def test_n3_a_state_with_too_few_copies_is_not_named_and_its_logs_stay(world: Hosts) -> None:
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    world.stop("host2")
    world.stop("host3")
    write(world, "host1", extent, b"a")
    flush(world, "host1", extent)
    world.name_now("host1")
    chain = world.chain("host1", extent)
    assert chain.named_id != chain.replica.root, "N3: a state with one copy of two is named"
    assert len(world.logs(extent)) == 1, "N3: logs go before enough hosts have their records"
    assert rows(world, "host1", extent) == {b"a": b"v"}
    world.start("host2")
    world.wait_named(extent, "host1")
    assert world.logs(extent) == set()


def test_n1_a_late_name_of_a_dead_leader_takes_no_record_away(world: Hosts) -> None:
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    world.node("host1").process.parts.tablets.leading.namer.close()
    write(world, "host1", extent, b"a")
    flush(world, "host1", extent)
    world.wait_same(extent, "host1", "host2", "host3")
    chain = world.chain("host1", extent)
    name = chain.due_name(DEFAULT_PROPERTIES)
    assert name is not None
    late = chain.name_put(name)
    logs = [log for _, used in chain._unnamed_logs for log in log_deletes(late.key, used)]
    world.kill("host1")
    world.lead(extent, "host2")
    world.wait_same(extent, "host2", "host3")
    world.name_now("host2")
    world.ground.metadata.put([late], name.state_id)
    for cell, rank in logs:
        world.ground.metadata.delete([cell], rank)
    world.kill("host2")
    world.lead(extent, "host3")
    assert rows(world, "host3", extent) == {b"a": b"v"}, "N1: a state hides the late one whose logs are gone"


def test_a_leader_that_leaves_without_copies_leaves_sealed_logs(world: Hosts) -> None:
    extent = world.table("host1", "host2")
    world.lead(extent, "host1")
    world.stop("host2")
    write(world, "host1", extent, b"a")
    world.unload(extent, "host1")
    assert len(world.logs(extent)) == 1
    world.start("host2")
    world.lead(extent, "host2")
    assert rows(world, "host2", extent) == {b"a": b"v"}
    world.wait_same(extent, "host2", "host1")


def test_at_a_clean_end_all_tablets_are_flushed_before_one_waits_for_its_name(
    world: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All hosts end: nobody names the states, so the tablets leave after one wait together."""
    monkeypatch.setattr(loader, "NAMES_WAIT_MS", 100)
    extents = [world.table("host1", "host2", "host3", table_id=table_id) for table_id in ("1", "2", "3")]
    for extent in extents:
        world.lead(extent, "host1")
        write(world, "host1", extent, b"a")
    world.stop("host2")
    world.stop("host3")
    led, led_at_flushes = world.node("host1").process.parts.tablets.leading.led, list[int]()
    led.listen(lambda: led_at_flushes.append(len(led.all())))
    world.stop("host1")
    assert led_at_flushes == [3, 3, 3], "a tablet has left before another one was flushed"
    for extent in extents:
        assert all(read_seal(world.ground.volume, name) is not None for name in world.logs(extent))
    world.start("host2")
    for extent in extents:
        world.lead(extent, "host2")
        assert rows(world, "host2", extent) == {b"a": b"v"}


def test_each_row_crosses_once_for_each_other_host(world: Hosts) -> None:
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    for first in range(0, 300, 100):
        write(world, "host1", extent, *(b"%04d" % row for row in range(first, first + 100)))
        flush(world, "host1", extent)
    world.wait_same(extent, "host1", "host2", "host3")
    wait_until(lambda: int(status(world, "host1")["segments_sent"]) >= 8, "counted acknowledgements")
    assert int(status(world, "host1")["segment_rows_sent"]) == 2 * 300
    size = sum(len(content) for content in world.files("host1", extent).values())
    assert sent_bytes(world, "host1") == 2 * size
    received = [int(status(world, name)["segment_bytes_received"]) for name in ("host2", "host3")]
    assert received == [size, size]


def test_a_joining_host_is_found_while_the_leader_runs(world: Hosts) -> None:
    extent = world.table("host1", "host2")
    world.lead(extent, "host1")
    write(world, "host1", extent, b"a")
    flush(world, "host1", extent)
    world.wait_named(extent, "host1")
    world.place(extent, "host3", "joining")
    world.wait_same(extent, "host1", "host3")
    assert world.files("host3", extent) == world.files("host1", extent)
    world.kill("host1")
    with pytest.raises(RefusedError, match="joining"):
        world.lead(extent, "host3")


def test_states_of_a_dead_leader_that_nobody_named_are_replayed_once(world: Hosts) -> None:
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    write(world, "host1", extent, b"a")
    world.stop("host2")
    world.stop("host3")
    flush(world, "host1", extent)
    write(world, "host1", extent, b"b")
    flush(world, "host1", extent)
    world.kill("host1")
    world.start("host2", "host3")
    world.lead(extent, "host3")
    assert rows(world, "host3", extent) == {b"a": b"v", b"b": b"v"}
    flush(world, "host3", extent)
    world.wait_named(extent, "host3")
    world.start("host1")
    world.wait_same(extent, "host3", "host1", "host2")
    records_of = world.chain("host3", extent).tablet.data.segments
    assert sum(ref.records for ref in records_of) == 2, "N6: a record counts twice"
    assert rows(world, "host3", extent) == {b"a": b"v", b"b": b"v"}


def test_a_compaction_travels_as_one_file(world: Hosts) -> None:
    extent = world.table("host1", "host2")
    world.lead(extent, "host1")
    for value in (b"1", b"2", b"3"):
        write(world, "host1", extent, b"a", b"b", value=value)
        flush(world, "host1", extent)
    compactor, tablet = world.node("host1").process.parts.tablets.compactor, world.chain("host1", extent).tablet
    compactor.compact(tablet)
    assert len(tablet.data.segments) == 1
    world.wait_named(extent, "host1")
    world.wait_same(extent, "host1", "host2")
    _, (name,) = world.named(extent)
    assert world.files("host2", extent)[name] == world.files("host1", extent)[name]
    assert rows(world, "host1", extent) == {b"a": b"3", b"b": b"3"}
    world.kill("host1")
    world.lead(extent, "host2")
    assert rows(world, "host2", extent) == {b"a": b"3", b"b": b"3"}


def test_a_follower_that_was_away_gets_what_it_lacks(world: Hosts) -> None:
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    write(world, "host1", extent, b"a")
    flush(world, "host1", extent)
    world.wait_same(extent, "host1", "host2", "host3")
    world.stop("host3")
    for row in (b"b", b"c"):
        write(world, "host1", extent, row)
        flush(world, "host1", extent)
    world.wait_same(extent, "host1", "host2")
    world.wait_named(extent, "host1")
    world.start("host3")
    world.wait_same(extent, "host1", "host3")
    assert world.files("host3", extent) == world.files("host1", extent)


def test_a_wiped_follower_gets_everything_under_its_new_placement(world: Hosts) -> None:
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    write(world, "host1", extent, b"a")
    flush(world, "host1", extent)
    world.wait_same(extent, "host1", "host2", "host3")
    world.wait_named(extent, "host1")
    world.stop("host3")
    world.wipe("host3")
    world.start("host3")
    with pytest.raises(RefusedError, match="another disk"):
        world.lead(extent, "host3")
    world.place(extent, "host3", "joining")
    world.lead(extent, "host1")
    world.wait_same(extent, "host1", "host3")
    assert world.files("host3", extent) == world.files("host1", extent)


def test_a_tablet_whose_row_names_a_wiped_disk_keeps_no_other_one_from_the_new_disk(world: Hosts) -> None:
    old, new = (world.table("host1", "host3", table_id=table_id) for table_id in ("1", "2"))
    for extent in (old, new):
        world.lead(extent, "host1")
        write(world, "host1", extent, b"a")
        flush(world, "host1", extent)
        world.wait_same(extent, "host1", "host3")
    world.stop("host3")
    world.wipe("host3")
    world.start("host3")
    world.place(new, "host3", "joining")
    world.lead(new, "host1")
    write(world, "host1", old, b"b")
    flush(world, "host1", old)
    world.wait_same(new, "host1", "host3")
    assert world.files("host3", new) == world.files("host1", new)
    assert world.root("host3", old) is None


def test_a_host_that_lacks_a_file_of_the_named_state_does_not_lead(world: Hosts) -> None:
    extent = world.table("host1", "host2")
    world.lead(extent, "host1")
    write(world, "host1", extent, b"a")
    flush(world, "host1", extent)
    world.wait_named(extent, "host1")
    world.place(extent, "host3")
    world.kill("host1")
    with pytest.raises(RefusedError, match="lacks tables/1/t-00000/"):
        world.lead(extent, "host3")
    world.lead(extent, "host2")
    assert rows(world, "host2", extent) == {b"a": b"v"}


def test_a_clean_unload_leaves_nothing_to_replay(world: Hosts) -> None:
    extent = world.table("host1", "host2")  # with two, a named state is on both
    world.lead(extent, "host1")
    write(world, "host1", extent, b"a")
    world.unload(extent, "host1")
    assert world.logs(extent) == set()
    assert not world.held("host1", extent).replica.is_leader
    world.lead(extent, "host2")
    assert rows(world, "host2", extent) == {b"a": b"v"}
    write(world, "host2", extent, b"b")
    world.stop("host2")
    assert world.logs(extent) == set()
    world.lead(extent, "host1")
    assert rows(world, "host1", extent) == {b"a": b"v", b"b": b"v"}


def test_a_tablet_with_one_replica_uses_the_cluster_s_volume(world: Hosts) -> None:
    (extent,) = world.ground.create_table("2")
    world.lead(extent, "host1")
    write(world, "host1", extent, b"a")
    flush(world, "host1", extent)
    assert world.node("host1").process.parts.tablets.leading.led.all() == []
    assert not list(world.settings("host1").replicas_dir.rglob("*.parquet"))


def test_p1_a_target_that_declines_out_of_order_twice_gets_a_major_that_can_be_named(world: Hosts) -> None:
    extent = world.table("host1", "host2")
    world.lead(extent, "host1")
    write(world, "host1", extent, b"a")
    flush(world, "host1", extent)
    world.wait_named(extent, "host1")
    chain = world.chain("host1", extent)
    root = chain.replica.root
    assert root is not None
    placement = chain.replica.target("host2").placement
    for _ in range(2):
        decline = Decline(root, placement, Reason.OUT_OF_ORDER, None)
        chain.apply(ReplyArrived("host2", decline, Purpose.REPLICATE))
    assert chain.replica.root != root
    world.wait_same(extent, "host1", "host2")
    world.name_now("host1")
    world.wait_named(extent, "host1")
    world.kill("host1")
    world.lead(extent, "host2")
    assert rows(world, "host2", extent) == {b"a": b"v"}


def test_a_tablet_whose_copies_are_late_says_so_and_takes_writes(world: Hosts) -> None:
    extent = world.table("host1", "host2")
    world.lead(extent, "host1")
    world.stop("host2")
    write(world, "host1", extent, b"a")
    flush(world, "host1", extent)
    parts, clock = world.node("host1").process.parts.tablets, TestClock()
    tablet = world.chain("host1", extent).tablet
    books = TabletBooks(world.ground.metadata, SessionRetries(world.node("host1").process.session, clock, Random(1)))
    namer = Namer(parts.leading.led, books, lambda _: DEFAULT_PROPERTIES, clock, pytest.fail)
    namer.run_once()
    assert tablet.problems == []
    clock.jump(LATE_MS)
    namer.run_once()
    (problem,) = tablet.problems
    assert problem.startswith("the newest state has 1 of 2 copies, so its logs are retained; without it: host2")
    write(world, "host1", extent, b"b")
    world.start("host2")
    world.wait_named(extent, "host1")
    namer.run_once()
    assert tablet.problems == []


class Overtaken:
    """Content for another host; a compaction here is named and collected before it goes."""

    def __init__(self, world: Hosts, extent: Extent, host: TServer) -> None:
        self._world, self._extent, self._host = world, extent, host
        self._acks: deque[SegmentAck] = deque()

    def send(self, transit: SegmentTransit) -> None:
        """See :class:`Transits`."""
        if not transit.start:
            self._replace()
        self._acks.append(self._host.segment_transit(transit))

    def receive(self) -> SegmentAck:
        """See :class:`Transits`."""
        return self._acks.popleft()

    def _replace(self) -> None:
        world, extent = self._world, self._extent
        chain = world.chain("host1", extent)
        world.node("host1").process.parts.tablets.compactor.compact(chain.tablet)
        world.name_now("host1")
        assert chain.is_named
        collect_replica(chain.held, world.row(extent), ())


def test_p15_a_file_that_is_under_way_stays_although_a_later_state_is_named(world: Hosts) -> None:
    extent = world.table("host1", "host2", properties={"table.copies_min": "1"})
    world.lead(extent, "host1")
    world.wait_same(extent, "host1", "host2")
    world.node("host1").process.parts.tablets.leading.senders.close()
    for row in (b"a", b"b"):
        write(world, "host1", extent, row, value=Random(1).randbytes(CONTENT_BYTES_MAX))
        flush(world, "host1", extent)
    chain, host = world.chain("host1", extent), world.ground.tserver(world.node("host2"))
    before = world.files("host1", extent)
    overtaken = Overtaken(world, extent, host)
    pace = unpaced()
    link = HostLink(host, lambda: nullcontext(overtaken), CONTENT_BYTES_MAX)
    transfer = Transfer(chain, chain.replica.target("host2"), link, SentCounters(), pace)
    try:
        outcome = transfer.turn(lambda: False)
    except CorruptionError as error:
        raise AssertionError("P15: a file goes while another host gets it") from error
    assert outcome is Outcome.SENT
    assert len(world.files("host2", extent)) == 1
    collect_replica(chain.held, world.row(extent), ())
    assert not before.keys() & world.files("host1", extent).keys()


def unpaced() -> CopyPace:
    """No client writes, so copies do not pause."""
    return CopyPace(TestClock(), 1.0, lambda: False, lambda pause_ms: None)  # noqa: ARG005


class LeavingTarget(HostCalls):
    """Each target leaves its tablet when a lane is about to send."""

    def __init__(self, world: Hosts, extent: Extent) -> None:
        ground = world.ground
        super().__init__(ground.coordination, partial(link_of, ground.pool, ground.settings.rpc), SystemClock())
        self._world, self._extent = world, extent

    def link(self, target: Target) -> HostLink | None:
        """See :class:`HostCalls`."""
        self._world.unplace(self._extent, target.host)
        chain = self._world.chain("host1", self._extent)
        wait_until(lambda: target.host not in chain.progress, f"a chain without {target.host}")
        return super().link(target)


def test_a_host_that_leaves_while_a_lane_serves_others_is_no_problem_of_the_tablet(world: Hosts) -> None:
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    world.wait_same(extent, "host1", "host2", "host3")
    parts = world.node("host1").process.parts.tablets
    parts.leading.senders.close()
    write(world, "host1", extent, b"a")
    flush(world, "host1", extent)
    calls, counters = LeavingTarget(world, extent), SentCounters()
    rng, pace = Random(1), unpaced()
    lane = Lane("host2", parts.leading.led, calls, SystemClock(), rng, counters, lambda: True, lambda _: False, pace)
    lane.run(lambda: False)
    assert "host2" not in world.chain("host1", extent).progress
    assert world.chain("host1", extent).tablet.problems == []
