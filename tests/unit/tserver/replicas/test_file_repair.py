"""A damaged file of a replica: found by its checksum, not held from then on, replaced by the copy of another host."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import cast

import pytest

from bookkeeper.errors import CorruptionError, UnavailableError
from bookkeeper.replicas.events import Flushed, LeaderNamed
from bookkeeper.replicas.values import Placement, Target
from bookkeeper.rpc.contract.messages import FileRequest
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.storage.replicas.incoming_files import IncomingFiles
from bookkeeper.storage.replicas.manifest import HeldFile
from bookkeeper.tserver.replicas.disk_room import DiskRoom
from bookkeeper.tserver.replicas.file_repair import FileRepair
from tests.support.jumping_clock import TestClock
from tests.support.replica_disks import Disk, disk
from tests.support.replica_world import DIE

CONTENT = bytes(range(100))
NEIGHBOUR = Target("host2", Placement("p-host2", "disk-host2"))


class Neighbour:
    """Another host, which sends what it holds in two parts."""

    def __init__(self, held: Disk) -> None:
        self.held = held
        self.asked: list[int] = []

    def replica_content(self, request: FileRequest) -> bytes:
        """The next bytes of a file."""
        self.asked.append(request.start)
        content = (self.held.directory / request.file).read_bytes()
        return content[request.start :][: len(content) // 2]


class Host:
    """A host with one file, and its neighbour with a copy."""

    def __init__(self, directory: Path, is_alone: bool = False) -> None:
        self.disk = disk(directory, "host1")
        self.held = self.disk.held(targets=(NEIGHBOUR,))
        self.held.apply(LeaderNamed("host1", 1))
        self.file: HeldFile = self.disk.file("1.parquet", CONTENT)
        self.held.apply(Flushed((self.file.name,)), [self.file])
        other = disk(directory, "host2")
        other.file("1.parquet", CONTENT)
        self.neighbour = Neighbour(other)
        self.is_alone = is_alone
        self.repair = self.started()

    def started(self) -> FileRepair:
        """The repair of a process that has just started."""
        room = DiskRoom(lambda: 1 << 30, 0, TestClock())
        return FileRepair(self.disk.replicas, IncomingFiles(self.disk.store), self.find, room, TestClock(), DIE)

    def find(self, target: Target) -> TServer | None:
        """Calls to the neighbour."""
        assert target == NEIGHBOUR
        return None if self.is_alone else cast("TServer", self.neighbour)

    @property
    def path(self) -> Path:
        """The file on this host."""
        return self.disk.directory / self.file.name

    def damage(self) -> None:
        """One bit of the file changes."""
        self.path.write_bytes(bytes([CONTENT[0] ^ 1]) + CONTENT[1:])


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_damaged_file_is_not_held_until_a_sound_copy_has_its_name(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert not host.repair.suspect(host.file.name), "the file has its checksum"
    host.damage()
    assert host.repair.suspect(host.file.name)
    assert host.held.replica.damaged == {host.file.name}
    host.repair.run_once()
    assert host.path.read_bytes() == CONTENT
    assert host.neighbour.asked == [0, 50]
    assert not host.held.replica.damaged
    assert host.repair.status() == {"files_found_damaged": "1", "files_mended": "1", "file_bytes_mended": "100"}
    assert caplog.messages == [
        f"{host.file.name} of this host is damaged: it counts as not held until another host has sent it",
        f"{host.file.name} is sound again, with a copy of host host2",
    ]


def test_a_file_that_is_gone_is_found_without_a_reader(host: Host) -> None:
    host.path.unlink()
    host.repair.run_once()
    assert host.path.read_bytes() == CONTENT


def test_work_on_a_damaged_file_waits_for_its_copy_and_other_errors_stay(host: Host) -> None:
    other = CorruptionError("something else", {"name": "elsewhere.parquet"})
    with pytest.raises(CorruptionError, match="something else"):
        host.repair.resolve(other, 0)
    host.damage()
    with pytest.raises(UnavailableError, match="another host is asked for it: try again"):
        host.repair.resolve(CorruptionError("bad page", {"name": host.file.name}), 0)


def test_why_nobody_has_sent_a_copy_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    host = Host(tmp_path, is_alone=True)
    host.damage()
    host.repair.suspect(host.file.name)
    caplog.clear()
    for _ in range(2):
        host.repair.run_once()
    assert caplog.messages == [f"{host.file.name} is damaged, and no other host has sent it yet: host2 is away"]
    assert host.repair.unobtainable == {host.file.name}
    host.path.write_bytes(CONTENT)
    host.repair.run_once()
    assert host.held.replica.damaged, "the file is read again each second"
    host.started().run_once()
    assert not host.held.replica.damaged, "a restart does not notice the copy that a person put back"
