"""The compaction of a table: orders to the tservers of its tablets, and a ticket for each tablet that is not done.

A client repeats its request with the tickets until none remains. This works across changes of the master, of a tablet's
tserver, and across splits and merges, because a tablet's row in the books shows its finished compactions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bookkeeper.errors import TransientError
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import CompactionTicket, CompactRequest, TabletLocation
from bookkeeper.rpc.contract.services import TServer


def compact(
    request: CompactRequest, locations: Iterable[TabletLocation], tserver_at: Callable[[str], TServer]
) -> list[CompactionTicket]:
    """Order the compaction of each tablet of a request; return the tickets of tablets that are not done or could not be
    reached. Raises PermanentError.
    """
    remaining = []
    for location in locations:
        ticket = ticket_of(request, location.extent)
        if ticket is not None:
            remaining += order_compaction(location, ticket, tserver_at)
    return remaining


def order_compaction(
    location: TabletLocation, ticket: int, tserver_at: Callable[[str], TServer]
) -> list[CompactionTicket]:
    """Order the compaction of one tablet; return its ticket, or nothing if it is done. Raises PermanentError."""
    if location.address is not None:
        try:
            ticket = tserver_at(location.address).compact_tablet(location.extent, ticket)
        except TransientError:
            return [CompactionTicket(location.extent, ticket)]
        if not ticket:
            return []
    return [CompactionTicket(location.extent, ticket)]


def ticket_of(request: CompactRequest, extent: Extent) -> int | None:
    """The ticket for a tablet: 0 = a new compaction, None = the tablet is done or not part of the request. After a
    split or merge the highest ticket of the overlapping former tablets counts, or 0 if one has 0.
    """
    if not request.tickets:
        return 0 if holds_rows(extent, request.begin_row, request.end_row) else None
    tickets = [former.ticket for former in request.tickets if overlap(former.extent, extent)]
    if not tickets:
        return None
    return 0 if 0 in tickets else max(tickets)


def holds_rows(extent: Extent, begin_row: bytes | None, end_row: bytes | None) -> bool:
    """Whether a row from ``begin_row`` to ``end_row`` (None = no end) lies in the tablet."""
    too_low = begin_row is not None and extent.end_row is not None and extent.end_row < begin_row
    too_high = end_row is not None and extent.prev_row is not None and extent.prev_row >= end_row
    return not (too_low or too_high)


def overlap(one: Extent, other: Extent) -> bool:
    """Whether two tablets share a row."""
    return begins_before_end(one, other) and begins_before_end(other, one)


def begins_before_end(one: Extent, other: Extent) -> bool:
    """Whether ``one`` begins before the end of ``other``."""
    return one.prev_row is None or other.end_row is None or one.prev_row < other.end_row
