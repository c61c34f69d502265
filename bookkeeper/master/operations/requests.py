"""Receipts of requests: a client may repeat a request, and the master executes it once.

The client chooses the request id. A ``~recv_`` cell of a stream from this cluster stands for the request. The cell of a
complete request is its receipt, with the number of records. The cell is deleted after the grace of all streams, and no
client repeats a request for so long. Rules: R18 and R20.
"""

from __future__ import annotations

import re
from pathlib import Path

from bookkeeper.errors import InvalidInputError
from bookkeeper.master.operations.context import Context
from bookkeeper.master.operations.streams import forget_streams_args
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.values import Received
from bookkeeper.model import StreamKey

_REQUEST_ID = re.compile(r"[0-9a-f]{32}")


def check_request(request_id: str, directory: str) -> None:
    """Raises InvalidInputError if the id is malformed or the path is not absolute."""
    if _REQUEST_ID.fullmatch(request_id) is None:
        raise InvalidInputError(f"{request_id!r} is not a request id; use 32 hex digits")
    if not Path(directory).is_absolute():
        raise InvalidInputError(f"{directory!r} is not an absolute path; name a directory on the master's machine")


def request_stream(context: Context, kind: str, request_id: str) -> StreamKey:
    """The stream that stands for a request that no tablet takes part in."""
    return StreamKey(context.settings.own_instance_id, f"{kind}:{request_id}", kind, kind, 0)


def find_receipt(context: Context, stream: StreamKey) -> int | None:
    """The number of records of a complete request, else None. Raises TransientError."""
    cell = keys.recv_cell(stream)
    row = context.stores.table.get(cell.key, ("recv",))
    found = None if row is None else row.cells.get(cell.column)
    received = Received(0) if found is None else Received.decode(found.value)
    return received.offset if received.done else None


def open_request(context: Context, stream: StreamKey) -> None:
    """Write the cell of the stream, before any tablet takes a part of it (rule R20)."""
    _put(context, stream, Received(0))


def write_receipt(context: Context, stream: StreamKey, records: int) -> None:
    """Mark the request as complete, for a client that repeats it."""
    _put(context, stream, Received(records, done=True))


def close_request(context: Context, stream: StreamKey) -> None:
    """Delete the cell after the grace."""
    context.hooks.begin("forget_streams", forget_streams_args([stream]))


def _put(context: Context, stream: StreamKey, received: Received) -> None:
    context.stores.reign.check()
    cell = keys.recv_cell(stream)
    rank = keys.recv_rank(received.offset, received.done)
    context.stores.table.put([RowPut(cell.key, {cell.column: received.encode()})], rank)
