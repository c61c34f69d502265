"""A tablet with replicas leaves a host whose disk is full, and no acknowledged record stays behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from bookkeeper.errors import NoSpaceError
from tests.support.host_logs import ON_HOSTS
from tests.support.led_hosts import Hosts, hosts
from tests.support.small_disk import NoMountError, SmallDisk, small_disk
from tests.support.tservers import records, wait_until

pytestmark = pytest.mark.integration

DISK_BYTES = 32 << 20
ROOM_LEFT_BYTES = 8 << 10
"""Less than the segment of the test."""

TO_THE_LAST_BYTE: Mapping[str, object] = {**ON_HOSTS, "tserver.disk_reserve_bytes": 1}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """The disk of host2."""
    try:
        with small_disk(tmp_path / "host2", DISK_BYTES) as made:
            yield made
    except NoMountError as error:
        pytest.skip(str(error))


@pytest.fixture
def world(tmp_path: Path, disk: SmallDisk) -> Iterator[Hosts]:
    assert disk.directory.is_dir()
    with hosts(tmp_path, "host1", "host2", "host3") as made:
        yield made


def test_a_leader_without_room_says_so_and_leaves_without_a_flush(world: Hosts, disk: SmallDisk) -> None:
    extent = world.table("host1", "host2", "host3", properties={"table.flush.memtable_bytes": "32768"})
    world.lead(extent, "host2")
    node = world.node("host2")
    parts = node.process.parts.tablets
    assert parts.served().without_room == ()
    world.wait_named(extent, "host2")
    disk.fill(ROOM_LEFT_BYTES)
    rng = Random(1)
    rows = [(b"%04d" % number, rng.randbytes(1_000)) for number in range(40)]
    assert world.ground.write(node, extent, records(rows)) == ()
    wait_until(lambda: parts.served().without_room == (extent,), "word of the full disk")
    world.unload(extent, "host2")
    world.lead(extent, "host1")
    assert len(world.ground.scan(world.node("host1"), extent)) == len(rows)


def test_a_host_without_room_does_not_lead_and_says_why(world: Hosts, disk: SmallDisk) -> None:
    extent = world.table("host1", "host2", "host3")
    disk.fill()
    with pytest.raises(NoSpaceError, match="make room there"):
        world.lead(extent, "host2")
    disk.release()
    world.lead(extent, "host2")


def test_a_leader_whose_own_log_has_no_room_says_so_and_leaves_a_disk_without_a_free_byte(
    tmp_path: Path, disk: SmallDisk
) -> None:
    with hosts(tmp_path, "host1", "host2", "host3", overrides=TO_THE_LAST_BYTE) as world:
        extent = world.table("host1", "host2", "host3", properties={"table.flush.interval_ms": "3600000"})
        world.lead(extent, "host2")
        node = world.node("host2")
        parts = node.process.parts.tablets
        world.wait_named(extent, "host2")
        assert world.ground.write(node, extent, records([(b"first", b"1")])) == ()
        disk.fill()
        rng = Random(1)
        rows = {b"%04d" % number: rng.randbytes(10_000) for number in range(200)}
        written = {b"first": b"1"}
        for row, value in rows.items():
            try:
                assert world.ground.write(node, extent, records([(row, value)])) == ()
            except NoSpaceError:
                break
            written[row] = value
        assert 1 < len(written) < len(rows)
        wait_until(lambda: parts.served().without_room == (extent,), "word of the full disk")
        assert disk.free_bytes() == 0
        world.unload(extent, "host2")
        world.lead(extent, "host1")
        found = {row: value for (row, _, _), value in world.ground.scan(world.node("host1"), extent).items()}
        assert found == written
