"""A tablet with replicas on hosts: real disks, real books, real receivers, and a sender that a test moves by hand."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, RowPut
from bookkeeper.metadata.values import FlushState, ReplicaCell, ReplicaRole
from bookkeeper.replicas.events import (
    Compacted,
    Flushed,
    LeaderNamed,
    OfferOne,
    ReplicateTo,
    ReplyArrived,
    TargetsChanged,
)
from bookkeeper.replicas.instructions import Decision, Name, Send
from bookkeeper.replicas.messages import Accept, Ack, Decline, Offer, Purpose, Reason, Reply
from bookkeeper.replicas.values import Target, state_id
from bookkeeper.rpc.contract.messages import (
    ACKED,
    REFUSED,
    SegmentAnswer,
    SegmentOffer,
    SegmentTransit,
)
from bookkeeper.runtime.threads import Die
from bookkeeper.storage.replicas.incoming_files import IncomingFiles
from bookkeeper.tserver.replicas.disk_room import DiskRoom
from bookkeeper.tserver.replicas.held_replica import HeldReplica
from bookkeeper.tserver.replicas.replica_books import ReplicaBooks
from bookkeeper.tserver.replicas.replica_receiver import ReceiveLimits, ReplicaReceiver
from bookkeeper.tserver.replicas.wire_forms import (
    file_message,
    own_placement,
    placement_message,
    placement_of,
    segment_message,
)
from tests.support.books import sqlite_books
from tests.support.jumping_clock import TestClock
from tests.support.replica_disks import EXTENT, KEY, Disk, WatchedOps, disk

ROW = keys.tablet_row(EXTENT.table_id, EXTENT.end_row)
LIMITS = ReceiveLimits(transfers_max=3, idle_timeout_ms=10_000)
STATE = FlushState(1, {}, 0, 0, {}, ())
CHUNK_BYTES = 40

FILE = KEY.prefix + "1.parquet"
"""The file of the segment that :func:`started` offers."""


def died(reason: str) -> None:
    """A background thread must not fail."""
    raise AssertionError(reason)


DIE: Die = died


@dataclass(slots=True)
class Host:
    """A host with its receiver."""

    disk: Disk
    receiver: ReplicaReceiver

    @property
    def name(self) -> str:
        """Its name."""
        return self.disk.name

    @property
    def held(self) -> HeldReplica:
        """Its replica of the tablet."""
        found = self.disk.replicas.find(KEY)
        assert found is not None
        return found


@dataclass(slots=True)
class ReplicaWorld:
    """Hosts and the books."""

    books: MetadataTable
    clock: TestClock
    hosts: dict[str, Host] = field(default_factory=dict)
    incarnations: dict[str, str] = field(default_factory=dict)
    """Of hosts that are not in this process."""
    ranks: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def host(self, name: str) -> Host:
        """A host."""
        return self.hosts[name]

    def add(self, directory: Path, name: str, limits: ReceiveLimits = LIMITS, ops: WatchedOps | None = None) -> Host:
        """A host with an empty disk."""
        made = disk(directory, name, ops)
        self.hosts[name] = Host(made, self.receiver(made, limits))
        return self.hosts[name]

    def receiver(self, made: Disk, limits: ReceiveLimits = LIMITS, reserve_bytes: int = 0) -> ReplicaReceiver:
        """The receiver of a host."""
        room = DiskRoom(made.store.free_bytes, reserve_bytes, self.clock)
        return ReplicaReceiver(
            made.replicas, IncomingFiles(made.store), ReplicaBooks(self.books).row, self.clock, limits, room, DIE
        )

    def restart(self, name: str) -> Host:
        """The process of a host dies and another one starts."""
        host = self.hosts[name]
        host.disk.reopen()
        host.receiver = self.receiver(host.disk)
        return host

    def put_row(self, *names: str, term: int = 1, role: ReplicaRole = "voter", placement: str = "p") -> None:
        """The tablet's row names these hosts."""
        cells = {keys.PREV_ROW: values.encode_prev_row(EXTENT.prev_row), keys.DIR: values.encode_dir(KEY.directory)}
        for name in names:
            known = self.incarnations.get(name)
            incarnation = known or self.hosts[name].disk.store.identity.incarnation
            cell = ReplicaCell(f"{placement}-{name}", incarnation, role)
            cells[keys.replica_column(name)] = cell.encode()
        rank = next(self.ranks)
        self.books.put([RowPut(ROW, cells)], rank)
        self.books.put([RowPut(ROW, {keys.SERIAL: keys.SERIAL_VALUE})], term)

    def unplace(self, name: str) -> None:
        """The tablet's row no longer names a host."""
        self.books.delete([CellKey(ROW, keys.replica_column(name))], next(self.ranks))

    def name_state(self, segment_id: int, files: Sequence[str]) -> None:
        """The books name a state."""
        state = replace(STATE, flush_id=segment_id, segments=tuple(files))
        self.books.put([RowPut(ROW, {keys.FLUSH: state.encode()})], segment_id)

    def lead(self, name: str, *followers: str, term: int = 1, named: Name | None = None) -> HeldReplica:
        """A host begins a term, with these targets."""
        host = self.hosts[name]
        row = ReplicaBooks(self.books).row(EXTENT)
        assert row is not None
        own = row.replicas[name]
        held = host.disk.replicas.open(KEY, EXTENT, own.placement.id, own.stage, ())
        held.apply(LeaderNamed(name, term, named), (), {state_id(term, 0): STATE.encode()})
        held.apply(TargetsChanged(tuple(Target(one, row.replicas[one].placement) for one in followers)))
        return held

    def flush(self, name: str, file: str, content: bytes | None = None) -> int:
        """A host that leads writes a segment of one file; its id."""
        host = self.hosts[name]
        held, made = host.held, host.disk.file(file, content)
        segment_id = state_id(held.replica.led, held.replica.made)
        held.apply(Flushed((made.name,), segment_id=segment_id), [made], {segment_id: STATE.encode()})
        return segment_id

    def compact(self, name: str, file: str, content: bytes | None = None) -> int:
        """A host that leads folds its whole chain into one file; the id of the major."""
        host = self.hosts[name]
        held, made = host.held, host.disk.file(file, content)
        segment_id = state_id(held.replica.led, held.replica.made)
        inputs: list[int] = []
        for entry in reversed(held.replica.entries):
            inputs.append(entry.segment.id)
            if entry.segment.is_major:
                break
        held.apply(Compacted(tuple(inputs), (made.name,), segment_id), [made], {segment_id: STATE.encode()})
        return segment_id

    def next_offer(self, sender: str, target: str) -> SegmentOffer | None:
        """The offer that a leader makes to a target next; None: the target has everything."""
        held = self.hosts[sender].held
        sends = sends_of(held.apply(ReplicateTo(target)))
        return offer_message(held, sends[0].target, sends[0].offer) if sends else None

    def offer_of(self, sender: str, target: str, segment_id: int | None) -> SegmentOffer:
        """The offer of one segment, whatever the target has."""
        assert segment_id is not None
        held = self.hosts[sender].held
        (send,) = sends_of(held.apply(OfferOne(target, segment_id)))
        return offer_message(held, send.target, send.offer)

    def replicate(self, sender: str, target: str, chunk: int = CHUNK_BYTES, steps: int = 20) -> list[str]:
        """A leader serves a target until it has everything; the states and reasons of all answers."""
        said: list[str] = []
        for _ in range(steps):
            offer = self.next_offer(sender, target)
            if offer is None:
                return said
            answer = self.send(offer, chunk)
            said.append(answer.reason or answer.state)
            self.answered(sender, offer, answer)
        raise AssertionError(f"{target} does not get everything: {said}")

    def answered(self, sender: str, offer: SegmentOffer, answer: SegmentAnswer) -> None:
        """A leader hears an answer."""
        reply = ReplyArrived(offer.receiver.host, reply_of(offer, answer), Purpose.REPLICATE)
        self.hosts[sender].held.apply(reply)

    def send(self, offer: SegmentOffer, chunk: int = CHUNK_BYTES) -> SegmentAnswer:
        """Offer a segment, and send what the receiver needs; the last answer."""
        receiver = self.hosts[offer.receiver.host].receiver
        answer = receiver.offer(offer)
        for transit in self.transits(offer, answer, chunk):
            ack = receiver.transit(transit)
            answer = ack.answer or answer
        return answer

    def transits(self, offer: SegmentOffer, answer: SegmentAnswer, chunk: int = CHUNK_BYTES) -> list[SegmentTransit]:
        """The content that an answer asks for, in order."""
        volume = self.hosts[offer.sender.host].disk.store.volume
        found = []
        for need in answer.need:
            size = volume.size(need.name)
            for start in range(need.start, size, chunk):
                content = volume.read_range(need.name, start, min(chunk, size - start))
                found.append(transit_of(offer, need.name, start, content))
        return found

    def close(self) -> None:
        """Release the locks."""
        for host in self.hosts.values():
            host.disk.store.close()
        self.books.close()


