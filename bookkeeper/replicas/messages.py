"""What replicas say to each other (E-68 to E-72), without the frames that carry content."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from bookkeeper.replicas.values import Placement, Segment


class Reason(Enum):
    """Why a receiver declines (E-70)."""

    SEGMENT_EXISTS = "SEGMENT_EXISTS"
    OVERLOADED = "OVERLOADED"
    INVALID = "INVALID"
    INFLIGHT = "INFLIGHT"
    OUT_OF_ORDER = "OUT_OF_ORDER"


class Purpose(Enum):
    """The procedure in which a sender offers a segment; the answer continues it."""

    ONE = "one"
    """Only this segment."""
    REPLICATE = "replicate"
    """A leader serves a target."""
    PUSH = "push"
    """A follower pushes to its leader."""


class Offer(Struct, frozen=True):
    """SEGMENT_OFFER (E-68)."""

    sender: str
    placement: Placement
    """The sender's, which the receiver notes as acknowledged when the sender leads (E-46)."""
    segment: Segment
    term: int | None = 0
    """The newest term that the sender has heard of; None to the child of a split, which has terms of its own."""
    leader: str | None = None
    """The leader of that term, as the sender knows it."""


class Accept(Struct, frozen=True):
    """SEGMENT_ACCEPT (E-69), with the files that the receiver needs."""

    segment_id: int
    placement: Placement
    need: tuple[str, ...] = ()


class Decline(Struct, frozen=True):
    """SEGMENT_DECLINE (E-70), with the receiver's root."""

    segment_id: int
    placement: Placement
    reason: Reason
    root: int | None = None


class Ack(Struct, frozen=True):
    """The last SEGMENT_ACK (E-72): the receiver has the segment durably."""

    segment_id: int
    placement: Placement
    root: int | None = None


class Failed(Struct, frozen=True):
    """An error in place of an answer (E-39): a receiver that is away, a connection that ends."""

    segment_id: int


Reply = Accept | Decline | Ack | Failed
