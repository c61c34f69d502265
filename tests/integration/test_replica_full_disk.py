"""A tablet with replicas leaves a host whose disk is full, and no acknowledged record stays behind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from bookkeeper.errors import NoSpaceError
from bookkeeper.master.queries.replica_report import answer_of
from bookkeeper.model import Extent
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


def problem_of(world: Hosts, name: str) -> str:
    """What `hosts`, the pages and the API say of a host that answers."""
    return answer_of(world.ground.tserver(world.node(name)).replicas("", False))[1]


def tablet_problem(world: Hosts, name: str, extent: Extent) -> str:
    """What `tablets` says of a tablet that a host serves."""
    served = world.ground.tserver(world.node(name)).tablets()
    return next((one.reason for one in served.problems if one.extent == extent), "")


def test_a_full_disk_is_named_until_there_is_room_again(tmp_path: Path, disk: SmallDisk) -> None:
    with hosts(tmp_path, "host1", "host2", overrides={"tserver.disk_reserve_bytes": 1 << 20}) as world:
        assert [problem_of(world, name) for name in ("host1", "host2")] == ["", ""]
        disk.fill(ROOM_LEFT_BYTES)
        assert "its disk is full: " in problem_of(world, "host2"), "nobody says that the disk of a host is full"
        assert problem_of(world, "host1") == ""
        disk.release()
        assert problem_of(world, "host2") == ""


def test_a_follower_whose_disk_has_no_room_for_a_segment_says_so_and_gets_it_later(
    tmp_path: Path, disk: SmallDisk
) -> None:
    with hosts(tmp_path, "host1", "host2", "host3", overrides=TO_THE_LAST_BYTE) as world:
        extent = world.table("host1", "host2", "host3")
        world.lead(extent, "host1")
        world.wait_named(extent, "host1")
        disk.fill(ROOM_LEFT_BYTES)
        rng = Random(1)
        rows = [(b"%04d" % number, rng.randbytes(1_000)) for number in range(40)]
        assert world.ground.write(world.node("host1"), extent, records(rows)) == ()
        parts = world.node("host1").process.parts.tablets
        parts.flusher.flush(parts.registry.serving(extent))
        word = re.compile("its disk is full: .* content of [0-9]+ bytes from other hosts waits")
        wait_until(lambda: word.search(problem_of(world, "host2")) is not None, "word of the segment that has no room")
        disk.release()
        wait_until(lambda: world.held("host2", extent).replica.root == world.held("host1", extent).replica.root, "it")
        assert problem_of(world, "host2") == ""


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
    assert "no room on the disk" in tablet_problem(world, "host2", extent)
    assert "its disk is full: " in problem_of(world, "host2")
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
        assert "no room for the last write" in tablet_problem(world, "host2", extent)
        assert "its disk is full: " in problem_of(world, "host2")
        assert disk.free_bytes() == 0
        world.unload(extent, "host2")
        world.lead(extent, "host1")
        found = {row: value for (row, _, _), value in world.ground.scan(world.node("host1"), extent).items()}
        assert found == written