def replica_world(directory: Path, *names: str) -> ReplicaWorld:
    """Hosts with empty disks; all are voters, and the first one leads in term 1."""
    world = ReplicaWorld(sqlite_books(directory / "books.db"), TestClock())
    for name in names:
        world.add(directory, name)
    world.put_row(*names)
    world.lead(names[0], *names[1:])
    return world


def sends_of(decision: Decision) -> list[Send]:
    """The offers that the machine asks for."""
    return [one for one in decision if isinstance(one, Send)]


def offer_message(held: HeldReplica, target: str, offer: Offer) -> SegmentOffer:
    """An offer of the machine as its message."""
    replica, segment, manifest = held.replica, offer.segment, held.manifest
    assert offer.term is not None
    return SegmentOffer(
        extent=held.extent,
        directory=held.key.directory,
        term=offer.term,
        leader=offer.leader,
        sender=own_placement(replica),
        receiver=placement_message(target, replica.target(target).placement),
        segment=segment_message(segment),
        files=tuple(file_message(manifest.files[name]) for name in segment.list),
        state=manifest.states.get(segment.id, b""),
    )


def transit_of(offer: SegmentOffer, file: str, start: int, content: bytes) -> SegmentTransit:
    """Content of a file of an offer."""
    return SegmentTransit(
        offer.extent.table_id,
        offer.directory,
        offer.sender,
        offer.receiver,
        offer.segment.segment_id,
        file,
        start,
        content,
    )


