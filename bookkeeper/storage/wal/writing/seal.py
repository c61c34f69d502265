"""The seal of a log: a small file beside it with the end of the log, for ever.

``<log>.seal`` is JSON with offset, bytes and a checksum. An owner that rolls, or a recovery, makes it with
:meth:`Volume.create_once`: so it is complete and durable, and the first one wins. Where the disk lacked a part of the
log, the seal names its copy, ``<log>.<id>.copy``: that file is the log from then on.

A recovery fences the log before it counts: an owner that is still alive finds the fence after its sync and acknowledges
nothing. Rules: R10 and R15.
"""

from __future__ import annotations

import json
import re

import google_crc32c
from msgspec import Struct

from bookkeeper.errors import CorruptionError, unavailable
from bookkeeper.storage.volume.volume_protocol import ReadableVolume, Volume

SEAL_SUFFIX = ".seal"
COPY_SUFFIX = ".copy"
_SEAL_BYTES_MAX = 1 << 12
_COPY = re.compile(r"(\.[0-9a-f]{32}\.copy)?")


class Seal(Struct, frozen=True):
    """The end of a log, for ever: last record (0 when there is none) and the byte position behind its block.

    Made once per file, by its owner or by recovery; every reader stops at it (rule R15).
    """

    offset: int
    position: int


class SealFile(Struct, frozen=True):
    """The content of a seal: the end of the log, and the suffix of its copy's name; "": it has no copy."""

    seal: Seal
    copy: str = ""


def _checksum(found: SealFile) -> int:
    return int(google_crc32c.value(f"{found.seal.offset}:{found.seal.position}:{found.copy}".encode()))


def encode_seal(found: SealFile) -> bytes:
    """The content of a seal file."""
    fields = {
        "bytes": found.seal.position,
        "copy": found.copy,
        "crc32c": _checksum(found),
        "offset": found.seal.offset,
    }
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def decode_seal(raw: bytes) -> SealFile:
    """Inverse of :func:`encode_seal`; raises ValueError, KeyError, TypeError or RecursionError on anything else."""
    fields = json.loads(raw)
    offset, position, copy, checksum = fields["offset"], fields["bytes"], fields["copy"], fields["crc32c"]
    found = SealFile(Seal(offset, position), copy)
    if type(offset) is not int or type(position) is not int or checksum != _checksum(found):
        raise ValueError("the numbers do not match their checksum")
    if _COPY.fullmatch(copy) is None:
        raise ValueError(f"{copy!r} is no name of a copy")
    return found


def read_seal_file(volume: ReadableVolume, name: str) -> SealFile | None:
    """The seal of a log and its copy, or None while it has none; raises CorruptionError or TransientError."""
    raw = volume.read(name + SEAL_SUFFIX, _SEAL_BYTES_MAX)
    if raw is None:
        return None
    try:
        return decode_seal(raw)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptionError(f"the seal of {name} does not parse: {error}; content {raw[:80]!r}") from error


def read_seal(volume: ReadableVolume, name: str) -> Seal | None:
    """The seal of a log, or None while it has none; raises CorruptionError or TransientError."""
    found = read_seal_file(volume, name)
    return None if found is None else found.seal


def write_seal(volume: Volume, name: str, seal: Seal, copy: str = "") -> Seal:
    """Seal a log unless it is sealed; returns the seal that holds. Durable on return; raises OSError. ``copy``:
    see :class:`SealFile`; the copy is removed unless the seal that holds names it.
    """
    volume.create_once(name + SEAL_SUFFIX, encode_seal(SealFile(seal, copy)))
    winner = read_seal_file(volume, name)
    if winner is None:
        raise CorruptionError(f"the seal of {name} vanished while it was made: names of logs must not be reused")
    if copy and winner.copy != copy:
        volume.delete([name + copy])
    return winner.seal


def is_fenced(volume: Volume, name: str) -> bool:
    """Whether a process recovers, has sealed or has deleted this log: its owner must acknowledge none of its records.

    An owner whose machine was paused may go on when all three are gone. The log goes before its fence and its seal, so
    the look at the log comes last.
    """
    return volume.is_fenced(name) or volume.exists(name + SEAL_SUFFIX) or not volume.exists(name)


def log_exists(volume: Volume, name: str) -> bool:
    """Whether there is a log of this name. Raises UnavailableError when that is unknown."""
    try:
        return volume.exists(name)
    except OSError as error:
        raise unavailable(f"whether {name} is there is unknown", error) from error
