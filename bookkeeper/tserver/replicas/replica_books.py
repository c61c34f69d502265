"""The facts of the books about a tablet's replicas and about unneeded logs, read and parsed."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from bookkeeper.metadata import keys, values
from bookkeeper.metadata.chosen_rows import chosen_rows
from bookkeeper.metadata.metadata_table import MetadataTable, Row, prefix_stop
from bookkeeper.metadata.values import FlushState, ReplicaCell
from bookkeeper.model import Extent
from bookkeeper.replicas.values import Placement, Stage
from bookkeeper.storage.volume.names import TABLES
from bookkeeper.tserver.replicas.offer_checks import ReplicaRow, RowReplica

FAMILIES = ("tablet", "replica")
STAGES = {"voter": Stage.LIVE, "joining": Stage.JOINING}


class NamedState(Struct, frozen=True):
    """The named state of a tablet: ``tablet:flush`` parsed and as it is, and the ``segment:`` cells of its files."""

    row: ReplicaRow
    flush: FlushState
    raw: bytes
    entries: Mapping[str, bytes]


class ReplicaBooks:
    """Reads rows of tablets, and marks of the collector. Thread-safe."""

    def __init__(self, metadata: MetadataTable) -> None:
        self._metadata = metadata

    def row(self, extent: Extent) -> ReplicaRow | None:
        """The row of the tablet that ends where this one ends; None when there is none. Raises CorruptionError,
        TransientError.
        """
        row = self._metadata.get(keys.tablet_row(extent.table_id, extent.end_row), FAMILIES)
        return None if row is None else parse_replica_row(row)

    def rows_of(self, extents: Collection[Extent]) -> dict[Extent, ReplicaRow]:
        """See :meth:`row`, for many tablets. Raises CorruptionError, TransientError: never a part of them."""
        by_key = {keys.tablet_row(one.table_id, one.end_row): one for one in extents}
        rows = chosen_rows(self._metadata, by_key, FAMILIES)
        parsed = {by_key[key]: parse_replica_row(row) for key, row in rows.items()}
        return {extent: row for extent, row in parsed.items() if row is not None}

    def named(self, extent: Extent) -> NamedState | None:
        """The named state of a tablet; None without one, or when the row has other borders. Raises CorruptionError,
        TransientError.
        """
        row = self._metadata.get(keys.tablet_row(extent.table_id, extent.end_row), (*FAMILIES, "segment"))
        parsed = None if row is None else parse_replica_row(row)
        if row is None or parsed is None or parsed.extent != extent or parsed.named_id is None:
            return None
        raw = row.cells[keys.FLUSH].value
        cells = {keys.parse_file(name): cell.value for name, cell in row.family("segment").items()}
        return NamedState(
            parsed, FlushState.decode(raw), raw, {name: cells[name] for name in parsed.named_files if name in cells}
        )

    def rows(self, table_id: str) -> dict[str, ReplicaRow]:
        """All tablets of a table by their directories. Raises CorruptionError, TransientError: never a part of them."""
        start, stop = keys.table_section(table_id)
        parsed = [parse_replica_row(row) for row in self._metadata.scan(start, stop, FAMILIES)]
        return {row.directory: row for row in parsed if row is not None}

    def held_files(self, table_id: str) -> frozenset[str]:
        """The files of a table that something holds, though no tablet may name them. Raises CorruptionError,
        TransientError: never a part of them.
        """
        start = keys.hold_row(f"{TABLES}{table_id}/")
        rows = self._metadata.scan(start, prefix_stop(start), keys.HOLD_FAMILIES)
        return frozenset(keys.parse_hold_row(row.key) for row in rows)

    def marked(self, files: Collection[str]) -> frozenset[str]:
        """The files among these ones that the collector has marked: nothing needs them (R17). Raises TransientError."""
        by_key = {keys.del_row(file): file for file in files}
        rows = chosen_rows(self._metadata, by_key, ("del",))
        return frozenset(by_key[key] for key, row in rows.items() if keys.DEL in row.cells)


def parse_replica_row(row: Row) -> ReplicaRow | None:
    """Parse a row; None for one without a tablet, of which late writes may be left. Raises CorruptionError."""
    if not keys.is_tablet(row) or keys.DIR not in row.cells:
        return None
    table_id, end_row = keys.parse_tablet_row(row.key)
    flush, serial = row.cells.get(keys.FLUSH), row.cells.get(keys.SERIAL)
    state = None if flush is None else FlushState.decode(flush.value)
    cells = {keys.parse_replica(host): ReplicaCell.decode(cell.value) for host, cell in row.family("replica").items()}
    parts = row.cells.get(keys.PARTS)
    return ReplicaRow(
        extent=Extent(table_id, end_row, values.decode_prev_row(row.cells[keys.PREV_ROW].value)),
        directory=values.decode_dir(row.cells[keys.DIR].value),
        serial=0 if serial is None else serial.rank,
        replicas={
            host: RowReplica(Placement(cell.placement, cell.incarnation), STAGES[cell.role])
            for host, cell in cells.items()
        },
        named_id=None if state is None else state.flush_id,
        named_files=() if state is None else state.segments,
        parts=() if parts is None else values.decode_parts(parts.value),
    )
