"""What happens to a replica: the inputs of ``decide``."""

from __future__ import annotations

from msgspec import Struct

from bookkeeper.replicas.instructions import Name
from bookkeeper.replicas.messages import Offer, Purpose, Reply
from bookkeeper.replicas.values import Placement, Positions, Target


class Wrote(Struct, frozen=True):
    """Memory has records now."""


class Flushed(Struct, frozen=True):
    """Memory was written to files, which are durable."""

    files: tuple[str, ...]
    logs: Positions = ()
    """What the new state has of the logs."""
    segment_id: int | None = None
    """None: the machine gives the id."""


class Compacted(Struct, frozen=True):
    """Segments were folded into files, which are durable."""

    inputs: tuple[int, ...]
    files: tuple[str, ...]
    segment_id: int | None = None
    replaced: tuple[str, ...] | None = None
    """The files of the root's list whose records these files have; None: all files of the inputs. A host that merges
    files of similar sizes takes the whole live chain for the inputs and says here which files it has merged.
    """


class Adopted(Struct, frozen=True):
    """Files of an import are durable on this host, and the leader takes them into its tablet."""

    number: int
    """The import. A state that has it takes it no second time."""
    files: tuple[str, ...]
    segment_id: int | None = None


class OfferArrived(Struct, frozen=True):
    """A SEGMENT_OFFER."""

    offer: Offer


class ContentArrived(Struct, frozen=True):
    """All content of an accepted segment is durable on this host."""

    segment_id: int
    sender: str


class ContentFailed(Struct, frozen=True):
    """The content of an accepted segment does not come."""

    segment_id: int
    sender: str


class ReplyArrived(Struct, frozen=True):
    """A receiver answers an offer, or the connection ends."""

    target: str
    reply: Reply
    purpose: Purpose = Purpose.ONE


class OfferOne(Struct, frozen=True):
    """Offer one segment to a host."""

    target: str
    segment_id: int


class ReplicateTo(Struct, frozen=True):
    """The leader's turn to serve a target (E-34)."""

    target: str
    named_id: int | None = None
    """The state that the newest term has named, see ``settled``: the child of a split gets nothing beyond it."""


class FollowerRun(Struct, frozen=True):
    """The follower's turn: delete or push (E-40, E-41)."""


class LeaderRun(Struct, frozen=True):
    """The leader's turn to look after its own list (E-33)."""


class LeaderNamed(Struct, frozen=True):
    """The election names a leader (E-19); for the leader itself, with what its term begins from.

    The leader begins from the named state and has replayed the logs behind it, so what it holds beyond that state is
    covered (N6). ``decide`` raises ProtocolError if the leader may not lead or lacks a file of the named state.
    """

    leader: str | None
    term: int = 0
    named: Name | None = None
    """The state that the books name now; None before the first name."""
    replayed: Positions = ()
    """For each log: up to which offset the named state and the replay have its records."""
    given_up: Positions = ()
    """For each given-up log: the offset from which its records are missing."""


class TargetsChanged(Struct, frozen=True):
    """The tablet's row names other replicas."""

    targets: tuple[Target, ...]


class Collect(Struct, frozen=True):
    """The host's turn to delete files."""

    named_id: int | None
    named_list: tuple[str, ...] = ()
    read: frozenset[str] = frozenset()
    """Files that a page reads."""
    given_up: frozenset[int] = frozenset()
    """Terms of given-up logs whose tails have not been merged."""


class FilesDamaged(Struct, frozen=True):
    """Files that the replica held are not what they were: a checksum differs, or they are gone."""

    files: tuple[str, ...]


class FilesMended(Struct, frozen=True):
    """Sound copies of damaged files are durable under their names."""

    files: tuple[str, ...]


class CopyDamaged(Struct, frozen=True):
    """Another placement says that its copy of a file is damaged."""

    placement: Placement
    file: str


class NameDue(Struct, frozen=True):
    """The leader's turn to name its newest state that may be named."""

    voters: tuple[Placement, ...]
    copies_min: int
    named_id: int | None


class Restarted(Struct, frozen=True):
    """The process died and came back: memory and transfers are gone, the list is not."""


Event = (
    Wrote
    | Flushed
    | Compacted
    | Adopted
    | OfferArrived
    | ContentArrived
    | ContentFailed
    | ReplyArrived
    | OfferOne
    | ReplicateTo
    | FollowerRun
    | LeaderRun
    | LeaderNamed
    | TargetsChanged
    | Collect
    | FilesDamaged
    | FilesMended
    | CopyDamaged
    | NameDue
    | Restarted
)
