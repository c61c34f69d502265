"""Broken variants of what bounds memory (see ``faults``): name, module, attribute, variant, what it breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bookkeeper.storage.wal.ipc_message import MessageForm

MEMORY_FAULTS: dict[str, tuple[str, str, Callable[..., Any], str]] = {
    "any-form-of-message-will-do": (
        "bookkeeper.storage.wal.block",
        "read_form",
        lambda message: MessageForm(0, len(message), is_compressed=False),
        "issue 15: a few kilobytes of an older form of Arrow's messages take gigabytes",
    ),
    "memory-for-what-is-announced": (
        "bookkeeper.rpc.frames",
        "grown_bytes",
        lambda has_bytes, size: size,  # noqa: ARG005
        "forty connections with four bytes each take more than a gigabyte",
    ),
    "budgets-are-words": (
        "bookkeeper.rpc.budget",
        "exceeds",
        lambda held_bytes, more_bytes, limit_bytes: False,  # noqa: ARG005
        "whoever has a secret fills the memory of a process with frames that are never whole",
    ),
    "rights-come-last": (
        "bookkeeper.rpc.dispatch",
        "refuse_stranger",
        lambda service, method, conversation: None,  # noqa: ARG005
        "arguments are received and parsed for callers who may not make the call",
    ),
}
