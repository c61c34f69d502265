"""A segment file of one host is damaged: the host finds it, counts as without it, and gets a sound copy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.config.sections import ReplicasSettings
from bookkeeper.errors import CorruptionError, InvalidInputError, NotServingError, TransientError
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import FileRequest, ReplicaPlacement, ScanRequest
from bookkeeper.tserver.replicas.file_repair import FileRepair
from tests.support.led_hosts import Hosts, hosts
from tests.support.tservers import records, wait_until

pytestmark = pytest.mark.integration

ROWS = [b"%04d" % number for number in range(500)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Hosts]:
    with hosts(tmp_path, "host1", "host2", "host3") as made:
        yield made


def filled(world: Hosts) -> Extent:
    """A tablet with one segment file, named and the same on all hosts; host1 leads."""
    extent = world.table("host1", "host2", "host3")
    world.lead(extent, "host1")
    write(world, extent, b"1")
    return extent


def write(world: Hosts, extent: Extent, value: bytes) -> None:
    """All rows, in a new segment that the books name."""
    assert world.ground.write(world.node("host1"), extent, records([(row, value) for row in ROWS])) == ()
    world.ground.tserver(world.node("host1")).flush_tablet(extent)
    world.wait_same(extent, "host1", "host2", "host3")
    world.wait_named(extent, "host1")


def values(world: Hosts, host: str, extent: Extent) -> dict[bytes, bytes]:
    """The rows that a leader shows."""
    return {row: value for (row, _, _), value in world.ground.scan(world.node(host), extent).items()}


def repair(world: Hosts, host: str) -> FileRepair:
    """The part of a host that repairs files."""
    parts = world.node(host).process.parts.replicas
    assert parts is not None
    return parts.damage.repair


def flip(world: Hosts, host: str, extent: Extent) -> tuple[str, bytes]:
    """Flip a byte of a host's only file; its name, and the bytes before."""
    ((name, content),) = world.files(host, extent).items()
    path = world.settings(host).replicas_dir / name
    damaged = bytearray(content)
    damaged[len(content) // 3] ^= 0xFF
    path.write_bytes(bytes(damaged))
    return name, content


def wait_sound(world: Hosts, host: str, extent: Extent, name: str, content: bytes) -> None:
    """Wait until a host has its file again, byte for byte."""
    wait_until(lambda: not world.held(host, extent).replica.damaged, f"a sound copy on {host}")
    assert world.files(host, extent)[name] == content
    assert name in world.held(host, extent).replica.files


def test_a_read_at_the_leader_waits_for_a_sound_copy_of_a_follower(world: Hosts) -> None:
    extent = filled(world)
    name, content = flip(world, "host1", extent)
    assert values(world, "host1", extent) == dict.fromkeys(ROWS, b"1")
    wait_sound(world, "host1", extent, name, content)
    status = world.node("host1").process.parts.status()
    assert (status["files_found_damaged"], status["files_mended"]) == ("1", "1")
    assert world.node("host1").process.parts.tablets.served().problems == ()


def test_a_damaged_leader_is_no_copy_and_sends_its_file_to_nobody(world: Hosts) -> None:
    extent = filled(world)
    name, content = flip(world, "host1", extent)
    world.kill("host2")
    world.kill("host3")
    assert repair(world, "host1").suspect(name)
    held = world.held("host1", extent)
    (info,) = world.ground.tserver(world.node("host1")).replicas("", True).replicas
    assert info.damaged == (name,)
    assert info.root not in info.complete, "N3: a host counts as holding a state with a damaged file"
    request = FileRequest(
        extent.table_id,
        held.key.directory,
        ReplicaPlacement("host2", "p", "i"),
        name,
        len(content),
        held.manifest.files[name].crc32c,
        0,
    )
    with pytest.raises(NotServingError, match="ask another one"):
        world.ground.tserver(world.node("host1")).replica_content(request)
    with pytest.raises(InvalidInputError, match="no file has a position -1"):
        world.ground.tserver(world.node("host1")).replica_content(replace(request, start=-1))
    with pytest.raises(TransientError, match="another host is asked for it"):
        values(world, "host1", extent)
    world.start("host2")
    wait_sound(world, "host1", extent, name, content)
    assert values(world, "host1", extent) == dict.fromkeys(ROWS, b"1")


def test_a_transfer_finds_that_the_leaders_file_is_damaged_and_the_receiver_gets_no_byte_for_sound(
    world: Hosts,
) -> None:
    extent = filled(world)
    world.kill("host3")
    world.wipe("host3")
    name, content = flip(world, "host1", extent)
    world.start("host3")
    world.place(extent, "host3")
    wait_until(lambda: world.root("host3", extent) == world.root("host1", extent), "the copy of host3")
    assert world.files("host3", extent) == {name: content}
    wait_sound(world, "host1", extent, name, content)


def test_a_compaction_waits_for_a_sound_copy(world: Hosts) -> None:
    extent = filled(world)
    name, content = flip(world, "host1", extent)
    with pytest.raises(CorruptionError):
        world.compact(extent, "host1")
    compactor = world.node("host1").process.parts.tablets.compactor
    tablet = world.chain("host1", extent).tablet
    compactor.request(tablet, 0)
    compactor.run_once()
    wait_sound(world, "host1", extent, name, content)
    assert tablet.problems == [], "a tablet complains although a sound copy comes by itself"
    world.compact(extent, "host1")
    assert values(world, "host1", extent) == dict.fromkeys(ROWS, b"1")


def test_n3_a_follower_with_a_damaged_file_is_no_copy_until_it_has_a_sound_one(world: Hosts) -> None:
    extent = filled(world)
    leader, follower = world.held("host1", extent), world.held("host2", extent)
    name, content = flip(world, "host2", extent)

    def is_acked() -> bool:
        return all(follower.placement in one.acked for one in leader.replica.entries if name in one.segment.list)

    wait_until(is_acked, "the leader knows that host2 holds the file")
    assert repair(world, "host2").suspect(name)
    wait_sound(world, "host2", extent, name, content)
    wait_until(is_acked, "N3: the leader knows that host2 holds the file again")
    write(world, extent, b"2")
    assert values(world, "host1", extent) == dict.fromkeys(ROWS, b"2")


def test_a_stale_read_goes_to_another_host(world: Hosts) -> None:
    extent = filled(world)
    name, content = flip(world, "host2", extent)
    request = ScanRequest(extent, None, None, (), (), None, 1 << 20, stale_ms=600_000)
    with pytest.raises(NotServingError, match="damaged"):
        world.ground.tserver(world.node("host2")).scan(request)
    wait_sound(world, "host2", extent, name, content)
    assert world.ground.tserver(world.node("host2")).scan(request).state_id == world.root("host1", extent)


def test_the_quiet_check_finds_damage_that_nobody_reads(tmp_path: Path) -> None:
    with hosts(tmp_path, settings=ReplicasSettings(check_interval_ms=200)) as world:
        world.start("host1", "host2", "host3")
        extent = filled(world)
        name, content = flip(world, "host3", extent)
        wait_until(lambda: world.files("host3", extent)[name] == content, "the check of host3 finds the damage")
        (world.settings("host2").replicas_dir / name).unlink()
        wait_until(lambda: world.files("host2", extent).get(name) == content, "host2 finds that it is gone")


def with_a_damaged_file_of_the_leader_alone(world: Hosts) -> tuple[Extent, str]:
    """A tablet, and the file of its newest rows, which no other host has; the others are dead."""
    extent = filled(world)
    (first,) = world.files("host1", extent)
    world.kill("host2")
    world.kill("host3")
    assert world.ground.write(world.node("host1"), extent, records([(row, b"2") for row in ROWS])) == ()
    world.ground.tserver(world.node("host1")).flush_tablet(extent)
    (name,) = world.files("host1", extent).keys() - {first}
    (world.settings("host1").replicas_dir / name).write_bytes(b"wrong")
    return extent, name


@pytest.mark.parametrize("next_leader", ["host1", "host2"])
def test_the_next_term_has_the_rows_of_a_damaged_file_that_only_the_leader_had(world: Hosts, next_leader: str) -> None:
    extent, name = with_a_damaged_file_of_the_leader_alone(world)
    assert repair(world, "host1").suspect(name)
    world.start("host2")
    with pytest.raises(TransientError, match="another host is asked for it"):
        values(world, "host1", extent)
    world.kill("host1")
    world.start("host1")
    world.lead(extent, next_leader)
    assert values(world, next_leader, extent) == dict.fromkeys(ROWS, b"2")
    world.ground.tserver(world.node(next_leader)).flush_tablet(extent)
    world.wait_same(extent, "host1", "host2")
    world.wait_named(extent, next_leader)


def test_a_file_that_is_gone_is_no_copy_when_the_host_starts(world: Hosts) -> None:
    """Nobody reads it, and the quiet check is far away."""
    extent = filled(world)
    ((name, content),) = world.files("host2", extent).items()
    for host in ("host1", "host3"):
        world.kill(host)
    world.stop("host2")
    (world.settings("host2").replicas_dir / name).unlink()
    world.start("host2")
    wait_until(lambda: world.held("host2", extent).replica.damaged == {name}, "host2 finds that its file is gone")
    world.start("host3")
    wait_sound(world, "host2", extent, name, content)


def test_when_one_file_is_gone_the_others_are_looked_for(world: Hosts) -> None:
    extent = filled(world)
    write(world, extent, b"2")
    gone = sorted(world.files("host3", extent))
    assert len(gone) == 2
    for host in ("host1", "host2"):
        world.kill(host)
    for name in gone:
        (world.settings("host3").replicas_dir / name).unlink()
    assert repair(world, "host3").suspect(gone[0])
    wait_until(lambda: world.held("host3", extent).replica.damaged == set(gone), "host3 finds that both are gone")


def test_a_leader_with_a_damaged_file_that_it_alone_has_lets_the_tablet_go(world: Hosts) -> None:
    extent, name = with_a_damaged_file_of_the_leader_alone(world)
    tablets = world.node("host1").process.parts.tablets
    assert tablets.served().without_room == ()
    assert repair(world, "host1").suspect(name)
    wait_until(lambda: tablets.served().without_room == (extent,), "host1 asks the master for another leader")
    world.start("host2")
    world.unload(extent, "host1")
    world.lead(extent, "host2")
    assert values(world, "host2", extent) == dict.fromkeys(ROWS, b"2")
    world.wait_named(extent, "host2")
    world.wait_same(extent, "host2", "host1")


def test_damage_outlives_the_process(world: Hosts) -> None:
    extent = filled(world)
    name, content = flip(world, "host3", extent)
    world.kill("host1")
    world.kill("host2")
    assert repair(world, "host3").suspect(name)
    world.kill("host3")
    world.start("host3")
    assert world.held("host3", extent).replica.damaged == frozenset({name})
    assert world.files("host3", extent)[name] != content, "the damaged bytes went before a sound copy was here"
    world.start("host2")
    wait_sound(world, "host3", extent, name, content)


def test_without_a_sound_copy_the_error_stays_and_nothing_is_deleted(world: Hosts) -> None:
    extent = filled(world)
    for host in ("host1", "host2", "host3"):
        name, content = flip(world, host, extent)
    with pytest.raises(TransientError, match="is damaged"):
        values(world, "host1", extent)
    wait_until(lambda: all(world.held(f"host{n}", extent).replica.damaged for n in (1, 2, 3)), "all know it")
    for host in ("host1", "host2", "host3"):
        world.collect(host)
        assert name in world.files(host, extent), "a damaged file was deleted although nothing replaces it"
    (world.settings("host2").replicas_dir / name).write_bytes(content)  # a person restores it
    world.stop("host2")
    world.start("host2")
    for host in ("host2", "host1", "host3"):
        wait_sound(world, host, extent, name, content)
    assert values(world, "host1", extent) == dict.fromkeys(ROWS, b"1")
