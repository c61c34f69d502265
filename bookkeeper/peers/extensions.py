"""Abilities of this project's own replica systems beyond the protocol. Packages of third parties need none of them.

* :class:`PipelinedSession`: several messages of a stream on their way at once.
* :class:`ConfirmingSession`: the question whether the peer still has what it acknowledged.
* :class:`SegmentTransferSession`: the segments of an imported log instead of messages with its records.
* :class:`FileSystemPeer`: a system whose peers are files on the machine of the process.

A caller checks with ``isinstance`` for an ability and does without it otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from msgspec import Struct

from bookkeeper.bulk.log_segments import SegmentedLog
from bookkeeper.origins import Root
from bookkeeper.peers.protocol import Acked, Message, ReplicaSession
from bookkeeper.security.file_roots import FileRoots
from bookkeeper.storage.volume.volume_protocol import Volume


class InFlightMessage(Protocol):
    """A message whose answer the sender has not taken yet."""

    @property
    def sends(self) -> int:
        """The number of times that the message was sent; valid once :meth:`wait` is over."""

    def wait(self) -> Acked:
        """Return the answer, as :meth:`ReplicaSession.ship` does, without a second attempt. The thread of the session
        calls it once. Raises what ``ship`` raises.
        """


@runtime_checkable
class PipelinedSession(ReplicaSession, Protocol):
    """A session that may have several messages on their way. The guarantees are the same.

    ``acked_offset`` of a pipelined message is what is acknowledged when it leaves, ``after_offset`` is the end of the
    message in front of it. Its answer acknowledges its own records and repeats that fact; it need not acknowledge
    more. The sender counts the answer once all messages in front are acknowledged. A peer that receives a message
    before the one in front of it declines it with GapError, or waits a moment.
    """

    def start_shipping(self, message: Message) -> InFlightMessage:
        """Begin to send and return at once. Raises nothing; :meth:`InFlightMessage.wait` raises."""


def is_pipelined(message: Message) -> bool:
    """Whether the message leaves before everything in front of it is acknowledged. Its answer then proves nothing
    behind ``acked_offset``, because the peer does not check the tablets for which the message has no records.
    """
    return message.after_offset > message.acked_offset


@runtime_checkable
class ConfirmingSession(ReplicaSession, Protocol):
    """A session that can ask the peer for records that it acknowledged before. The peer may have come back in an older
    state whenever the session opens the stream.
    """

    def check_when_opened(self, check: Callable[[], None]) -> None:
        """Call ``check`` whenever the stream was opened, before its next message. An error of ``check`` fails it."""

    def missing_records(self, file: str, message: Message) -> int | None:
        """The number of records of an acknowledged message, of this stream or of the same target's stream of another
        file, that the peer lacks. It changes nothing there. None: the version of the peer does not tell. Raises what
        ``ship`` raises; RefusedError when the peer does not know the stream, which may be over.
        """


class SegmentTransfer(Struct, frozen=True):
    """A source file as segment files, which lie on ``volume``. ``provenance`` is that of a message. ``log`` describes
    the segments. ``root`` is the file in which the records were first written, with the same offsets (rule R22); None =
    in this file.
    """

    volume: Volume
    provenance: tuple[str, ...]
    log: SegmentedLog
    root: Root | None = None


class TransferAnswer(Struct, frozen=True):
    """The outcome of a segment transfer. ``declined`` is the reason why the peer did not take the files; None = it
    took them. ``sent_bytes`` went out.
    """

    declined: str | None
    sent_bytes: int


@runtime_checkable
class SegmentTransferSession(ReplicaSession, Protocol):
    """A session that also takes the segments of a file in place of messages with all its records. The guarantees are
    the same. A stream may begin with a segment transfer and go on with messages.
    """

    def transfer_segments(self, transfer: SegmentTransfer, give_up_ns: int) -> TransferAnswer:
        """Send the files and return once they are durable. The answer is ``declined`` when they can't be sent by
        ``give_up_ns`` (nanoseconds of the boot clock), or when messages of records are better. Raises TransientError or
        PermanentError.
        """


@runtime_checkable
class FileSystemPeer(Protocol):
    """A replica system whose peers are files that this process opens."""

    def use_roots(self, roots: FileRoots) -> None:
        """Called once, before any other call. The system opens only paths below these roots, and checks each path when
        it opens it.
        """
