"""A host copies the files of a tablet from the Volume, and back: beliefs, crashes, damage."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from bookkeeper.errors import CorruptionError, InvalidInputError, UnavailableError
from bookkeeper.metadata import keys
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import Extent
from bookkeeper.replicas.values import Placement, Stage
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.tserver.replicas import replica_stores
from bookkeeper.tserver.replicas.offer_checks import ReplicaRow, RowReplica
from bookkeeper.tserver.replicas.replica_books import NamedState
from bookkeeper.tserver.replicas.replica_stores import ReplicaStores
from tests.support.must_raise import must_raise
from tests.support.replica_disks import EXTENT, KEY, Disk, PowerLostError, disk

NAMES = (KEY.prefix + "1-a.parquet", KEY.prefix + "2-b.parquet")
THERE = {NAMES[0]: NAMES[0], NAMES[1]: "tables/3a/t-0000/2-b.parquet"}
"""Name on the host to name on the Volume, where the tablet shares a file of another one."""

CONTENT = {name: name.encode() * 50_000 for name in NAMES}
STATE = keys.first_flush_id(4)


@dataclass
class Site:
    """A host, a Volume with the files of a tablet, and the row."""

    host: Disk
    volume: LocalVolume
    placement: str = "p-host1"

    def named(self, extent: Extent) -> NamedState | None:
        """See ``ReplicaBooks.named``."""
        own = RowReplica(Placement(self.placement, self.host.store.identity.incarnation), Stage.LIVE)
        row = ReplicaRow(extent, KEY.directory, 4, {"host1": own} if self.placement else {}, STATE, NAMES)
        flush = FlushState(STATE, {}, 7, 0, {}, (), NAMES)
        return NamedState(row, flush, flush.encode(), dict.fromkeys(NAMES, b'{"records":1}'))

    @property
    def stores(self) -> ReplicaStores:
        """The copies of the host's present process."""
        return ReplicaStores(self.host.replicas, self.named, self.volume)

    def held(self) -> Mapping[str, bytes]:
        """The files on the host."""
        return content_of(self.host.store.volume)


def content_of(volume: LocalVolume) -> dict[str, bytes]:
    """All segments of a Volume."""
    names = [name for name in volume.list_names("tables/") if name.endswith(".parquet")]
    return {name: volume.read_range(name, 0, volume.size(name)) for name in names}


def site(directory: Path) -> Site:
    """The files are on the Volume; the host has nothing."""
    volume = LocalVolume(directory / "volume")
    for name, there in THERE.items():
        volume.create(there, [CONTENT[name]]).close()
    return Site(disk(directory, "host1"), volume)


def test_a_host_takes_the_files_of_the_named_state_under_its_own_names_and_may_lead(tmp_path: Path) -> None:
    made = site(tmp_path)
    assert made.stores.take(EXTENT, THERE)
    assert made.held() == CONTENT
    made.host.reopen()
    held = made.host.replicas.find(KEY)
    assert held is not None
    assert (held.replica.root, held.replica.files) == (STATE, frozenset(NAMES))
    before = len(made.host.ops.calls)
    assert made.stores.take(EXTENT, THERE)
    assert "rename" not in made.host.ops.calls[before:], "a file is copied twice"


@pytest.mark.parametrize("is_behind", [False, True], ids=["before it", "behind it"])
def test_copies_that_were_cut_are_repeated_after_a_restart(is_behind: bool, tmp_path: Path) -> None:
    for cut in itertools.count():
        made = site(tmp_path / str(cut))
        ops = made.host.ops
        ops.cut_at, ops.is_behind = len(ops.calls) + cut, is_behind
        try:
            made.stores.take(EXTENT, THERE)
        except PowerLostError:
            made.host.reopen()
            made.host.replicas.delete_orphans()
            assert made.stores.take(EXTENT, THERE)
            assert made.held() == CONTENT
            continue
        assert cut > 6
        return


