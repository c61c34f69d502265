"""The time limit of a write to the books in flight (rule R4): after it, a write of a dead process arrives no more."""

from __future__ import annotations

from bookkeeper.config.sections import Settings

LAST_RETRY_MS = 60_000
"""A store's last retry of a write, where the store is not HBase behind a gateway of our own."""

GATEWAY_OPERATION_MS = 12_000
"""The host's own gateway gives up an operation of its HBase client after this time."""

GATEWAY_RPC_MS = 10_000
"""And one try after this time."""

GATEWAY_UNCONFIRMED_MS = 10_000
"""The kernel gives up the gateway's connection to a region server that confirms no packet for this time."""

GATEWAY_LOOK_MS = 2_000
"""The supervisor looks at its gateway at least as often; half of this time is the wait for the answer."""


def books_flight_ms(settings: Settings) -> int:
    """Rule R4: an upper bound for a write in flight.

    - A process that stands still has sent its last write after the lease and the margin, and its end is known after as
      long again.
    - A gateway of our own that stands still is ended after :func:`gateway_silence_ms`, at the next look; one that goes
      on before does so for at most one operation. Its kernel sends a write into a link that is cut again, for
      :data:`GATEWAY_UNCONFIRMED_MS`, even if the gateway has ended. A foreign gateway has a minute, and nobody may
      stop it for longer.
    - A region server that stands still applies what lies in its sockets when it goes on, unless its session is over:
      then HBase has fenced its log.
    """
    writer_ms = 2 * gateway_silence_ms(settings)
    if settings.hbase_quorum:
        gateway_ms = gateway_silence_ms(settings) + GATEWAY_LOOK_MS + GATEWAY_OPERATION_MS + GATEWAY_UNCONFIRMED_MS
        return writer_ms + gateway_ms + settings.metadata.region_session_ms
    region_ms = settings.metadata.region_session_ms if settings.metadata_url.startswith("hbase:") else 0
    return writer_ms + LAST_RETRY_MS + region_ms


def gateway_silence_ms(settings: Settings) -> int:
    """The lease and the margin: so long may a process, or a gateway of our own, stand still before it is ended."""
    return settings.coordination.session_lease_ms + settings.coordination.session_margin_ms
