"""How long a write to the books may be on its way (rule R4).

Arrives: the settings. Leaves: a time after which what a dead process began to write has arrived, or never will.
"""

from __future__ import annotations

from bookkeeper.config import Settings


def books_flight_ms(settings: Settings) -> int:
    """Rule R4: longer than any write to the books can be in flight: a lease, the margin, and a store's last retry."""
    coordination = settings.coordination
    return 2 * (coordination.session_lease_ms + coordination.session_margin_ms) + 60_000
