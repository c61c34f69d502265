"""Fault switches of the bounds of memory."""

from __future__ import annotations

from tests.support.faults.switch import Switch

BOUNDS: dict[str, Switch] = {
    "any-form-of-message-will-do": Switch(
        "bookkeeper.storage.wal.blocks.ipc_message",
        "read_form",
        old="return _read_form(message)",
        new="return MessageForm(0, len(message), is_compressed=False)",
        breaks="a few kilobytes of an older form of Arrow's messages take gigabytes",
    ),
    "memory-for-what-is-announced": Switch(
        "bookkeeper.rpc.frames.partial_frame",
        "grown_bytes",
        old="return min(size, max(SCRATCH_BYTES, 2 * received_bytes))",
        new="return size",
        breaks="forty connections with four bytes each take more than a gigabyte",
    ),
    "budgets-are-words": Switch(
        "bookkeeper.rpc.frames.budget",
        "Budget.take",
        old="if counted + size > limit:",
        new="if False:",
        breaks="a holder of a secret fills the memory of a process with incomplete frames",
    ),
    "each-batch-has-its-own-budget": Switch(
        "bookkeeper.tserver.write.decompression",
        "DecompressionBudget.admit",
        old="if self._bytes > self._limits.message_bytes_max:",
        new="if False:",
        breaks="a message of a few kilobytes takes gigabytes, in many batches",
    ),
    "slots-are-acquired-last": Switch(
        "bookkeeper.tserver.receive.message_admission",
        "MessageAdmission.open_stream",
        old="token = self._streams.open(stream, peer)",
        new="""
        self._index.announce(stream)
        token = self._streams.open(stream, peer)
        """,
        breaks="a peer that has no place left fills the books with streams",
    ),
    "rights-come-last": Switch(
        "bookkeeper.rpc.dispatch",
        "refuse_unauthorized_call",
        old="if secret is not None and method != HELLO:",
        new="if False:",
        breaks="arguments are received and parsed for callers that may not make the call",
    ),
}
