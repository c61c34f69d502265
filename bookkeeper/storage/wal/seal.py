"""The seal of a log: a small file beside it that says where the log ends, for ever.

Arrives: an owner that rolls, or a recovery. Leaves: ``<log>.seal``, JSON with offset, bytes and a checksum, made by
a link from a finished temporary file, so it is whole, durable, and the first one wins. ``<log>.fence`` is made before
a recovery counts: an owner that is still alive, against all belief, finds it after its sync and acknowledges nothing.
Sources: design section 5.3, rules R10 and R15.
"""

from __future__ import annotations

import json
from pathlib import Path

import google_crc32c

from bookkeeper.errors import CorruptionError
from bookkeeper.storage.wal.files import FileOps, beside, create_once, path_of, read_small
from bookkeeper.storage.wal.submission import Seal

SEAL_SUFFIX = ".seal"
FENCE_SUFFIX = ".fence"
_SEAL_BYTES_MAX = 1 << 12


def _checksum(offset: int, position: int) -> int:
    return int(google_crc32c.value(f"{offset}:{position}".encode()))


def encode_seal(seal: Seal) -> bytes:
    """The content of a seal file."""
    fields = {"bytes": seal.position, "crc32c": _checksum(seal.offset, seal.position), "offset": seal.offset}
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


def decode_seal(raw: bytes) -> Seal:
    """Inverse of :func:`encode_seal`; raises ValueError, KeyError, TypeError or RecursionError on anything else."""
    fields = json.loads(raw)
    offset, position, checksum = fields["offset"], fields["bytes"], fields["crc32c"]
    if type(offset) is not int or type(position) is not int or checksum != _checksum(offset, position):
        raise ValueError("the numbers do not match their checksum")
    return Seal(offset, position)


def read_seal(uri: str) -> Seal | None:
    """The seal of a log, or None while it has none; raises CorruptionError or TransientError."""
    raw = read_small(uri + SEAL_SUFFIX, _SEAL_BYTES_MAX)
    if raw is None:
        return None
    try:
        return decode_seal(raw)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptionError(f"the seal of {uri} does not parse: {error}; content {raw[:80]!r}") from error


def write_seal(uri: str, seal: Seal, ops: FileOps) -> Seal:
    """Seal a local log unless it is sealed; returns the seal that holds. Durable on return; raises OSError."""
    create_once(beside(path_of(uri), SEAL_SUFFIX), encode_seal(seal), ops)
    winner = read_seal(uri)
    if winner is None:
        raise CorruptionError(f"the seal of {uri} vanished while it was made: names of logs must not be reused")
    return winner


def raise_fence(path: Path) -> None:
    """Forbid the owner of a log to acknowledge anything that it syncs from now on; idempotent."""
    beside(path, FENCE_SUFFIX).touch(exist_ok=True)


def is_fenced(path: Path) -> bool:
    """Whether somebody recovers, or has sealed, this log: its owner must not acknowledge what it holds."""
    return beside(path, FENCE_SUFFIX).exists() or beside(path, SEAL_SUFFIX).exists()
