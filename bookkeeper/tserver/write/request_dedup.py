"""Late attempts of writes: a write that a client gave up and sent again must not overwrite its newer records.

A request may wait in a busy server until its client has given up, sent it again and written something newer. Applied
then, it would bring an old value back as the newest. So a client's writer counts its attempts, has at most one under
way to a tablet, and at each tablet its attempts only count upwards, for as long as one tserver holds the tablet.

Meanwhile the tablet may have been moved, split or merged: the client sent the write again to the new holder, and the
tablet may be here once more, with the same extent, when the first request is prepared. This tserver does not know the
later attempts. So a request carries the rank of the tablet's location that its client knew; the rank rises with each
move, split and merge. A holder whose own location is later refuses the request. A master that begins to lead writes all
locations again, at higher ranks: a request with such a rank passes, because the tablet had no other holder between.
Used by the commit threads alone.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from bookkeeper.model import Extent

WRITERS_MAX = 10_000
"""Pairs of writer and tablet remembered; above it the one that wrote least recently is forgotten."""


class Attempt(NamedTuple):
    """``number`` rises with every call of ``writer``; an empty writer does not count its attempts."""

    writer: str
    number: int


NO_ATTEMPT = Attempt("", 0)


def is_for_another(known_rank: int | None, placed: int) -> bool:
    """Whether the request is for an earlier holder of the tablet: its client knew a location of a lower rank than the
    one of this holder. None: the client knew none.
    """
    return known_rank is not None and known_rank < placed


class RequestDedup:
    """The latest attempt of each writer at each tablet that this tserver has seen."""

    def __init__(self, writers_max: int = WRITERS_MAX) -> None:
        self._writers_max = writers_max
        self._latest: OrderedDict[tuple[str, Extent], int] = OrderedDict()

    def admit(self, attempt: Attempt, extent: Extent) -> bool:
        """Whether the attempt may be applied to the tablet; remembers it then."""
        if not attempt.writer:
            return True
        key = (attempt.writer, extent)
        if attempt.number < self._latest.get(key, 0):  # L1: a later attempt of the same writer was here before
            return False
        self._latest[key] = attempt.number
        self._latest.move_to_end(key)
        if len(self._latest) > self._writers_max:
            self._latest.popitem(last=False)
        return True
