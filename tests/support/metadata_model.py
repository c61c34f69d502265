"""A metadata table in a few lines, to compare the stores with: what each call means, and nothing about how."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bookkeeper.metadata.metadata_table import Cell, CellKey, RowPut

FOR_GOOD = 2**63


@dataclass
class MetadataModel:
    """Every value ever put, by cell and rank, and the highest rank up to which each cell is hidden."""

    values: dict[CellKey, dict[int, bytes]] = field(default_factory=dict)
    hidden: dict[CellKey, int] = field(default_factory=dict)

    def copy(self) -> MetadataModel:
        """Another table with the same content."""
        return MetadataModel({cell: dict(ranks) for cell, ranks in self.values.items()}, dict(self.hidden))

    def put(self, rows: Iterable[RowPut], rank: int) -> None:
        for row in rows:
            for column, value in row.values.items():
                self.values.setdefault(CellKey(row.key, column), {})[rank] = value

    def delete(self, cells: Iterable[CellKey], rank: int) -> None:
        for cell in cells:
            self.hidden[cell] = max(rank, self.hidden.get(cell, 0))

    def purge(self, cells: Iterable[CellKey]) -> None:
        self.delete(cells, FOR_GOOD)

    def visible(self) -> dict[CellKey, Cell]:
        """Of each cell the value of the highest rank, unless that is hidden."""
        newest = {cell: max(ranks) for cell, ranks in self.values.items()}
        return {
            cell: Cell(rank, self.values[cell][rank])
            for cell, rank in newest.items()
            if rank > self.hidden.get(cell, 0)
        }
