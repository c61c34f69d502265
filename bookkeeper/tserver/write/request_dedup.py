"""Late attempts of writes: what a client has given up and sent again must not land after what it wrote since.

Arrives: for each write of a client's writer, which of its attempts it is; a writer counts them, and has at most one on
its way to a tablet. Leaves: a verdict. A request may wait in a busy server until its client has given up, sent it again
and written something newer; applied then, it would bring an old value back as the newest. So at each tablet a writer's
attempts only count upwards, for as long as one tserver holds it.

Meanwhile the tablet may have been moved, or split, or merged; the client sent the write again to whoever held the row,
and the tablet may be here once more, with the same borders, when the first request gets its turn. This tserver has
never heard of the later ones. So a request says when the tablet that it is meant for was given to its holder, as the
client was told: the rank of the tablet's location, which rises with each move, split and merge. Who was given the
tablet later does not take it. A master that begins to lead writes all locations again, at higher ranks: those are
taken, for nobody else had the tablet between. :class:`RequestDedup` is used by the commit thread alone. Survives a
crash: nothing, as requests that wait don't.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from bookkeeper.model import Extent

WRITERS_MAX = 10_000
"""Writers of tablets remembered; beyond it the one that has been silent for longest is forgotten."""


class Attempt(NamedTuple):
    """``number`` rises with every call that ``writer`` makes; an empty writer is nobody's."""

    writer: str
    number: int


NO_ATTEMPT = Attempt("", 0)


def is_late(number: int, latest: int) -> bool:
    """A later attempt of the same writer came to this tablet before."""
    return number < latest


def is_for_another(meant: int | None, placed: int) -> bool:
    """The tablet was given to its holder after the client was told of one; None: the client was not."""
    return meant is not None and meant < placed


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
        if is_late(attempt.number, self._latest.get(key, 0)):
            return False
        self._latest[key] = attempt.number
        self._latest.move_to_end(key)
        if len(self._latest) > self._writers_max:
            self._latest.popitem(last=False)
        return True
