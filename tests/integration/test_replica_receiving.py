"""A real tserver takes segments of another host over its port, and a kill -9 costs no byte that it received."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.errors import RefusedError
from bookkeeper.model import HostIdentity
from bookkeeper.rpc.contract.messages import CONTENT_BYTES_MAX, FileNeed, SegmentOffer
from bookkeeper.storage.replicas.host_store import HostStore
from tests.support.jumping_clock import TestClock
from tests.support.replica_disks import KEY
from tests.support.replica_world import ReplicaWorld
from tests.support.tservers import Ground

NAME = KEY.prefix + "1.parquet"


@pytest.fixture
def ground(tmp_path: Path) -> Iterator[Ground]:
    """A cluster whose only tserver is on host1."""
    found = Ground(tmp_path / "west")
    yield found
    found.close()


def follower(ground: Ground) -> HostIdentity:
    """The host of the cluster's directory, while no tserver runs there."""
    store = HostStore.open(ground.settings.replicas_dir, ground.settings.host.name)
    store.close()
    return store.identity


def leading(ground: Ground, directory: Path) -> ReplicaWorld:
    """host9 leads the tablet, and host1 follows."""
    world = ReplicaWorld(ground.metadata, TestClock())
    world.add(directory, "host9")
    identity = follower(ground)
    world.incarnations[identity.name] = identity.incarnation
    world.put_row("host9", identity.name)
    world.lead("host9", identity.name)
    return world


def offered(world: ReplicaWorld, segment_id: int | None) -> SegmentOffer:
    """The leader's offer of one segment."""
    return world.offer_of("host9", "host1", segment_id)


def test_a_segment_crosses_the_wire_in_parts_and_goes_on_after_kill_9(ground: Ground, tmp_path: Path) -> None:
    world = leading(ground, tmp_path)
    content = os.urandom((2 << 20) + 7)
    begin = world.host("host9").held.replica.root
    segment_id = world.flush("host9", "1.parquet", content)
    node = ground.process()
    tserver = ground.tserver(node)
    assert tserver.segment_offer(offered(world, begin)).state == "acked"
    offer = offered(world, segment_id)
    parts = world.transits(offer, tserver.segment_offer(offer), CONTENT_BYTES_MAX)
    assert [tserver.segment_transit(part).held_bytes for part in parts[:2]] == [1 << 20, 2 << 20]
    node.kill9()
    node = ground.process()
    tserver = ground.tserver(node)
    answer = tserver.segment_offer(offer)
    assert answer.need == (FileNeed(NAME, 2 << 20),)
    last = tserver.segment_transit(parts[2]).answer
    assert last is not None
    assert (last.state, last.root) == ("acked", segment_id)
    assert (ground.settings.replicas_dir / NAME).read_bytes() == content
    assert tserver.segment_offer(offer).reason == "SEGMENT_EXISTS"
    found = tserver.replicas("", True)
    (info,) = found.replicas
    assert (info.root, info.leader, info.is_leader, info.stage) == (segment_id, "host9", False, "LIVE")
    assert info.complete == (begin, segment_id)
    assert (info.files, info.bytes, found.damaged) == (1, len(content), {})
    assert [one.segment.segment_id for one in info.segments] == [begin, segment_id]
    assert tserver.replicas("other", False).replicas == ()
    assert tserver.tablet_replica(info.extent.table_id, info.directory).replicas == found.replicas
    assert tserver.tablet_replica(info.extent.table_id, "other").replicas == ()
    status = tserver.status()
    assert (status["segments_received"], status["segment_bytes_received"]) == ("1", "7")
    second = ground.process()
    with pytest.raises(RefusedError, match="holds no replicas"):
        ground.tserver(second).segment_offer(offer)
    world.host("host9").disk.store.close()
