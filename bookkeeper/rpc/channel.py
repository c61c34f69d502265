"""One connection of a caller: the handshake, then calls with a deadline each, which the server answers in their order.

After any error the caller must not use the connection again.
"""

from __future__ import annotations

import math
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.config.sections import RpcSettings
from bookkeeper.errors import CorruptionError, NotAdmittedError
from bookkeeper.rpc.address import parse_address
from bookkeeper.rpc.contract.faults import from_refusal
from bookkeeper.rpc.contract.messages import Hello
from bookkeeper.rpc.frames.envelope import FRAME_HEADER, Answered, MethodCodec
from bookkeeper.rpc.frames.frame_tags import TAG_BYTES, FrameTags
from bookkeeper.rpc.frames.transport import channel_binding, send_some
from bookkeeper.rpc.frames.wire import Buffers
from bookkeeper.rpc.trust import handshake
from bookkeeper.rpc.trust.handshake import Challenge, Kind, Message
from bookkeeper.security.access import Credentials, meant_for, offered_to
from bookkeeper.security.secret import Secret

_READ_BYTES = 64 * 1024
_T = TypeVar("_T")


class Look(Struct, frozen=True):
    """A look after the server each ``every_ms`` while a call waits: ``check`` raises OSError to end the call. It may
    need ``takes_ms``: a call whose time ends before has none.
    """

    every_ms: int
    takes_ms: int
    check: Callable[[], None]


