"""Whether an offer can be one of this cluster's: what its sender may claim, and which claims the books decide.

Pure. Any process with the cluster's secret may call, so nothing in an offer is believed that would reach beyond the
replica that it names: neither a file's name, nor a size, nor a term.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import Extent, HostIdentity
from bookkeeper.replicas.messages import Offer, Reason
from bookkeeper.replicas.rules import MAX_SEGMENT_HISTORY
from bookkeeper.replicas.values import Placement, Replica, Stage, Target, term_of
from bookkeeper.rpc.contract.messages import SegmentOffer, StateConfirmation
from bookkeeper.storage.replicas.manifest import HeldFile, ReplicaKey
from bookkeeper.tserver.replicas.wire_forms import file_of, placement_of, segment_of

FILES_MAX = 4096
"""Most files of a tablet's state."""

STATE_BYTES_MAX = 8 << 20
ENTRY_BYTES_MAX = 1 << 20
CRC_MAX = (1 << 32) - 1

CLOCKS_APART_MS = 1_000
"""ms by which the wall clock of a leader may be ahead of this host's."""


class RowReplica(Struct, frozen=True):
    """A replica in a tablet's row: its placement, and the stage that its role means."""

    placement: Placement
    stage: Stage


class ReplicaRow(Struct, frozen=True):
    """Facts of the books about a tablet: rows, directory, the term of its last holder, its replicas by host, and the
    named state (None before the first). ``parts``: the directories of tablets that were merged into it, as long as
    hosts still link their files.
    """

    extent: Extent
    directory: str
    serial: int
    replicas: Mapping[str, RowReplica]
    named_id: int | None
    named_files: tuple[str, ...]
    parts: tuple[str, ...] = ()

    @property
    def key(self) -> ReplicaKey:
        """The tablet, for as long as it lives."""
        return ReplicaKey(self.extent.table_id, self.directory)

    def targets_of(self, host: str) -> tuple[Target, ...]:
        """The other replicas."""
        return tuple(Target(name, one.placement) for name, one in sorted(self.replicas.items()) if name != host)


def key_of(offer: SegmentOffer) -> ReplicaKey:
    """The tablet of an offer. Raises InvalidInputError."""
    return ReplicaKey(offer.extent.table_id, offer.directory).check()


def machine_offer(offer: SegmentOffer) -> Offer:
    """The offer as the machine takes it."""
    return Offer(offer.sender.host, placement_of(offer.sender), segment_of(offer.segment), offer.term, offer.leader)


def files_of_offer(offer: SegmentOffer) -> dict[str, HeldFile]:
    """The files of an offer by name. Raises InvalidInputError unless they are those of its list, all in the directory
    of its tablet, and all numbers are possible.
    """
    key, segment = key_of(offer), offer.segment
    wanted = (*segment.retained, *segment.files)
    if len(wanted) > FILES_MAX or len(segment.included) > MAX_SEGMENT_HISTORY or len(offer.state) > STATE_BYTES_MAX:
        raise InvalidInputError(
            f"state {segment.segment_id} of {key} has {len(wanted)} files, {len(segment.included)} folded segments and "
            f"{len(offer.state)} bytes of facts: at most {FILES_MAX}, {MAX_SEGMENT_HISTORY} and {STATE_BYTES_MAX}"
        )
    if len(set(wanted)) != len(wanted) or sorted(wanted) != sorted(file.name for file in offer.files):
        raise InvalidInputError(f"state {segment.segment_id} of {key} is offered with other files than it lists")
    for file in offer.files:
        key.check_file(file.name)
        if file.size_bytes < 1 or not 0 <= file.crc32c <= CRC_MAX or len(file.entry) > ENTRY_BYTES_MAX:
            raise InvalidInputError(f"{file.name} can't have {file.size_bytes} bytes and the checksum {file.crc32c}")
    ids = (segment.segment_id, *segment.included, *(() if segment.base is None else (segment.base,)))
    numbers = (offer.term, *ids, *(position.offset for position in segment.logs))
    if min(numbers) < 0 or term_of(segment.segment_id) > offer.term:
        raise InvalidInputError(f"a sender of term {offer.term} can't know state {segment.segment_id} of {key}")
    return {file.name: file_of(file) for file in offer.files}


def is_known(replica: Replica, offer: SegmentOffer) -> bool:
    """Whether this host read the books for this placement, term and leader before; of an older term it need not."""
    if replica.placement != placement_of(offer.receiver):
        return False
    return offer.term < replica.term or (offer.term == replica.term and offer.leader == replica.leader)


def reason_against(offer: SegmentOffer, row: ReplicaRow | None, host: HostIdentity) -> str:
    """Why the books contradict an offer; empty = they do not. The term must be that of the tablet's last holder."""
    if row is None or row.extent != offer.extent or row.directory != offer.directory:
        return f"the books have no tablet {offer.extent} in directory {offer.directory}"
    own, sender = row.replicas.get(host.name), row.replicas.get(offer.sender.host)
    if own is None or own.placement != placement_of(offer.receiver) or own.placement.incarnation != host.incarnation:
        return f"the tablet's row does not name {host.name} with placement {offer.receiver.placement} and this disk"
    if sender is None or sender.placement != placement_of(offer.sender):
        return f"the tablet's row does not name {offer.sender.host} with placement {offer.sender.placement}"
    if offer.sender.host == host.name or (offer.leader == offer.sender.host and sender.stage is not Stage.LIVE):
        return f"{offer.sender.host} can't lead the tablet"
    if offer.term != row.serial:
        return f"term {offer.term} is not that of the tablet's holder, {row.serial}"
    return ""


def differing_file(offered: Mapping[str, HeldFile], held: Mapping[str, HeldFile]) -> str | None:
    """A file that this host holds with other bytes than the sender has; None = there is none."""
    for name, file in offered.items():
        own = held.get(name)
        if own is not None and (own.size_bytes, own.crc32c) != (file.size_bytes, file.crc32c):
            return name
    return None


def is_confirmation(replica: Replica, offer: SegmentOffer, reason: Reason) -> bool:
    """Whether an offer confirms the newest state here: it comes from the leader of the newest term that is known."""
    return (
        reason is Reason.SEGMENT_EXISTS
        and replica.root == offer.segment.segment_id
        and replica.term == offer.term
        and replica.leader == offer.sender.host
    )


def is_ahead(as_of_ms: int, now_ms: int) -> bool:
    """Whether a time of a leader's wall clock lies so far ahead of this host's clock that it says no age: a state that
    is complete up to a time that has not come would look young while newer ones are elsewhere.
    """
    return as_of_ms > now_ms + CLOCKS_APART_MS


def confirms(replica: Replica, leader: str, confirmation: StateConfirmation) -> bool:
    """Whether a message confirms the newest state of this placement, from the leader of the newest term that is
    known; else the leader has to offer the state.
    """
    return (replica.placement, replica.root, replica.term, replica.leader) == (
        placement_of(confirmation.receiver),
        confirmation.state_id,
        confirmation.term,
        leader,
    )
