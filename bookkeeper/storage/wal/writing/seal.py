"""The seal of a log: a small file beside it that says where the log ends, for ever.

Arrives: an owner that rolls, or a recovery. Leaves: ``<log>.seal``, JSON with offset, bytes and a checksum, made by
a link from a finished temporary file, so it is whole, durable, and the first one wins. Where the disk lacked a part of
the log, the seal names its copy, ``<log>.<id>.copy``: that file is the log from then on. ``<log>.fence`` is made before
a recovery counts: an owner that is still alive, against all belief, finds it after its sync and acknowledges nothing.
Rules: R10 and R15.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from bookkeeper.errors import CorruptionError
from bookkeeper.storage.wal.wal_files import FileOps, beside, create_once, path_of, read_small

SEAL_SUFFIX = ".seal"
FENCE_SUFFIX = ".fence"
COPY_SUFFIX = ".copy"
_SEAL_BYTES_MAX = 1 << 12
_COPY = re.compile(r"(\.[0-9a-f]{32}\.copy)?")


@dataclass(frozen=True, slots=True)
class Seal:
    """The end of a log, for ever: last record (0 when there is none) and the byte position behind its block.

    Made once per file, by its owner or by recovery; every reader stops at it (rule R15).
    """

    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class SealFile:
    """The content of a seal: where the log ends, and what the name of its copy adds to its own; "": it has none."""

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


def read_seal_file(uri: str) -> SealFile | None:
    """The seal of a log and its copy, or None while it has none; raises CorruptionError or TransientError."""
    raw = read_small(uri + SEAL_SUFFIX, _SEAL_BYTES_MAX)
    if raw is None:
        return None
    try:
        return decode_seal(raw)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptionError(f"the seal of {uri} does not parse: {error}; content {raw[:80]!r}") from error


def read_seal(uri: str) -> Seal | None:
    """The seal of a log, or None while it has none; raises CorruptionError or TransientError."""
    found = read_seal_file(uri)
    return None if found is None else found.seal


def write_seal(uri: str, seal: Seal, ops: FileOps, copy: str = "") -> Seal:
    """Seal a local log unless it is sealed; returns the seal that holds. Durable on return; raises OSError. ``copy``:
    see :class:`SealFile`; it is removed unless that seal names it.
    """
    path = path_of(uri)
    create_once(beside(path, SEAL_SUFFIX), encode_seal(SealFile(seal, copy)), ops)
    winner = read_seal_file(uri)
    if winner is None:
        raise CorruptionError(f"the seal of {uri} vanished while it was made: names of logs must not be reused")
    if copy and winner.copy != copy:
        beside(path, copy).unlink(missing_ok=True)
    return winner.seal


def raise_fence(path: Path) -> None:
    """Forbid the owner of a log to acknowledge anything that it syncs from now on; idempotent."""
    beside(path, FENCE_SUFFIX).touch(exist_ok=True)


def is_fenced(path: Path) -> bool:
    """Whether somebody recovers, or has sealed, this log: its owner must not acknowledge what it holds."""
    return beside(path, FENCE_SUFFIX).exists() or beside(path, SEAL_SUFFIX).exists()
