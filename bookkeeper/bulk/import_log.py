"""Logs of an import into a replicated table: one for each tablet, as a tserver would have written it.

The records come in the order of the input, chunk by chunk. Each tablet with records gets one log, synced. Its blocks
carry the targets in force and the locality groups in them (R13). So the code that ships, filters, shows or retains logs
treats imports as other logs: the tablets' cells of the log are CLOSED from the start, needed = its length. A crash
leaves files that the books do not name; the collector finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
from msgspec import Struct, field

from bookkeeper.bulk.log_segments import Lengths
from bookkeeper.model import BlockTarget, Extent
from bookkeeper.rpc.contract.messages import ImportedLog
from bookkeeper.storage.columns import distinct, min_max_row, record_ends, slices_within
from bookkeeper.storage.tablet.batch_routing import split_by_tablets
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.volume.names import session_of_numbered
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.blocks.block import Block, encode_batch
from bookkeeper.storage.wal.blocks.block_messages import block_target_to_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader, FileHeader, Group
from bookkeeper.storage.wal.blocks.target_shares import LogShares, note_target_records
from bookkeeper.storage.wal.writing.wal_writer import WalWriter

TAKEN_PREFIX = "taken-"
"""The beginning of the names of relay logs (``tserver.bulk.relay_log``)."""

OPEN_MAX = 500
"""Most logs that are open at once; the log that waits longest is closed until it gets records."""

BLOCK_RECORDS = 4096
BLOCK_BYTES = 1 << 20
"""Most of a block that has more than one record: a peer that takes each of its records also takes the block."""


class ImportLogs(Struct):
    """The logs of one import. The names of its files begin with ``name``, as no earlier file's."""

    volume: Volume
    directory: str
    name: str
    header: FileHeader
    extents: Sequence[Extent]
    groups: GroupMap
    block_targets: Sequence[BlockTarget]
    peers: Sequence[str]
    """The instance ids of the targets, in the order of ``block_targets``."""
    describe: Callable[[BlockHeader], None] = lambda header: None  # noqa: ARG005
    """Adds further fields to a block's header."""
    lengths: Lengths = field(default_factory=Lengths)
    """The longest parts of the added records."""
    _writers: dict[Extent, WalWriter] = field(default_factory=dict)
    _shares: dict[Extent, LogShares] = field(default_factory=dict)
    _open: dict[Extent, WalWriter] = field(default_factory=dict)
    """Logs with an open descriptor, the last used one at the end."""

    def add(self, chunk: pa.RecordBatch) -> None:
        """Append a chunk's records, parted by tablet. Raises UnavailableError."""
        self.lengths = self.lengths.with_batch(chunk)
        for extent, batch in split_by_tablets(chunk, self.extents):
            writer = self._writer(extent)
            for part in parts_of(batch):
                block = self._block(extent, part, writer.offset + 1)
                self._shares[extent] = self._shares.get(extent, LogShares()).counting([block])
                writer.append([block])

    def finish(self) -> dict[Extent, ImportedLog]:
        """Sync and close them; durable on return. Raises UnavailableError."""
        found = {}
        for extent, writer in self._writers.items():
            writer.sync()
            found[extent] = ImportedLog(writer.name, writer.offset, writer.position, self.header.created_time_ms)
        self.abandon()
        return found

    def abandon(self) -> None:
        """Close the files."""
        for writer in self._writers.values():
            writer.abandon()

    def _writer(self, extent: Extent) -> WalWriter:
        writer = self._writers.get(extent)
        if writer is None:
            name = f"{self.directory}/{self.name}-{len(self._writers):05d}.wal"
            writer = self._writers[extent] = WalWriter.create(self.volume, name, self.header)
        self._open.pop(extent, None)
        self._open[extent] = writer
        if len(self._open) > OPEN_MAX:
            self._open.pop(next(iter(self._open))).pause()
        return writer

    def _block(self, extent: Extent, batch: pa.RecordBatch, first_offset: int) -> Block:
        low, high = min_max_row(batch)
        present = self.groups.by_group(distinct(batch.column("family")))
        header = BlockHeader(
            first_offset=first_offset,
            record_count=batch.num_rows,
            table_id=extent.table_id,
            end_row=extent.end_row,
            groups=[Group(name=name, families=families) for name, families in present.items()],
            block_targets=[block_target_to_pb(block_target) for block_target in self.block_targets],
            first_seq=first_offset,
            write_time_ms=self.header.created_time_ms,
            min_row=low,
            max_row=high,
        )
        self.describe(header)
        note_target_records(header, batch.column("family"), self.peers)
        return Block(header, encode_batch(batch))


def is_import_log(log: str) -> bool:
    """Whether a log is that of an import, or a relay log, by its name: those of tservers have numbers."""
    return session_of_numbered(log) is None


def is_relay_log(log: str) -> bool:
    """Whether a log is a relay log, by its name."""
    return log.rpartition("/")[2].startswith(TAKEN_PREFIX)


def parts_of(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of the size of blocks."""
    return slices_within(batch, record_ends(batch), BLOCK_BYTES, BLOCK_RECORDS)
