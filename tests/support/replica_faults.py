"""Fault switches of replicas on hosts (see ``faults``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from bookkeeper.replicas import collecting, damage, machine, receiving
from bookkeeper.replicas.chain import files_of
from bookkeeper.replicas.events import Collect, ContentArrived
from bookkeeper.replicas.instructions import Decision, Delete
from bookkeeper.replicas.messages import Reason
from bookkeeper.replicas.rules import CORRECTED, Rules
from bookkeeper.replicas.values import Replica
from bookkeeper.rpc.contract.replica_messages import SegmentOffer
from bookkeeper.storage.replicas import file_checks, incoming_files
from bookkeeper.storage.replicas.host_store import HostStore
from bookkeeper.storage.replicas.manifest import Manifest
from bookkeeper.tserver.replicas import held_replica, replica_collector, replica_receiver, replica_stores
from bookkeeper.tserver.replicas.held_replica import HeldReplica
from bookkeeper.tserver.replicas.offer_checks import is_known
from tests.support.replacement import Binding, Fault

_content_arrived = receiving.content_arrived


def content_arrived_without_question(replica: Replica, event: ContentArrived, rules: Rules) -> tuple[Replica, Decision]:
    """A segment that was accepted counts, whatever came meanwhile."""
    return _content_arrived(replica, event, replace(rules, p5_ask_again=False))


_collect = collecting.collect


def collect_with_damaged(replica: Replica, event: Collect, rules: Rules) -> tuple[Replica, Decision]:
    """A file whose bytes are wrong goes at once."""
    gone = tuple(sorted(replica.damaged))
    after, decision = _collect(replace(replica, damaged=frozenset()), event, rules)
    return after, (*decision, Delete(gone)) if gone else decision


def read_row_for_any_disk(held: HeldReplica | None, offer: SegmentOffer) -> bool:
    """An offer for another disk of this host is known like one for this disk."""
    if held is None:
        return True
    own = held.placement.incarnation
    return not is_known(held.replica, replace(offer, receiver=replace(offer.receiver, incarnation=own)))


def symlinked(store: HostStore, names: Mapping[str, str]) -> None:
    """The file of a new tablet is only a reference to that of the tablet which was split."""
    root = store.incoming.parent
    for new, present in names.items():
        (root / new).parent.mkdir(parents=True, exist_ok=True)
        (root / new).symlink_to(root / present)


_save = HostStore.save


def listed_first(store: HostStore, manifest: Manifest, publish: Callable[[], None] | None = None) -> None:
    """The manifest counts, and then the files that it lists get their names."""
    _save(store, manifest)
    if publish is not None:
        publish()


REPLICA_FAULTS: dict[str, Fault] = {
    "ack-before-sync": Fault(
        incoming_files.make_durable,
        lambda fd, ops: None,  # noqa: ARG005
        "P5: a power failure behind the acknowledgement takes the file",
    ),
    "transfers-end-on-the-disk": Fault(
        held_replica.has_durable_change,
        lambda before, after: True,  # noqa: ARG005
        "a file stays on a host for ever, because its disk was full when a transfer ended",
    ),
    "manifest-before-files": Fault(
        HostStore.save,
        listed_first,
        "P5: a manifest lists files that a power failure takes",
    ),
    "segment-not-asked-again": Fault(
        Binding(machine, receiving.content_arrived),
        content_arrived_without_question,
        "P5: a segment that was overtaken replaces the newer root",
    ),
    "file-checksum-ignored": Fault(
        incoming_files.is_intact,
        lambda file, checksum: True,  # noqa: ARG005
        "L7: a file counts whose bytes are not the sender's",
    ),
    "deletion-by-local-root": Fault(
        replica_collector.collect_event,
        lambda replica, row: Collect(replica.root, files_of(replica, replica.root, CORRECTED)),  # noqa: ARG005
        "N4: a host deletes a file that the books name, because its own root does not list it",
    ),
    "split-shares-files": Fault(
        HostStore.link,
        symlinked,
        "E-56: a tablet that was split deletes files that another half needs",
    ),
    "merged-parts-go": Fault(
        replica_collector.parts_in,
        lambda rows: frozenset(),  # noqa: ARG005
        "N4: a host deletes a part of a merged tablet before it has linked the files",
    ),
    "holds-ignored-on-hosts": Fault(
        replica_collector.sparing,
        lambda event, held: event,  # noqa: ARG005
        "R17: a host deletes a file that an export still reads",
    ),
    "copies-unchecked": Fault(
        file_checks.is_same_content,
        lambda copy, original: True,  # noqa: ARG005
        "L7: a copy of an imported file with other bytes becomes a part of the tablet",
    ),
    "damaged-file-is-held": Fault(
        Binding(machine, damage.damaged),
        lambda replica, event: replica,  # noqa: ARG005
        "N3: a state is named on the strength of a copy whose file is damaged",
    ),
    "damaged-copy-stays-acknowledged": Fault(
        Binding(machine, damage.copy_damaged),
        lambda replica, event: replica,  # noqa: ARG005
        "N3: a leader counts a copy that its host no longer has",
    ),
    "damaged-file-exists": Fault(
        receiving.here,
        lambda replica, segment: Reason.SEGMENT_EXISTS,  # noqa: ARG005
        "N3: a host acknowledges a state of which a file is damaged on its disk",
    ),
    "damaged-file-is-deleted": Fault(
        Binding(machine, collecting.collect),
        collect_with_damaged,
        "N4: a host deletes a damaged file that the books list, and never asks for a sound copy",
    ),
    "hosts-share-a-scratch-file": Fault(
        replica_stores.writer_on,
        lambda host: "",  # noqa: ARG005
        "L7: a host publishes a file on the Volume while another one begins it anew",
    ),
    "incarnation-ignored": Fault(
        replica_receiver.must_read_row,
        read_row_for_any_disk,
        "P10: an offer for a wiped disk counts for the new one",
    ),
}
