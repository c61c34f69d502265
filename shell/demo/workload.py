"""The operations of the demo and the cells that they leave, computed from the input without the product.

The input is the airports of the ``airportsdata`` package (ICAO code to facts). Operations insert, overwrite and delete
cells.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import airportsdata
from msgspec import Struct

GROUPS: dict[str, frozenset[bytes]] = {"geo": frozenset({b"geo"}), "label": frozenset({b"label"})}
"""The table's two locality groups, one family each."""

FIELDS: tuple[tuple[bytes, str], ...] = (
    (b"geo", "lat"),
    (b"geo", "lon"),
    (b"geo", "elevation"),
    (b"geo", "tz"),
    (b"label", "name"),
    (b"label", "city"),
    (b"label", "subd"),
    (b"label", "country"),
    (b"label", "iata"),
)

CellKey = tuple[bytes, bytes, bytes]
"""Row, family, qualifier."""


class Operation(Struct, frozen=True):
    """All changes of one row: ``value`` None deletes the cell."""

    row: bytes
    changes: tuple[tuple[bytes, bytes, bytes | None], ...]


def load_airports() -> dict[str, dict[str, object]]:
    """The data set: about 28,000 real airports by ICAO code."""
    return {code: dict(facts) for code, facts in airportsdata.load("ICAO").items()}


def operations(airports: dict[str, dict[str, object]], seed: int) -> list[Operation]:
    """An insert of every airport, with overwrites and deletes of earlier rows between them; a seed gives one list."""
    rng = random.Random(seed)
    codes = sorted(airports)
    rng.shuffle(codes)
    written: list[str] = []
    result: list[Operation] = []
    for code in codes:
        result.append(Operation(code.encode(), _cells(airports[code])))
        written.append(code)
        dice = rng.random()
        if dice < 0.08:
            result.append(_overwrite(rng.choice(written), rng))
        elif dice < 0.12:
            result.append(_delete(rng.choice(written), rng))
    return result


def batches(ops: Sequence[Operation], size: int) -> Iterator[Sequence[Operation]]:
    """Consecutive slices of ``size`` operations."""
    for start in range(0, len(ops), size):
        yield ops[start : start + size]


def expected_cells(ops: Sequence[Operation]) -> dict[CellKey, bytes]:
    """The cells of a table after all operations, in order."""
    cells: dict[CellKey, bytes] = {}
    for op in ops:
        for family, qualifier, value in op.changes:
            if value is None:
                cells.pop((op.row, family, qualifier), None)
            else:
                cells[(op.row, family, qualifier)] = value
    return cells


def _cells(facts: dict[str, object]) -> tuple[tuple[bytes, bytes, bytes | None], ...]:
    return tuple((family, name.encode(), str(facts[name]).encode()) for family, name in FIELDS)


def _overwrite(code: str, rng: random.Random) -> Operation:
    fields = rng.sample(FIELDS, k=rng.randint(1, 4))
    return Operation(code.encode(), tuple((f, n.encode(), f"{n} {rng.randrange(10**6)}".encode()) for f, n in fields))


def _delete(code: str, rng: random.Random) -> Operation:
    fields = FIELDS if rng.random() < 0.5 else rng.sample(FIELDS, k=rng.randint(1, 4))
    return Operation(code.encode(), tuple((family, name.encode(), None) for family, name in fields))
