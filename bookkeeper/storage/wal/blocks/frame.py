"""Frames: the layout of headers and payloads in a WAL. Pure arithmetic over bytes, no files.

A WAL is one file-header frame and then block frames, each at a multiple of eight bytes:

====== ===== ==================================================================================
offset bytes content (little endian)
====== ===== ==================================================================================
0      4     magic, ``FILE_MAGIC`` or ``BLOCK_MAGIC``
4      4     length of the header without its padding
8      4     length of the payload without its padding (0 in the file header)
12     8     bytes of the file that were durable when this frame was written
20     4     CRC-32C of the header and its padding
24     4     CRC-32C of the payload and its padding
28     4     CRC-32C of: salt, position of the frame, bytes 0 to 28 above
32           header (a message of ``block.proto``), zeros up to a multiple of eight, payload, zeros
====== ===== ==================================================================================

The salt of a block frame is the last CRC of the file-header frame, so a frame is valid at one position of one file: the
search of a torn tail can't take bytes that a user stored as a value for a block, and it notices a frame that was copied
or moved. Payloads start at multiples of eight, as Arrow needs them for reads in place.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from typing import NamedTuple

import google_crc32c
import pyarrow as pa
from msgspec import Struct

from bookkeeper.storage.volume.volume_protocol import Source

FILE_MAGIC = b"\x89BKW"
BLOCK_MAGIC = b"\x89BKB"
FORMAT_VERSION = 3
ALIGNMENT = 8
HEADER_BYTES_MAX = 1 << 20
PAYLOAD_BYTES_MAX = 1 << 28

_PREFIX = struct.Struct("<4sIIQIII")
_CHECKED = struct.Struct("<IQ4sIIQII")
_ZEROS = bytes(ALIGNMENT)


class FrameError(Exception):
    """There is no complete frame here. ``short``: the file ends within a frame, or within bytes that may be one."""

    def __init__(self, reason: str, short: bool) -> None:
        super().__init__(reason)
        self.short = short


class FramePosition(Struct, frozen=True):
    """The position at which a frame will be written, with the file's salt and its durable bytes."""

    salt: int
    position: int
    synced_position: int


class Prefix(NamedTuple):
    """The first bytes of a frame, as laid out above."""

    magic: bytes
    header_length: int
    payload_length: int
    synced_position: int
    header_crc: int
    payload_crc: int
    prefix_crc: int

    @property
    def frame_length(self) -> int:
        """Bytes of the whole frame."""
        return frame_bytes(self.header_length, self.payload_length)


class Frame(Struct, frozen=True):
    """A frame that is complete in its file and has a checked header; the payload is not read yet."""

    position: int
    prefix: Prefix
    header: bytes

    @property
    def end_position(self) -> int:
        """Position behind the payload and its padding."""
        return self.position + self.prefix.frame_length


def padded(length: int) -> int:
    """The next multiple of the alignment."""
    return (length + ALIGNMENT - 1) & -ALIGNMENT


def frame_bytes(header_length: int, payload_length: int) -> int:
    """Bytes of a whole frame."""
    return _PREFIX.size + padded(header_length) + padded(payload_length)


def salt_of(file_header_frame: bytes) -> int:
    """The number that the last CRC of every other frame of the file starts from."""
    return int(_PREFIX.unpack_from(file_header_frame)[-1])


def _crc(content: pa.Buffer | bytes, padding: bytes = b"") -> int:
    crc = google_crc32c.value(content)
    return int(google_crc32c.extend(crc, padding) if padding else crc)


def _padding(length: int) -> bytes:
    return _ZEROS[: -length % ALIGNMENT]


def pack_frame(magic: bytes, header: bytes, payload: pa.Buffer, at: FramePosition) -> list[bytes | pa.Buffer]:
    """The buffers of one frame, ready for ``writev``: prefix and header first, then the payload itself, uncopied."""
    tail = _padding(payload.size)
    header = header + _padding(length := len(header))
    fields = (magic, length, payload.size, at.synced_position, _crc(header), _crc(payload, tail))
    prefix_crc = _crc(_CHECKED.pack(at.salt, at.position, *fields))
    buffers: list[bytes | pa.Buffer] = [_PREFIX.pack(*fields, prefix_crc) + header]
    if payload.size:
        buffers.append(payload)
    if tail:
        buffers.append(tail)
    return buffers


def read_prefix(source: Source, magic: bytes, position: int, limit: int, salt: int) -> Prefix:
    """The checked first bytes of the frame at ``position``; raises FrameError. Its other bytes may be missing."""
    if position + _PREFIX.size > limit:
        raise FrameError(f"{limit - position} bytes are no frame", short=True)
    prefix = Prefix(*_PREFIX.unpack(source.read(position, _PREFIX.size)))
    if prefix.magic != magic:
        raise FrameError(f"{prefix.magic!r} is not {magic!r}", short=False)
    if _crc(_CHECKED.pack(salt, position, *prefix[:-1])) != prefix.prefix_crc:
        raise FrameError("the frame does not match its checksum", short=False)
    if prefix.header_length > HEADER_BYTES_MAX or prefix.payload_length > PAYLOAD_BYTES_MAX:
        raise FrameError(f"a frame of {prefix.frame_length} bytes is above the limits", short=False)
    return prefix


def read_frame(source: Source, magic: bytes, position: int, limit: int, salt: int) -> Frame:
    """The frame at ``position`` that ends at or before ``limit``; raises FrameError. Reads no payload."""
    prefix = read_prefix(source, magic, position, limit, salt)
    if position + prefix.frame_length > limit:
        raise FrameError(f"a frame of {prefix.frame_length} bytes is cut off", short=True)
    header = source.read(position + _PREFIX.size, padded(prefix.header_length))
    if _crc(header) != prefix.header_crc:
        raise FrameError("the header does not match its checksum", short=False)
    return Frame(position, prefix, header.slice(0, prefix.header_length).to_pybytes())


def read_payload(source: Source, frame: Frame) -> pa.Buffer:
    """The payload of a frame, checked by its CRC; raises FrameError."""
    length = frame.prefix.payload_length
    raw = source.read(frame.end_position - padded(length), padded(length))
    if _crc(raw) != frame.prefix.payload_crc:
        raise FrameError("the payload does not match its checksum", short=False)
    return raw.slice(0, length)


def find_prefixes(source: Source, position: int, salt: int) -> Iterator[tuple[int, Prefix]]:
    """Checked beginnings of block frames at or after ``position``, with their positions; skips the bytes between."""
    tail = bytes(source.read(position, source.size - position))
    found = tail.find(BLOCK_MAGIC)
    while found >= 0:
        at = position + found
        if at % ALIGNMENT == 0:
            prefix = None
            with contextlib.suppress(FrameError):
                prefix = read_prefix(source, BLOCK_MAGIC, at, source.size, salt)
            if prefix is not None:
                yield at, prefix
        found = tail.find(BLOCK_MAGIC, found + 1)
