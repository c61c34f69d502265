"""The protocol of replica systems. A replica system writes to one kind of peer and is chosen by name.

A *stream* is one source file on its way to one target. It comes in messages whose offsets ascend without a gap. For
each message the replica system answers that everything in it is durable at the peer, or raises an error. The peer keeps
what was acknowledged; nothing on this side survives a crash.

A replica system guarantees, whichever process dies at whatever moment:

* **Durable before acknowledged** (law L1). When :meth:`ReplicaSession.ship` returns, every record of the message
  survives the loss of any process of the peer.
* **Idempotent by stream and offset** (law L4, rule R18). A message that was applied before, whole or in part, through
  this session or another one, even at the same time, changes nothing. The peer applies records and remembers their
  offset in one durable step.
* **Contiguous** (rule R19). The peer's *high-water* is the offset up to which it has the stream. A message that starts
  above it is declined with GapError and never applied. ``acked_offset`` of a message is a fact and raises the
  high-water; ``after_offset`` is a claim and is checked against it.
* **In order** (rule R24). The blocks of a message, and the messages of a session, take effect in the order of offsets.
* **The right peer** (rule R23). A session ships to the instance that was asked for and to no other one. The instance id
  tells, never a name or an address.
* **No loop** (law L5, rule R21). A peer whose own instance id is in the provenance of a message declines it.

A method raises TransientError when the same call may succeed later, and PermanentError when a person has to act. A
session bounds its retries and waits by the settings. One thread uses it at a time. Only an :class:`AheadSession` has
more than one message on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from bookkeeper.bulk.log_segments import WholeLog
from bookkeeper.config import Settings
from bookkeeper.model import StreamKey
from bookkeeper.origins import Root
from bookkeeper.rpc.contract.messages import SourceBlock
from bookkeeper.security.file_roots import FileRoots


@dataclass(frozen=True, slots=True)
class Peer:
    """Where a stream goes. ``cluster`` is the peer's name here, ``quorum`` its address without ``SYSTEM://``, and
    ``instance_id`` the instance that was found there when the peer was defined.
    """

    cluster: str
    quorum: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a peer is: its instance id, which no other peer ever has (rule R23), and a name for people."""

    instance_id: str
    name: str


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """Facts about a block besides its records, for peers that keep a history. They are the same whenever the block is
    sent.

    ``write_time_ms`` (milliseconds since 1970) is the time at which the source tserver took the block. ``first_seq`` is
    the source tablet's sequence number of the block's first record. ``positions`` is a uint64 array with one element
    for each record: its place in the source block, from 0; None when no record was filtered out.
    """

    write_time_ms: int
    first_seq: int
    positions: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """All records for this target that the source file holds behind ``after_offset``, excluded, up to ``to_offset``,
    included. Offsets count the records of the file from 1. ``blocks`` are in the order of offsets and may be empty.

    ``acked_offset`` is a fact: everything for this target up to it is durable at the peer. ``provenance`` lists the
    instance ids that the records have passed and ends with the sender's; it holds for all blocks. ``facts`` has one
    element for each block; it is empty only inside a receiving cluster of this project. The ``records`` of a block are
    any object that gives a buffer; they often lie in the pages of the source file, so a session that keeps them copies
    them. Which records of a file are for a target does not depend on when, or by which process, they are sent.
    """

    provenance: tuple[str, ...]
    acked_offset: int
    after_offset: int
    to_offset: int
    blocks: tuple[SourceBlock, ...]
    facts: tuple[BlockFacts, ...] = ()

    @property
    def is_ahead(self) -> bool:
        """Whether the message leaves before everything in front of it is acknowledged. Its answer then proves nothing
        behind ``acked_offset``, because tablets for which it has no records are not asked.
        """
        return self.after_offset > self.acked_offset


@dataclass(frozen=True, slots=True)
class Acked:
    """Everything up to ``offset`` is durable at the peer. ``applied`` records of the message are new there, ``dropped``
    records were there already.
    """

    offset: int
    applied: int
    dropped: int


