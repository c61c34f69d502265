"""Fault switches of the client: its caches, its retries and the records that a call returns (see ``faults``)."""

from __future__ import annotations

from bookkeeper.client import location_cache, scanner, stale_choice
from bookkeeper.client.master_link import MasterLink
from bookkeeper.rpc.frames import wire
from tests.support.replacement import Fault

CLIENT_FAULTS: dict[str, Fault] = {
    "memory-is-the-last-word": Fault(
        location_cache.is_stale_location,
        lambda error: False,  # noqa: ARG005
        "a client that remembers where a tablet was fails, though the master knows where it is",
    ),
    "connect-asks-once": Fault(
        MasterLink.wait_for_leader,
        lambda link, budget_ms: link.find_leader(),  # noqa: ARG005
        "a client that begins in the second of a master's restart fails, though a connected one goes on",
    ),
    "records-are-lent": Fault(
        wire.own_copy,
        lambda view: view,
        "records that were acknowledged become those of the next call on the connection",
    ),
    "followers-behind-the-leader": Fault(
        stale_choice.may_ask_followers,
        lambda stale_ms, is_first_page, state_id: stale_ms is not None,  # noqa: ARG005
        "a page of a follower is older than the leader's page before it",
    ),
    "a-name-is-one-table-for-ever": Fault(
        scanner.is_of_another_table,
        lambda scanned, table_id: False,  # noqa: ARG005
        "one scan shows the cells of two tables, of which the first was deleted",
    ),
}
