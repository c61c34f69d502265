"""The Volume: makes, reads, fences, lists and deletes the files that outlive a process.

A file has a name (see ``names``), and no caller knows its path. ``local_volume`` is a directory; ``given_files`` reads
files of operators. One contract suite (``tests/contract/test_volume.py``) holds for all Volumes.

Operations that change a Volume raise OSError with the reason in ``errno``, because only the caller can say which work
has failed. Reads raise the project's errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from msgspec import Struct

from bookkeeper.storage.volume.file_ops import FileOps

Buffers = Sequence[bytes | pa.Buffer | memoryview]


class Source(Protocol):
    """Bytes of a file at random positions; ``read`` shares memory where it can. Positions are trusted."""

    @property
    def size(self) -> int:
        """Bytes in the file when it was opened."""

    def read(self, position: int, length: int) -> pa.Buffer:
        """Exactly ``length`` bytes, all of them below ``size``."""


class Appender(Protocol):
    """An open file that grows at its end. Every method raises OSError; one thread may sync while another writes."""

    def write(self, buffers: Buffers) -> None:
        """Write every byte at the end; durable after :meth:`sync` only. After an error an unknown part is written."""

    def sync(self) -> None:
        """Make written bytes and the length durable; after an error the Volume may have any part of them."""

    def free_bytes(self) -> int:
        """Bytes that the Volume has room for."""

    def reserve(self, position: int, length: int) -> None:
        """Reserve room for bytes from ``position`` on without making the file longer. Does nothing on a Volume without
        reservations.
        """

    def truncate(self, length: int) -> None:
        """Cut the file, and free the room that is reserved behind its end."""

    def uncache(self, position: int) -> None:
        """Free memory that holds synced bytes before ``position``."""

    def close(self) -> None:
        """Close the file without a sync."""


class Scratch(Struct, frozen=True):
    """A local file that is being built, not on the Volume yet, and the system calls for it."""

    path: Path
    ops: FileOps


class ReadableVolume(Protocol):
    """Files by name, for reading."""

    def open(self, name: str) -> Source:
        """Open a file up to its length at the call. Raises NotFoundError, InvalidInputError, UnavailableError."""

    def read(self, name: str, length_max: int) -> bytes | None:
        """The content of a small file, cut at ``length_max``; None when there is none. Raises UnavailableError."""

    def is_fenced(self, name: str) -> bool:
        """Whether :meth:`fence` was called: the owner must not acknowledge what it wrote. Raises OSError."""


class Volume(ReadableVolume, Protocol):
    """Files by name."""

    def create(self, name: str, parts: Iterable[bytes | pa.Buffer]) -> Appender:
        """Make a file that did not exist; its name and ``parts`` are durable on return. Raises FileExistsError,
        OSError, and the errors of ``parts``. There is no such file when the Volume is full, and perhaps one after
        other errors.
        """

    def reopen(self, name: str, length: int) -> Appender:
        """Go on at the end of a closed file. Raises OSError, also unless the file has ``length`` bytes."""

    def create_once(self, name: str, content: bytes) -> None:
        """Make a file have ``content``, complete and durable; an existing file stays as it is. Raises OSError."""

    def fence(self, name: str) -> None:
        """Stop the writer of a file: once this returns, :meth:`is_fenced` is true for ever, and every byte that a
        reader sees is synced, unless a sync failed earlier. Idempotent; raises FileNotFoundError, OSError.
        """

    def open_durable(self, name: str) -> AbstractContextManager[Source]:
        """A file as the disk has it, around all caches, so that a failed sync shows; its reads raise OSError. Raises
        OSError where the Volume can't read so.
        """

    def scratch(self, name: str, writer: str = "") -> Scratch:
        """A place for the file that :meth:`publish` will give this name, one never used before. ``writer``: a name of
        its own for each process that may build this file, when several do; all build the same bytes. Raises OSError.
        """

    def publish(self, names: Sequence[str], writer: str = "") -> None:
        """Give complete and synced scratch files of this writer their names, durable on return. Raises OSError with
        some of them published, perhaps.
        """

    def discard(self, names: Sequence[str]) -> None:
        """Remove files that nothing refers to, published or not, and their scratch files; they may come back after a
        crash. Raises OSError.
        """

    def size(self, name: str) -> int:
        """Bytes of a file. Raises FileNotFoundError, OSError."""

    def read_range(self, name: str, position: int, length: int) -> bytes:
        """Bytes of a file that does not change, fewer at its end. Raises FileNotFoundError, OSError."""

    def list_names(self, prefix: str) -> list[str]:
        """The names that begin with ``prefix``, in order. Raises OSError: a list is complete or not returned."""

    def list_directories(self, directory: str) -> list[str]:
        """The directories of files right below ``directory``, by the last part of their names, in order; perhaps some
        without a file. Raises OSError: a list is complete or not returned.
        """

    def entries(self, directory: str) -> Iterator[str]:
        """The names of the files right in ``directory``, in any order, one at a time because they may be very many.
        Raises OSError: the names before that are no list.
        """

    def exists(self, name: str) -> bool:
        """Whether there is a file of this name. Raises OSError when that is unknown."""

    def delete(self, names: Sequence[str]) -> None:
        """Delete these files, in this order; durable on return. A name without a file is fine. Raises OSError."""

    def remove_tree(self, directory: str) -> None:
        """Delete every file below ``directory``; some may come back after a crash. Nobody makes files there any more.
        Raises OSError with some of them deleted, perhaps.
        """

    def prune(self, directory: str) -> None:
        """Free what a directory without files takes; does nothing when it has files. Nobody makes files there any more.
        Raises OSError.
        """