class ReplicaSession(Protocol):
    """One stream on its way to one peer."""

    @property
    def sends(self) -> int:
        """Messages that went out so far, whether an answer came or not; the status shows their number."""

    def ship(self, message: Message) -> Acked:
        """Send a message and return once it is durable at the peer.

        Raises GapError, with ``details["high_water"]``, when the message starts above the peer's high-water (rule R19);
        RefusedError when the peer is another instance (rule R23) or is in the provenance (rule R21); another
        PermanentError when the peer can never take the message as it is; UnavailableError, or another TransientError,
        when sending again may succeed.
        """

    def close(self) -> None:
        """Release connections and files. A second call does nothing. Raises nothing."""


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A whole source file as segment files. ``provenance`` is that of a message. ``log`` describes the segments;
    ``root`` is the file in which its records were first written, with the same offsets (rule R22); None = in this file.
    """

    provenance: tuple[str, ...]
    log: WholeLog
    root: Root | None = None


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """What became of a whole file. ``declined`` is the reason why the peer did not take it; None = it did.
    ``sent_bytes`` went out.
    """

    declined: str | None
    sent_bytes: int


class Shipment(Protocol):
    """A message on its way."""

    @property
    def sends(self) -> int:
        """How often the message went out; valid once :meth:`wait` is over."""

    def wait(self) -> Acked:
        """Return the answer, as :meth:`ReplicaSession.ship` does, without a second attempt. The thread of the session
        calls it once. Raises what ``ship`` raises.
        """


@runtime_checkable
class AheadSession(ReplicaSession, Protocol):
    """A session that may have several messages on their way; optional. The guarantees are the same.

    ``acked_offset`` of such a message is what is acknowledged when it leaves, ``after_offset`` is the end of the
    message in front of it. Its answer says that its own records are durable and repeats that fact; it need not say
    more. The sender counts it once all messages in front of it are acknowledged. A peer that meets a message before the
    one in front of it declines it with GapError, or waits a moment.
    """

    def ship_ahead(self, message: Message) -> Shipment:
        """Begin to send and return at once. Raises nothing; :meth:`Shipment.wait` raises."""


@runtime_checkable
class WholeSession(ReplicaSession, Protocol):
    """A session that also takes a whole file in place of messages with all its records; optional. The guarantees are
    the same. A stream may begin in one way and go on in the other.
    """

    def ship_whole(self, whole: WholeFile, give_up_ns: int) -> WholeAnswer:
        """Send the files and return once they are durable. The answer is ``declined`` when they can't be out by
        ``give_up_ns`` (nanoseconds of the boot clock), or when messages of records are better. Raises TransientError or
        PermanentError.
        """


class ReplicaSystem(Protocol):
    """One kind of peer. Thread-safe; one object lives as long as its process."""

    @property
    def name(self) -> str:
        """Its name: that of its entry point, and the ``SYSTEM`` of the addresses ``SYSTEM://ADDRESS``."""

    def open(self, peer: Peer, stream: StreamKey, settings: Settings) -> ReplicaSession:
        """A session for one stream. It connects now or with the first message. Raises what
        :meth:`ReplicaSession.ship` raises.
        """


@runtime_checkable
class InstalledSystem(ReplicaSystem, Protocol):
    """A replica system of an installed package. The master asks it what it asks the master of a cluster otherwise.

    A ``quorum`` is the address without ``SYSTEM://``. Every call may be repeated. Every call raises TransientError or
    PermanentError.
    """

    def prepare(self, quorum: str) -> Identity:
        """Make the place a peer, unless it is one, and return its identity. Called only when a user defines the peer.
        Raises InvalidInputError for an address that can't be one, RefusedError for a place that may not be used.
        """

    def identify(self, quorum: str) -> Identity:
        """The identity of the peer at the place; changes nothing. The master calls it before any other call. Raises
        UnavailableError when there is no peer: the place may be unmounted, emptied or replaced, and a new identity
        would hide that (rule R23).
        """

    def resolve_table(self, peer: Peer, name: str) -> str:
        """The id of the peer's table of that name; streams carry it as ``target_table_id``. Raises NotFoundError,
        InvalidInputError.
        """

    def stream_done(self, peer: Peer, streams: Sequence[StreamKey]) -> None:
        """These streams are over (rule R20). Messages that were sent before may still be on their way, for as long
        as a session or a stream lives; the peer keeps what lets it recognise them for longer.
        """


@runtime_checkable
class FileSystemPeer(Protocol):
    """A replica system whose peers are files that this process opens; optional."""

    def use_roots(self, roots: FileRoots) -> None:
        """Called once, before any other call. The system opens only paths below these roots, and checks each path when
        it opens it.
        """
