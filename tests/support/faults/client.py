"""Fault switches of the client: its caches, its retries and the records that a call returns."""

from __future__ import annotations

from tests.support.faults.switch import Switch

CLIENT: dict[str, Switch] = {
    "memory-is-the-last-word": Switch(
        "bookkeeper.client.location_cache",
        "is_stale_location",
        old="return isinstance(error, TransientError | IncompatibleError) or UNREACHED in error.details",
        new="return False",
        breaks="a client that remembers where a tablet was fails, though the master knows where it is",
    ),
    "connect-asks-once": Switch(
        "bookkeeper.client.master_link",
        "MasterLink.wait_for_leader",
        old='return retrying(self._clock, self._rng, self._stopped, budget_ms, "leader")(self.find_leader)',
        new="return self.find_leader()",
        breaks="a client that begins in the second of a master's restart fails, though a connected one goes on",
    ),
    "records-are-lent": Switch(
        "bookkeeper.rpc.frames.wire",
        "own_copy",
        old="if len(view) < LARGE_BYTES:",
        new="""
        return view
        if len(view) < LARGE_BYTES:
        """,
        breaks="records that were acknowledged become those of the next call on the connection",
    ),
    "followers-behind-the-leader": Switch(
        "bookkeeper.client.stale_choice",
        "may_ask_followers",
        old="return stale_ms is not None and (is_first_page or state_id is not None)",
        new="return stale_ms is not None",
        breaks="a page of a follower is older than the leader's page before it",
    ),
    "a-name-is-one-table-for-ever": Switch(
        "bookkeeper.client.scanner",
        "Scanner._page",
        old="if position.table_id not in (None, extent.table_id):",
        new="if False:",
        breaks="one scan shows the cells of two tables, of which the first was deleted",
    ),
}
