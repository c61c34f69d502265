"""Encodes files of a change log: a run of blocks becomes a Parquet file with its footer.

A file has one row for each record, in the order of offsets. All of it is in memory, because a message has a few
megabytes. No record becomes a Python object.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bookkeeper.errors import CorruptionError
from bookkeeper.model import MUTATION_SCHEMA, StreamKey
from bookkeeper.peers.parquet.layout import Part, Run
from bookkeeper.storage.wal.blocks.block import decode_batch

FILE_FORMAT = "1"
ROW_GROUP_RECORDS = 65_536

CHANGE_SCHEMA = pa.schema(
    [
        *MUTATION_SCHEMA,
        pa.field("_written", pa.timestamp("ms", "UTC"), nullable=False),
        pa.field("_sequence", pa.int64(), nullable=False),
        pa.field("_source", pa.string(), nullable=False),
        pa.field("_table_id", pa.string(), nullable=False),
        pa.field("_file", pa.string(), nullable=False),
        pa.field("_offset", pa.int64(), nullable=False),
        pa.field("_run", pa.string(), nullable=False),
    ]
)
"""A mutation and its source.

``_written``: the time at which the source wrote it. ``_sequence``: its number in its tablet there; of equal timestamps
the higher wins. ``_source``, ``_table_id``, ``_file``, ``_offset``: instance, table and log there, and the offset in
the log; together they identify a record. ``_run`` is empty, except for records that were sent again on purpose.
"""

_FOOTER_KEYS = b"bookkeeper.stream", b"bookkeeper.first", b"bookkeeper.to", b"bookkeeper.format"


def encode_run(stream: StreamKey, run: Run) -> pa.Buffer:
    """The file of a run; raises CorruptionError for a damaged block."""
    table = pa.Table.from_batches([change_batch(stream, part) for part in run.parts], CHANGE_SCHEMA)
    values = (stream.encode(), str(run.first), str(run.to_offset), FILE_FORMAT)
    fields = dict(zip(_FOOTER_KEYS, (value.encode() for value in values), strict=True))
    sink = pa.BufferOutputStream()
    pq.write_table(
        table.replace_schema_metadata(fields),
        sink,
        compression="zstd",
        row_group_size=ROW_GROUP_RECORDS,
        use_dictionary=["family", "qualifier", "visibility", "_source", "_table_id", "_file", "_run"],
    )
    return sink.getvalue()


def change_batch(stream: StreamKey, part: Part) -> pa.RecordBatch:
    """The records of one block as rows of the change log."""
    batch = decode_batch(part.block.records)
    facts, rows = part.facts, batch.num_rows
    if facts.positions is None:
        positions = np.arange(rows, dtype=np.int64)
    else:
        positions = facts.positions.to_numpy(zero_copy_only=False).astype(np.int64)
    if rows != part.block.record_count or rows != len(positions):
        raise CorruptionError(
            f"the block at offset {part.block.first_offset} of {stream.file} announces {part.block.record_count} "
            f"records, holds {rows} and has positions of {len(positions)}"
        )
    written = pa.scalar(facts.write_time_ms, pa.timestamp("ms", "UTC"))
    return pa.RecordBatch.from_arrays(
        [
            *batch.columns,
            pa.repeat(written, rows),
            pa.array(positions + facts.first_seq),
            pa.repeat(pa.scalar(stream.source_instance_id), rows),
            pa.repeat(pa.scalar(stream.source_table_id), rows),
            pa.repeat(pa.scalar(stream.file), rows),
            pa.array(positions + part.block.first_offset),
            pa.repeat(pa.scalar(stream.run_id), rows),
        ],
        schema=CHANGE_SCHEMA,
    )


def covered_to(metadata: Mapping[bytes, bytes], stream: StreamKey, path: str) -> int:
    """The offset up to which a file has all of its stream, by its footer; raises CorruptionError for a foreign file."""
    try:
        found, first, to_offset, _ = (metadata[key].decode() for key in _FOOTER_KEYS)
        if found == stream.encode() and int(to_offset) >= int(first):
            return int(to_offset)
    except (KeyError, ValueError) as error:
        raise CorruptionError(f"{path} is no file of a change log: its footer names no stream") from error
    raise CorruptionError(f"{path} has another stream than its path says ({found}): was it moved?")
