"""The server's side of the handshake, on one connection, without ever waiting; and what it says of those it refuses.

Arrives: the first bytes of a connection. Leaves: bytes to send, and :class:`Admitted` or a :class:`RefusedGuestError`
with what to tell the stranger, in a language that it may understand, and one line for the log. A message of a handshake
is at most 4 KiB long, and nothing else is read before it is over. Nothing survives a crash.
"""

from __future__ import annotations

import logging
import struct
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

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
_KNOWN_BY_BYTES = FRAME_HEADER.size + len(_THRIFT)

QUIET_MS = 10_000
"""Of one address that is refused again for the same reason within this, only the count is logged."""

LOGGED_MAX = 1_000
"""Addresses whose last refusal is remembered."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Who was let in: the role and the instance id that it gave, and the secret that it proved (None: none was asked
    for).
    """

    role: str
    instance_id: str
    secret: Secret | None


class RefusedGuestError(Exception):
    """Nobody for us: ``answer`` is for them, ``error`` for the log."""

    def __init__(self, error: BookkeeperError, answer: bytes) -> None:
        super().__init__(error.message)
        self.error = error
        self.answer = answer


class Admission:
    """One handshake. Used by one thread at a time."""

    def __init__(self, entrance: Entrance, hello: Hello) -> None:
        self._entrance = entrance
        self._hello = hello
        self._said: list[bytes] = []
        self._waiting: tuple[Greeting, Secret, bytes] | None = None
        self.lacks_tls = False
        """The server speaks TLS, and the other side does not."""
        self.channel = b""
        """The binding of the TLS connection below."""
        self.seal: FrameTags | None = None
        """What every frame that follows goes through; None: TLS does that, or nobody is asked for a secret."""
        self.admitted: Admitted | None = None
        """Set when it is over."""

    def feed(self, event_queue: bytearray) -> bytes:
        """Take what is whole out of ``event_queue`` and return what to send; raises RefusedGuestError."""
        answers = b""
        try:
            while self.admitted is None:
                message = handshake.take_message(event_queue)
                if message is None:
                    return answers
                answers += self._judge(message)
        except BookkeeperError as error:
            raise RefusedGuestError(error, handshake.pack_refusal(error)) from error
        return answers

    def stranger(self, event_queue: bytearray) -> RefusedGuestError | None:
        """What to say to whoever does not begin like this protocol; None = it does, as far as one can see."""
        if self._said or handshake.MAGIC.startswith(bytes(event_queue[: len(handshake.MAGIC)])):
            return None
        return judge_stranger(bytes(event_queue), self._who)

    @property
    def _who(self) -> str:
        return f"{self._hello.role} of cluster {self._hello.cluster_name}"

    def _judge(self, message: Message) -> bytes:
        if self._waiting is None:
            check_guest_version(message.version, self._who)
            refuse_plain(self.lacks_tls, self._who)
            return self._answer_greeting(message)
        greeting, secret, words = self._waiting
        proof = handshake.client_proof(secret.key, words)
        if message.kind is not Kind.PROOF or not handshake.is_proof(proof, message.body):
            raise NotAdmittedError(f"{self._who}: the proof for secret {secret.id} is wrong", self._facts)
        if not self.channel:
            self.seal = FrameTags(
                handshake.server_frames_key(secret.key, words), handshake.client_frames_key(secret.key, words)
            )
        self.admitted = Admitted(greeting.role, greeting.instance_id, secret)
        return handshake.pack(Kind.WELCOME)

    def _answer_greeting(self, message: Message) -> bytes:
        greeting = handshake.read_greeting(message)
        refuse_other_target(greeting.target, self._hello, self._who)
        self._said.append(message.raw)
        nonce = handshake.new_nonce()
        if not asks_for_secret(self._entrance):
            self.admitted = Admitted(greeting.role, greeting.instance_id, None)
            none = handshake.NO_SECRET
            return handshake.pack_challenge(nonce, none, bytes(handshake.PROOF_BYTES))
        if not greeting.target:
            return self._name_instance()
        secret = choose_secret(greeting, self._entrance)
        if secret is None:
            raise NotAdmittedError(f"{self._who} lets in only who proves a secret, and {_shown(greeting)}", self._facts)
        chosen = bytes.fromhex(secret.id)
        words = handshake.words_of(self.channel, self._said, nonce, chosen)
        self._waiting = (greeting, secret, words)
        return handshake.pack_challenge(nonce, chosen, handshake.server_proof(secret.key, words))

    def _name_instance(self) -> bytes:
        if len(self._said) > 1:
            raise CorruptionError("a second GREETING that names no instance either")
        answer = handshake.pack_instance(self._hello.instance_id)
        self._said.append(answer)
        return answer

    @property
    def _facts(self) -> dict[str, str]:
        return {"instance_id": self._hello.instance_id}


