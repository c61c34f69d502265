"""Tablets with replicas on two or three hosts: copies, names, failover, compactions, hosts that are away or wiped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.errors import RefusedError
from bookkeeper.model import Extent
from tests.support.led_hosts import Hosts, hosts
from tests.support.tservers import records

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


def sent_bytes(world: Hosts, host: str) -> int:
    return int(world.node(host).process.parts.status()["segment_bytes_sent"])


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


def test_a_state_with_too_few_copies_is_not_named_and_its_logs_stay(world: Hosts) -> None:
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    world.stop("host2")
    world.stop("host3")
    write(world, "host1", extent, b"a")
    flush(world, "host1", extent)
    chain = world.chain("host1", extent)
    assert not chain.wait_named(0)
    assert chain.due_name(0) is None, "N3: a state with one copy of two is named"
    assert len(world.logs(extent)) == 1
    assert rows(world, "host1", extent) == {b"a": b"v"}
    world.start("host2")
    world.wait_named(extent, "host1")
    assert world.logs(extent) == set()


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
    extent = world.table("host1", "host2", "host3")
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
