"""One connection of a server: bytes in, whole frames out, answers back, without ever waiting.

Arrives: a socket that is ready. Leaves: frames, as they become whole; the caller arms the socket for what
:attr:`Connection.wants` says. Until the handshake is over, its bytes go to the admission and nowhere else. A frame's
length is held against the limit before anything is allocated for it. A frame that is not whole when its head has come
is judged by its head, and its memory grows with its bytes (``partial_frame``); one that is declined is thrown away as
it comes, and its call answered then. A connection in its handshake, or in the middle of a frame, in either direction,
has a deadline. Whoever is refused is heard out, unread, until it closes or the deadline comes: else it would lose what
it was told.
"""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterator

from bookkeeper.config import RpcSettings
from bookkeeper.errors import CorruptionError, NotAdmittedError, OverloadedError
from bookkeeper.rpc.dispatch import Conversation, Dispatcher
from bookkeeper.rpc.frames.budget import FREE_BYTES, Account, Budget
from bookkeeper.rpc.frames.envelope import FRAME_HEADER, HEAD_BYTES_MAX
from bookkeeper.rpc.frames.frame_tags import TAG_BYTES, FrameTags, PassingFrame
from bookkeeper.rpc.frames.partial_frame import Answer, Declined, FrameBuffers, PartialFrame
from bookkeeper.rpc.frames.transport import channel_binding, end, receive_raw, receive_some, send_some
from bookkeeper.rpc.frames.wire import Buffers
from bookkeeper.rpc.trust.admission import Admission, RefusedGuestError

TLS_FIRST = b"\x16"
"""The first byte of a TLS connection."""
LOW_WATER_BYTES = 512 * 1024
"""Of a large frame, so much at least is waited for at once: else a thread is woken for each packet of it."""


class PeerClosedError(Exception):
    """The other side closed the connection."""


