"""Up to when the server times in a host's logs may go: a number in the coordination store, which only rises.

A host may be lost with a log that its tablets give up (``table.failover``). Nobody can read the times in that log,
and the clock of the host may have been ahead. So a tserver raises the number before it gives a record a higher time,
and the next leader of the tablet begins above it (rule N7).
"""

from __future__ import annotations

from collections.abc import Iterable

from bookkeeper.coordination.coordination_protocol import Coordination, Session


def raise_times(coordination: Coordination, session: Session, host: str, time_ms: int) -> None:
    """Let the server times of this process go up to ``time_ms`` (ms since 1970). Raises LeaseLostError when the session
    may have been over before the number was there, since a next leader may have read it by then; TransientError.
    """
    coordination.raise_number(name_of(host), time_ms)
    coordination.confirm(session)


def times_of(coordination: Coordination, session: Session, hosts: Iterable[str]) -> int:
    """The highest server time (ms since 1970) that a log of these hosts may have, for hosts whose sessions ended before
    this call; 0 = none. Raises LeaseLostError, TransientError.
    """
    names = sorted(map(name_of, hosts))
    if not names:
        return 0
    coordination.confirm(session)  # a server that lags behind has the numbers of then
    return max(map(coordination.number, names))


def name_of(host: str) -> str:
    """The name of the number in the store."""
    return f"times/{host}"
