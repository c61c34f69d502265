"""Which versions of a cell count, and which of those a reader asked for: whole columns at a time.

Arrives: merged entries with the mark where each cell starts. Leaves: masks, and what must be known of a cell that goes
on in the next round. Pure. Entries of a cell are newest first, and a delete hides entries of its cell with (timestamp,
seq) <= its own: so what is visible of a cell are its entries in front of its first delete.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from bookkeeper.errors import InvalidInputError
from bookkeeper.storage.tablet.sorting.entries import Cell
from bookkeeper.storage.tablet.sorting.order import Indices, Mask

Times = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Retention:
    """What of a cell counts: its newest ``versions_max`` versions, none with a timestamp below ``oldest_ms``.

    It is applied before anything that a reader asks for, so that a compaction, which drops the rest, changes no scan.
    """

    versions_max: int = 1
    oldest_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a reader asks for of the versions that count: at most ``versions`` (None = all) in ``[from_ms, to_ms)``."""

    versions: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None

    def check(self) -> None:
        """Raise InvalidInputError for what can't be meant."""
        if self.versions is not None and self.versions < 1:
            raise InvalidInputError(f"a scan of {self.versions} versions shows nothing: ask for 1 or more")

    def wants_newest_only(self, retention: Retention) -> bool:
        """Whether no entry behind the first of a cell can be shown."""
        in_time = self.from_ms is None and self.to_ms is None
        return retention.versions_max == 1 or (self.versions == 1 and in_time)


EVERYTHING = Asked()
"""All versions that count."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A cell of which a part was seen: versions counted, versions shown, and whether a delete hides the rest."""

    cell: Cell
    counted: int
    shown: int
    hidden: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """Of each entry of a round, in order: place of its cell's first entry, how many of its cell are in front of it
    (those of earlier rounds included), and whether a delete of its cell is in front of it; ``deletes``: is it one.
    """

    first: Indices
    index: Indices
    behind_delete: Mask
    deletes: Mask

    @property
    def visible(self) -> Mask:
        """Entries that no delete hides and that are none."""
        mask: Mask = ~(self.behind_delete | self.deletes)
        return mask


def standing(starts: Mask, deletes: Mask, begun: Begun | None) -> Standing:
    """``begun``: what was seen before of the cell that the round starts with; None when it starts there."""
    places = np.arange(len(starts))
    first = np.maximum.accumulate(np.where(starts, places, 0))
    index = places - first
    before: Indices = np.cumsum(deletes) - deletes
    behind_delete: Mask = before > before[first]
    if begun is not None:
        same = first == 0
        index[same] += begun.counted
        behind_delete |= same & begun.hidden
    return Standing(first, index, behind_delete, deletes)


def counting(stands: Standing, times: Times, retention: Retention) -> Mask:
    """The versions that count."""
    mask: Mask = stands.visible & (stands.index < retention.versions_max)
    return mask if retention.oldest_ms is None else mask & (times >= retention.oldest_ms)


def in_time(times: Times, asked: Asked) -> Mask:
    """Entries in the time range."""
    mask = np.ones(len(times), bool)
    if asked.from_ms is not None:
        mask &= times >= asked.from_ms
    if asked.to_ms is not None:
        mask &= times < asked.to_ms
    return mask


def running_count(chosen: Mask, first: Indices, begun: int) -> Indices:
    """For each entry, how many of its cell are chosen up to and with it; ``begun`` of the first cell were before."""
    total = np.cumsum(chosen)
    count: Indices = total - (total - chosen)[first]
    count[first == 0] += begun
    return count
