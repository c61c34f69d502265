"""Hosts of one cluster, each with a disk of its own: the session that shows it, its lock, its incarnation.

The real tserver process over simulated disks (``tests.support.simulation.hosts``).
"""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from bookkeeper.model import Extent
from bookkeeper.replicas.values import Placement, Replica
from bookkeeper.storage.replicas import host_store
from bookkeeper.storage.replicas.host_store import HostStore
from bookkeeper.storage.replicas.manifest import Manifest, ReplicaKey
from bookkeeper.storage.volume.file_ops import sync_directory
from tests.support.replacement import Binding, replaced
from tests.support.simulation.cluster import Cluster
from tests.support.simulation.hosts import Host
from tests.support.simulation.kernel import Process
from tests.support.simulation.world import World, simulation

KEY = ReplicaKey("1", "t-0001")


def with_hosts(world: World, count: int) -> Cluster:
    """A cluster with a table of one tablet, and a tserver on each of its hosts."""
    west = world.add_cluster("west")
    west.create_table("t", "1", [])
    for _ in range(count):
        west.add_host()
    world.boot(west)
    return west


def shown(cluster: Cluster) -> dict[str, str]:
    """The hosts that live sessions show, with their incarnations."""
    with cluster.world.kernel.aside():
        sessions = cluster.coordination.sessions("tserver")
    return {info.host.name: info.host.incarnation for info in sessions if info.alive and info.host is not None}


def again(host: Host) -> None:
    """Start a process, and wait until its session shows the host."""
    host.start()
    host.cluster.world.until(lambda: host.serves, f"{host.name} serves")


def manifest(store: HostStore) -> Manifest:
    """The manifest of an empty replica."""
    return Manifest(KEY, Extent("1", None, None), Replica("h1", Placement("p1", store.identity.incarnation)), {}, {})


def test_each_host_has_a_session_and_an_incarnation(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        west = with_hosts(world, 3)
        found = shown(west)
        assert found == {host.name: host.incarnation for host in west.hosts}
        assert len(set(found.values())) == 3


def test_a_host_that_died_is_the_same_one_and_a_wiped_one_is_another(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        west = with_hosts(world, 2)
        first, second = west.hosts
        before = shown(west)
        first.kill(power=True)
        again(first)
        assert shown(west) == before
        second.wipe()
        assert second.incarnation is None
        again(second)
        after = shown(west)
        assert after["h1"] == before["h1"]
        assert after["h2"] != before["h2"]


def test_a_stopped_process_keeps_its_host_until_it_goes_on(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        west = with_hosts(world, 2)
        host = west.hosts[0]
        stopped = host.process
        host.stop()
        host.start()
        world.until(lambda: host.node in west.booted(west.tservers), "another process runs")
        assert not host.holds_lock, "two processes have the disk of one host"
        stopped.suspended = False
        world.until(lambda: stopped.dead, "the stopped process finds that its session is over")
        host.kill()
        again(host)


def test_a_write_goes_on_when_its_host_dies(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        west = with_hosts(world, 2)
        wrote = world.put(west, "t", b"a")
        owner = west.holder(west.extents("1")[0])
        assert owner is not None
        assert owner.host is not None
        owner.host.kill(power=True)
        world.until(west.is_served, "the other host serves the tablet")
        assert {entry.value for entry in west.entries("1")} == {write.value for write in wrote}


def test_a_power_failure_leaves_the_manifest_that_was_durable(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        host = with_hosts(world, 1).hosts[0]
        host.kill()
        store = HostStore.open(host.settings.replicas_dir, host.name)
        first = Manifest(
            KEY, Extent("1", None, None), Replica("h1", Placement("p1", store.identity.incarnation)), {}, {}
        )
        store.save(first)
        writer = Process("writer", "west")
        world.kernel.spawn(writer, "save", lambda: store.save(replace(first, states={7: b"{}"})))
        with world.held("h1: manifests/", "rename"):
            world.until_at("h1: manifests/", "rename")
            world.kernel.kill(writer)
            host.kill(power=True)
        assert host.manifests() == [first], "a manifest that was durable is gone"
        world.kernel.spawn(Process("writer", "west"), "save", lambda: store.save(replace(first, states={7: b"{}"})))
        world.until(lambda: host.manifests() != [first], "another manifest is saved")
        host.kill(power=True)
        assert host.manifests() == [replace(first, states={7: b"{}"})], "a power failure undid a durable manifest"
        store.close()


def test_a_power_failure_undoes_a_name_that_was_not_synced(tmp_path: Path) -> None:
    with simulation(tmp_path / "world") as world:
        host = with_hosts(world, 1).hosts[0]
        host.kill()
        store = HostStore.open(host.settings.replicas_dir, host.name)
        first = Manifest(
            KEY, Extent("1", None, None), Replica("h1", Placement("p1", store.identity.incarnation)), {}, {}
        )
        store.save(first)
        with replaced(Binding(host_store, sync_directory), lambda _directory, _ops: None):
            store.save(replace(first, states={7: b"{}"}))
        host.kill(power=True)
        assert host.manifests() == [first], "the disk of this world never forgets"
        store.close()
