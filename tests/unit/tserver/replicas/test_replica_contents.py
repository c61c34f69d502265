"""A host sends its segment files in parts, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.errors import InvalidInputError, NotFoundError
from bookkeeper.replicas.events import Flushed, LeaderNamed
from bookkeeper.replicas.values import state_id
from bookkeeper.rpc.contract.messages import CONTENT_BYTES_MAX
from bookkeeper.tserver.replicas.replica_contents import ReplicaContents
from tests.support.replica_disks import KEY, Disk, disk

NAME = KEY.prefix + "1.parquet"
CONTENT = bytes(range(256)) * (CONTENT_BYTES_MAX // 256) + b"the rest"


@pytest.fixture
def host(tmp_path: Path) -> Disk:
    """A host with one file of more than a part."""
    found = disk(tmp_path, "host1")
    held = found.held()
    held.apply(LeaderNamed("host1", 1))
    file = found.file("1.parquet", CONTENT)
    held.apply(Flushed((file.name,), segment_id=state_id(1, 1)), [file], {state_id(1, 1): b"state"})
    return found


def test_a_file_comes_in_parts_with_its_size_and_checksum(host: Disk) -> None:
    contents = ReplicaContents(host.replicas)
    held = host.held().manifest.files[NAME]
    first = contents.read(KEY.table_id, KEY.directory, NAME, 0)
    second = contents.read(KEY.table_id, KEY.directory, NAME, len(first.content))
    assert len(first.content) == CONTENT_BYTES_MAX
    assert first.content + second.content == CONTENT
    assert {(part.size_bytes, part.crc32c) for part in (first, second)} == {(len(CONTENT), held.crc32c)}
    assert contents.read(KEY.table_id, KEY.directory, NAME, len(CONTENT)).content == b""


def test_a_file_that_is_not_here_or_is_gone_is_said_to_be_so(host: Disk) -> None:
    contents = ReplicaContents(host.replicas)
    host.store.volume.create(KEY.prefix + "unlisted.parquet", [b"x"]).close()
    for directory, name in ((KEY.directory, "unlisted.parquet"), (KEY.directory, "2.parquet"), ("t-9", "1.parquet")):
        with pytest.raises(NotFoundError, match=r"host host1 does not hold .*: ask another one"):
            contents.read(KEY.table_id, directory, f"tables/{KEY.table_id}/{directory}/{name}", 0)
    host.store.volume.delete([NAME])
    with pytest.raises(NotFoundError, match="is gone from host host1"):
        contents.read(KEY.table_id, KEY.directory, NAME, 0)


def test_a_name_outside_of_the_tablet_is_refused(host: Disk) -> None:
    contents = ReplicaContents(host.replicas)
    for name in ("incarnation", "manifests/3a/t-0001", "tables/3a/t-0001/../../../incarnation", KEY.prefix + "a/b"):
        with pytest.raises(InvalidInputError):
            contents.read(KEY.table_id, KEY.directory, name, 0)
    with pytest.raises(InvalidInputError, match="no file has a position -1"):
        contents.read(KEY.table_id, KEY.directory, NAME, -1)
