"""A leader's word that its newest state lacks nothing until now: the copies of a tablet that nobody writes stay young.

The time is taken first, then the state is compared, then the lease is checked. A record that was acknowledged before
that time was numbered before the comparison. While the lease is valid no other host has led the tablet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.replicas.values import Target
from bookkeeper.rpc.contract.messages import StateConfirmation
from bookkeeper.tserver.leading.leader_chain import LeaderChain
from bookkeeper.tserver.replicas.wire_forms import placement_message

CONFIRM_MS = 2_000
"""ms between two confirmations of a state to one host. A copy that nobody writes looks at most so old, and one call."""

TOGETHER_MS = 1_000
"""A confirmation that is due after so long goes with one that is due now: so tablets come to share their calls."""

CONFIRMATIONS_AT_ONCE = 1_024
"""Most confirmations in one call. While some are left, the next call comes 250 ms later: 8,192 copies stay as young."""

OFFERS_AT_ONCE = 16
"""Most offers to one host of states that it could not confirm, such as after its restart, before its lane looks for new
segments again: each costs the lane a call.
"""


class Confirmation(Struct, frozen=True):
    """The state has every write that was acknowledged until ``as_of_ms`` of the leader's wall clock."""

    state_id: int
    as_of_ms: int


def next_to_confirm(rows: Iterable[bytes], confirmed_ns: Mapping[bytes, int], now_ns: int) -> list[bytes]:
    """The rows of the tablets whose turn it is, or is soon: those that waited longest, and a part of many.
    ``confirmed_ns``: when each had its last turn (boot clock); a row without one goes first.
    """
    latest_ns = now_ns - (CONFIRM_MS - TOGETHER_MS) * 1_000_000
    waiting = [row for row in rows if confirmed_ns.get(row, -math.inf) <= latest_ns]
    return sorted(waiting, key=lambda row: confirmed_ns.get(row, -math.inf))[:CONFIRMATIONS_AT_ONCE]


def next_look_ns(rows: Iterable[bytes], confirmed_ns: Mapping[bytes, int], now_ns: int) -> int:
    """The time of the next turn of these rows, or of others that come meanwhile; one without a turn has it now."""
    first_ns = min((confirmed_ns.get(row, 0) for row in rows), default=now_ns)
    return first_ns + CONFIRM_MS * 1_000_000


def confirmation_message(chain: LeaderChain, target: Target, confirmation: Confirmation) -> StateConfirmation:
    """The confirmation for the host that has the state."""
    key = chain.held.key
    return StateConfirmation(
        key.table_id,
        key.directory,
        placement_message(target.host, target.placement),
        chain.tablet.serial,
        confirmation.state_id,
        confirmation.as_of_ms,
    )


def confirmation_of(chain: LeaderChain, clock: Clock, has_lease: Callable[[], bool]) -> Confirmation | None:
    """The confirmation of a led tablet's newest state; None while a record is in memory alone, or without the lease."""
    as_of_ms = clock.wall_ms()
    state_id = chain.complete_state()
    # After the loss of the lease another host may lead, with newer writes.
    if state_id is None or not (chain.leads and has_lease()):
        return None
    return Confirmation(state_id, as_of_ms)
