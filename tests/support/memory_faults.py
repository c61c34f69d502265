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
}
