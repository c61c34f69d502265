"""Comparison of a table with its expected cells, one by one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import pyarrow as pa
from msgspec import Struct, field

from shell.demo.workload import CellKey

EXAMPLES_MAX = 5


class Comparison(Struct):
    """Counts of a table's differences from its expected cells, with the first few as examples."""

    cells: int = 0
    missing: int = 0
    unexpected: int = 0
    different: int = 0
    digest: str = ""
    """Digest of every cell with its visibility and timestamp: tables with equal digests are equal to the last bit."""
    examples: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """True if the table has every expected cell with its value, and no other cell."""
        return not (self.missing or self.unexpected or self.different)

    def note(self, text: str) -> None:
        """Add an example, up to a bound."""
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(text)


def compare(expected: Mapping[CellKey, bytes], batches: Iterable[pa.RecordBatch]) -> Comparison:
    """Compare the cells of ``batches`` (mutation schema, sorted, the newest version of each cell) with ``expected``."""
    result = Comparison()
    seen: set[CellKey] = set()
    digest = hashlib.sha256()
    names = ("row", "family", "qualifier", "value", "visibility", "timestamp")
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in names)
        for row, family, qualifier, value, visibility, timestamp in zip(*columns, strict=True):
            digest.update(repr((row, family, qualifier, value, visibility, timestamp)).encode())
            key = (row, family, qualifier)
            result.cells += 1
            if key in seen or key not in expected:
                result.unexpected += 1
                result.note(f"unexpected or repeated cell {key!r}")
            elif expected[key] != value:
                result.different += 1
                result.note(f"cell {key!r} has the value {value!r}, not {expected[key]!r}")
            seen.add(key)
    result.digest = digest.hexdigest()
    lost = expected.keys() - seen
    result.missing = len(lost)
    for key in sorted(lost)[:EXAMPLES_MAX]:
        result.note(f"missing cell {key!r}")
    return result
