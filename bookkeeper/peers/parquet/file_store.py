"""Files of the change log: each appears complete and durable, or not at all.

A crash leaves the files whose :meth:`Store.create` returned, and temporary files in a directory that no reader opens.

A local directory takes names exclusively, by a link. Other filesystems of ``pyarrow.fs`` can't: the store writes a file
under a temporary name and moves it, and the last writer of a name wins.
"""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
from msgspec import Struct, field

from bookkeeper.errors import CorruptionError, InvalidInputError, UnavailableError
from bookkeeper.peers.parquet.layout import UNFINISHED
from bookkeeper.security.file_roots import ANYWHERE, FileRoots
from bookkeeper.security.private_files import shared_mode
from bookkeeper.storage.volume.file_ops import FileOps, make_directory, sync_directory, write_all


class Store(Protocol):
    """A directory; paths are relative to it, with ``/`` between their parts. Every call may raise UnavailableError."""

    @property
    def exclusive(self) -> bool:
        """Whether only one of two writers can create the same name at the same time."""

    def prepare(self) -> None:
        """Make the directory, and within it what :meth:`create` needs; idempotent."""

    def names(self, directory: str) -> list[str]:
        """The names in a directory, durable on return; none when there is no directory."""

    def read(self, path: str) -> bytes | None:
        """A small file, or None when there is none."""

    def metadata(self, path: str) -> Mapping[bytes, bytes]:
        """The key-value metadata in a Parquet file's footer; raises CorruptionError when it is no Parquet file."""

    def create(self, path: str, content: pa.Buffer | bytes) -> bool:
        """Make a file, complete and durable; returns False, and changes nothing, when the name is taken."""

    def sweep(self, before_ms: int) -> None:
        """Delete temporary files that are older than a wall time; a sender that still writes one fails and tries
        again.
        """


def open_store(quorum: str, roots: FileRoots) -> Store:
    """The directory at an absolute path or a URI of ``pyarrow.fs``; raises InvalidInputError, and RefusedError for one
    that is below none of the roots.
    """
    if quorum.startswith("/"):
        return LocalStore(Path(quorum), roots=roots)
    if "://" in quorum and not quorum.startswith("file://"):
        roots.check_uri(quorum)
    try:
        filesystem, path = pyarrow.fs.FileSystem.from_uri(quorum)
    except (pa.ArrowInvalid, OSError) as error:
        raise InvalidInputError(
            f"parquet://{quorum} names no directory: want parquet:///PATH or parquet://URI of a filesystem that Arrow "
            f"knows ({error})"
        ) from error
    if filesystem.type_name == "local":
        return LocalStore(Path(path), roots=roots)
    return RemoteStore(filesystem, path.rstrip("/"))


@contextmanager
def unavailable(where: str) -> Iterator[None]:
    """Turn any failure of a filesystem into UnavailableError: the sender shows it and tries again later."""
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise UnavailableError(f"{where}: {error}") from error


class LocalStore(Struct, frozen=True):
    """A directory that this machine has mounted. Its filesystem must support links. ``roots``: the directories
    that may contain it, checked with each call, because a symbolic link may change at any time.
    """

    root: Path
    ops: FileOps = field(default_factory=FileOps)
    exclusive: bool = True
    roots: FileRoots = ANYWHERE

    def _at(self, path: str) -> Path:
        """The file that a path leads to now. Raises RefusedError when it is below no root."""
        return self.roots.resolve(self.root / path)

    def prepare(self) -> None:
        """See :class:`Store`."""
        with unavailable(f"{self.root} can't be prepared"):
            make_directory(self._at(UNFINISHED), self.ops)

    def names(self, directory: str) -> list[str]:
        """See :class:`Store`; syncs each directory of the path, because a writer may have died before its sync."""
        with unavailable(f"{self.root / directory} can't be listed"):
            listed = self._at(directory)
            if not listed.is_dir():
                return []
            found = [entry.name for entry in listed.iterdir()]
            synced = self.root
            sync_directory(synced, self.ops)
            for part in Path(directory).parts:
                synced = synced / part
                sync_directory(synced, self.ops)
            return found

    def read(self, path: str) -> bytes | None:
        """See :class:`Store`."""
        with unavailable(f"{self.root / path} can't be read"):
            try:
                return self._at(path).read_bytes()
            except FileNotFoundError:
                return None

    def metadata(self, path: str) -> Mapping[bytes, bytes]:
        """See :class:`Store`."""
        return footer(str(self._at(path)), pyarrow.fs.LocalFileSystem())

    def create(self, path: str, content: pa.Buffer | bytes) -> bool:
        """See :class:`Store`. The root is never made here: where it is missing, its filesystem is not mounted."""
        target = self._at(path)
        temporary = self._at(f"{UNFINISHED}/{uuid.uuid4().hex}.tmp")
        with unavailable(f"{target} can't be written"):
            self._write(temporary, content)
            try:
                self._make_directories(target.parent)
                created = take_name(temporary, target, self.ops)
                sync_directory(target.parent, self.ops)
            finally:
                temporary.unlink(missing_ok=True)
        return created

    def sweep(self, before_ms: int) -> None:
        """See :class:`Store`."""
        with unavailable(f"{self.root / UNFINISHED} can't be swept"):
            for left in self._at(UNFINISHED).glob("*.tmp"):
                try:
                    if left.stat().st_mtime_ns < before_ms * 1_000_000:
                        left.unlink()
                except FileNotFoundError:
                    continue

    def _make_directories(self, directory: Path) -> None:
        """Make missing directories, with the permissions of the root: readers of the change log are other programs."""
        missing = [folder for folder in (directory, *directory.parents) if not folder.exists()]
        make_directory(directory, self.ops)
        mode = stat.S_IMODE(self.root.stat().st_mode)
        for folder in missing:
            folder.chmod(mode)

    def _write(self, temporary: Path, content: pa.Buffer | bytes) -> None:
        with temporary.open("xb", buffering=0) as file:
            os.fchmod(file.fileno(), shared_mode(self.root))
            with memoryview(content) as view:
                write_all(file.fileno(), [view], self.ops)
            self.ops.fsync(file.fileno())


