"""A real disk that fails: ext4 on a loop device whose blocks lie in a small tmpfs. When that is full, blocks that were
never written can't be; the kernel reports the error to ``fsync`` once and marks the pages clean.

Arrives: a directory. Leaves: :class:`FailingDisk`. Needs root, loop devices and e2fsprogs; without them its tests are
skipped. Mounts and devices are removed at the end, even of a failed test. Survives kill -9 of the test: the mounts.
``python -m tests.support.small_disk`` (``make clean``) takes the tmpfs away, whose source is a small disk's.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.small_disk import NoMountError, SmallDisk, small_disk

IMAGE_BYTES = 24 << 20
BACKING_BYTES = 32 << 20
BLOCK_BYTES = 4096


@dataclass(slots=True)
class FailingDisk:
    """``directory`` is the root of its filesystem."""

    directory: Path
    image: Path
    backing: SmallDisk

    def fail(self) -> None:
        """From now on a block that was never written can't be."""
        self.backing.fill()

    def mend(self) -> None:
        """Writes succeed again."""
        self.backing.release()

    @contextmanager
    def after_power_failure(self) -> Iterator[Path]:
        """The root of the filesystem as a power failure at this moment leaves it."""
        place = Path(tempfile.mkdtemp(dir=self.image.parent.parent))
        _run("cp", "--sparse=always", str(self.image), str(place / "disk.img"))
        with _mounted(place / "disk.img", place / "disk") as directory:
            yield directory


@contextmanager
def failing_disk(directory: Path) -> Iterator[FailingDisk]:
    """Made below ``directory``. Raises NoMountError."""
    with ExitStack() as stack:
        backing = stack.enter_context(small_disk(directory / "backing", BACKING_BYTES))
        image = backing.directory / "disk.img"
        with image.open("wb") as file:
            file.truncate(IMAGE_BYTES)
        options = ["-E", "lazy_itable_init=0,lazy_journal_init=0", "-J", "size=4", "-b", str(BLOCK_BYTES)]
        _run("mkfs.ext4", "-q", "-F", *options, str(image))
        with image.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, IMAGE_BYTES)
        _free_blocks_are_holes(image)
        root = stack.enter_context(_mounted(image, directory / "disk"))
        _each_block_fails_alone(root)
        yield FailingDisk(root, image, backing)


def _free_blocks_are_holes(image: Path) -> None:
    """Only blocks of data can fail: those of the journal and of other metadata lie in the backing disk already."""
    for line in _run("dumpe2fs", str(image)).splitlines():
        if line.startswith("  Free blocks: "):
            for first, last in re.findall(r"(\d+)(?:-(\d+))?", line):
                length = (int(last or first) - int(first) + 1) * BLOCK_BYTES
                offset = int(first) * BLOCK_BYTES
                _run("fallocate", "--punch-hole", "--offset", str(offset), "--length", str(length), str(image))


def _each_block_fails_alone(root: Path) -> None:
    """A loop device takes a request for done of which the backing disk took a part. So requests have one block each."""
    device = Path(_run("findmnt", "-n", "-o", "SOURCE", str(root)).strip()).name
    limit = Path("/sys/block") / device / "queue" / "max_sectors_kb"
    try:
        limit.write_text(str(BLOCK_BYTES // 1024))
    except OSError as error:
        raise NoMountError(f"no failing disk, {limit}: {error}") from error


@contextmanager
def _mounted(image: Path, directory: Path) -> Iterator[Path]:
    directory.mkdir()
    _run("mount", "-o", "loop", str(image), str(directory))
    try:
        yield directory
    finally:
        _run("umount", "--lazy", str(directory))


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise NoMountError(f"no failing disk: {error}") from error
    if done.returncode != 0:
        raise NoMountError(f"no failing disk, {command[0]}: {done.stderr.strip()}")
    return done.stdout
