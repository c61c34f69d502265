"""Broken variants of what a client remembers and calls bring: name, module, attribute, variant, what it breaks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CLIENT_FAULTS: dict[str, tuple[str, str, Callable[..., Any], str]] = {
    "memory-is-the-last-word": (
        "bookkeeper.client.location_cache",
        "is_stale_location",
        lambda error: False,  # noqa: ARG005
        "a client that remembers where a tablet was fails, though the master knows where it is",
    ),
    "connect-asks-once": (
        "bookkeeper.client.master_link",
        "MasterLink.wait_for_leader",
        lambda link, budget_ms: link.find_leader(),  # noqa: ARG005
        "a client that begins in the second of a master's restart fails, though a connected one goes on",
    ),
    "records-are-lent": (
        "bookkeeper.rpc.frames.wire",
        "own_copy",
        lambda view: view,
        "records that were acknowledged become those of the next call on the connection",
    ),
    "a-name-is-one-table-for-ever": (
        "bookkeeper.client.scanner",
        "is_of_another_table",
        lambda scanned, table_id: False,  # noqa: ARG005
        "one scan shows the cells of two tables, of which the first was deleted",
    ),
}
