"""Requests that a client may ask twice, and that must be carried out once: a receipt for whoever asks again.

Arrives: a request id that its client chose. Leaves: a ``~recv_`` cell of a stream from this cluster that stands for the
request; when it is done the cell says so, with the records; it goes with the grace of all streams (rule R20), which is
longer than any client asks again. Rules: R18 and R20.
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
    """Raise InvalidInputError unless the request has an id and an absolute path."""
    if _REQUEST_ID.fullmatch(request_id) is None:
        raise InvalidInputError(f"{request_id!r} is no request id: want 32 hex digits")
    if not Path(directory).is_absolute():
        raise InvalidInputError(f"{directory!r} is no absolute path; it is for the master, on its own machine")


def request_stream(context: Context, kind: str, request_id: str) -> StreamKey:
    """What stands for a request that no tablet hears of."""
    return StreamKey(context.settings.own_instance_id, f"{kind}:{request_id}", kind, kind, 0)


def find_receipt(context: Context, stream: StreamKey) -> int | None:
    """The records of a request that is done; None when it is not. Raises TransientError."""
    cell = keys.recv_cell(stream)
    row = context.stores.table.get(cell.key, ("recv",))
    found = None if row is None else row.cells.get(cell.column)
    received = Received(0) if found is None else Received.decode(found.value)
    return received.offset if received.done else None


def open_request(context: Context, stream: StreamKey) -> None:
    """Rule R20: the stream has its cell before anybody takes anything of it."""
    _put(context, stream, Received(0))


def give_receipt(context: Context, stream: StreamKey, records: int) -> None:
    """The request is done: remember it for whoever asks again."""
    _put(context, stream, Received(records, done=True))


def close_request(context: Context, stream: StreamKey) -> None:
    """The stream is over, after its grace."""
    context.hooks.begin("forget_streams", forget_streams_args([stream]))


def _put(context: Context, stream: StreamKey, received: Received) -> None:
    context.stores.reign.check()
    cell = keys.recv_cell(stream)
    rank = keys.recv_rank(received.offset, received.done)
    context.stores.table.put([RowPut(cell.key, {cell.column: received.encode()})], rank)
