"""What happens to a replica: the inputs of ``decide``."""

from __future__ import annotations

from dataclasses import dataclass

from bookkeeper.replicas.instructions import Name
from bookkeeper.replicas.messages import Offer, Purpose, Reply
from bookkeeper.replicas.values import Placement, Positions, Target


@dataclass(frozen=True, slots=True)
class Wrote:
    """Memory has records now."""


@dataclass(frozen=True, slots=True)
class Flushed:
    """Memory was written to files, which are durable."""

    files: tuple[str, ...]
    logs: Positions = ()
    """What the new state has of the logs."""
    segment_id: int | None = None
    """None: the machine gives the id."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """Segments were folded into files, which are durable."""

    inputs: tuple[int, ...]
    files: tuple[str, ...]
    segment_id: int | None = None
    replaced: tuple[str, ...] | None = None
    """The files of the root's list whose records these files have; None: all files of the inputs. A host that merges
    files of similar sizes takes the whole live chain for the inputs and says here which files it has merged.
    """


@dataclass(frozen=True, slots=True)
class Adopted:
    """Files of an import are durable on this host, and the leader takes them into its tablet."""

    number: int
    """The import. A state that has it takes it no second time."""
    files: tuple[str, ...]
    segment_id: int | None = None


@dataclass(frozen=True, slots=True)
class OfferArrived:
    """A SEGMENT_OFFER."""

    offer: Offer


@dataclass(frozen=True, slots=True)
class ContentArrived:
    """All content of an accepted segment is durable on this host."""

    segment_id: int
    sender: str


@dataclass(frozen=True, slots=True)
class ContentFailed:
    """The content of an accepted segment does not come."""

    segment_id: int
    sender: str


@dataclass(frozen=True, slots=True)
class ReplyArrived:
    """A receiver answers an offer, or the connection ends."""

    target: str
    reply: Reply
    purpose: Purpose = Purpose.ONE


@dataclass(frozen=True, slots=True)
class OfferOne:
    """Offer one segment to a host."""

    target: str
    segment_id: int


@dataclass(frozen=True, slots=True)
class ReplicateTo:
    """The leader's turn to serve a target (E-34)."""

    target: str
    named_id: int | None = None
    """The state that the newest term has named, see ``settled``: the child of a split gets nothing beyond it."""


@dataclass(frozen=True, slots=True)
class FollowerRun:
    """The follower's turn: delete or push (E-40, E-41)."""


@dataclass(frozen=True, slots=True)
class LeaderRun:
    """The leader's turn to look after its own list (E-33)."""


@dataclass(frozen=True, slots=True)
class LeaderNamed:
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


@dataclass(frozen=True, slots=True)
class TargetsChanged:
    """The tablet's row names other replicas."""

    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Collect:
    """The host's turn to delete files."""

    named_id: int | None
    named_list: tuple[str, ...] = ()
    read: frozenset[str] = frozenset()
    """Files that a page reads."""
    given_up: frozenset[int] = frozenset()
    """Terms of given-up logs whose tails have not been merged."""


@dataclass(frozen=True, slots=True)
class FilesDamaged:
    """Files that the replica held are not what they were: a checksum differs, or they are gone."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FilesMended:
    """Sound copies of damaged files are durable under their names."""

    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CopyDamaged:
    """Another placement says that its copy of a file is damaged."""

    placement: Placement
    file: str


@dataclass(frozen=True, slots=True)
class NameDue:
    """The leader's turn to name its newest state that may be named."""

    voters: tuple[Placement, ...]
    copies_min: int
    named_id: int | None


@dataclass(frozen=True, slots=True)
class Restarted:
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
