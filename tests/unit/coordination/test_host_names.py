"""The names of hosts: one directory each, for ever, also when many hosts join at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.config_tree import HostRecord, format_host, host_path, read_config
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.coordination.host_names import claim_any_name, claim_name, free_name, place_of
from bookkeeper.errors import ConflictError, CorruptionError, ExistsError, RefusedError
from tests.support.faults import fault

JOINS = 8


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedCoordination]:
    coordination = EmbeddedCoordination(tmp_path / "coordination", CoordinationSettings())
    yield coordination
    coordination.close()


def test_a_place_is_relative_below_the_cluster_and_the_real_path_elsewhere(tmp_path: Path) -> None:
    cluster, far = tmp_path / "west", tmp_path / "disk"
    (cluster / "hosts").mkdir(parents=True)
    far.mkdir()
    (cluster / "hosts" / "host3").symlink_to(far)
    assert place_of(cluster, cluster) == "."
    assert place_of(cluster / "hosts" / "host2", cluster) == "hosts/host2"
    assert place_of(cluster / "hosts" / "host3", cluster) == str(far)
    assert place_of(tmp_path / "west2", cluster) == str(tmp_path / "west2")


def test_a_name_is_claimed_once_and_by_one_place(store: EmbeddedCoordination) -> None:
    claim_name(store, "host2", "hosts/host2")
    generation = store.generation()
    claim_name(store, "host2", "hosts/host2")
    assert store.generation() == generation, "a claim is repeated without a change"
    with pytest.raises(ExistsError, match=r"host2 is the host in hosts/host2 .* for ever, not the one in /far; choose"):
        claim_name(store, "host2", "/far")
    with pytest.raises(RefusedError, match=r"hosts/host2 is host host2 .* for ever, not host9: set host.name to host2"):
        claim_name(store, "host9", "hosts/host2")
    assert read_config(store).hosts == {"host2": "hosts/host2"}


def test_a_place_gets_its_name_back_and_another_one_the_first_free_name(store: EmbeddedCoordination) -> None:
    claim_name(store, "host1", ".")
    claim_name(store, "host3", "/three")
    assert claim_any_name(store, "/two") == "host2"
    assert claim_any_name(store, "/four") == "host4"
    assert claim_any_name(store, "/two") == "host2"
    assert free_name({}) == "host2", "the first host of a cluster is host1, also before it has its record"


def test_joins_at_the_same_time_never_share_a_name(store: EmbeddedCoordination) -> None:
    taken: list[str] = []
    together = threading.Barrier(JOINS)

    def join(number: int) -> None:
        together.wait()
        taken.append(claim_any_name(store, f"/place{number}"))

    threads = [threading.Thread(target=join, args=(number,)) for number in range(JOINS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(taken)) == JOINS, f"two hosts got one name: {sorted(taken)}"
    assert set(read_config(store).hosts) == set(taken)


class Rivals(EmbeddedCoordination):
    """Another host takes each name in the moment before it is recorded."""

    def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        super().put(path, format_host(HostRecord(f"/rival{path}")), 0)
        return super().put(path, value, expected_version)


def test_a_name_that_another_host_took_meanwhile_is_never_shared_and_the_join_ends(tmp_path: Path) -> None:
    with closing(Rivals(tmp_path / "coordination", CoordinationSettings())) as store:
        with pytest.raises(ConflictError, match="other hosts took 50 names meanwhile; try again"):
            claim_any_name(store, "/mine")
        assert set(read_config(store).hosts.values()) == {f"/rival/hosts/host{n}" for n in range(2, 52)}


def the_same_path_on_two_machines_is_two_hosts(store: EmbeddedCoordination) -> None:
    assert claim_any_name(store, "/srv/west", "id-1") == "host2"
    assert claim_any_name(store, "/srv/west", "id-2") == "host3", "two machines hold one host"


def test_the_same_path_on_two_machines_is_two_hosts_and_a_moved_one_stays(store: EmbeddedCoordination) -> None:
    the_same_path_on_two_machines_is_two_hosts(store)
    assert claim_any_name(store, "/mnt/west", "id-1") == "host2"
    assert read_config(store).hosts == {"host2": "/mnt/west", "host3": "/srv/west"}
    assert read_config(store).host_ids == {"host2": "id-1", "host3": "id-2"}
    claim_name(store, "host3", "/mnt/west", "id-2")
    with pytest.raises(RefusedError, match="/mnt/west is host host3 of this cluster for ever, not host4"):
        claim_name(store, "host4", "/mnt/west", "id-2")
    with pytest.raises(ExistsError, match="host2 is the host in /mnt/west of another machine of this cluster for ever"):
        claim_name(store, "host2", "/mnt/west", "id-3")
    with pytest.raises(ExistsError, match="host2 is the host in /mnt/west of this cluster"):
        claim_name(store, "host2", "hosts/host2")


def test_known_by_their_path_they_are_one(store: EmbeddedCoordination) -> None:
    with fault("hosts-known-by-path"), pytest.raises(AssertionError, match="two machines hold one host"):
        the_same_path_on_two_machines_is_two_hosts(store)


def test_a_damaged_record_of_a_host_is_an_error(store: EmbeddedCoordination) -> None:
    store.put(host_path("host2"), b'{"place":""}')
    with pytest.raises(CorruptionError, match="configuration /hosts/host2: place has a wrong type or value"):
        read_config(store)
