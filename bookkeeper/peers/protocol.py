"""What a replica system is: the strategy for one kind of peer, chosen by name.

Arrives: a stream (one source file for one target) in messages that ascend without a gap. Leaves: for each message
the acknowledgement that everything in it is durable at the peer, or an error. Survives a crash: what was
acknowledged, at the peer; nothing on this side.

A replica system must guarantee, whatever dies in between:

* **durable before acknowledged**: when :meth:`ReplicaSession.ship` returns, every record of the message survives
  the loss of any process of the peer (L1);
* **idempotent by stream and offset**: a message that was applied before, in whole or in part, through this session
  or another one, at the same time even, changes nothing (L4, R18). "Applied" and "remembered as
  applied" are one durable step;
* **contiguous**: a message that starts above what is there is declined with GapError and the high-water, never
  applied (R19). ``acked_offset`` of the message is a fact that raises the high-water, ``after_offset`` is a claim
  that is checked against it;
* **in order**: the blocks of a message, and the messages of a session, take effect in the order of their offsets;
* **the right peer**: a session ships to the instance that was asked for and to no other, told apart by instance id
  and not by name or address (R23);
* **no loop**: a peer whose own id is in the provenance of a message declines it (L5, R21).

Errors: TransientError when sending again later, unchanged, may succeed; PermanentError when a person has to act.
A session bounds its own retries and waits by the settings, and is used by one thread at a time. More than one message
is on its way only where a session offers that (:class:`AheadSession`).
Rules: R18, R19, R20, R21 and R23.
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
    """Where a stream goes. ``quorum`` is the address in the replica system's own form, without its name."""

    cluster: str
    quorum: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a peer is: its instance id, which no other peer ever has (R23), and a name for people."""

    instance_id: str
    name: str


@dataclass(frozen=True, slots=True)
class BlockFacts:
    """What the source knows of a block besides its records, for peers that keep a history.

    ``write_time_ms`` is the server time of its tablet there, ``first_seq`` the tablet's sequence number of the block's
    first record. ``positions`` (uint64, from 0) says where in the block each record lay, None when all were kept. All
    of it is the same whenever the block is sent.
    """

    write_time_ms: int
    first_seq: int
    positions: pa.Array | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """Everything that this target wants of ``(after_offset, to_offset]`` of the source file; ``blocks`` ascend.

    A block's records may be any object that gives a buffer; they often lie in the pages of the source file.
    ``provenance`` holds for all of its blocks and ends with the sender's own instance id. ``acked_offset`` is a fact:
    everything up to there that this target wants is durable at the peer. ``facts`` has one element for each block (none
    where a receiver puts a message together again: facts do not travel to clusters of this project).
    Which blocks of a file a target wants, and what of them, is the same whenever and by whomever it is sent.
    """

    provenance: tuple[str, ...]
    acked_offset: int
    after_offset: int
    to_offset: int
    blocks: tuple[SourceBlock, ...]
    facts: tuple[BlockFacts, ...] = ()

    @property
    def is_ahead(self) -> bool:
        """Whether it leaves before all in front of it is acknowledged: its answer proves nothing behind
        ``acked_offset`` then, for tablets that it has no records for are not asked.
        """
        return self.after_offset > self.acked_offset


@dataclass(frozen=True, slots=True)
class Acked:
    """Everything up to ``offset`` is durable at the peer; of the message, ``applied`` records are new there."""

    offset: int
    applied: int
    dropped: int


class ReplicaSession(Protocol):
    """One stream on its way to one peer."""

    @property
    def sends(self) -> int:
        """How often a message went out to the peer so far, whether an answer came or not; for the operator's sums."""

    def ship(self, message: Message) -> Acked:
        """Send and wait until durable. Raises GapError (the peer's high-water), TransientError or PermanentError."""

    def close(self) -> None:
        """Let go of what the session holds; idempotent, never raises."""


@dataclass(frozen=True, slots=True)
class WholeFile:
    """A whole source file as segments: what a message would say of it, and the files. ``root``: where its records were
    first written, with the same offsets; None = in the file itself (R22).
    """

    provenance: tuple[str, ...]
    log: WholeLog
    root: Root | None = None


@dataclass(frozen=True, slots=True)
class WholeAnswer:
    """What became of a whole file: taken, or ``declined`` for a reason; ``sent_bytes`` went out."""

    declined: str | None
    sent_bytes: int


class Shipment(Protocol):
    """A message on its way."""

    @property
    def sends(self) -> int:
        """How often it went out, once :meth:`wait` is over."""

    def wait(self) -> Acked:
        """What :meth:`ReplicaSession.ship` does, once: no second try. To be called once, by the session's thread."""


@runtime_checkable
class AheadSession(ReplicaSession, Protocol):
    """A session that may have several messages on their way. The guarantees are the same.

    ``acked_offset`` of such a message is what is acknowledged when it leaves, ``after_offset`` the end of the message
    in front of it. Its answer need not promise more than that fact, and that its own records are durable. Whoever has
    the answers to all messages in front of it, too, knows that everything is. A peer that meets it before the one in
    front declines it with GapError, or waits a moment for that one.
    """

    def ship_ahead(self, message: Message) -> Shipment:
        """Begin to send, and return at once. Raises nothing."""


@runtime_checkable
class WholeSession(ReplicaSession, Protocol):
    """A session that may also take a whole file, in place of messages of all its records. The guarantees are the same.

    Whichever way something of a stream came, the rest may come in the other one.
    """

    def ship_whole(self, whole: WholeFile, give_up_ns: int) -> WholeAnswer:
        """Send and wait until durable; declined when the files can't be out by ``give_up_ns`` (boot clock), and
        whenever records may do better. Raises TransientError or PermanentError.
        """


class ReplicaSystem(Protocol):
    """One kind of peer. Thread-safe; cheap to keep for the life of a process."""

    @property
    def name(self) -> str:
        """The name under which the registry knows it, and the scheme of its quorums."""

    def open(self, peer: Peer, stream: StreamKey, settings: Settings) -> ReplicaSession:
        """A session for one stream. May connect at once or with the first message; raises like ``ship``."""


@runtime_checkable
class InstalledSystem(ReplicaSystem, Protocol):
    """A replica system of an installed package: what the master asks a bookkeeper peer's master, it asks the system.

    Quorums come without the system's name. Every call may be repeated, and raises TransientError or PermanentError.
    """

    def prepare(self, quorum: str) -> Identity:
        """Make the place a peer unless it is one, and say who it is. Asked when a cluster is defined, never else."""

    def identify(self, quorum: str) -> Identity:
        """Who is there. Asked before anything else is asked. Changes nothing: where no peer is, it raises
        UnavailableError, for the place may be unmounted, emptied or replaced, and a new identity would hide that (R23).
        """

    def resolve_table(self, peer: Peer, name: str) -> str:
        """The id of the table to which streams go when a user names it so; raises NotFoundError, InvalidInputError."""

    def stream_done(self, peer: Peer, streams: Sequence[StreamKey]) -> None:
        """Rule R20: these streams are over. Messages sent before may still be on their way, for as long as a session
        or a stream lives: what keeps them from being applied twice must outlast them.
        """


@runtime_checkable
class FileSystemPeer(Protocol):
    """A replica system whose peers are files that this process opens."""

    def use_roots(self, roots: FileRoots) -> None:
        """Called once, before anything else: open what lies below these roots, and judge each path by them when it is
        opened.
        """