def reply_of(offer: SegmentOffer, answer: SegmentAnswer) -> Reply:
    """An answer as the machine takes it."""
    segment_id, placement = offer.segment.segment_id, placement_of(answer.placement)
    if answer.state == ACKED:
        return Ack(segment_id, placement, answer.root)
    if answer.state == REFUSED:
        return Decline(segment_id, placement, Reason(answer.reason), answer.root)
    return Accept(segment_id, placement, tuple(need.name for need in answer.need))


# ---- a transfer to begin with


def offered(world: ReplicaWorld, target: str = "host2") -> SegmentOffer:
    """The leader's next offer."""
    offer = world.next_offer("host1", target)
    assert offer is not None
    return offer


def started(world: ReplicaWorld, content: bytes | None = None) -> SegmentOffer:
    """host2 has the start of the term, and the leader offers it a segment with one file."""
    assert world.replicate("host1", "host2") == ["acked"]
    world.flush("host1", "1.parquet", os.urandom(100) if content is None else content)
    return offered(world)


def content_of(host: Host, name: str = FILE) -> bytes:
    """The bytes of a file on a host."""
    found = host.disk.store.volume.read(name, 1 << 20)
    assert found is not None
    return found


def files_below(host: Host) -> set[str]:
    """All files on a host but lock, incarnation and manifests."""
    names = host.disk.store.volume.list_names("")
    return {name for name in names if name.startswith(("tables/", "incoming/"))}
