"""The time limit of a write to the books in flight (rule R4): after it, a write of a dead process arrives no more."""

from __future__ import annotations

from bookkeeper.config.sections import Settings


def books_flight_ms(settings: Settings) -> int:
    """Rule R4: an upper bound for a write in flight: twice the lease and the margin, and a store's last retry."""
    coordination = settings.coordination
    return 2 * (coordination.session_lease_ms + coordination.session_margin_ms) + 60_000
