"""Numbers about peers that came back in an older state, in the source's coordination store.

A master leaves *check-ins* at a peer (``bookkeeper.master.cycle.check_ins``) and remembers the last one that the peer
confirmed. A tserver that finds acknowledged records missing at a peer notes it here: the time after which the peer
acknowledged what it lacks. Both survive every process. A number only rises, so a time is noted as what is left of it to
:data:`NUMBER_MAX`: of several findings the earliest time stays.
"""

from __future__ import annotations

from bookkeeper.coordination.coordination_protocol import Coordination

NUMBER_MAX = 2**62

CONFIRMED, CONFIRMED_TARGETS = "check-in:confirmed:", "check-in:targets:"
"""Names, before the peer's instance id: the last number that the peer confirmed, and the greatest incarnation of a
target then.
"""

LOST, LOST_TARGETS = "check-in:lost:", "check-in:lost-targets:"
"""Names, before the peer's instance id: what a tserver found, and the greatest incarnation that it is about. The first
one has that incarnation at its end, so that a finding about earlier targets does not make a later one older.
"""


def confirmed_ms(coordination: Coordination, instance_id: str) -> int:
    """The time of the last check-in that a peer confirmed; 0 = none. A state of the peer with this check-in has all
    records that the peer acknowledged before.
    """
    return coordination.number(CONFIRMED + instance_id)


def note_lost(coordination: Coordination, instance_id: str, since_ms: int, incarnation: int) -> None:
    """A peer lacks records that it acknowledged after a time. ``incarnation``: of the target for which that was found;
    the finding is about all targets that were there at the last check-in, too.
    """
    newest = max(incarnation, coordination.number(CONFIRMED_TARGETS + instance_id))
    coordination.raise_number(_name(instance_id, newest), NUMBER_MAX - since_ms)
    coordination.raise_number(LOST_TARGETS + instance_id, newest)


def lost_since(coordination: Coordination, instance_id: str) -> tuple[int, int] | None:
    """The time of :func:`note_lost`, and the greatest incarnation that it is about; None = nothing was found."""
    newest = coordination.number(LOST_TARGETS + instance_id)
    return (NUMBER_MAX - coordination.number(_name(instance_id, newest)), newest) if newest else None


def _name(instance_id: str, incarnation: int) -> str:
    return f"{LOST}{instance_id}:{incarnation}"
