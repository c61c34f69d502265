"""Segments that no writer of ours makes, with wrong contents and right checksums."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bookkeeper.storage.tablet.segments import bloom
from bookkeeper.storage.tablet.segments import segment_format as form
from bookkeeper.storage.tablet.segments.segment_format import FOOTER_END, TRAILER, SegmentRef, crc32c
from bookkeeper.storage.tablet.segments.segment_index import INDEX_SCHEMA, encode_index
from bookkeeper.storage.tablet.sorting.entries import ENTRY_SCHEMA, KEY_COLUMNS
from tests.support.volumes import name_at

Entry = tuple[bytes, bytes, bytes, bytes, int | None, bool, bytes, int]
"""Row, family, qualifier, visibility, timestamp, delete, value, sequence number."""

Line = dict[str, Any]


def entry(row: bytes, seq: int = 1, value: bytes = b"v", family: bytes = b"f", timestamp: int | None = 5) -> Entry:
    """One entry."""
    return row, family, b"q", b"", timestamp, False, value, seq


def craft(
    path: Path,
    groups: Sequence[Sequence[Entry]],
    *,
    families: Collection[bytes] | None = (b"f",),
    filtered: Sequence[bytes] | None = None,
    schema: pa.Schema = ENTRY_SCHEMA,
    change_line: Callable[[int, Line], None] = lambda number, line: None,  # noqa: ARG005
    options: Mapping[str, Any] | None = None,
) -> SegmentRef:
    """A segment of these row groups, and the reference that goes with it. ``families``: those it lists; ``filtered``:
    the rows of its filter, None = all; ``options``: of the Parquet writer.
    """
    chosen = {"use_dictionary": form.DICTIONARY_COLUMNS, "compression": "lz4", "store_schema": False, **(options or {})}
    lines: list[Line] = []
    with path.open("wb") as sink, pq.ParquetWriter(sink, schema, **chosen) as writer:
        for number, group in enumerate(groups):
            start = sink.tell() if number else 4
            writer.write_batch(batch_of(group, schema), row_group_size=max(len(group), 1))
            lines.append(_line(group, start))
        listed = [] if families is None else [base64.b64encode(family).decode() for family in sorted(families)]
        writer.add_key_value_metadata(
            {form.VERSION_KEY: str(form.FORMAT_VERSION).encode(), form.GROUP_KEY: b"default"}
            | ({} if families is None else {form.FAMILIES_KEY: json.dumps(listed).encode()})
        )
    raw = path.read_bytes()
    length, _ = FOOTER_END.unpack(raw[-FOOTER_END.size :])
    body, footer = raw[: -FOOTER_END.size - length], raw[-FOOTER_END.size - length : -FOOTER_END.size]
    ends = [line["start"] for line in lines[1:]] + [len(body)]
    for number, (line, end) in enumerate(zip(lines, ends, strict=True)):
        line["bytes"] = end - line["start"]
        line["crc"] = crc32c(body[line["start"] : end])
        change_line(number, line)
    rows = [row for group in groups for row, *_ in group] if filtered is None else filtered
    filter_bytes = bloom.build([bloom.hash_rows(pa.array(sorted(set(rows)), pa.binary()))])
    lay(path, body, filter_bytes, encode_index(pa.RecordBatch.from_pylist(lines, schema=INDEX_SCHEMA)), footer)
    every = batch_of([entry for group in groups for entry in group], ENTRY_SCHEMA)
    seqs = pc.min_max(every.column("seq")).as_py()
    return SegmentRef(
        name_at(path),
        "default",
        every.num_rows,
        path.stat().st_size,
        lines[0]["first_row"],
        lines[-1]["last_row"],
        seqs["min"],
        seqs["max"],
        0,
    )


def lay(path: Path, body: bytes, filter_bytes: bytes, index: bytes, footer: bytes) -> None:
    """Write a file of these parts, with right checksums of its tail."""
    check = crc32c(filter_bytes + index)
    trailer = TRAILER.pack(form.TRAILER_MAGIC, len(filter_bytes), len(index), check, crc32c(footer))
    path.write_bytes(body + filter_bytes + index + trailer + footer + FOOTER_END.pack(len(footer), form.PARQUET_MAGIC))


def batch_of(entries: Sequence[Entry], schema: pa.Schema) -> pa.RecordBatch:
    """Entries as a batch, in the order given."""
    columns = zip(*entries, strict=True)
    arrays = [pa.array(list(column), field.type) for column, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _line(group: Sequence[Entry], start: int) -> Line:
    line: Line = {"start": start, "bytes": 0, "crc": 0, "records": len(group)}
    for name in KEY_COLUMNS:
        first, last = (group[place][ENTRY_SCHEMA.names.index(name)] for place in (0, -1))
        line |= {f"first_{name}": 0 if first is None else first, f"last_{name}": 0 if last is None else last}
    return line
