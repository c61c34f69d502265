"""The server's side of the handshake on one connection, and the log of refused handshakes.

:class:`Admission` takes the first bytes of a connection and never blocks. It returns bytes to send and ends with
:class:`Admitted`, or with a :class:`HandshakeRefusedError`: that has an answer in the protocol of the peer, as far as
the server recognizes it, and one line for the log. A handshake message is at most 4 KiB long, and the server reads
nothing else before the handshake ends.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, CorruptionError, IncompatibleError, NotAdmittedError, RefusedError
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.frames.envelope import FRAME_HEADER, foreign_protocol_answer
from bookkeeper.rpc.frames.frame_tags import FrameTags
from bookkeeper.rpc.trust import handshake
from bookkeeper.rpc.trust.handshake import Greeting, Kind, Message
from bookkeeper.security.access import Entrance
from bookkeeper.security.secret import Secret

LOG = logging.getLogger(__name__)

_HTTP = (b"GET ", b"POST", b"HEAD", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI ")
_TLS = b"\x16\x03"
_THRIFT = b"\x80\x01"
_RECOGNIZED_BY_BYTES = FRAME_HEADER.size + len(_THRIFT)

QUIET_MS = 10_000
"""After a log line, further refusals of the same address and kind are only counted for this time."""

LOGGED_MAX = 1_000
"""Pairs of address and kind whose last log line the server remembers."""


class Admitted(Struct, frozen=True):
    """The result of a handshake: the caller's role and instance id, and the secret that it proved (None: the server
    asks for none).
    """

    role: str
    instance_id: str
    secret: Secret | None


class HandshakeRefusedError(Exception):
    """The server refuses a connection: ``answer`` is for the peer, ``error`` for the log."""

    def __init__(self, error: BookkeeperError, answer: bytes) -> None:
        super().__init__(error.message)
        self.error = error
        self.answer = answer


class Admission:
    """One handshake. Used by one thread at a time."""

    def __init__(self, entrance: Entrance, hello: Hello) -> None:
        self._entrance = entrance
        self._hello = hello
        self._messages: list[bytes] = []
        """All messages so far: part of the transcript."""
        self._challenged: tuple[Greeting, Secret, bytes] | None = None
        """The greeting, the chosen secret and the transcript while the server waits for the caller's proof."""
        self._lacks_tls = False
        self._channel = b""
        self.tags: FrameTags | None = None
        """Tags of all later frames; None: TLS protects them, or the server asks for no secret."""
        self.admitted: Admitted | None = None
        """The result, once the handshake is over."""

    def connection_lacks_tls(self) -> None:
        """Record that the server requires TLS and the peer began without it."""
        self._lacks_tls = True

    def bind_channel(self, binding: bytes) -> None:
        """Record the channel binding of the TLS connection below."""
        self._channel = binding

    def feed(self, received: bytearray) -> bytes:
        """Take the complete messages out of ``received`` and return the answers; raises HandshakeRefusedError."""
        answers = b""
        try:
            while self.admitted is None:
                message = handshake.take_message(received)
                if message is None:
                    return answers
                answers += self._judge(message)
        except BookkeeperError as error:
            raise HandshakeRefusedError(error, handshake.pack_refusal(error)) from error
        return answers

    def foreign_protocol(self, received: bytearray) -> HandshakeRefusedError | None:
        """The refusal of a peer that begins with another protocol; None = it begins with this one so far."""
        if self._messages or handshake.MAGIC.startswith(bytes(received[: len(handshake.MAGIC)])):
            return None
        return refusal_of_protocol(bytes(received), self._own_name)

    @property
    def _own_name(self) -> str:
        return f"{self._hello.role} of cluster {self._hello.cluster_name}"

    def _judge(self, message: Message) -> bytes:
        if self._challenged is None:
            check_caller_version(message.version, self._own_name)
            refuse_plain(self._lacks_tls, self._own_name)
            return self._answer_greeting(message)
        greeting, secret, transcript = self._challenged
        proof = handshake.client_proof(secret.key, transcript)
        if message.kind is not Kind.PROOF or not handshake.is_proof(proof, message.body):
            raise NotAdmittedError(f"{self._own_name}: the proof for secret {secret.id} is wrong", self._details)
        if not self._channel:
            self.tags = FrameTags(
                handshake.server_frames_key(secret.key, transcript), handshake.client_frames_key(secret.key, transcript)
            )
        self.admitted = Admitted(greeting.role, greeting.instance_id, secret)
        return handshake.pack(Kind.WELCOME)

    def _answer_greeting(self, message: Message) -> bytes:
        greeting = handshake.read_greeting(message)
        refuse_other_target(greeting.target, self._hello, self._own_name)
        self._messages.append(message.raw)
        nonce = handshake.new_nonce()
        if self._entrance.accepted is None:  # the server admits callers without a secret
            self.admitted = Admitted(greeting.role, greeting.instance_id, None)
            none = handshake.NO_SECRET
            return handshake.pack_challenge(nonce, none, bytes(handshake.PROOF_BYTES))
        if not greeting.target:
            return self._name_instance()
        secret = choose_secret(greeting, self._entrance)
        if secret is None:
            reason = f"{self._own_name} admits only callers that prove a secret, and {_offers_text(greeting)}"
            raise NotAdmittedError(reason, self._details)
        chosen = bytes.fromhex(secret.id)
        transcript = handshake.transcript_of(self._channel, self._messages, nonce, chosen)
        self._challenged = (greeting, secret, transcript)
        return handshake.pack_challenge(nonce, chosen, handshake.server_proof(secret.key, transcript))

    def _name_instance(self) -> bytes:
        if len(self._messages) > 1:
            raise CorruptionError("a second GREETING that names no instance either")
        answer = handshake.pack_instance(self._hello.instance_id)
        self._messages.append(answer)
        return answer

    @property
    def _details(self) -> dict[str, str]:
        return {"instance_id": self._hello.instance_id}


