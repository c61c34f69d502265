"""Range descriptors and result rows: the input and output of a replay run, as Arrow tables.

On the wire they are the argument and the result of ``Replay.run`` of ``bookkeeper.thrift``, as Arrow IPC streams. An
error is a row, not an exception, so that one bad range does not fail the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import pyarrow as pa
from msgspec import Struct

from bookkeeper.errors import (
    AT_REPLAY,
    FAILED_AT,
    BookkeeperError,
    CorruptionError,
    InvalidInputError,
    PermanentError,
    TransientError,
)
from bookkeeper.model import BlockRange, StreamKey, TargetKey

RANGES_MAX = 10_000
"""Most ranges in one run; a caller sends hundreds."""

TASK_FIELD = pa.field("task", pa.int32(), nullable=False)
"""The number of the task that ships the range; the job adds it."""

TASK_FAILED_CODE = "task_failed"
"""Error code of a range whose task process died: its progress is unknown."""

RANGE_SCHEMA = pa.schema(
    [
        pa.field("range_id", pa.int64(), nullable=False),
        pa.field("file", pa.string(), nullable=False),
        pa.field("first", pa.int64(), nullable=False),
        pa.field("last", pa.int64(), nullable=False),
        pa.field("position_hint", pa.int64(), nullable=False),
        pa.field("cluster", pa.string(), nullable=False),
        pa.field("remote_table_id", pa.string(), nullable=False),
        pa.field("source_table_id", pa.string(), nullable=False),
        pa.field("incarnation", pa.int64(), nullable=False),
        pa.field("peer_quorum", pa.string(), nullable=False),
        pa.field("peer_instance_id", pa.string(), nullable=False),
        pa.field("own_instance_id", pa.string(), nullable=False),
        pa.field("finished", pa.int64(), nullable=False),
        pa.field("order_key", pa.int64(), nullable=False),
        pa.field("run_id", pa.string(), nullable=False),
        pa.field("passed_to", pa.int64(), nullable=False),
        pa.field("log_host", pa.string(), nullable=False),
        pa.field("log_incarnation", pa.string(), nullable=False),
        pa.field("log_address", pa.string(), nullable=False),
        pa.field("first_seq", pa.int64(), nullable=False),
        pa.field("confirm_file", pa.string(), nullable=False),
        pa.field("confirm_first", pa.int64(), nullable=False),
        pa.field("confirm_position", pa.int64(), nullable=False),
    ]
)

RESULT_SCHEMA = pa.schema(
    [
        pa.field("range_id", pa.int64(), nullable=False),
        pa.field("acked_offset", pa.int64(), nullable=False),
        pa.field("acked_position", pa.int64(), nullable=False),
        pa.field("high_water", pa.int64(), nullable=True),
        pa.field("records", pa.int64(), nullable=False),
        pa.field("bytes", pa.int64(), nullable=False),
        pa.field("filtered", pa.int64(), nullable=False),
        pa.field("resent", pa.int64(), nullable=False),
        pa.field("blocks", pa.int64(), nullable=False),
        pa.field("sent_records", pa.int64(), nullable=False),
        pa.field("sent_bytes", pa.int64(), nullable=False),
        pa.field("error_code", pa.string(), nullable=True),
        pa.field("error", pa.string(), nullable=True),
        pa.field("error_transient", pa.bool_(), nullable=False),
        pa.field("failed_at", pa.string(), nullable=True),
        pa.field("failed_first", pa.int64(), nullable=True),
        pa.field("failed_last", pa.int64(), nullable=True),
        pa.field("failed_start_position", pa.int64(), nullable=True),
        pa.field("failed_end_position", pa.int64(), nullable=True),
        pa.field("host", pa.string(), nullable=False),
        pa.field("pid", pa.int64(), nullable=False),
        pa.field("seconds", pa.float64(), nullable=False),
        pa.field("way", pa.string(), nullable=False),
        pa.field("share_records", pa.int64(), nullable=False),
        pa.field("share_bytes", pa.int64(), nullable=False),
        pa.field("block_first", pa.int64(), nullable=False),
        pa.field("block_position", pa.int64(), nullable=False),
    ]
)


class Range(Struct, frozen=True):
    """Ship records ``first`` to ``last`` (inclusive, both at block borders) of ``file`` to one target.

    ``finished`` is the finished offset in the books, and the receiver may rely on it. ``position_hint`` is the byte
    position after the block that ends at ``first - 1``, or 0. A task ships the ranges of a file in order, and its files
    in the order of ``order_key``. A range with a ``run_id`` is a deliberate repetition in a separate stream.
    ``passed_to`` is the last quarantined record before the range: the target lacks it (0 = none). The file lies on the
    disk of ``log_host`` with ``log_incarnation``, whose process answers at ``log_address`` ("" = the host is away);
    without a host on the cluster's Volume. ``first_seq``: the number in its tablet of the first record of an import's
    file, whose blocks count from 1 (0 = the blocks have the numbers). ``confirm_first``: the first record of the last
    block that the peer acknowledged, of ``confirm_file``, and ``confirm_position`` a byte position at or before it: a
    peer that lacks it came back in an older state (0 = not known).
    """

    range_id: int
    file: str
    first: int
    last: int
    position_hint: int
    target: TargetKey
    peer_quorum: str
    peer_instance_id: str
    own_instance_id: str
    finished: int
    order_key: int
    run_id: str = ""
    passed_to: int = 0
    log_host: str = ""
    log_incarnation: str = ""
    log_address: str = ""
    first_seq: int = 0
    confirm_file: str = ""
    confirm_first: int = 0
    confirm_position: int = 0

    @property
    def stream(self) -> StreamKey:
        """The stream of the range at the receiver (R5, R18)."""
        return stream_of(self.own_instance_id, self.file, self.target, self.run_id)


def stream_of(own_instance_id: str, file: str, target: TargetKey, run_id: str = "") -> StreamKey:
    """The stream of a file for a target (rule R5); with a ``run_id``, the stream of a separate run."""
    return StreamKey(own_instance_id, file, target.source_table_id, target.remote_table_id, target.incarnation, run_id)


RECORD_ERROR_CODES = frozenset({CorruptionError.code, InvalidInputError.code, PermanentError.code})


def is_about_records(error: BookkeeperError) -> bool:
    """Whether records may cause a permanent error: they do not parse, or the peer refuses them.

    A problem of the peer (its table is gone, it is another cluster, it uses another version) is not caused by records.
    """
    return error.code in RECORD_ERROR_CODES


class RangeError(Struct, frozen=True):
    """Why a range stopped: the error's stable code, its one-line message, whether trying again may help, and the place
    of the failure.
    """

    code: str
    message: str
    transient: bool
    failed_at: str = AT_REPLAY

    @classmethod
    def of(cls, error: BookkeeperError, failed_at: str = AT_REPLAY) -> RangeError:
        """The row of an error. ``failed_at``: where, unless the error says it."""
        place = error.details.get(FAILED_AT, failed_at)
        return cls(error.code, error.message, isinstance(error, TransientError), place)


class RangeResult(Struct, frozen=True):
    """The outcome of one range.

    ``acked_offset``: all records up to it are durable at the peer (at least the range's ``finished``, at most its
    ``last``). ``acked_position``: byte position after the block that ends there; 0 when this run got no
    acknowledgement. Below ``last`` without an error means that the time of this run ended. ``high_water`` is set after
    a gap (R19): the next run starts after it. ``records`` were acknowledged, the peer had ``resent`` of them before,
    ``filtered`` are not for this target; ``bytes`` are those of the acknowledged records. ``sent_records`` and
    ``sent_bytes`` were sent in this run, acknowledged or not; records that were sent twice count twice. ``failed``: the
    smallest range of blocks with a permanent error, directly after ``acked_offset``. ``way`` is how an import's log was
    sent, "" for any other log. ``share_records`` and ``share_bytes``: the target's share of the file up to
    ``acked_offset``, from the last block for the target up to there; 0 when there is none. ``block_first``: the first
    record of the last block that the peer acknowledged in this run, and ``block_position`` a byte position at or before
    it; 0 when there is none.
    """

    range_id: int
    acked_offset: int
    acked_position: int
    high_water: int | None
    records: int
    bytes: int
    filtered: int
    resent: int
    blocks: int
    sent_records: int
    sent_bytes: int
    error: RangeError | None
    host: str
    pid: int
    seconds: float
    failed: BlockRange | None = None
    way: str = ""
    share_records: int = 0
    share_bytes: int = 0
    block_first: int = 0
    block_position: int = 0


def unshipped(r: Range, error: RangeError) -> RangeResult:
    """The result of a range without an answer: its offset is that of the books."""
    return RangeResult(
        r.range_id, r.finished, 0, None, 0, 0, 0, 0, 0, 0, 0, error, os.uname().nodename, os.getpid(), 0.0
    )


_TARGET_COLUMNS = ("cluster", "remote_table_id", "source_table_id", "incarnation")
_ERROR_COLUMNS = ("error_code", "error", "error_transient", "failed_at")
_PLAIN_RANGE = tuple(name for name in Range.__struct_fields__ if name != "target")
_FAILED_COLUMNS = ("failed_first", "failed_last", "failed_start_position", "failed_end_position")
_PLAIN_RESULT = tuple(name for name in RangeResult.__struct_fields__ if name not in ("error", "failed"))


def ranges_to_table(ranges: Sequence[Range]) -> pa.Table:
    """One row per range, in the same order."""
    rows = [
        {
            **{name: getattr(r, name) for name in _PLAIN_RANGE},
            **{name: getattr(r.target, name) for name in _TARGET_COLUMNS},
        }
        for r in ranges
    ]
    return pa.Table.from_pylist(rows, schema=RANGE_SCHEMA)


def ranges_from_table(table: pa.Table | pa.RecordBatch) -> list[Range]:
    """Inverse of :func:`ranges_to_table`; columns that are not of a range are ignored."""
    return [
        Range(target=TargetKey(*(row[name] for name in _TARGET_COLUMNS)), **{name: row[name] for name in _PLAIN_RANGE})
        for row in table.select(RANGE_SCHEMA.names).to_pylist()
    ]


def check_range(r: Range) -> None:
    """Raise InvalidInputError unless the range is valid."""
    problem = (
        f"first {r.first} to last {r.last} is no range"
        if not 1 <= r.first <= r.last
        else f"finished {r.finished} is not below first {r.first}"
        if not 0 <= r.finished < r.first
        else f"position hint {r.position_hint} is negative"
        if r.position_hint < 0
        else "an identity is empty"
        if not (r.file and r.peer_quorum and r.peer_instance_id and r.own_instance_id)
        else ""
    )
    if problem:
        raise InvalidInputError(f"range {r.range_id} of {r.file!r} for {r.target.cluster}: {problem}")


def results_to_batch(results: Sequence[RangeResult]) -> pa.RecordBatch:
    """One row per result."""
    rows = [
        {
            **{name: getattr(r, name) for name in _PLAIN_RESULT},
            **_error_columns(r.error),
            **_failed_columns(r.failed),
        }
        for r in results
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RESULT_SCHEMA)


def results_from_table(table: pa.Table) -> list[RangeResult]:
    """Inverse of :func:`results_to_batch`."""
    return [
        RangeResult(error=_error_from(row), failed=_failed_from(row), **{name: row[name] for name in _PLAIN_RESULT})
        for row in table.to_pylist()
    ]


def encode_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> bytes:
    """An Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    raw: bytes = sink.getvalue().to_pybytes()
    return raw


