"""One connection of a server: it reads bytes, yields complete frames and sends answers, and it never blocks.

The caller arms the socket for the event that :attr:`Connection.wants` names. Until the handshake ends, all bytes go to
the admission. The connection checks a frame's length against the limit before it allocates memory. It judges a frame by
its head while the remaining bytes are on their way, and the memory of a frame grows with its bytes (``partial_frame``).
It discards the bytes of a declined frame and then answers the call. A handshake has a deadline, and so has a frame that
is partly received or sent. After a refusal the connection reads and discards bytes until the peer closes or the
deadline passes: if the server closed at once, the peer could lose the refusal.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterator

from msgspec import Struct

from bookkeeper.config.sections import RpcSettings
from bookkeeper.errors import CorruptionError, NotAdmittedError, OverloadedError
from bookkeeper.rpc.dispatch import CallerState, Dispatcher
from bookkeeper.rpc.frames.budget import FREE_BYTES, Account, Budget
from bookkeeper.rpc.frames.envelope import FRAME_HEADER, HEAD_BYTES_MAX
from bookkeeper.rpc.frames.frame_tags import TAG_BYTES, DiscardedFrame, FrameTags
from bookkeeper.rpc.frames.partial_frame import Answer, Declined, FrameBuffers, PartialFrame
from bookkeeper.rpc.frames.transport import channel_binding, end, receive_raw, receive_some, send_some
from bookkeeper.rpc.trust.admission import Admission, HandshakeRefusedError

TLS_FIRST = b"\x16"
"""The first byte of a TLS connection."""
LOW_WATER_BYTES = 512 * 1024
"""Most bytes of SO_RCVLOWAT for a large frame: fewer wakeups than one for each packet."""


class PeerClosedError(Exception):
    """The peer closed the connection."""


class ServerContext(Struct, frozen=True):
    """The objects that all connections of a server share. ``dispatcher`` judges calls by their heads; ``tls`` None =
    the server accepts connections without TLS.
    """

    settings: RpcSettings
    buffers: FrameBuffers
    budget: Budget
    dispatcher: Dispatcher
    tls: ssl.SSLContext | None = None


class Connection:
    """State of one accepted socket. Used by one thread at a time."""

    def __init__(
        self, sock: socket.socket, peer: str, now_ns: int, server: ServerContext, admission: Admission
    ) -> None:
        """``now_ns``: boot clock. With ``server.tls`` the peer must begin with TLS."""
        settings = server.settings
        self.sock = sock
        self._tls = server.tls
        self._tls_in_progress = False
        self._tls_event = select.EPOLLIN
        self.caller_state = CallerState(peer)
        self.admission: Admission | None = admission
        """None once the peer is admitted."""
        self.closing = False
        """Close the connection once the answers are sent."""
        self.refused = False
        """Discard all bytes until the peer closes."""
        self.last_used_ns = now_ns
        self.deadline_ns: int | None = now_ns + settings.handshake_timeout_ms * 1_000_000
        """Boot clock by which the handshake, or the current frame, must end; None between frames."""
        self._frame_bytes_max = settings.frame_bytes_max
        self._frame_timeout_ns = settings.frame_timeout_ms * 1_000_000
        self._buffers = server.buffers
        self._tags: FrameTags | None = None
        self._discarded: DiscardedFrame | None = None
        """Checks the tag of the current frame while its bytes are discarded."""
        self._budget = server.budget
        self._account: Account = server.budget.account(None)
        self._dispatcher = server.dispatcher
        self._received = bytearray()
        self._frame: PartialFrame | None = None
        self._answering: PartialFrame | None = None
        self._low_water = 1
        self._answer_bytes = 0
        self._unsent: list[memoryview] = []

    @property
    def wants(self) -> int:
        """The event to wait for: writable while an answer is not sent, else readable."""
        if self._tls_in_progress:
            return self._tls_event
        return select.EPOLLOUT if self._unsent else select.EPOLLIN

    def continue_tls(self) -> bool:
        """Start or continue TLS if the server requires it; True once that is done. The admission refuses a peer that
        begins without TLS. Raises PeerClosedError, OSError, HandshakeRefusedError.
        """
        if self._tls is not None:
            try:
                first = self.sock.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return False
            if not first:
                raise PeerClosedError
            context, self._tls = self._tls, None
            self._tls_in_progress = first == TLS_FIRST
            if self._tls_in_progress:
                self.sock = context.wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)
            elif self.admission is not None:
                self.admission.connection_lacks_tls()
        return not self._tls_in_progress or self._continue_tls_handshake()

    def _continue_tls_handshake(self) -> bool:
        assert isinstance(self.sock, ssl.SSLSocket)
        try:
            self.sock.do_handshake()
        except ssl.SSLWantReadError:
            self._tls_event = select.EPOLLIN
            return False
        except ssl.SSLWantWriteError:
            self._tls_event = select.EPOLLOUT
            return False
        except ssl.SSLError as error:
            self._tls_in_progress, self.refused = False, True
            reason = (error.reason or str(error)).replace("_", " ").lower()
            raise HandshakeRefusedError(NotAdmittedError(f"TLS failed ({reason})"), b"") from error
        self._tls_in_progress = False
        if self.admission is not None:
            self.admission.bind_channel(channel_binding(self.sock))
        return True

    def receive(self, scratch: memoryview, now_ns: int) -> bool:
        """Read the bytes that are there; False when there are none. Raises PeerClosedError, OSError, CorruptionError
        (impossible length).
        """
        frame = self._frame
        target = scratch if frame is None else self._target(frame, scratch)
        try:
            count = receive_raw(self.sock, target) if self.refused else receive_some(self.sock, target)
        except BlockingIOError:
            self._set_low_water(1 if frame is None else min(frame.missing_bytes, LOW_WATER_BYTES))
            return False
        if count == 0:
            raise PeerClosedError
        self.last_used_ns = now_ns
        if self.deadline_ns is None:
            self.deadline_ns = now_ns + self._frame_timeout_ns
        if self.refused:
            return True
        if frame is None:
            self._received += scratch[:count]
        else:
            frame.advance(count)
            if self._discarded is not None:
                self._discarded.add(target[:count])
        return True

    def _target(self, frame: PartialFrame, scratch: memoryview) -> memoryview:
        """The memory for the next bytes of a frame; declines the frame when the budget has no bytes for it."""
        try:
            return frame.target(scratch)
        except OverloadedError as error:
            self._decline(frame, self._dispatcher.refuse(frame.received(), error))
            return frame.target(scratch)

    def _decline(self, frame: PartialFrame, answer: Answer) -> None:
        if self._tags is not None:
            self._discarded = self._tags.discard_next()
            self._discarded.add(frame.received())
        frame.decline(answer)

    def _set_low_water(self, count: int) -> None:
        """Make the socket readable once it has ``count`` bytes, or its end. TLS has read some of them already."""
        if count != self._low_water and not isinstance(self.sock, ssl.SSLSocket):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            self._low_water = count

    def continue_handshake(self, now_ns: int) -> bool:
        """Continue the handshake; True once the peer is admitted. Raises OSError, and HandshakeRefusedError when the
        server refuses the peer.
        """
        if self.admission is None:
            return True
        if not self._received:
            return False
        try:
            refusal = self.admission.foreign_protocol(self._received)
            if refusal is not None:
                raise refusal
            answers = self.admission.feed(self._received)
        except HandshakeRefusedError:
            self.refused = True
            self._received.clear()
            raise
        if answers:
            self._unsent.append(memoryview(answers))
            self._push()
        admitted = self.admission.admitted
        if admitted is None:
            return False
        self._tags = self.admission.tags
        self._frame_bytes_max += TAG_BYTES if self._tags is not None else 0
        self.admission = None
        self._account = self._budget.account(None if admitted.secret is None else admitted.secret.id)
        self.caller_state.admit(admitted, self._account)
        self.deadline_ns = now_ns + self._frame_timeout_ns if self._received or self._unsent else None
        return True

    def send_refusal(self, answer: bytes) -> bool:
        """Send as much of ``answer`` as the socket takes now, and end sending; False when the peer closed."""
        try:
            if answer:
                self._unsent.append(memoryview(answer))
                self._push()
            self._unsent.clear()
            end(self.sock, socket.SHUT_WR)
        except OSError:
            return False
        return True

    def frames(self) -> Iterator[memoryview | Declined]:
        """The complete frames without their tags, each valid until its answer, and the declined frames. Raises
        CorruptionError on an impossible length or a wrong tag, or when a frame is no call.
        """
        while self._frame is not None or self._begin_frame():
            frame = self._frame
            if frame is None or frame.missing_bytes:
                return
            self._frame, self._answering = None, frame
            self.deadline_ns = None
            try:
                declined = frame.declined
                yield self._check(frame.content()) if declined is None else self._check_declined(declined)
            finally:
                frame.release()

    def _check(self, frame: memoryview) -> memoryview:
        return frame if self._tags is None else self._tags.check(frame)

    def _check_declined(self, declined: Declined) -> Declined:
        discarded, self._discarded = self._discarded, None
        if discarded is not None:
            discarded.check()
        return declined

    def _begin_frame(self) -> bool:
        if len(self._received) < FRAME_HEADER.size:
            if not self._received:
                self.deadline_ns = None
            return False
        (size,) = FRAME_HEADER.unpack_from(self._received)
        if not 0 < size <= self._frame_bytes_max:
            raise CorruptionError(f"a frame header says {size} bytes, the limit is {self._frame_bytes_max}")
        if len(self._received) < FRAME_HEADER.size + min(size, HEAD_BYTES_MAX):
            return False
        first = self._received[FRAME_HEADER.size : FRAME_HEADER.size + size]
        del self._received[: FRAME_HEADER.size + size]
        self._frame = PartialFrame(size, first, self._buffers, self._account)
        if self._frame.missing_bytes:
            payload_bytes = size if self._tags is None else size - TAG_BYTES
            refusal = self._dispatcher.judge_head(memoryview(first), payload_bytes, self.caller_state)
            if refusal is not None:
                self._decline(self._frame, refusal)
        return True

    def answer(self, answer: Answer, now_ns: int) -> None:
        """Send as much as the socket takes; :meth:`flush` sends the remaining bytes. Raises OSError, and
        OverloadedError when the budget has no bytes for an answer of that size: then it sends nothing.
        """
        self.closing = answer.close
        if answer.buffers is None:
            return
        if self._answering is not None:
            self._answering.release()
        size = sum(map(len, answer.buffers))
        if size > FREE_BYTES:
            self._account.take(size)
            self._answer_bytes = size
        tagged = answer.buffers if self._tags is None else self._tags.tagged(answer.buffers)
        self._unsent.extend(memoryview(buffer).cast("B") for buffer in tagged)
        self.deadline_ns = now_ns + self._frame_timeout_ns
        self.flush(now_ns)

    def flush(self, now_ns: int) -> bool:
        """Continue to send; True when all is sent. Raises OSError."""
        if not self._push():
            return False
        self._account.give_back(self._answer_bytes)
        self._answer_bytes = 0
        self.last_used_ns = now_ns
        if self.admission is None:
            self.deadline_ns = None
        return True

    def close(self) -> None:
        """Close the socket and stop counting bytes for it. No thread uses the connection at this time."""
        self.sock.close()
        self._account.close()

    def _push(self) -> bool:
        while self._unsent:
            try:
                sent = send_some(self.sock, self._unsent)
            except BlockingIOError:
                return False
            while self._unsent and sent >= len(self._unsent[0]):
                sent -= len(self._unsent.pop(0))
            if sent:
                self._unsent[0] = self._unsent[0][sent:]
        return True