class Connection:
    """State of one accepted socket. Used by one thread at a time."""

    def __init__(
        self,
        sock: socket.socket,
        peer: str,
        now_ns: int,
        settings: RpcSettings,
        buffers: FrameBuffers,
        budget: Budget,
        dispatcher: Dispatcher,
        admission: Admission,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``dispatcher`` judges calls by their heads. ``tls``: the other side has to begin with it."""
        self.sock = sock
        self._tls = tls
        self._securing = False
        self._blocked = select.EPOLLIN
        self.conversation = Conversation(peer)
        self.admission: Admission | None = admission
        """None once the other side was let in."""
        self.closing = False
        """Close once the answers have left."""
        self.refused = False
        """Nothing is read any more but thrown away, until the other side closes."""
        self.last_used_ns = now_ns
        self.deadline_ns: int | None = now_ns + settings.handshake_timeout_ms * 1_000_000
        """Boot clock by which the handshake, or the frame under way, must be over; None between frames."""
        self._frame_bytes_max = settings.frame_bytes_max
        self._frame_timeout_ns = settings.frame_timeout_ms * 1_000_000
        self._buffers = buffers
        self._seal: FrameTags | None = None
        self._passing: PassingFrame | None = None
        """Of the frame under way, when it is thrown away: it has a tag, too."""
        self._budget = budget
        self._account: Account = budget.account(None)
        self._dispatcher = dispatcher
        self._event_queue = bytearray()
        self._frame: PartialFrame | None = None
        self._answering: PartialFrame | None = None
        self._low_water = 1
        self._answer_bytes = 0
        self._outbox: list[memoryview] = []

    @property
    def wants(self) -> int:
        """The event to wait for: writable while an answer has not left, else readable."""
        if self._securing:
            return self._blocked
        return select.EPOLLOUT if self._outbox else select.EPOLLIN

    def secure(self) -> bool:
        """Begin with TLS where it is asked for; True when no more is to be done. A guest that begins otherwise is told
        so by the admission. Raises PeerClosedError, OSError, RefusedGuestError.
        """
        if self._tls is not None:
            try:
                first = self.sock.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return False
            if not first:
                raise PeerClosedError
            context, self._tls = self._tls, None
            self._securing = first == TLS_FIRST
            if self._securing:
                self.sock = context.wrap_socket(self.sock, server_side=True, do_handshake_on_connect=False)
            elif self.admission is not None:
                self.admission.lacks_tls = True
        return not self._securing or self._go_on_securing()

    def _go_on_securing(self) -> bool:
        assert isinstance(self.sock, ssl.SSLSocket)
        try:
            self.sock.do_handshake()
        except ssl.SSLWantReadError:
            self._blocked = select.EPOLLIN
            return False
        except ssl.SSLWantWriteError:
            self._blocked = select.EPOLLOUT
            return False
        except ssl.SSLError as error:
            self._securing, self.refused = False, True
            reason = (error.reason or str(error)).replace("_", " ").lower()
            raise RefusedGuestError(NotAdmittedError(f"TLS failed ({reason})"), b"") from error
        self._securing = False
        if self.admission is not None:
            self.admission.channel = channel_binding(self.sock)
        return True

    def receive(self, scratch: memoryview, now_ns: int) -> bool:
        """Take what is there; False when nothing was. Raises PeerClosedError, OSError, CorruptionError (bad length)."""
        frame = self._frame
        target = scratch if frame is None else self._target(frame, scratch)
        try:
            count = receive_raw(self.sock, target) if self.refused else receive_some(self.sock, target)
        except BlockingIOError:
            self._wait_for(1 if frame is None else min(frame.left_bytes, LOW_WATER_BYTES))
            return False
        if count == 0:
            raise PeerClosedError
        self.last_used_ns = now_ns
        if self.deadline_ns is None:
            self.deadline_ns = now_ns + self._frame_timeout_ns
        if self.refused:
            return True
        if frame is None:
            self._event_queue += scratch[:count]
        else:
            frame.took(count)
            if self._passing is not None:
                self._passing.add(target[:count])
        return True

    def _target(self, frame: PartialFrame, scratch: memoryview) -> memoryview:
        """Where the next bytes of a frame go; one that finds no memory is declined."""
        try:
            return frame.target(scratch)
        except OverloadedError as error:
            self._decline(frame, self._dispatcher.refuse(frame.head(), error))
            return frame.target(scratch)

    def _decline(self, frame: PartialFrame, answer: Answer) -> None:
        if self._seal is not None:
            self._passing = self._seal.passing()
            self._passing.add(frame.head())
        frame.decline(answer)

    def _wait_for(self, count: int) -> None:
        """The socket is readable once so many bytes are there, or its end. TLS has taken some of them already."""
        if count != self._low_water and not isinstance(self.sock, ssl.SSLSocket):
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
            self._low_water = count

    def shake_hands(self, now_ns: int) -> bool:
        """Go on with the handshake; True when the other side was let in. Raises OSError, and RefusedGuestError when it
        is to be turned away.
        """
        if self.admission is None:
            return True
        if not self._event_queue:
            return False
        try:
            stranger = self.admission.stranger(self._event_queue)
            if stranger is not None:
                raise stranger
            answers = self.admission.feed(self._event_queue)
        except RefusedGuestError:
            self.refused = True
            self._event_queue.clear()
            raise
        if answers:
            self._outbox.append(memoryview(answers))
            self._push()
        admitted = self.admission.admitted
        if admitted is None:
            return False
        self.conversation.admitted = admitted
        self._seal = self.admission.seal
        self._frame_bytes_max += TAG_BYTES if self._seal is not None else 0
        self.admission = None
        self._account = self._budget.account(None if admitted.secret is None else admitted.secret.id)
        self.conversation.account = self._account
        self.deadline_ns = now_ns + self._frame_timeout_ns if self._event_queue or self._outbox else None
        return True

    def turn_away(self, answer: bytes) -> bool:
        """Say it, as far as it fits into the socket at once, and nothing more; False when the other side is gone."""
        try:
            if answer:
                self._outbox.append(memoryview(answer))
                self._push()
            self._outbox.clear()
            end(self.sock, socket.SHUT_WR)
        except OSError:
            return False
        return True

    def frames(self) -> Iterator[memoryview | Declined]:
        """The frames that are whole now, without their tags, each valid until it is answered, and those that were
        thrown away. Raises CorruptionError on an impossible length or a wrong tag, or when a frame is no call.
        """
        while self._frame is not None or self._begin_frame():
            frame = self._frame
            if frame is None or frame.left_bytes:
                return
            self._frame, self._answering = None, frame
            self.deadline_ns = None
            try:
                yield self._thrown_away(frame.declined) if frame.declined is not None else self._whole(frame.whole())
            finally:
                frame.release()

    def _whole(self, frame: memoryview) -> memoryview:
        return frame if self._seal is None else self._seal.check(frame)

    def _thrown_away(self, declined: Declined) -> Declined:
        passing, self._passing = self._passing, None
        if passing is not None:
            passing.check()
        return declined

    def _begin_frame(self) -> bool:
        if len(self._event_queue) < FRAME_HEADER.size:
            if not self._event_queue:
                self.deadline_ns = None
            return False
        (size,) = FRAME_HEADER.unpack_from(self._event_queue)
        if not 0 < size <= self._frame_bytes_max:
            raise CorruptionError(f"a frame of {size} bytes was announced, the limit is {self._frame_bytes_max}")
        if len(self._event_queue) < FRAME_HEADER.size + min(size, HEAD_BYTES_MAX):
            return False
        taken = self._event_queue[FRAME_HEADER.size : FRAME_HEADER.size + size]
        del self._event_queue[: FRAME_HEADER.size + size]
        self._frame = PartialFrame(size, taken, self._buffers, self._account)
        if self._frame.left_bytes:
            payload_bytes = size if self._seal is None else size - TAG_BYTES
            refusal = self._dispatcher.judge_head(memoryview(taken), payload_bytes, self.conversation)
            if refusal is not None:
                self._decline(self._frame, refusal)
        return True

    def answer(self, buffers: Buffers, now_ns: int) -> None:
        """Send as much as goes; the rest waits for :meth:`flush`. Raises OSError, and OverloadedError when there is no
        memory for an answer of that size to wait: nothing of it was sent then.
        """
        if self._answering is not None:
            self._answering.release()
        size = sum(map(len, buffers))
        if size > FREE_BYTES:
            self._account.take(size)
            self._answer_bytes = size
        sealed = buffers if self._seal is None else self._seal.sealed(buffers)
        self._outbox.extend(memoryview(buffer).cast("B") for buffer in sealed)
        self.deadline_ns = now_ns + self._frame_timeout_ns
        self.flush(now_ns)

    def flush(self, now_ns: int) -> bool:
        """Send on; True when nothing is left. Raises OSError."""
        if not self._push():
            return False
        self._account.give_back(self._answer_bytes)
        self._answer_bytes = 0
        self.last_used_ns = now_ns
        if self.admission is None:
            self.deadline_ns = None
        return True

    def close(self) -> None:
        """Close the socket; nothing is counted for it any more. Nobody uses the connection now."""
        self.sock.close()
        self._account.close()

    def _push(self) -> bool:
        while self._outbox:
            try:
                sent = send_some(self.sock, self._outbox)
            except BlockingIOError:
                return False
            while self._outbox and sent >= len(self._outbox[0]):
                sent -= len(self._outbox.pop(0))
            if sent:
                self._outbox[0] = self._outbox[0][sent:]
        return True
