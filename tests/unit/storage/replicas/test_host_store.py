"""A host's disk: manifests survive crashes wholly, a wiped disk is another one, one process has the directory."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.errors import CorruptionError, IncompatibleError, InvalidInputError, RefusedError, UnavailableError
from bookkeeper.model import Extent
from bookkeeper.replicas.values import Entry, Incoming, KeyRange, Placement, Replica, Segment, Stage, Step, Target
from bookkeeper.storage.replicas.file_checks import checksum_of, held_file
from bookkeeper.storage.replicas.host_store import HostStore
from bookkeeper.storage.replicas.manifest import HeldFile, Manifest, ReplicaKey
from bookkeeper.storage.replicas.manifest_codec import (
    PASSING_FIELDS,
    decode_manifest,
    durable_part,
    encode_manifest,
)
from bookkeeper.storage.volume.local_volume import LocalVolume
from tests.support.replica_disks import PowerLostError, WatchedOps

KEY = ReplicaKey("3a", "t-0001")
PLACEMENT = Placement("p7", "abc")
NAMES = tuple(f"tables/3a/t-0001/{number}.parquet" for number in range(3))


def manifest_of(root: int = 2) -> Manifest:
    """A replica with a major and a minor, acknowledged by others, and a child as target."""
    first = Segment(1, None, True, (), NAMES[:1], (), ((-3, 1), (1, 9)))
    second = Segment(root, 1, False, (7, 5), NAMES[1:2], NAMES[:1], ((1, 9), (2, 4)))
    acked = frozenset({Placement("p1", "x"), Placement("p2", "y")})
    replica = Replica(
        "host1",
        PLACEMENT,
        Stage.LIVE,
        root=root,
        entries=(Entry(first, acked), Entry(second)),
        files=frozenset(NAMES[:1]),
        damaged=frozenset(NAMES[1:2]),
        leader="host2",
        term=4,
        led=2,
        made=8,
        targets=(Target("host2", Placement("p1", "x")), Target("child", Placement("c"), KeyRange("k", None), 7)),
        given_up=((1, 5),),
    )
    files = {name: HeldFile(name, 10 + len(name), 0xDEADBEEF, b'{"e":1}') for name in NAMES[:2]}
    return Manifest(KEY, Extent("3a", b"m\x00", None), replica, files, {1: b"{}", root: b'{"flush_id":2}'})


# ---- the codec


def test_a_manifest_comes_back_as_it_was() -> None:
    assert decode_manifest(encode_manifest(manifest_of())) == manifest_of()


def test_its_bytes_are_these() -> None:
    """A change of the format needs another version, because a host may read what an older program wrote."""
    empty = Manifest(KEY, Extent("3a", None, b"\xff"), Replica("h", Placement("p", "i")), {}, {})
    assert encode_manifest(empty) == (
        b"replica-manifest 2 050202c5\n"
        b'{"directory":"t-0001","end_row":null,"files":[],"prev_row":"/w==","replica":{"damaged":[],"entries":[],'
        b'"given_up":[],"host":"h","leader":null,"led":0,"made":0,"placement":["p","i"],"root":null,"stage":"LIVE",'
        b'"targets":[],"term":0},"states":[],"table":"3a"}'
    )


def test_each_field_of_a_replica_is_written_or_ends_with_the_process() -> None:
    changed = replace(
        manifest_of().replica,
        has_memory=True,
        incoming=(Incoming(Segment(9, None), "host2", Step.MERGE),),
        incoming_max=9,
        merged=(1,),
        declined=(("host2", 1),),
        replayed=((1, 1),),
        named=1,
    )
    assert durable_part(changed) == manifest_of().replica
    assert decode_manifest(encode_manifest(replace(manifest_of(), replica=changed))).replica == durable_part(changed)
    default, sample = Replica("h", PLACEMENT), manifest_of().replica
    written = set(Replica.__struct_fields__) - set(PASSING_FIELDS)
    unset = {name for name in written if getattr(sample, name) == getattr(default, name)}
    assert unset == {"placement", "stage"}, f"a new field of a replica is not in the sample of this test: {unset}"


@given(position=st.integers(0, len(encode_manifest(manifest_of())) - 1), mask=st.integers(1, 255))
def test_a_manifest_with_a_wrong_byte_is_refused(position: int, mask: int) -> None:
    raw = bytearray(encode_manifest(manifest_of()))
    raw[position] ^= mask
    with pytest.raises((CorruptionError, IncompatibleError)):
        decode_manifest(bytes(raw))


@given(length=st.integers(0, len(encode_manifest(manifest_of())) - 1))
def test_a_part_of_a_manifest_is_refused(length: int) -> None:
    with pytest.raises(CorruptionError):
        decode_manifest(encode_manifest(manifest_of())[:length])


@given(raw=st.binary(max_size=200))
def test_any_bytes_are_refused_in_words(raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_manifest(raw)


def test_another_version_is_refused_in_words() -> None:
    raw = encode_manifest(manifest_of()).replace(b"replica-manifest 2", b"replica-manifest 3")
    with pytest.raises(IncompatibleError, match="format 3, and this program writes 2"):
        decode_manifest(raw)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (replace(manifest_of(), files={}), "no facts about"),
        (replace(manifest_of(), extent=Extent("other", None, None)), "of another table"),
        (replace(manifest_of(), replica=replace(manifest_of().replica, root=99)), "lacks its root, state 99"),
        (replace(manifest_of(), key=ReplicaKey("3a", "../x")), "no name of a file"),
        (replace(manifest_of(), key=ReplicaKey("3a", "x/y")), "want a name without a slash"),
        (replace(manifest_of(), key=ReplicaKey("3a", "other")), "no file of the tablet"),
        (
            replace(
                manifest_of(),
                replica=replace(manifest_of().replica, files=frozenset(NAMES[1:2]), damaged=frozenset()),
                files={NAMES[1]: manifest_of().files[NAMES[1]]},
            ),
            "the host does not hold it",
        ),
    ],
)
def test_parts_that_contradict_each_other_are_not_written(changed: Manifest, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        encode_manifest(changed)


def test_what_a_replica_no_longer_has_is_pruned() -> None:
    before = manifest_of()
    replica = replace(before.replica, entries=before.replica.entries[1:], files=frozenset(NAMES[1:2]))
    pruned = replace(before, replica=replica).pruned()
    assert (set(pruned.files), set(pruned.states)) == ({NAMES[1]}, {2})


# ---- the directory


def test_a_host_opens_again_as_it_was(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "replicas", "host1")
    store.save(manifest_of())
    identity = store.identity
    store.close()
    again = HostStore.open(tmp_path / "replicas", "host1")
    assert (again.identity, again.list(), again.load(KEY)) == (identity, [KEY], manifest_of())
    assert again.load(ReplicaKey("3a", "other")) is None
    again.remove(KEY)
    again.remove(KEY)
    assert (again.list(), again.load(KEY)) == ([], None)
    again.close()


@pytest.mark.parametrize("wiped", ["replicas", "replicas/manifests", "replicas/incarnation"])
def test_p10_a_wiped_disk_is_another_one(tmp_path: Path, wiped: str) -> None:
    store = HostStore.open(tmp_path / "replicas", "host1")
    store.save(manifest_of())
    store.close()
    path = tmp_path / wiped
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    again = HostStore.open(tmp_path / "replicas", "host1")
    assert again.identity.incarnation != store.identity.incarnation, "a wiped disk passes for the one before"
    again.close()


def test_a_second_user_is_refused(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path, "host1")
    with pytest.raises(RefusedError, match="another process holds the replicas"):
        HostStore.open(tmp_path, "host1")
    script = (
        "import sys, pathlib\nfrom bookkeeper.errors import RefusedError\n"
        "from bookkeeper.storage.replicas.host_store import HostStore\n"
        "try:\n    HostStore.open(pathlib.Path(sys.argv[1]), 'host1')\nexcept RefusedError as e:\n    print(e)\n"
    )
    found = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert "another process holds the replicas" in found.stdout
    store.close()
    HostStore.open(tmp_path, "host1").close()


def test_a_damaged_manifest_is_listed_and_refused_in_words(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path, "host1")
    store.save(manifest_of())
    path = tmp_path / "manifests" / "3a" / "t-0001"
    path.write_bytes(path.read_bytes()[:-1])
    assert store.list() == [KEY]
    with pytest.raises(CorruptionError, match="does not count as having the replica") as error:
        store.load(KEY)
    assert error.value.details["file"] == str(path)
    path.with_name("t-0002").write_bytes(encode_manifest(manifest_of()))
    with pytest.raises(CorruptionError, match=re.escape("it is the one of 3a/t-0001")):
        store.load(ReplicaKey("3a", "t-0002"))
    store.close()


def test_a_directory_that_can_not_be_read_is_no_empty_list(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path, "host1")
    shutil.rmtree(tmp_path / "manifests")
    with pytest.raises(UnavailableError, match="can't be listed"):
        store.list()
    store.close()


def test_a_damaged_incarnation_is_refused_in_words(tmp_path: Path) -> None:
    HostStore.open(tmp_path, "host1").close()
    (tmp_path / "incarnation").write_bytes(b"\x00" * 32)
    with pytest.raises(CorruptionError, match="is no incarnation"):
        HostStore.open(tmp_path, "host1")
    (tmp_path / "incarnation").write_bytes(b"fine")
    HostStore.open(tmp_path, "host1").close()


@pytest.mark.parametrize("is_behind", [False, True])
@pytest.mark.parametrize("cut_at", range(4))
def test_a_cut_leaves_the_old_manifest_or_the_new_one(tmp_path: Path, cut_at: int, is_behind: bool) -> None:
    ops = WatchedOps()
    store = HostStore.open(tmp_path, "host1", ops)
    store.save(manifest_of())
    ops.calls.clear()
    ops.cut_at, ops.is_behind = cut_at, is_behind
    with pytest.raises(PowerLostError):
        store.save(manifest_of(root=3))
    store.close()
    again = HostStore.open(tmp_path, "host1")
    found = again.load(KEY)
    assert found == (manifest_of(root=3) if "rename" in ops.calls and (is_behind or cut_at > 2) else manifest_of())
    assert again.list() == [KEY], "a temporary file counts as a replica"
    again.save(manifest_of(root=4))
    assert again.load(KEY) == manifest_of(root=4)
    again.close()


def test_a_manifest_is_synced_before_it_gets_its_name_and_its_directory_after(tmp_path: Path) -> None:
    ops = WatchedOps()
    store = HostStore.open(tmp_path, "host1", ops)
    store.save(manifest_of())
    ops.calls.clear()
    store.save(manifest_of(root=3))
    assert ops.calls == ["write", "sync", "rename", "sync directory"]
    store.close()


def test_p5_a_manifest_gets_its_name_behind_what_it_lists(tmp_path: Path) -> None:
    ops = WatchedOps()
    store = HostStore.open(tmp_path, "host1", ops)
    store.save(manifest_of())
    ops.calls.clear()

    def publish() -> None:
        assert store.load(KEY) == manifest_of(), "a manifest counts before the files that it lists"
        ops.calls.append("published")

    store.save(manifest_of(root=3), publish)
    assert ops.calls[-2:] == ["rename", "sync directory"]
    assert sorted(ops.calls[:-2]) == ["published", "sync", "write"]
    assert store.load(KEY) == manifest_of(root=3)
    ops.fail["sync"] = OSError(5, "broken")
    with pytest.raises(UnavailableError, match="can't be written"):
        store.save(manifest_of(root=4), lambda: None)
    assert store.load(KEY) == manifest_of(root=3)
    store.close()
    with pytest.raises(UnavailableError, match="has left the replicas"):
        store.save(manifest_of(root=4), lambda: None)


def test_a_manifest_that_can_not_be_written_is_an_error(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path, "host1")
    (tmp_path / "manifests" / "3a").write_bytes(b"in the way")
    with pytest.raises(UnavailableError, match="can't be written"):
        store.save(manifest_of())
    store.close()


# ---- checksums


def test_a_checksum_is_of_the_bytes_and_never_of_a_part(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path, "host1")
    content = os.urandom((2 << 20) + 77)
    store.volume.create(NAMES[0], [content]).close()
    found = held_file(store.volume, NAMES[0], b"{}")
    assert found == HeldFile(NAMES[0], len(content), found.crc32c, b"{}")
    path = tmp_path / NAMES[0]
    assert checksum_of(path, len(content)) == found.crc32c
    assert checksum_of(path, len(content) - 1) != found.crc32c
    assert checksum_of(path, len(content) + 1) is None
    store.close()


def test_each_field_of_a_segment_and_a_target_is_in_the_sample() -> None:
    """So a new field that the codec does not write makes the round trip fail."""
    replica = manifest_of().replica
    segments = [entry.segment for entry in replica.entries]
    for values, default in ((segments, Segment(0, None)), (replica.targets, Target("", Placement("", "")))):
        for name in default.__struct_fields__:
            plain = getattr(default, name)
            assert any(getattr(value, name) != plain for value in values), f"{name} is not in the sample"


def test_a_second_close_closes_no_file_of_somebody_else(tmp_path: Path) -> None:
    store = HostStore.open(tmp_path / "replicas", "host1")
    lock = store._lock
    store.close()
    other = os.open(tmp_path, os.O_RDONLY)
    assert other == lock, "the number of the closed descriptor is the lowest free one"
    store.close()
    os.fstat(other)
    os.close(other)
    with pytest.raises(UnavailableError, match="has left the replicas"):
        store.free_bytes()


def test_a_linked_file_lives_as_long_as_one_of_its_names(tmp_path: Path) -> None:
    volume = LocalVolume(tmp_path)
    first, second, third = NAMES
    volume.create(first, [b"content"]).close()
    volume.link({second: first, third: first})
    volume.delete([first, second])
    assert volume.read(third, 9) == b"content"
    with pytest.raises(FileNotFoundError):
        volume.link({second: first})
    volume.create(first, []).close()
    with pytest.raises(FileExistsError):
        volume.link({third: first})