class Channel:
    """A connection to one address. Not thread-safe."""

    def __init__(
        self,
        address: str,
        settings: RpcSettings,
        clock: Clock,
        tls: ssl.SSLContext | None = None,
        timeout_ms: float = math.inf,
    ) -> None:
        """Connect within ``timeout_ms`` and ``rpc.connect_timeout_ms``; raises OSError, of which ssl.SSLError is
        one.
        """
        target = parse_address(address)
        self._clock = clock
        self._frame_bytes_max = self._received_bytes_max = settings.frame_bytes_max
        self._tags: FrameTags | None = None
        self._sequence = 0
        self._unanswered: deque[tuple[MethodCodec, int, int]] = deque()
        """Codec, sequence and deadline of each call that waits for its answer, oldest first."""
        self._ahead = b""
        """Received bytes behind the last answer."""
        self._look: Look | None = None
        connect_ms = min(settings.connect_timeout_ms, timeout_ms)
        self._sock = socket.create_connection((target.host, target.port), connect_ms / 1000)
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if tls is not None:
            plain = self._sock
            try:
                self._sock = tls.wrap_socket(plain, server_hostname=target.host)
            except BaseException:
                plain.close()
                raise

    def look_while_waiting(self, look: Look) -> None:
        """Look after the server during the calls that follow; before, they wait until their deadlines."""
        self._look = look

    def greet(self, hello: Hello, credentials: Credentials, timeout_ms: float) -> Secret | None:
        """Do the handshake; returns the secret that both sides proved, None when the server asks for none.

        Raises NotAdmittedError, RefusedError (another instance), IncompatibleError (another version), CorruptionError
        (no handshake), OSError.
        """
        deadline_ns = self._clock.boot_ns() + int(timeout_ms * 1e6)
        secrets = credentials.offers()
        target, messages = credentials.instance_id, list[bytes]()
        answer = self._send_greeting(hello, target, meant_for(target, secrets), messages, deadline_ns)
        if answer.kind is Kind.INSTANCE and not target:
            target = handshake.read_instance(answer)
            messages.append(answer.raw)
            answer = self._send_greeting(hello, target, offered_to(target, secrets), messages, deadline_ns)
        challenge = handshake.read_challenge(answer)
        if challenge.is_open:
            if credentials.demand:
                raise NotAdmittedError("it proves no secret, so its identity is not certain")
            return None
        return self._prove(challenge, meant_for(target, secrets), messages, deadline_ns)

    def _send_greeting(
        self, hello: Hello, target: str, offers: Sequence[Secret], messages: list[bytes], deadline_ns: int
    ) -> Message:
        """Greet the instance ``target`` (empty: any) and add the greeting to ``messages``; returns the answer."""
        ids = [bytes.fromhex(secret.id) for secret in offers]
        greeting = handshake.pack_greeting(handshake.new_nonce(), hello.role, hello.instance_id, target, ids)
        messages.append(greeting)
        self._send([greeting], deadline_ns)
        return self._receive_message(deadline_ns)

    def _prove(self, challenge: Challenge, offers: Sequence[Secret], messages: list[bytes], deadline_ns: int) -> Secret:
        secret = next((offer for offer in offers if bytes.fromhex(offer.id) == challenge.chosen), None)
        if secret is None:
            raise NotAdmittedError(f"it asks for secret {challenge.chosen.hex()}, which this side did not offer")
        binding = channel_binding(self._sock)
        transcript = handshake.transcript_of(binding, messages, challenge.nonce, challenge.chosen)
        # The server has the key, and saw the same handshake.
        if not handshake.is_proof(handshake.server_proof(secret.key, transcript), challenge.proof):
            raise NotAdmittedError(
                f"it does not have secret {secret.id}: it is another server, or a third party relays the connection"
            )
        self._send([handshake.pack(Kind.PROOF, handshake.client_proof(secret.key, transcript))], deadline_ns)
        welcome = self._receive_message(deadline_ns)
        if welcome.kind is not Kind.WELCOME:
            raise CorruptionError(f"a {welcome.kind.name} in place of a WELCOME")
        if not binding:
            self._received_bytes_max += TAG_BYTES
            self._tags = FrameTags(
                handshake.client_frames_key(secret.key, transcript), handshake.server_frames_key(secret.key, transcript)
            )
        return secret

    def _receive_message(self, deadline_ns: int) -> Message:
        """Receive a message of the handshake; raises the error of a refusal."""
        head = self._exactly(handshake.HEAD.size, deadline_ns)
        version, kind, size = handshake.unpack_head(head)
        body = self._exactly(size, deadline_ns)
        message = Message(version, kind, body, head + body)
        if kind is Kind.REFUSAL:
            raise from_refusal(*handshake.read_refusal(message))
        handshake.check_version(version, "that side")
        return message

    def _exactly(self, size: int, deadline_ns: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            more = self._wait(partial(self._sock.recv, size - len(found)), deadline_ns)
            if not more:
                raise ConnectionResetError("closed without an answer")
            found += more
            if found[: len(handshake.MAGIC)] != handshake.MAGIC[: len(found)] and size == handshake.HEAD.size:
                raise CorruptionError("it does not begin like this protocol")
        return bytes(found)

    def call(self, codec: MethodCodec, arguments: tuple[Any, ...], timeout_ms: float) -> Answered:
        """Make one call. Raises InvalidInputError before it sends a byte, OSError (also on a timeout), and
        CorruptionError when the received bytes are no answer.
        """
        self.begin(codec, arguments, timeout_ms)
        return Answered(None, None) if codec.oneway else self.finish()

    def begin(self, codec: MethodCodec, arguments: tuple[Any, ...], timeout_ms: float) -> None:
        """Send a call; :meth:`finish` takes the answers of begun calls in their order. The caller limits how many wait:
        their answers have to fit into the buffers of the connection. Raises as :meth:`call`.
        """
        self._sequence = (self._sequence + 1) & 0x7FFFFFFF
        buffers = codec.call(self._sequence, arguments, self._frame_bytes_max)
        deadline_ns = self._clock.boot_ns() + int(timeout_ms * 1e6)
        self._send(buffers if self._tags is None else self._tags.tagged(buffers), deadline_ns)
        if not codec.oneway:
            self._unanswered.append((codec, self._sequence, deadline_ns))

    def finish(self) -> Answered:
        """Receive the answer to the oldest call that waits for one. Raises as :meth:`call`."""
        codec, sequence, deadline_ns = self._unanswered.popleft()
        frame = self._receive(deadline_ns)
        return codec.read_answer(frame if self._tags is None else self._tags.check(frame), sequence)

    @property
    def unanswered(self) -> int:
        """How many calls wait for their answers."""
        return len(self._unanswered)

    def _wait(self, operation: Callable[[], _T], deadline_ns: int) -> _T:
        """Do one operation of the socket, and look after the server while it waits. Raises OSError."""
        while True:
            remaining_ns = deadline_ns - self._clock.boot_ns()
            if remaining_ns <= 0:
                raise TimeoutError("timed out")
            look = self._look
            if look is None or remaining_ns < look.takes_ms * 1_000_000:
                self._sock.settimeout(remaining_ns / 1e9)
                return operation()
            self._sock.settimeout(min(remaining_ns / 1e9, look.every_ms / 1e3))
            try:
                return operation()
            except TimeoutError:  # no byte went either way
                look.check()

    def _send(self, buffers: Buffers, deadline_ns: int) -> None:
        unsent = [memoryview(buffer) for buffer in buffers]
        while unsent:
            sent = self._wait(partial(send_some, self._sock, unsent), deadline_ns)
            while unsent and sent >= len(unsent[0]):
                sent -= len(unsent.pop(0))
            if sent:
                unsent[0] = unsent[0][sent:]

    def _receive(self, deadline_ns: int) -> memoryview:
        first, self._ahead = self._ahead, b""
        while len(first) < FRAME_HEADER.size:
            first += self._more(deadline_ns)
        (size,) = FRAME_HEADER.unpack_from(first)
        end = FRAME_HEADER.size + size
        if not 0 < size <= self._received_bytes_max or (len(first) > end and not self._unanswered):
            raise CorruptionError(f"a frame header says {size} bytes, the limit is {self._received_bytes_max}")
        if len(first) >= end:
            self._ahead = first[end:]
            return memoryview(first)[FRAME_HEADER.size : end]
        frame = memoryview(bytearray(size))
        at = len(first) - FRAME_HEADER.size
        frame[:at] = first[FRAME_HEADER.size :]
        while at < size:
            count = self._wait(partial(self._sock.recv_into, frame[at:]), deadline_ns)
            if count == 0:
                raise ConnectionResetError("closed in the middle of an answer")
            at += count
        return frame

    def _more(self, deadline_ns: int) -> bytes:
        more = self._wait(partial(self._sock.recv, _READ_BYTES), deadline_ns)
        if not more:
            raise ConnectionResetError("closed without an answer")
        return more

    def is_stale(self) -> bool:
        """Whether bytes, or usually the end of the connection, arrived between two calls."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        return bool(poll.poll(0))

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()
