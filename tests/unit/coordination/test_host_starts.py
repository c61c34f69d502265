"""A host's starts, on its disk and in the coordination store: an older copy of either is noticed (P10)."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.coordination.host_starts import count_as_wiped_if_older, count_start, name_of
from bookkeeper.errors import CorruptionError, RefusedError, UnavailableError
from bookkeeper.storage.replicas.host_store import HostStore
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.replica_disks import WatchedOps


@dataclass
class Scene:
    """A store, and disks of host1 below a directory."""

    store: EmbeddedCoordination
    directory: Path

    def start(self, disk: str, ops: WatchedOps | None = None) -> str:
        """As a tserver does; returns the incarnation of the disk."""
        with closing(HostStore.open(self.directory / disk, "host1", ops)) as host:
            count_as_wiped_if_older(self.store, host)
            count_start(self.store, host)
            return host.identity.incarnation

    def copy(self, disk: str, copied: str) -> None:
        shutil.copytree(self.directory / disk, self.directory / copied)


@contextmanager
def new_scene(directory: Path) -> Iterator[Scene]:
    with closing(EmbeddedCoordination(directory / "store", CoordinationSettings())) as store:
        yield Scene(store, directory)


def an_older_copy_of_the_disk_counts_as_wiped(scene: Scene) -> None:
    """S12: a directory is copied, and the copy runs after the original."""
    original = scene.start("disk")
    scene.copy("disk", "copy")
    assert scene.start("disk") == original
    renewed = scene.start("copy")
    assert renewed != original, "what the original acknowledged counts for an older copy"
    assert scene.start("copy") == renewed
    assert scene.start("disk") != original, "what the original acknowledged counts for an older copy"


def an_older_store_is_refused(scene: Scene) -> None:
    """S8: the store is that of an hour ago."""
    for _ in range(3):
        scene.start("disk")
    with closing(EmbeddedCoordination(scene.directory / "older", CoordinationSettings())) as older:
        older.raise_number(name_of("host1"), 1)
        words = "it knows of 1 starts of host host1, and that has started 3 times; put the newest copy back"
        with must_raise(RefusedError, "a store is used that is older than the disk", match=words):
            Scene(older, scene.directory).start("disk")
        assert older.number(name_of("host1")) == 1
    scene.start("disk")


def a_start_that_is_cut_off_wipes_nothing(scene: Scene) -> None:
    """The disk takes no byte in the middle of a start, or the process dies between the two numbers."""
    first = scene.start("disk")
    ops = WatchedOps()
    with closing(HostStore.open(scene.directory / "disk", "host1", ops)) as host:
        ops.fail["write"] = OSError(errno.ENOSPC, "no room")
        with pytest.raises(UnavailableError):
            count_start(scene.store, host)
    assert scene.start("disk") == first, "a start that was cut off wipes the disk"
    with closing(HostStore.open(scene.directory / "disk", "host1")) as host:
        host.note_start(host.starts() + 1)
    assert scene.start("disk") == first, "a start that was cut off wipes the disk"


LAWS: dict[str, tuple[Callable[[Scene], None], str]] = {
    "older-disks-keep-their-name": (an_older_copy_of_the_disk_counts_as_wiped, "counts for an older copy"),
    "older-stores-are-used": (an_older_store_is_refused, "a store is used that is older than the disk"),
    "starts-in-the-store-first": (a_start_that_is_cut_off_wipes_nothing, "a start that was cut off wipes the disk"),
}


@pytest.mark.parametrize("switch", LAWS)
def test_p10_a_law_of_starts_holds(switch: str, tmp_path: Path) -> None:
    with new_scene(tmp_path) as scene:
        LAWS[switch][0](scene)


@pytest.mark.parametrize("switch", LAWS)
def test_p10_a_law_of_starts_is_red_without_its_cure(switch: str, tmp_path: Path) -> None:
    law, words = LAWS[switch]
    with new_scene(tmp_path) as scene, fault(switch), pytest.raises(AssertionError, match=words):
        law(scene)


def test_a_damaged_number_is_an_error_that_names_it(tmp_path: Path) -> None:
    with new_scene(tmp_path) as scene:
        scene.start("disk")
        (tmp_path / "disk" / "starts").write_bytes(b"many")
        with pytest.raises(CorruptionError, match=r"disk/starts is no number of starts: b'many'; move .*disk away"):
            scene.start("disk")
