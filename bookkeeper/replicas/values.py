"""The values of the machine: segments, what a replica holds, what it believes. Immutable; content is opaque."""

from __future__ import annotations

from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.errors import PermanentError

TERM_SHIFT = 32
"""A state id is ``(term << TERM_SHIFT) + n``: totally ordered, and unique for ever (E-24)."""

INCOMING_MAX = 4
"""MAX_REPL_INCOMING_SEGMENTS where a replica names no limit. The document gives no value."""


class ProtocolError(PermanentError):
    """A caller asks the machine for a step that the replica's state does not allow."""

    code = "replica_protocol"


def term_of(segment_id: int) -> int:
    """The term in which a segment was made."""
    return segment_id >> TERM_SHIFT


def state_id(term: int, number: int) -> int:
    """The id of a term's state."""
    return (term << TERM_SHIFT) + number


class Stage(Enum):
    """The stage of a replica's life."""

    LOADING = "LOADING"
    """A child of a split that gets its data. It has a leader."""
    JOINING = "JOINING"
    """A new replica that gets its data. It never leads (E-23)."""
    LIVE = "LIVE"
    UNLOAD = "UNLOAD"
    """The tablet has split. No writes, no leader; each replica hands its data to the children (E-64)."""
    UNLOAD_FINAL = "UNLOAD_FINAL"
    """All children have all data: the replica may be deleted (E-66)."""


class Placement(Struct, frozen=True, order=True):
    """One assignment of a tablet to a host (E-52), and the incarnation of the host's disk (P10)."""

    id: str
    incarnation: str = "1"


class KeyRange(Struct, frozen=True):
    """Keys from ``begin``, inclusive, to ``end``, exclusive; None is without a border."""

    begin: str | None = None
    end: str | None = None

    def has(self, key: str) -> bool:
        """Whether a key is in the range."""
        return (self.begin is None or key >= self.begin) and (self.end is None or key < self.end)


EVERYTHING = KeyRange()

Positions = tuple[tuple[int, int], ...]
"""For each source of records: up to which offset a state has them. A log is named by its term, an import by
:func:`import_source`. Ascending.
"""


def import_source(number: int) -> int:
    """The name of an import among the sources of a state: a state has it whole, or not at all."""
    return -number


def joined_positions(one: Positions, other: Positions) -> Positions:
    """The positions of a state that has the records of both."""
    found = dict(one)
    for source, offset in other:
        found[source] = max(found.get(source, 0), offset)
    return tuple(sorted(found.items()))


def has_positions(positions: Positions, wanted: Positions) -> bool:
    """Whether a state with these positions has all the records up to the wanted ones."""
    held = dict(positions)
    return all(held.get(log, 0) >= offset for log, offset in wanted)


class Segment(Struct, frozen=True):
    """One step of a tablet's data (E-11)."""

    id: int
    base: int | None
    is_major: bool = False
    included: tuple[int, ...] = ()
    """Ids that were folded into it, newest first (E-16)."""
    files: tuple[str, ...] = ()
    """The files that it brings."""
    retained: tuple[str, ...] = ()
    """The earlier files that count beside its own."""
    logs: Positions = ()
    """What its list has of the logs."""

    @property
    def list(self) -> tuple[str, ...]:
        """All files of the state after this segment, as written when it was made (N2)."""
        return self.retained + self.files


class Entry(Struct, frozen=True):
    """A segment in a replica's list, with the placements that have acknowledged it."""

    segment: Segment
    acked: frozenset[Placement] = frozenset()


class Target(Struct, frozen=True):
    """A replica that should have this replica's segments; a child of a split has a key range (E-58)."""

    host: str
    placement: Placement
    key_range: KeyRange | None = None
    term: int = 0
    """Of a child: the term of its leader. A new term may have to get again the segments that an earlier one took."""


class Step(Enum):
    """How a receiver takes a segment."""

    FAST_FORWARD = "fast-forward"
    MERGE = "merge"


