"""The time at which a file or directory came into being: no copy and no restore keeps it, and a rename does.

Python's ``os.stat`` does not have it on Linux; the system call ``statx`` does.
"""

from __future__ import annotations

import ctypes
import os
import struct
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

_AT_FDCWD = -100
_NO_FOLLOW = 0x100
_BIRTH = 0x800
_SIZE_BYTES = 256
_BIRTH_AT = 80
"""Offset of ``stx_btime`` in ``struct statx``: seconds (64 bits), nanoseconds (32 bits)."""


def born_ns(path: Path) -> int | None:
    """ns since 1970; None when the filesystem does not know it, or there is no such entry."""
    found = ctypes.create_string_buffer(_SIZE_BYTES)
    if _libc.statx(_AT_FDCWD, os.fsencode(path), _NO_FOLLOW, _BIRTH, found) != 0:
        return None
    (mask,) = struct.unpack_from("I", found.raw)
    if not mask & _BIRTH:
        return None
    seconds, nanoseconds = struct.unpack_from("qI", found.raw, _BIRTH_AT)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)