def test_a_row_that_does_not_name_this_host_is_not_believed(tmp_path: Path) -> None:
    made = site(tmp_path)
    made.placement = ""
    assert not made.stores.take(EXTENT, THERE)
    assert not made.stores.publish(EXTENT)
    assert made.held() == {}


def test_a_file_that_is_gone_from_the_volume_is_named_and_the_rest_stays(tmp_path: Path) -> None:
    made = site(tmp_path)
    made.volume.delete([THERE[NAMES[1]]])
    with pytest.raises(UnavailableError, match=r"2-b\.parquet of tablet .* is not on the Volume"):
        made.stores.take(EXTENT, THERE)
    assert set(made.held()) == {NAMES[0]}
    held = made.host.replicas.find(KEY)
    assert held is not None
    assert held.replica.root is None, "it would lead without a file"


def test_a_host_publishes_the_files_under_the_same_names_and_again_without_a_copy(tmp_path: Path) -> None:
    made = site(tmp_path)
    assert made.stores.take(EXTENT, THERE)
    made.volume.delete(list(THERE.values()))
    for _ in range(2):
        assert made.stores.publish(EXTENT)
        assert content_of(made.volume) == CONTENT


def test_a_host_that_lacks_a_file_publishes_nothing(tmp_path: Path) -> None:
    made = site(tmp_path)
    assert made.stores.take(EXTENT, {NAMES[0]: NAMES[0]}) is False
    made.volume.delete([NAMES[0]])
    assert not made.stores.publish(EXTENT)
    assert NAMES[0] not in content_of(made.volume)


def test_a_file_that_is_damaged_on_the_host_is_not_published(tmp_path: Path) -> None:
    made = site(tmp_path)
    assert made.stores.take(EXTENT, THERE)
    made.volume.delete(list(THERE.values()))
    path = made.host.directory / NAMES[1]
    path.write_bytes(b"x" + path.read_bytes()[1:])
    with pytest.raises(CorruptionError, match=r"2-b\.parquet on this host has not the bytes that it got"):
        made.stores.publish(EXTENT)
    assert NAMES[1] not in content_of(made.volume)


@pytest.mark.parametrize(
    "source",
    [
        "secrets/2-b.parquet",
        "tables/4b/t-0000/2-b.parquet",
        "tables/3a/t-0000/1-a.parquet",
        "tables/3a/../../secrets/2-b.parquet",
        "/tables/3a/2-b.parquet",
        "tables/3a/\0/2-b.parquet",
    ],
)
def test_no_other_file_of_the_volume_gets_the_name_of_a_file(source: str, tmp_path: Path) -> None:
    made = site(tmp_path)
    secret = tmp_path / "volume" / "secrets"
    secret.mkdir()
    (secret / "2-b.parquet").write_bytes(b"secret")
    with must_raise(InvalidInputError, f"a host takes {source!r}, and sends it to each holder of the secret"):
        made.stores.take(EXTENT, {**THERE, NAMES[1]: source})
    assert made.held() == {}


def test_a_file_of_another_cluster_is_taken_from_where_it_came_in(tmp_path: Path) -> None:
    made = site(tmp_path)
    there = "tables/_incoming/tserver-1-0a/2-b.parquet"
    made.volume.create(there, [CONTENT[NAMES[1]]]).close()
    assert made.stores.take(EXTENT, {**THERE, NAMES[1]: there})
    assert made.held() == CONTENT


def test_an_order_to_take_files_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = site(tmp_path)
    monkeypatch.setattr(replica_stores, "TAKEN_MAX", len(THERE))
    with must_raise(InvalidInputError, "an order of any length is read", match="3 files .* at most 2 in one call"):
        made.stores.take(EXTENT, {**THERE, KEY.prefix + "3-c.parquet": KEY.prefix + "3-c.parquet"})
    assert made.stores.take(EXTENT, THERE)