class Incoming(Struct, frozen=True):
    """A segment that a replica has accepted and whose content is under way."""

    segment: Segment
    sender: str
    step: Step
    is_from_parent: bool = False
    """It comes from the tablet that split into this one, whose terms are others."""


class Replica(Struct, frozen=True):
    """What one host knows of its replica of one tablet. The caller makes it durable before it follows instructions."""

    host: str
    placement: Placement
    stage: Stage = Stage.LIVE
    root: int | None = None
    entries: tuple[Entry, ...] = ()
    """The segment list, in the order of arrival."""
    files: frozenset[str] = frozenset()
    """The files on this host's disk."""
    damaged: frozenset[str] = frozenset()
    """The files of its list whose bytes on the disk are wrong: they are not held until they are mended."""
    leader: str | None = None
    """The host that this replica takes for the leader."""
    term: int = 0
    """The newest term that it has heard of."""
    led: int = 0
    """The term that it leads, or the last one that it led: its new ids are of this term."""
    made: int = 0
    """How many segments it made in that term."""
    has_memory: bool = False
    """It has records that are in no segment."""
    incoming: tuple[Incoming, ...] = ()
    incoming_max: int = INCOMING_MAX
    targets: tuple[Target, ...] = ()
    """The other replicas of the tablet, and the leaders of its children while it splits."""
    merged: tuple[int, ...] = ()
    """Ids that it merged as this leader, newest first, for its next major (P3)."""
    declined: tuple[tuple[str, int], ...] = ()
    """Per target: how often it said OUT_OF_ORDER since it last took a segment (P1)."""
    replayed: Positions = ()
    """What the term that it leads has replayed (N1)."""
    named: int | None = None
    """The newest named state that the leader knows of: the children of a split get nothing beyond it."""
    given_up: Positions = ()
    """Logs that were given up: their terms, and the offset from which their records are missing (N6)."""

    @property
    def is_leader(self) -> bool:
        """Whether it takes itself for the leader."""
        return self.leader == self.host and self.stage is not Stage.UNLOAD

    def entry(self, segment_id: int | None) -> Entry | None:
        """The newest entry of this id."""
        return next((entry for entry in reversed(self.entries) if entry.segment.id == segment_id), None)

    def held(self, segment_id: int) -> Entry:
        """The newest entry of this id. Raises ProtocolError if there is none."""
        entry = self.entry(segment_id)
        if entry is None:
            raise ProtocolError(f"{self.host} has no segment {segment_id}: name one that its list has")
        return entry

    def target(self, host: str) -> Target:
        """The target on a host. Raises ProtocolError if there is none."""
        for target in self.targets:
            if target.host == host:
                return target
        raise ProtocolError(f"{host} is no target of {self.host}: add it to the targets first")


def is_acked(entry: Entry, placement: Placement, by_incarnation: bool) -> bool:
    """Whether a placement has acknowledged an entry; by its id alone where incarnations do not count (E-52, P10)."""
    if by_incarnation:
        return placement in entry.acked
    return any(acked.id == placement.id for acked in entry.acked)


def with_ack(replica: Replica, segment_id: int, placement: Placement) -> Replica:
    """The replica after an acknowledgement of a segment (E-35, E-38)."""
    return replace(
        replica,
        entries=tuple(
            replace(entry, acked=entry.acked | {placement}) if entry.segment.id == segment_id else entry
            for entry in replica.entries
        ),
    )


def without_acks(replica: Replica, placement: Placement) -> Replica:
    """The replica without any acknowledgement of a placement (E-37)."""
    return replace(
        replica,
        entries=tuple(
            replace(entry, acked=frozenset(acked for acked in entry.acked if acked.id != placement.id))
            for entry in replica.entries
        ),
    )


def without_entry(replica: Replica, segment_id: int) -> Replica:
    """The replica without one segment; a file that another entry has stays."""
    entries = tuple(entry for entry in replica.entries if entry.segment.id != segment_id)
    gone = {name for entry in replica.entries if entry.segment.id == segment_id for name in entry.segment.files}
    kept = {name for entry in entries for name in entry.segment.list}
    return replace(replica, entries=entries, files=replica.files - (gone - kept))
