"""Scans with a stated age at a host that does not lead the tablet, and files that go after a name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.errors import NotServingError
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import ScanPage, ScanRequest
from bookkeeper.storage.wal.blocks.block import decode_batch
from bookkeeper.tserver.leading.confirmation import confirmation_of
from bookkeeper.tserver.replicas.replica_collector import ReplicaCollector
from tests.support.faults import fault
from tests.support.led_hosts import Hosts, hosts
from tests.support.tservers import records, wait_until

pytestmark = pytest.mark.integration
HOUR_MS = 3_600_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Hosts]:
    with hosts(tmp_path, "host1", "host2") as made:
        yield made


def page(
    world: Hosts, host: str, extent: Extent, stale_ms: int | None = HOUR_MS, least_state: int | None = None
) -> ScanPage:
    """The first page of a tablet at a host."""
    request = ScanRequest(extent, None, None, (), (), None, 1 << 20, stale_ms=stale_ms, least_state=least_state)
    return world.ground.tserver(world.node(host)).scan(request)


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return SystemClock().wall_ms()


def rows(found: ScanPage) -> dict[bytes, bytes]:
    """Rows and values of a page."""
    batch = decode_batch(found.records)
    return dict(zip(batch.column("row").to_pylist(), batch.column("value").to_pylist(), strict=True))


def write(world: Hosts, extent: Extent, **values: bytes) -> None:
    """Acknowledged records at the leader, flushed and copied."""
    node = world.node("host1")
    batch = records([(row.encode(), value) for row, value in values.items()])
    assert world.ground.write(node, extent, batch) == ()
    world.ground.tserver(node).flush_tablet(extent)
    world.wait_same(extent, "host1", "host2")


def test_a_follower_serves_its_newest_state_and_says_which_one(world: Hosts) -> None:
    extent = world.table("host1", "host2")
    world.lead(extent, "host1")
    write(world, extent, a=b"1")
    first = page(world, "host2", extent)
    assert (rows(first), first.state_id) == ({b"a": b"1"}, world.root("host2", extent))
    assert first.as_of_ms is not None
    write(world, extent, a=b"2", b=b"2")
    second = page(world, "host2", extent, least_state=first.state_id)
    assert rows(second) == {b"a": b"2", b"b": b"2"}
    assert second.state_id is not None
    assert first.state_id is not None
    assert second.state_id > first.state_id
    assert second.as_of_ms is not None
    assert second.as_of_ms >= first.as_of_ms
    with pytest.raises(NotServingError, match="an earlier page was of state"):
        page(world, "host2", extent, least_state=second.state_id + 1)
    with pytest.raises(NotServingError, match="ms were asked for"):
        page(world, "host2", extent, stale_ms=-HOUR_MS)
    with pytest.raises(NotServingError):
        page(world, "host2", extent, stale_ms=None)
    fresh = page(world, "host1", extent)
    assert (rows(fresh), fresh.state_id) == ({b"a": b"2", b"b": b"2"}, None)


def test_a_copy_of_a_tablet_that_nobody_writes_stays_young(world: Hosts) -> None:
    extent = world.table("host1", "host2")
    world.lead(extent, "host1")
    write(world, extent, a=b"1")
    first = page(world, "host2", extent).as_of_ms
    assert first is not None

    def is_younger() -> bool:
        now = page(world, "host2", extent)
        assert rows(now) == {b"a": b"1"}
        return now.as_of_ms is not None and first < now.as_of_ms <= wall_ms()

    wait_until(is_younger, "a confirmation of the leader")


def test_a_copy_claims_no_write_that_is_in_memory_alone(world: Hosts) -> None:
    extent = world.table("host1", "host2")
    world.lead(extent, "host1")
    write(world, extent, a=b"1")
    assert world.ground.write(world.node("host1"), extent, records([(b"b", b"2")])) == ()
    said = confirmation_of(world.chain("host1", extent), SystemClock(), lambda: True)
    assert said is None, "a copy claims a write that it lacks"


def test_red_a_leader_confirms_a_state_that_lacks_what_is_in_memory(world: Hosts) -> None:
    with (
        fault("memory-is-forgotten-in-confirmations"),
        pytest.raises(AssertionError, match="claims a write that it lacks"),
    ):
        test_a_copy_claims_no_write_that_is_in_memory_alone(world)


def test_a_leader_without_its_lease_confirms_nothing(world: Hosts) -> None:
    extent = world.table("host1", "host2")
    world.lead(extent, "host1")
    write(world, extent, a=b"1")
    chain = world.chain("host1", extent)
    assert confirmation_of(chain, SystemClock(), lambda: False) is None, "another host may lead and have newer writes"
    said = confirmation_of(chain, SystemClock(), lambda: True)
    assert said is not None
    assert said.state_id == world.root("host2", extent)


def test_red_a_leader_without_its_lease_confirms(world: Hosts) -> None:
    with fault("confirmations-without-lease"), pytest.raises(AssertionError, match="another host may lead"):
        test_a_leader_without_its_lease_confirms_nothing(world)


def test_reads_go_on_when_files_go_after_a_name(world: Hosts) -> None:
    extent = world.table("host1", "host2")
    world.lead(extent, "host1")
    for number in range(3):
        write(world, extent, a=b"%d" % number)
        assert rows(page(world, "host2", extent)) == {b"a": b"%d" % number}
    old = set(world.files("host2", extent))
    assert len(old) == 3
    tserver = world.ground.tserver(world.node("host1"))
    ticket = tserver.compact_tablet(extent, 0)
    while ticket:
        ticket = tserver.compact_tablet(extent, ticket)
    world.wait_same(extent, "host1", "host2")
    world.wait_named(extent, "host1")
    for name in ("host1", "host2"):
        parts = world.node(name).process.parts.replicas
        assert parts is not None
        collector: ReplicaCollector = parts.collector
        collector.collect()
        assert not set(world.files(name, extent)) & old, f"{name} keeps files that nothing needs"
        assert len(world.files(name, extent)) == 1
        assert rows(page(world, name, extent)) == {b"a": b"2"}
