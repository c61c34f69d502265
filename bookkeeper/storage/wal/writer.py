"""The one writer of a log: frames out by ``writev``, synced when asked, sealed at the end.

Arrives: blocks with their offsets. Leaves: a file of frames. Survives a crash: the file and its name from ``create``
on, blocks from ``sync`` on, the end of the file from ``seal`` on. Not thread-safe; the four positions may be read
from any thread. A writer that failed once does not write again: what the file holds behind its last success is
unknown, and nothing is ever cut off, for a recovery may have counted it already (rule R15).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from bookkeeper.errors import ExistsError, InvalidInputError, LeaseLostError, PermanentError, UnavailableError
from bookkeeper.storage.wal.block import Block
from bookkeeper.storage.wal.block_pb2 import FileHeader
from bookkeeper.storage.wal.files import FileOps, make_directory, sync_directory, uri_of, write_all
from bookkeeper.storage.wal.frame import (
    BLOCK_MAGIC,
    FILE_MAGIC,
    FORMAT_VERSION,
    HEADER_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    Place,
    frame_bytes,
    pack_frame,
    salt_of,
)
from bookkeeper.storage.wal.seal import write_seal
from bookkeeper.storage.wal.submission import Seal

_NO_PAYLOAD = pa.py_buffer(b"")


class WalWriter:
    """A new log. ``offset`` and ``position`` count records and bytes written; ``synced_*`` what is durable."""

    def __init__(self, fd: int, path: Path, header: FileHeader, position: int, salt: int, ops: FileOps) -> None:
        """For :meth:`create` only."""
        self._fd: int | None = fd
        self._salt = salt
        self._ops = ops
        self.path = path
        self.uri = header.uri
        self.created_time_ms = header.created_time_ms
        self.offset = 0
        self.synced_offset = 0
        self.position = position
        self.synced_position = position

    @classmethod
    def create(cls, path: Path, header: FileHeader, ops: FileOps | None = None) -> WalWriter:
        """Make a log that did not exist; its header and its name are durable on return.

        ``header.uri`` and ``format_version`` are filled in. Raises ExistsError (names are never used again) and
        UnavailableError.
        """
        ops = ops or FileOps()
        complete = FileHeader()
        complete.CopyFrom(header)
        complete.uri = uri_of(path)
        complete.format_version = FORMAT_VERSION
        frame = pack_frame(FILE_MAGIC, complete.SerializeToString(), _NO_PAYLOAD, Place(0, 0, 0))[0]
        try:
            make_directory(path.parent, ops)
            fd = ops.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                write_all(fd, [frame], ops)
                ops.fsync(fd)
                sync_directory(path.parent, ops)
            except OSError:
                ops.close(fd)
                raise
        except FileExistsError as error:
            raise ExistsError(f"there is a log {path} already: names of logs must not be reused") from error
        except OSError as error:
            raise UnavailableError(f"the log {path} can't be made: {error}") from error
        return cls(fd, path, complete, len(frame), salt_of(frame), ops)

    def append(self, blocks: Sequence[Block]) -> None:
        """Write whole blocks with one ``writev`` (more when the system takes less); durable after :meth:`sync` only.

        The first block must start at ``offset + 1`` and each next one where the last ended: else, and for a block
        above the format's limits, InvalidInputError, and nothing is written. Raises UnavailableError when the
        system refuses; the writer is then of no further use.
        """
        buffers: list[bytes | pa.Buffer] = []
        offset, position = self.offset, self.position
        for block in blocks:
            if block.first_offset != offset + 1 or block.header.record_count == 0:
                raise InvalidInputError(
                    f"a block of {block.header.record_count} records at {block.first_offset} "
                    f"can't follow offset {offset} of {self.uri}"
                )
            header, payload = block.header.SerializeToString(), block.payload
            if len(header) > HEADER_BYTES_MAX or payload.size > PAYLOAD_BYTES_MAX:
                raise InvalidInputError(
                    f"a block with {len(header)} + {payload.size} bytes is above the limits of the log, "
                    f"{HEADER_BYTES_MAX} + {PAYLOAD_BYTES_MAX}"
                )
            place = Place(self._salt, position, self.synced_position)
            buffers += pack_frame(BLOCK_MAGIC, header, payload, place)
            position += frame_bytes(len(header), payload.size)
            offset = block.last_offset
        with self._io("appended to") as fd:
            write_all(fd, buffers, self._ops)
        self.offset, self.position = offset, position

    def sync(self) -> None:
        """Make everything written durable; raises UnavailableError, and the writer is then of no further use."""
        if self.synced_position == self.position:
            return
        offset, position = self.offset, self.position
        with self._io("synced") as fd:
            self._ops.fdatasync(fd)
        self.synced_offset, self.synced_position = offset, position

    def seal(self) -> Seal:
        """Sync, seal and close. Raises LeaseLostError when somebody else has sealed the file elsewhere."""
        self.sync()
        own = Seal(self.offset, self.position)
        with self._io("sealed"):
            holds = write_seal(self.uri, own, self._ops)
        self.abandon()
        if holds != own:
            raise LeaseLostError(f"{self.uri} was sealed by somebody else at {holds}, its owner wrote up to {own}")
        return own

    def abandon(self) -> None:
        """Close the descriptor and do nothing else: the file is left to recovery. Idempotent."""
        if self._fd is not None:
            self._ops.close(self._fd)
            self._fd = None

    @contextmanager
    def _io(self, what: str) -> Iterator[int]:
        if self._fd is None:
            raise PermanentError(f"{self.uri} can't be {what}: its writer is closed or has failed")
        try:
            yield self._fd
        except OSError as error:
            self.abandon()
            raise UnavailableError(f"{self.uri} can't be {what}: {error}") from error
