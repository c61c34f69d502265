"""The protocol of replica systems. A replica system writes to one kind of peer; users choose it by its name.

This module has everything that a package needs to implement a replica system: the protocols to implement, the values
that it gets and returns, and the errors that it raises.

A *stream* is one source file on its way to one target. It comes in messages whose offsets ascend without a gap. For
each message the replica system answers that everything in it is durable at the peer, or raises an error. The peer
remembers what it acknowledged. The sender remembers nothing after a crash: it opens the session again and sends again.

A replica system guarantees, even if any process dies at any moment:

* **Durable before acknowledged** (law L1). When :meth:`ReplicaSession.ship` returns, every record of the message
  survives the loss of any process of the peer.
* **Idempotent by stream and offset** (law L4, rule R18). A message that the peer applied before, completely or in part,
  through this session or another one, even at the same time, changes nothing. The peer applies records and remembers
  their offset in one durable step.
* **Contiguous** (rule R19). The peer's *high-water* is the offset up to which it has the stream. The peer declines a
  message that starts above its high-water with GapError and never applies it. ``acked_offset`` of a message is a fact
  and raises the high-water; ``after_offset`` is a claim, and the peer checks it against the high-water.
* **In order** (rule R24). The blocks of a message, and the messages of a session, take effect in the order of offsets.
* **The right peer** (rule R23). A session ships to the instance in :attr:`Peer.instance_id` and to no other one. A name
  or an address may come to belong to another instance, so neither of them identifies a peer.
* **No loop** (law L5, rule R21). A peer whose own instance id is in the provenance of a message declines it.

A method raises TransientError when the same call may succeed later, and PermanentError when a person has to act. A
session bounds its retries and waits by its :class:`RetryLimits`: a process in a call that takes more than five times
``message_timeout_ms`` counts as hung and is ended. One thread uses a session at a time, and sends the next message
after the answer to the last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import pyarrow as pa
from msgspec import Struct

from bookkeeper.errors import (
    CorruptionError,
    GapError,
    IncompatibleError,
    InvalidInputError,
    NotFoundError,
    OverloadedError,
    PermanentError,
    RefusedError,
    TransientError,
    UnavailableError,
)
from bookkeeper.model import MUTATION_SCHEMA, StreamKey

__all__ = [
    "MUTATION_SCHEMA",
    "Acked",
    "BlockFacts",
    "CorruptionError",
    "GapError",
    "Identity",
    "IncompatibleError",
    "InstalledSystem",
    "InvalidInputError",
    "Message",
    "MessageBlock",
    "NotFoundError",
    "OverloadedError",
    "Peer",
    "PermanentError",
    "RefusedError",
    "ReplicaSession",
    "ReplicaSystem",
    "RetryLimits",
    "StreamKey",
    "TransientError",
    "UnavailableError",
]

# ---- what a replica system gets and returns


class Peer(Struct, frozen=True):
    """The destination of a stream. ``cluster`` is the peer's name at the sender, ``quorum`` its address without
    ``SYSTEM://``, and ``instance_id`` the instance that was found there when a user defined the peer.
    """

    cluster: str
    quorum: str
    instance_id: str


class Identity(Struct, frozen=True):
    """The identity of a peer: its instance id, which no other peer ever has (rule R23), and a name for people."""

    instance_id: str
    name: str


class RetryLimits(Struct, frozen=True):
    """Bounds of a session's own retries of one message: at most ``message_retries`` after the first try, and none that
    begins later than ``message_timeout_ms`` after it. The pause before a retry is at most ``retry_base_ms``, doubles
    with each retry, and never exceeds ``retry_max_ms``. A session without retries of its own ignores them.
    """

    message_retries: int
    message_timeout_ms: int
    retry_base_ms: int
    retry_max_ms: int


class MessageBlock(Struct, frozen=True):
    """Records of one block of a source file, from ``first_offset`` to ``last_offset``, both included.

    ``records`` is any object that gives a buffer: an Arrow IPC record batch message of ``MUTATION_SCHEMA`` without the
    schema. It often lies in the pages of the source file, so a session that keeps it copies it. ``record_count`` may be
    less than the offsets span, because the sender leaves out the records that are not for the target. ``min_row`` and
    ``max_row`` are the first and the last row in order. ``origins`` is for the system ``bookkeeper`` only; other
    systems ignore it.
    """

    first_offset: int
    last_offset: int
    records: pa.Buffer
    record_count: int
    min_row: bytes
    max_row: bytes
    origins: bytes | None = None

    def record_batch(self) -> pa.RecordBatch:
        """The records, in order, as a batch of ``MUTATION_SCHEMA`` that may share memory with :attr:`records`. Raises
        CorruptionError.
        """
        try:
            message = pa.ipc.read_message(pa.py_buffer(self.records))
            batch = pa.ipc.read_record_batch(message, MUTATION_SCHEMA)
            batch.validate(full=True)
        except (pa.ArrowException, OSError, EOFError) as error:
            raise CorruptionError(
                f"the block of records {self.first_offset} to {self.last_offset} can't be decoded: {error}"
            ) from error
        return batch


class BlockFacts(Struct, frozen=True):
    """Facts about a block besides its records, for peers that keep a history. They are the same whenever the block is
    sent.

    ``write_time_ms`` (milliseconds since 1970) is the time at which the source tserver took the block. ``first_seq`` is
    the source tablet's sequence number of the block's first record, also of an import; of records of a cell with equal
    timestamps, the tablet shows the one with the highest number. ``positions`` is a uint64 array with one element
    for each record: its position in the source block, from 0; None when the sender left out no record.
    """

    write_time_ms: int
    first_seq: int
    positions: pa.Array | None = None


class Message(Struct, frozen=True):
    """All records for this target that the source file has behind ``after_offset``, excluded, up to ``to_offset``,
    included. Offsets count the records of the file from 1. ``blocks`` are in the order of offsets and may be empty.

    ``acked_offset`` is a fact: everything for this target up to it is durable at the peer. ``provenance`` lists the
    instance ids that the records have passed and ends with the sender's; it holds for all blocks. ``facts`` has one
    element for each block; it is empty only between clusters of this project. The records of a file that are for a
    target do not depend on the time at which they are sent, nor on the process that sends them.
    """

    provenance: tuple[str, ...]
    acked_offset: int
    after_offset: int
    to_offset: int
    blocks: tuple[MessageBlock, ...]
    facts: tuple[BlockFacts, ...] = ()


class Acked(Struct, frozen=True):
    """Everything up to ``offset`` is durable at the peer. ``applied`` records of the message are new there, ``dropped``
    records were there already.
    """

    offset: int
    applied: int
    dropped: int


# ---- what a replica system implements


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


class ReplicaSystem(Protocol):
    """One kind of peer. Thread-safe; one object lives as long as its process."""

    @property
    def name(self) -> str:
        """Its name: that of its entry point, and the ``SYSTEM`` of the addresses ``SYSTEM://ADDRESS``."""

    def open(self, peer: Peer, stream: StreamKey, limits: RetryLimits) -> ReplicaSession:
        """A session for one stream. It connects now or with the first message. Raises what
        :meth:`ReplicaSession.ship` raises.
        """


@runtime_checkable
class InstalledSystem(ReplicaSystem, Protocol):
    """A replica system of an installed package. The master calls it where it would call the master of another cluster.

    A ``quorum`` is the address without ``SYSTEM://``. Every call may be repeated. Every call raises TransientError or
    PermanentError.
    """

    def prepare(self, quorum: str) -> Identity:
        """Make a peer at this address, unless there is one, and return its identity. The master calls it only when a
        user defines the peer. Raises InvalidInputError for an address that can't be a peer, RefusedError for one that
        must not be used.
        """

    def identify(self, quorum: str) -> Identity:
        """The identity of the peer at this address; changes nothing. The master calls it before any other call. Raises
        UnavailableError when there is no peer: its storage may be unmounted, emptied or replaced, and a new identity
        would hide that (rule R23).
        """

    def resolve_table(self, peer: Peer, name: str) -> str:
        """The id of the peer's table of that name; streams carry it as ``target_table_id``. Raises NotFoundError,
        InvalidInputError.
        """

    def stream_done(self, peer: Peer, streams: Sequence[StreamKey]) -> None:
        """These streams are over (rule R20). Messages that were sent before may still be on their way, for as long
        as a session or a stream lives; for at least that time, the peer must be able to recognise them.
        """
