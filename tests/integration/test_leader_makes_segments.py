"""Who makes segments, and which: E-14, E-16, E-18 and E-21 on running tservers, beside the tests of the rules alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.errors import NotServingError, UnavailableError
from bookkeeper.model import Extent
from bookkeeper.replicas.values import Segment, term_of
from tests.support.led_hosts import Hosts, hosts
from tests.support.tservers import records

pytestmark = pytest.mark.integration


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Hosts]:
    with hosts(tmp_path, "host1", "host2", "host3") as made:
        yield made


def write_and_flush(world: Hosts, host: str, extent: Extent, row: bytes) -> Segment:
    """A record in a segment of its own, the newest of the leader."""
    assert world.ground.write(world.node(host), extent, records([(row, b"v")])) == ()
    world.ground.tserver(world.node(host)).flush_tablet(extent)
    return root_of(world, host, extent)


def root_of(world: Hosts, host: str, extent: Extent) -> Segment:
    """The newest segment of a host's replica."""
    replica = world.held(host, extent).replica
    assert replica.root is not None
    return replica.held(replica.root).segment


def test_e14_each_term_begins_with_a_major_and_the_next_segment_has_it_as_base(world: Hosts) -> None:
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    first = root_of(world, "host1", extent)
    assert (first.base, first.is_major) == (None, True)
    second = write_and_flush(world, "host1", extent, b"a")
    assert (second.base, second.is_major, len(second.files)) == (first.id, False, 1)
    world.wait_named(extent, "host1")
    world.wait_same(extent, "host1", "host2", "host3")
    world.kill("host1")
    world.lead(extent, "host2")
    next_term = root_of(world, "host2", extent)
    assert (next_term.base, next_term.is_major, next_term.files) == (second.id, True, ())
    assert term_of(next_term.id) > term_of(second.id)
    assert write_and_flush(world, "host2", extent, b"b").base == next_term.id


def test_e16_a_compaction_lists_what_it_folded_newest_first_on_each_host(world: Hosts) -> None:
    extent = world.table("host1", "host2")
    world.lead(extent, "host1")
    begin = root_of(world, "host1", extent)
    folded = [write_and_flush(world, "host1", extent, row) for row in (b"a", b"b")]
    world.compact(extent, "host1")
    major = root_of(world, "host1", extent)
    assert (major.is_major, major.included) == (True, (folded[1].id, folded[0].id, begin.id))
    world.wait_same(extent, "host1", "host2")
    assert root_of(world, "host2", extent) == major


def test_e18_e21_a_follower_takes_no_writes_and_makes_no_segment(world: Hosts) -> None:
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    root = write_and_flush(world, "host1", extent, b"a")
    world.wait_same(extent, "host1", "host2", "host3")
    follower = world.node("host2")
    assert world.ground.write(follower, extent, records([(b"b", b"v")])) == (extent,), "a follower takes a write"
    for make in (
        lambda: world.ground.tserver(follower).flush_tablet(extent),
        lambda: world.ground.tserver(follower).compact_tablet(extent, 0),
    ):
        with pytest.raises(NotServingError):
            make()
    assert root_of(world, "host2", extent) == root
    assert {row for row, _, _ in world.ground.scan(world.node("host1"), extent)} == {b"a"}


def test_e18_e21_a_leader_whose_term_is_over_makes_no_segment(world: Hosts) -> None:
    """It still serves the tablet: no master has told it yet."""
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    write_and_flush(world, "host1", extent, b"a")
    write_and_flush(world, "host1", extent, b"b")
    world.wait_named(extent, "host1")
    late = world.chain("host1", extent)
    world.lead(extent, "host2")
    world.wait_same(extent, "host2", "host1", "host3")
    assert not late.leads
    root = root_of(world, "host1", extent)
    with pytest.raises(UnavailableError, match="has a newer leader"):
        world.node("host1").process.parts.tablets.compactor.compact(late.tablet)
    assert root_of(world, "host1", extent) == root == root_of(world, "host2", extent)
