"""Commands about write-ahead logs as files. ``show`` needs no cluster and changes nothing; ``seal`` gives up records.

A log may be in any state that a process or a crash leaves. Damage ends the output with an error that names file and
byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow as pa

from bookkeeper.config.file import load_settings
from bookkeeper.standalone.damaged_log import seal_damaged
from bookkeeper.storage.volume.given_files import GivenFiles, uri_of_location
from bookkeeper.storage.wal.blocks.block_messages import block_target_from_pb, origin_from_pb
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.storage.wal.reading.log_formats import BlockAt
from bookkeeper.storage.wal.reading.wal_view import WalView
from shell.output import Output, Record, printable, utc
from shell.parameters import COUNT, DIRECTORY

_COLUMNS = (
    ("offsets", 15),
    ("records", 7),
    ("table", 5),
    ("tablet", 10),
    ("groups", 14),
    ("targets", 14),
    ("written", 24),
    ("bytes", 15),
    ("provenance", 10),
    ("origin", 6),
)
"""Columns of the list of blocks with their least widths; a block is printed before later, wider ones are read."""


@click.group()
def wal() -> None:
    """Print write-ahead logs, without a cluster, and give up the damaged end of one."""


@wal.command()
@click.argument("file")
@click.option("--from", "first", type=COUNT, default=1, metavar="N", help="Offset of the first record.")
@click.option("--to", "last", type=COUNT, metavar="N", help="Offset of the last record.")
@click.option("--limit", type=COUNT, metavar="N", help="At most N blocks; with --records, N records.")
@click.option("--records", "show_records", is_flag=True, help="Print records, not blocks.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def show(file: str, first: int, last: int | None, limit: int | None, show_records: bool, as_json: bool) -> None:
    """Print the log FILE (a path or URI): its origin, each block, its end, and bytes after the end.

    The command checks the checksum of each block that it prints. If a crash cut the log, or its tablet server still
    writes it, the output ends with the last complete block. Any other damage is an error (exit code 1), after the
    blocks before it.
    """
    if last is not None and last < first:
        raise click.BadParameter(f"--to {last} is below --from {first}", click.get_current_context())
    output, view = Output(as_json), WalView(GivenFiles(), uri_of_location(file))
    _show_file(output, view)
    log_range = _LogRange(view, first, last, limit)
    if show_records:
        for record in log_range.record_lines():
            output.line(record, _record_line(record))
    else:
        _show_blocks(output, log_range)
    _show_end(output, view, log_range)


@wal.command()
@click.argument("directory", type=DIRECTORY, metavar="DIR")
@click.argument("file")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def seal(directory: Path, file: str, as_json: bool) -> None:
    """Seal the damaged log FILE of a dead tablet server behind its last intact block; the cluster may run.

    The records behind the damage are given up: tablets are served without them, and peers do not get them. A copy of
    the whole file stays in the current directory. DIR is the directory of the cluster, or of the host that has the log.
    """
    copy = Path(file.replace("/", "-"))
    found = seal_damaged(load_settings(directory), file, copy)
    kept = str(copy) if copy.exists() else None
    text = f"{file} ends with record {found.offset} now{f'; {kept} is a copy of the whole file' if kept else ''}"
    Output(as_json).result(text, {"file": file, "offset": found.offset, "position": found.position, "copy": kept})


class _LogRange:
    """The requested range of a log; it is read once and counts its blocks."""

    def __init__(self, view: WalView, first: int, last: int | None, limit: int | None) -> None:
        self.blocks = self.last_offset = 0
        self.complete = False
        """Whether the range was read up to the end of the log."""
        self._view = view
        self._first = first
        self._last = last
        self._limit = limit

    def block_lines(self) -> Iterator[Record]:
        """A JSON record for each block with records in the range."""
        return itertools.islice((_block_record(at) for at, _ in self._blocks()), self._limit)

    def record_lines(self) -> Iterator[Record]:
        """A JSON record for each log record in the range."""
        lines = (line for at, batch in self._blocks() for line in self._records_in_range(at.header, batch))
        return itertools.islice(lines, self._limit)

    def _blocks(self) -> Iterator[tuple[BlockAt, pa.RecordBatch]]:
        """Blocks with records in the range; the checksum of each is right."""
        for at in self._view.headers(self._first):
            if self._last is not None and at.header.first_offset > self._last:
                return
            batch = self._view.batch(at)
            if batch is None:
                break
            self.blocks, self.last_offset = self.blocks + 1, at.last_offset
            yield at, batch
        self.complete = True

    def _records_in_range(self, header: BlockHeader, batch: pa.RecordBatch) -> Iterator[Record]:
        skipped = max(0, self._first - header.first_offset)
        length = None if self._last is None else max(0, self._last - header.first_offset + 1 - skipped)
        for index, row in enumerate(batch.slice(skipped, length).to_pylist(), start=skipped):
            yield {
                "kind": "record",
                "offset": header.first_offset + index,
                "table": header.table_id,
                "row": printable(row["row"]),
                "family": printable(row["family"]),
                "qualifier": printable(row["qualifier"]),
                "visibility": printable(row["visibility"]),
                "timestamp": row["timestamp"],
                "delete": row["delete"],
                "value": printable(row["value"]),
            }


def _show_file(output: Output, view: WalView) -> None:
    header, seal = view.file_header, view.seal
    facts: dict[str, object] = {
        "kind": "file",
        "file": view.name,
        "bytes": view.size,
        "state": _state(view),
        "sealed_offset": seal.offset if seal else None,
        "sealed_position": seal.position if seal else None,
    }
    if header is not None:
        facts |= {
            "format_version": header.format_version,
            "instance_id": header.instance_id,
            "session_id": header.session_id,
            "created": utc(header.created_time_ms),
        }
    if output.as_json:
        output.line(facts, "")
        return
    click.echo(f"{view.name}: {view.size} bytes, {facts['state']}")
    if header is not None:
        click.echo(
            f"format {header.format_version}, written by session {header.session_id or '-'} of instance "
            f"{header.instance_id or '-'}, created {facts['created'] or '-'}"
        )


def _state(view: WalView) -> str:
    if view.seal is not None:
        return f"sealed at offset {view.seal.offset}, byte {view.seal.position}"
    if view.fenced:
        return "not sealed: a recovery is under way"
    return "not sealed: its tablet server still writes it, or has died and the log is not recovered yet"


def _show_blocks(output: Output, log_range: _LogRange) -> None:
    has_header = False
    for record in log_range.block_lines():
        if not has_header and not output.as_json:
            click.echo(_columns({name: name.upper() for name, _ in _COLUMNS}))
            has_header = True
        output.line(record, _columns(_block_text(record)))


def _block_record(at: BlockAt) -> Record:
    header = at.header
    return {
        "kind": "block",
        "first": header.first_offset,
        "last": at.last_offset,
        "records": header.record_count,
        "table": header.table_id,
        "end_row": printable(header.end_row) if header.HasField("end_row") else None,
        "groups": {group.name: [printable(family) for family in group.families] for group in header.groups},
        "targets": [
            block_target.target.encode().decode() for block_target in map(block_target_from_pb, header.block_targets)
        ],
        "target_groups": [
            None if block_target.groups is None else list(block_target.groups)
            for block_target in map(block_target_from_pb, header.block_targets)
        ],
        "provenance": list(header.provenance),
        "origin": _origin(header),
        "after": [{"file": predecessor.file, "offset": predecessor.offset} for predecessor in header.after],
        "first_seq": header.first_seq,
        "written": utc(header.write_time_ms),
        "min_row": printable(header.min_row),
        "max_row": printable(header.max_row),
        "compression": header.compression,
        "position": at.position,
        "end_position": at.end_position,
    }


def _origin(header: BlockHeader) -> Record | None:
    if not header.HasField("origin"):
        return None
    origin = origin_from_pb(header.origin)
    return {
        "stream": origin.stream.encode(),
        "file": origin.stream.file,
        "after": origin.after_offset,
        "to": origin.to_offset,
    }


def _block_text(record: Record) -> dict[str, str]:
    """The columns of :data:`_COLUMNS` for one block."""
    groups, targets, origin = record["groups"], record["targets"], record["origin"]
    assert isinstance(groups, dict)
    assert isinstance(targets, list)
    provenance = record["provenance"]
    assert isinstance(provenance, list)
    text = {
        "offsets": f"{record['first']}-{record['last']}",
        "records": str(record["records"]),
        "table": str(record["table"]),
        "tablet": "(last)" if record["end_row"] is None else f"..{record['end_row']}",
        "groups": " ".join(f"{name}={','.join(families)}" for name, families in groups.items()),
        "targets": " ".join(targets),
        "written": str(record["written"] or ""),
        "bytes": f"{record['position']}-{record['end_position']}",
        "provenance": ">".join(provenance),
    }
    if isinstance(origin, dict):
        text["origin"] = f"{origin['after'] + 1}-{origin['to']} of {origin['file']}"
    return text


def _columns(text: dict[str, str]) -> str:
    return "  ".join((text.get(name) or "-").ljust(width) for name, width in _COLUMNS).rstrip()


def _record_line(record: Record) -> str:
    line = "{offset}  {table}  {row} {family}:{qualifier} [{visibility}] {timestamp}".format(**record)
    return f"{line} delete" if record["delete"] else f"{line}    {record['value']}"


def _show_end(output: Output, view: WalView, log_range: _LogRange) -> None:
    """Print the number of blocks and the bytes after the end, if the range reached the end of the log."""
    if not log_range.complete:
        return
    tail = view.tail()
    facts: dict[str, object] = {
        "kind": "end",
        "blocks": log_range.blocks,
        "last": log_range.last_offset,
        "end_position": view.end_position,
        "tail_bytes": tail.length,
        "tail": tail.reason or None,
    }
    text = f"{log_range.blocks} blocks, up to offset {log_range.last_offset}, all complete"
    if tail.length and view.seal is not None:
        text += f"; {tail.length} bytes after the seal are not part of the log"
    elif tail.length:
        text += (
            f"; torn tail: {tail.length} bytes from byte {tail.position} on are no complete block ({tail.reason}): "
            "its tablet server is writing it, or a crash cut it; recovery leaves these bytes out"
        )
    output.line(facts, text)