def choose_secret(greeting: Greeting, entrance: Entrance) -> Secret | None:
    """The secret to prove: the first offered one that the server accepts; None = there is none."""
    accepted = {} if entrance.accepted is None else entrance.accepted()
    return next((accepted[offer.hex()] for offer in greeting.offers if offer.hex() in accepted), None)


def refuse_other_target(target: str, hello: Hello, own_name: str) -> None:
    """Raise RefusedError with a text for the caller when it wants another instance than this one."""
    if target and target != hello.instance_id:
        raise RefusedError(
            f"{own_name} is instance {hello.instance_id}, and the caller wants {target}: use the address of that one; "
            "if the peer was created again, delete the cluster and define it again",
            {"instance_id": hello.instance_id},
        )


def _offers_text(greeting: Greeting) -> str:
    if not greeting.offers:
        return f"this {greeting.role or 'caller'} has none"
    ids = ", ".join(offer.hex() for offer in greeting.offers[:3])
    return f"{ids}{' and others' * (len(greeting.offers) > 3)} of this {greeting.role or 'caller'} is unknown here"


def refuse_plain(lacks_tls: bool, own_name: str) -> None:
    """Raise IncompatibleError with a text for the caller when it lacks TLS and the server requires it."""
    if lacks_tls:
        raise IncompatibleError(
            f"{own_name} speaks TLS only: name the CA of its certificate (security.tls_ca, --tls-ca)"
        )


def check_caller_version(version: int, own_name: str) -> None:
    """Raise IncompatibleError with a text for the caller unless it speaks this version."""
    if version != PROTOCOL_VERSION:
        older = "it" if version > PROTOCOL_VERSION else "this side"
        raise IncompatibleError(f"{own_name} speaks protocol {PROTOCOL_VERSION}, not {version}; upgrade {older}")


def refusal_of_protocol(first: bytes, own_name: str) -> HandshakeRefusedError | None:
    """The refusal of a connection that begins with another protocol; None = more bytes are needed to decide."""
    text = f"this is a port of tablet-bookkeeper ({own_name}, protocol {PROTOCOL_VERSION})"
    if first[:4] in _HTTP:
        body = f"{text}, which speaks no HTTP; its pages are at the monitor's port\n".encode()
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        return HandshakeRefusedError(CorruptionError("HTTP"), head.encode() + b"Connection: close\r\n\r\n" + body)
    if first[:2] == _TLS:
        # A fatal alert, protocol_version: what TLS libraries report as such.
        return HandshakeRefusedError(
            CorruptionError("TLS, and security.tls_certificate is not set here"),
            struct.pack(">BHHBB", 21, 0x303, 2, 2, 70),
        )
    if first[FRAME_HEADER.size : _RECOGNIZED_BY_BYTES] == _THRIFT:
        answer = foreign_protocol_answer(memoryview(first)[FRAME_HEADER.size :], f"{text}, and begins with a handshake")
        if answer is None and len(first) < 512:
            return None
        return HandshakeRefusedError(
            IncompatibleError("Thrift without a handshake: protocol 1, or another client"), answer or b""
        )
    if len(first) < _RECOGNIZED_BY_BYTES and first[:1] in (b"\x00", b"\x16"):
        return None
    return HandshakeRefusedError(CorruptionError("it does not begin like this protocol"), b"")


def is_quiet(logged_ns: int, now_ns: int) -> bool:
    """Whether a refusal that was logged at ``logged_ns`` (0 = never) needs no new log line yet."""
    return logged_ns != 0 and now_ns < logged_ns + QUIET_MS * 1_000_000


class RefusalLog:
    """Logs refused connections: one line for each, and at most one in :data:`QUIET_MS` for a peer that tries again and
    again. Thread-safe.
    """

    def __init__(self, clock: Clock, write: Callable[[str], None] = LOG.warning) -> None:
        self._clock = clock
        self._write = write
        self._lock = threading.Lock()
        self._last: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()

    def refused(self, peer: str, kind: str, reason: str) -> None:
        """Log a refusal, or count it for the next line if one of this address and kind was logged a moment ago. Only
        ``reason`` may contain text of the peer: a ``kind`` with such text could be new each time.
        """
        key, now_ns = (peer.rpartition(":")[0], kind), self._clock.boot_ns()
        with self._lock:
            logged_ns, more = self._last.pop(key, (0, 0))
            quiet = is_quiet(logged_ns, now_ns)
            self._last[key] = (logged_ns, more + 1) if quiet else (now_ns, 0)
            if len(self._last) > LOGGED_MAX:
                self._last.popitem(last=False)
        if not quiet:
            again = f" ({more} times more from there since the last line)" if more else ""
            self._write(f"{peer}: refused: {reason}; closed{again}")
