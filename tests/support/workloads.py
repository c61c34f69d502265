"""Workloads of failure tests, and the cells that both clusters must then have: a function of seed and batch number.

Arrives: a seed. Leaves: batches of row changes (the same for the same seed and number, whenever they are asked for),
and the cells that are there after the first ``count`` batches. Each workload has the rows of its table to itself, and
a batch begins only when the one before it is acknowledged; so a batch that had to be sent twice changes nothing.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from bookkeeper.client import Mutation
from bookkeeper.model import LocalityGroup

CellKey = tuple[bytes, bytes, bytes]
"""Row, family, qualifier."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """All changes of one row, in order; ``value`` None deletes the cell."""

    row: bytes
    changes: tuple[tuple[bytes, bytes, bytes | None], ...]


class Workload(Protocol):
    """An endless, repeatable sequence of batches for one table."""

    @property
    def table(self) -> str:
        """The table it writes to, alone."""

    @property
    def splits(self) -> Sequence[bytes]:
        """The split rows of the table."""

    @property
    def groups(self) -> Sequence[LocalityGroup]:
        """The table's locality groups."""

    def batch(self, number: int) -> Sequence[RowChange]:
        """Batch ``number`` (from 0)."""


def mutation_of(change: RowChange) -> Mutation:
    """The product's form of a change."""
    mutation = Mutation(change.row)
    for family, qualifier, value in change.changes:
        if value is None:
            mutation.delete(family, qualifier)
        else:
            mutation.put(family, qualifier, value)
    return mutation


@dataclass(slots=True)
class Expectation:
    """The cells after the batches of a workload, computed further as batches are added."""

    workload: Workload
    _cells: dict[CellKey, bytes] = field(default_factory=dict)
    _count: int = 0

    def after(self, count: int) -> Mapping[CellKey, bytes]:
        """The cells after the first ``count`` batches, which are at least as many as in the last call."""
        assert count >= self._count
        for number in range(self._count, count):
            apply_changes(self._cells, self.workload.batch(number))
        self._count = count
        return self._cells


def cells_after(workload: Workload, count: int) -> Mapping[CellKey, bytes]:
    """The cells after the first ``count`` batches."""
    return Expectation(workload).after(count)


def apply_changes(cells: dict[CellKey, bytes], changes: Iterable[RowChange]) -> None:
    """Put and delete, in order."""
    for change in changes:
        for family, qualifier, value in change.changes:
            if value is None:
                cells.pop((change.row, family, qualifier), None)
            else:
                cells[(change.row, family, qualifier)] = value


# ---- the linked list

POINTER = (b"link", b"previous")
NUMBER = (b"about", b"number")


@dataclass(frozen=True, slots=True)
class LinkedList:
    """Each row points at a row of the batch before, which was acknowledged when this one was written. So a
    pointer to a missing row means that an acknowledged row was lost, after any kill at any time.
    """

    seed: int
    width: int = 40
    table: str = "links"
    splits: tuple[bytes, ...] = (b"4", b"8", b"c")
    groups: tuple[LocalityGroup, ...] = (
        LocalityGroup("link", (POINTER[0],)),
        LocalityGroup("about", (NUMBER[0],)),
    )

    def row(self, number: int, place: int) -> bytes:
        """A row strewn over all tablets."""
        return hashlib.sha256(f"{self.seed}:{number}:{place}".encode()).hexdigest()[:20].encode()

    def batch(self, number: int) -> list[RowChange]:
        """``width`` new rows."""
        places = random.Random(f"{self.seed}:{number}").sample(range(self.width), self.width)
        result = []
        for place, target in enumerate(places):
            pointer = self.row(number - 1, target) if number else b""
            about = f"{number}:{place}".encode()
            result.append(RowChange(self.row(number, place), ((*POINTER, pointer), (*NUMBER, about))))
        return result


def undefined_pointers(cells: Mapping[CellKey, bytes]) -> list[bytes]:
    """Rows that some row points at and that are not there: each one was acknowledged and is lost. Sorted."""
    defined = {row for row, _, _ in cells}
    pointers = {value for (_, *column), value in cells.items() if tuple(column) == POINTER and value}
    return sorted(pointers - defined)


# ---- overwrites and deletes


@dataclass(frozen=True, slots=True)
class Mix:
    """Puts, overwrites and deletes of few rows, many of one cell in one batch: what arrives out of order, twice, or
    not at all, shows in the final cells.
    """

    seed: int
    rows: int = 150
    changes: int = 40
    table: str = "mix"
    splits: tuple[bytes, ...] = (b"row-0030", b"row-0075", b"row-0110")
    groups: tuple[LocalityGroup, ...] = (
        LocalityGroup("hot", (b"hot",)),
        LocalityGroup("cold", (b"cold",)),
    )

    def batch(self, number: int) -> list[RowChange]:
        """``changes`` row changes."""
        rng = random.Random(f"{self.seed}:mix:{number}")
        return [self._change(rng, f"{number}.{place}") for place in range(self.changes)]

    def _change(self, rng: random.Random, tag: str) -> RowChange:
        row = f"row-{rng.randrange(self.rows):04d}".encode()
        columns = [(family, qualifier) for family in (b"hot", b"cold") for qualifier in (b"a", b"b", b"c")]
        chosen = rng.sample(columns, rng.randint(1, 4))
        dice = rng.random()
        if dice < 0.15:
            return RowChange(row, tuple((*column, None) for column in columns))
        changes: list[tuple[bytes, bytes, bytes | None]] = []
        for column in chosen:
            value = f"{tag} {rng.randrange(10**9)}".encode()
            if dice < 0.35:
                changes.append((*column, None))
            elif dice < 0.5:  # put, delete and put again inside one mutation: one timestamp, the later wins
                changes += [(*column, b"not this"), (*column, None), (*column, value)]
            elif dice < 0.6:
                changes += [(*column, value), (*column, None)]
            else:
                changes.append((*column, value))
        return RowChange(row, tuple(changes))