def asks_for_secret(entrance: Entrance) -> bool:
    """Whether nobody is let in without one."""
    return entrance.accepted is not None


def choose_secret(greeting: Greeting, entrance: Entrance) -> Secret | None:
    """The secret to prove: the first that is offered and known here. None = there is none."""
    accepted = {} if entrance.accepted is None else entrance.accepted()
    return next((accepted[offer.hex()] for offer in greeting.offers if offer.hex() in accepted), None)


def refuse_other_target(target: str, hello: Hello, who: str) -> None:
    """Raise RefusedError, worded for the guest, when it means another instance than this one."""
    if target and target != hello.instance_id:
        raise RefusedError(
            f"{who} is instance {hello.instance_id}, and {target} was meant: name the address of that one; of a peer "
            "that was made anew, delete the cluster and define it again",
            {"instance_id": hello.instance_id},
        )


def _shown(greeting: Greeting) -> str:
    if not greeting.offers:
        return f"this {greeting.role or 'caller'} has none"
    ids = ", ".join(offer.hex() for offer in greeting.offers[:3])
    return f"{ids}{' and others' * (len(greeting.offers) > 3)} of this {greeting.role or 'caller'} is not known here"


def refuse_plain(lacks_tls: bool, who: str) -> None:
    """Raise IncompatibleError, worded for the guest, when it speaks no TLS and has to."""
    if lacks_tls:
        raise IncompatibleError(f"{who} speaks TLS only: name the CA of its certificate (security.tls_ca, --tls-ca)")


def check_guest_version(version: int, who: str) -> None:
    """Raise IncompatibleError, worded for the guest, unless it speaks this version."""
    if version != PROTOCOL_VERSION:
        older = "it" if version > PROTOCOL_VERSION else "this side"
        raise IncompatibleError(f"{who} speaks protocol {PROTOCOL_VERSION}, not {version}; upgrade {older}")


def judge_stranger(first: bytes, who: str) -> RefusedGuestError | None:
    """The refusal of a connection that begins with other bytes than ours; None = one can't tell yet."""
    text = f"this is a port of tablet-bookkeeper ({who}, protocol {PROTOCOL_VERSION})"
    if first[:4] in _HTTP:
        body = f"{text}, which speaks no HTTP; its pages are at the monitor's port\n".encode()
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
        return RefusedGuestError(CorruptionError("HTTP"), head.encode() + b"Connection: close\r\n\r\n" + body)
    if first[:2] == _TLS:
        # A fatal alert, protocol_version: what TLS libraries report as such.
        return RefusedGuestError(
            CorruptionError("TLS, and security.tls_certificate is not set here"),
            struct.pack(">BHHBB", 21, 0x303, 2, 2, 70),
        )
    if first[FRAME_HEADER.size : _KNOWN_BY_BYTES] == _THRIFT:
        answer = foreign_protocol_answer(memoryview(first)[FRAME_HEADER.size :], f"{text}, and begins with a handshake")
        if answer is None and len(first) < 512:
            return None
        return RefusedGuestError(
            IncompatibleError("Thrift without a handshake: protocol 1, or another client"), answer or b""
        )
    if len(first) < _KNOWN_BY_BYTES and first[:1] in (b"\x00", b"\x16"):
        return None
    return RefusedGuestError(CorruptionError("it does not begin like this protocol"), b"")


def is_quiet(said_ns: int, now_ns: int) -> bool:
    """Tell whether what was said at ``said_ns`` (0 = never) need not be said again yet."""
    return said_ns != 0 and now_ns < said_ns + QUIET_MS * 1_000_000


class RefusalLog:
    """One line for whoever is refused, and one now and then for whoever comes again and again. Thread-safe."""

    def __init__(self, clock: Clock, say: Callable[[str], None] = LOG.warning) -> None:
        self._clock = clock
        self._say = say
        self._lock = threading.Lock()
        self._last: OrderedDict[tuple[str, str], tuple[int, int]] = OrderedDict()

    def refused(self, peer: str, kind: str, reason: str) -> None:
        """Log it, unless one of that kind was logged for that address a moment ago: then it is counted, and the next
        line says so. A ``reason`` may hold what the stranger said, a ``kind`` must not: else each could be new.
        """
        key, now_ns = (peer.rpartition(":")[0], kind), self._clock.boot_ns()
        with self._lock:
            said_ns, more = self._last.pop(key, (0, 0))
            quiet = is_quiet(said_ns, now_ns)
            self._last[key] = (said_ns, more + 1) if quiet else (now_ns, 0)
            if len(self._last) > LOGGED_MAX:
                self._last.popitem(last=False)
        if not quiet:
            again = f" ({more} times more from there since the last line)" if more else ""
            self._say(f"{peer}: refused: {reason}; closed{again}")
