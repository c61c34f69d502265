"""A file's name as what ten logs of a tserver have in common, and a digit.

Arrives: names. Leaves: a stem and a place, which cost a million files a tenth of what names do. Pure.
"""

from __future__ import annotations

from typing import Final

PLACES = 10
"""Of one stem."""

ALONE = PLACES
"""The place of a name that has its stem for itself."""

_TAILS: Final = (*(b"%d.wal" % digit for digit in range(PLACES)), b"")
_SUFFIX: Final = b".wal"
_DIGIT_AT: Final = -len(_TAILS[0])


def split(file: bytes) -> tuple[bytes, int]:
    """The stem and the place of a name; a name that does not end like a numbered log is a stem, :data:`ALONE`."""
    if len(file) >= -_DIGIT_AT and file.endswith(_SUFFIX):
        place = file[_DIGIT_AT] - 48
        if 0 <= place < PLACES:
            return file[:_DIGIT_AT], place
    return file, ALONE


def joined(stem: bytes, place: int) -> bytes:
    """The name again."""
    return stem + _TAILS[place]
