"""Fault switches of the bounds of memory (see ``faults``)."""

from __future__ import annotations

from typing import Any

from bookkeeper.rpc import dispatch
from bookkeeper.rpc.frames import budget, partial_frame
from bookkeeper.storage.wal.blocks import ipc_message
from bookkeeper.storage.wal.blocks.ipc_message import MessageForm
from bookkeeper.tserver.receive.message_admission import MessageAdmission
from bookkeeper.tserver.write import decompression
from tests.support.replacement import Fault


def _announce_first(admission: Any, stream: Any, peer: str | None) -> Any:
    admission._index.announce(stream)
    return admission._streams.open(stream, peer)


MEMORY_FAULTS: dict[str, Fault] = {
    "any-form-of-message-will-do": Fault(
        ipc_message.read_form,
        lambda message: MessageForm(0, len(message), is_compressed=False),
        "a few kilobytes of an older form of Arrow's messages take gigabytes",
    ),
    "memory-for-what-is-announced": Fault(
        partial_frame.grown_bytes,
        lambda received_bytes, size: size,  # noqa: ARG005
        "forty connections with four bytes each take more than a gigabyte",
    ),
    "budgets-are-words": Fault(
        budget.exceeds,
        lambda counted_bytes, more_bytes, limit_bytes: False,  # noqa: ARG005
        "a holder of a secret fills the memory of a process with incomplete frames",
    ),
    "each-batch-has-its-own-budget": Fault(
        decompression.is_too_much,
        lambda taken_bytes, limits: False,  # noqa: ARG005
        "a message of a few kilobytes takes gigabytes, in many batches",
    ),
    "slots-are-acquired-last": Fault(
        MessageAdmission.open_stream,
        lambda self, stream, peer=None: _announce_first(self, stream, peer),
        "a peer that has no place left fills the books with streams",
    ),
    "rights-come-last": Fault(
        dispatch.refuse_unauthorized_call,
        lambda service, method, state: None,  # noqa: ARG005
        "arguments are received and parsed for callers that may not make the call",
    ),
}