def take_name(temporary: Path, target: Path, ops: FileOps) -> bool:
    """Rule R18: one writer takes a name and never gives it up. Returns whether this one did."""
    try:
        ops.link(temporary, target)
    except FileExistsError:
        return False
    return True


class RemoteStore(Struct, frozen=True):
    """A directory behind ``pyarrow.fs``. Two writers of one name may both get True from :meth:`create`."""

    filesystem: pyarrow.fs.FileSystem
    root: str
    exclusive: bool = False

    def prepare(self) -> None:
        """See :class:`Store`."""
        with unavailable(f"{self.root} can't be prepared"):
            self.filesystem.create_dir(self._at(UNFINISHED), recursive=True)

    def names(self, directory: str) -> list[str]:
        """See :class:`Store`."""
        selector = pyarrow.fs.FileSelector(self._at(directory) if directory else self.root, allow_not_found=True)
        with unavailable(f"{self._at(directory)} can't be listed"):
            return [info.base_name for info in self.filesystem.get_file_info(selector)]

    def read(self, path: str) -> bytes | None:
        """See :class:`Store`."""
        with unavailable(f"{self._at(path)} can't be read"):
            if not self._is_there(path):
                return None
            with self.filesystem.open_input_stream(self._at(path)) as stream:
                content: bytes = stream.read()
                return content

    def metadata(self, path: str) -> Mapping[bytes, bytes]:
        """See :class:`Store`."""
        return footer(self._at(path), self.filesystem)

    def create(self, path: str, content: pa.Buffer | bytes) -> bool:
        """See :class:`Store`. A stream that breaks leaves a temporary file, never a part under the name."""
        temporary = self._at(f"{UNFINISHED}/{uuid.uuid4().hex}.tmp")
        with unavailable(f"{self._at(path)} can't be written"):
            if self._is_there(path):
                return False
            with self.filesystem.open_output_stream(temporary) as stream:
                stream.write(content)
            if directory := path.rpartition("/")[0]:
                self.filesystem.create_dir(self._at(directory), recursive=True)
            self.filesystem.move(temporary, self._at(path))
        return True

    def sweep(self, before_ms: int) -> None:
        """See :class:`Store`."""
        selector = pyarrow.fs.FileSelector(self._at(UNFINISHED), allow_not_found=True)
        with unavailable(f"{self._at(UNFINISHED)} can't be swept"):
            for info in self.filesystem.get_file_info(selector):
                if info.is_file and info.mtime_ns is not None and info.mtime_ns < before_ms * 1_000_000:
                    self.filesystem.delete_file(info.path)

    def _at(self, path: str) -> str:
        return f"{self.root}/{path}" if self.root else path

    def _is_there(self, path: str) -> bool:
        return bool(self.filesystem.get_file_info(self._at(path)).type == pyarrow.fs.FileType.File)


def footer(path: str, filesystem: pyarrow.fs.FileSystem) -> Mapping[bytes, bytes]:
    """The key-value part of a Parquet footer; raises CorruptionError or UnavailableError."""
    try:
        return pq.read_metadata(path, filesystem=filesystem).metadata or {}
    except pa.ArrowInvalid as error:
        raise CorruptionError(f"{path} is no Parquet file: {error}") from error
    except (OSError, pa.ArrowException) as error:
        raise UnavailableError(f"{path} can't be read: {error}") from error
