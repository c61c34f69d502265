"""Having a table compacted: which tablets are to be asked, and which are left to wait for.

Arrives: a request, where the tablets are. Leaves: orders to tservers, and a ticket for each tablet that is not done.
Survives a crash: what a tablet has done, in its row; a caller goes on with its tickets, whoever leads and whoever holds
a tablet then.
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
    """Ask each tablet of a request; what could not be asked gets a ticket too. Raises PermanentError."""
    left = []
    for location in locations:
        ticket = ticket_of(request, location.extent)
        if ticket is not None:
            left += ask(location, ticket, tserver_at)
    return left


def ask(location: TabletLocation, ticket: int, tserver_at: Callable[[str], TServer]) -> list[CompactionTicket]:
    """Ask one tablet; nothing when it is done."""
    if location.address is not None:
        try:
            ticket = tserver_at(location.address).compact_tablet(location.extent, ticket)
        except TransientError:
            return [CompactionTicket(location.extent, ticket)]
        if not ticket:
            return []
    return [CompactionTicket(location.extent, ticket)]


def ticket_of(request: CompactRequest, extent: Extent) -> int | None:
    """What to ask a tablet with: 0 = anew; None: it is not part of the request, or done. After a split or merge the
    tickets of all tablets that it shares rows with count.
    """
    if not request.tickets:
        return 0 if holds_rows(extent, request.begin_row, request.end_row) else None
    tickets = [given.ticket for given in request.tickets if overlap(given.extent, extent)]
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
