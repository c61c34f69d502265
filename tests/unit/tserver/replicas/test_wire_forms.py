"""A host's account of a replica: what its newest state does not list, and what other hosts may still have to get."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.tserver.replicas.wire_forms import replica_info
from tests.support.replica_disks import KEY
from tests.support.replica_world import ReplicaWorld, replica_world

FIRST, SECOND = KEY.prefix + "1.parquet", KEY.prefix + "2.parquet"
CONTENT = b"x" * 50


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReplicaWorld]:
    """host1 leads and host2 follows."""
    found = replica_world(tmp_path, "host1", "host2")
    yield found
    found.close()


def test_files_that_the_newest_state_lacks_are_listed_with_their_readers(world: ReplicaWorld) -> None:
    world.flush("host1", "1.parquet", CONTENT)
    world.compact("host1", "2.parquet", CONTENT)
    held = world.host("host1").held
    info = replica_info(held.manifest, True)
    assert [(one.name, one.bytes, one.in_use) for one in info.unlisted] == [(FIRST, 50, False)]
    assert [one.bytes for one in info.segments] == [0, 50, 50]
    held.add_reader(lambda: [FIRST])
    assert [one.in_use for one in replica_info(held.manifest, True, 0, held.names_in_use()).unlisted] == [True]
    assert replica_info(held.manifest, False).unlisted == ()


def test_a_host_lacks_the_bytes_that_no_state_acknowledged_by_it_lists(world: ReplicaWorld) -> None:
    world.replicate("host1", "host2")
    world.flush("host1", "1.parquet", CONTENT)
    (lag,) = replica_info(world.host("host1").held.manifest, False).lags
    assert (lag.host, lag.lacking, lag.bytes) == ("host2", 1, 50)
    world.replicate("host1", "host2")
    (lag,) = replica_info(world.host("host1").held.manifest, False).lags
    assert (lag.lacking, lag.bytes) == (0, 0)
    world.compact("host1", "2.parquet", CONTENT)
    (lag,) = replica_info(world.host("host1").held.manifest, False).lags
    assert (lag.lacking, lag.bytes) == (1, 50), "a file that the host has counts again"


def test_bytes_of_a_segment_under_way_are_counted(world: ReplicaWorld) -> None:
    world.replicate("host1", "host2")
    world.flush("host1", "1.parquet", CONTENT)
    offer = world.next_offer("host1", "host2")
    assert offer is not None
    receiver = world.host("host2").receiver
    first, *_ = world.transits(offer, receiver.offer(offer), 20)
    assert receiver.received_bytes() == {KEY: 0}
    receiver.transit(first)
    assert receiver.received_bytes() == {KEY: 20}
