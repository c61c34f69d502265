"""A file's name as the directory that a tserver's logs have in common, and a number.

Arrives: names. Leaves: a directory and a number, which cost a million files a tenth of what names do. Pure.
"""

from __future__ import annotations

from typing import Final

_SLASH: Final = b"/"[0]

ALONE: Final = 2**32 - 1
"""Stands for the number of a file that is no numbered log; its directory is the complete name."""


def split(file: bytes) -> tuple[bytes, int]:
    """The directory, up to its slash, and the number of a log; (the name, :data:`ALONE`) of any other file."""
    digits = file[-10:-4]
    if digits.isdigit() and len(file) > 10 and file[-11] == _SLASH and file.endswith(b".wal"):
        return file[:-10], int(digits)
    return file, ALONE


def joined(directory: bytes, number: int) -> bytes:
    """The name again."""
    return directory if number == ALONE else b"%b%06d.wal" % (directory, number)
