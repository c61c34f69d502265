"""What a replica has to do: the outputs of ``decide``. The caller makes the new replica durable first."""

from __future__ import annotations

from msgspec import Struct

from bookkeeper.replicas.messages import Offer, Purpose, Reply
from bookkeeper.replicas.values import Positions, Segment


class Send(Struct, frozen=True):
    """Send an offer; its answer comes back with the same purpose."""

    target: str
    offer: Offer
    purpose: Purpose


class Transit(Struct, frozen=True):
    """Send the content of an accepted segment (E-71)."""

    target: str
    segment: Segment
    need: tuple[str, ...]
    purpose: Purpose


class Answer(Struct, frozen=True):
    """Answer a sender."""

    target: str
    reply: Reply


class Abandon(Struct, frozen=True):
    """Tell a receiver that the content of an accepted segment does not come: the sender has deleted it meanwhile."""

    target: str
    segment_id: int


class Merge(Struct, frozen=True):
    """Write the rows of a segment like new writes (E-26); then it counts as memory."""

    segment: Segment
    present_in: tuple[str, ...]
    """Rows in these files, and in memory, may be left out (P4)."""
    by_origin: bool
    """Records whose origin the tablet has are left out (N6)."""
    has_imports: bool
    """Whether records of imports are taken. Of an earlier term they are not: the import comes again by itself."""


class FlushMemory(Struct, frozen=True):
    """Flush memory into a segment now (P9)."""


class Delete(Struct, frozen=True):
    """Delete files from the disk; the replica no longer has them."""

    files: tuple[str, ...]


class Name(Struct, frozen=True):
    """Write into the books that this state is the tablet's: ``tablet:flush``."""

    state_id: int
    files: tuple[str, ...]
    logs: Positions
    term: int = 0
    """The term whose leader names it; in the child of a split, the id may be of a term of the parent."""


class Restart(Struct, frozen=True):
    """A target declined with OUT_OF_ORDER, and replication to it begins again (E-37)."""

    target: str
    times: int
    """How often since the target last took a segment."""


Instruction = Send | Transit | Abandon | Answer | Merge | FlushMemory | Delete | Name | Restart
Decision = tuple[Instruction, ...]