def decode_table(raw: bytes, schema: pa.Schema) -> pa.Table:
    """The table in an Arrow IPC stream, checked in full; raises InvalidInputError."""
    try:
        with pa.ipc.open_stream(raw) as reader:
            table = reader.read_all()
        if not table.schema.equals(schema):
            raise InvalidInputError(f"columns are not those of this version: want {schema.names}, got {table.schema}")
        table.validate(full=True)
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{len(raw)} bytes are no Arrow stream: {error}") from error
    for name in schema.names:
        if not schema.field(name).nullable and table.column(name).null_count:
            raise InvalidInputError(f"column {name!r} holds nulls")
    return table


def _error_columns(error: RangeError | None) -> dict[str, str | bool | None]:
    if error is None:
        return {"error_code": None, "error": None, "error_transient": False, "failed_at": None}
    return {
        "error_code": error.code,
        "error": error.message,
        "error_transient": error.transient,
        "failed_at": error.failed_at,
    }


def _error_from(row: dict[str, object]) -> RangeError | None:
    code, message, transient, failed_at = (row[name] for name in _ERROR_COLUMNS)
    return None if code is None else RangeError(str(code), str(message), bool(transient), str(failed_at))


def _failed_columns(failed: BlockRange | None) -> dict[str, int | None]:
    if failed is None:
        return dict.fromkeys(_FAILED_COLUMNS)
    values = (failed.first, failed.last, failed.start_position, failed.end_position)
    return dict(zip(_FAILED_COLUMNS, values, strict=True))


def _failed_from(row: dict[str, int | None]) -> BlockRange | None:
    values = [value for name in _FAILED_COLUMNS if (value := row[name]) is not None]
    return BlockRange(*values) if len(values) == len(_FAILED_COLUMNS) else None
