"""The messages of a connection before the first call: they settle the protocol version and authenticate both sides.

Pure. The secret itself is never sent. Rule: R23.

========  =========================================================================================
client    ``GREETING``: nonce (32), role, its instance id, the id of the instance that it wants (texts,
          each with 1 byte of length), count (1), that many ids of secrets for that instance (8 each)
server    ``INSTANCE``: its instance id (text); only when the client names no instance and the server
          asks for a secret. The client answers with a second ``GREETING`` that names it
server    ``CHALLENGE``: nonce (32), the chosen secret id (8; zeros: none is asked for), its proof (32)
client    ``PROOF``: its proof (32); only when the server chose a secret
server    ``WELCOME``: empty; or at any time ``REFUSAL``: JSON with ``code``, ``message`` and ``details``
========  =========================================================================================

Every message begins with ``BKPR``, the version (2 bytes), its kind (1) and the length of its body (2), big-endian. This
head, ``GREETING`` as the first message, and ``REFUSAL`` are the same in all versions. A proof is HMAC-SHA256 with the
secret's key over the side's name and the transcript of the handshake: the channel binding of the TLS connection (empty
without TLS), every message before the challenge, and the challenge without its proof. So a proof holds only for these
two nonces, these two instances, this role, version and connection, and neither the other side nor a third party between
them can use it. Without TLS the transcript also makes a key for each direction, and every later frame has a tag
(:mod:`bookkeeper.rpc.frames.frame_tags`): a third party that relays the handshake can't add, change or repeat a frame.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import struct
from collections.abc import Sequence
from enum import IntEnum

from msgspec import Struct

from bookkeeper.errors import BookkeeperError, CorruptionError, IncompatibleError
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION

MAGIC = b"BKPR"
NONCE_BYTES = 32
ID_BYTES = 8
PROOF_BYTES = 32
NO_SECRET = bytes(ID_BYTES)
OFFERS_MAX = 64
BODY_BYTES_MAX = 4096
TEXT_BYTES_MAX = 64
"""Most bytes of a role or an instance id."""
REASON_MAX = 500

HEAD = struct.Struct(">4sHBH")


class Kind(IntEnum):
    """The kind of a message."""

    GREETING = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSAL = 5
    INSTANCE = 6


class Message(Struct, frozen=True):
    """One message; ``raw`` has all its bytes."""

    version: int
    kind: Kind
    body: bytes
    raw: bytes


class Greeting(Struct, frozen=True):
    """The caller's role and instance, the instance that it wants, and the ids of the secrets that it can prove.

    ``instance_id`` is empty for a plain client, ``target`` while the caller does not know the server's instance.
    """

    nonce: bytes
    role: str
    instance_id: str
    target: str
    offers: tuple[bytes, ...]


class Challenge(Struct, frozen=True):
    """The server's answer to a greeting; ``chosen`` and ``proof`` are zeros when it asks for no secret."""

    nonce: bytes
    chosen: bytes
    proof: bytes

    @property
    def is_open(self) -> bool:
        """Whether the server asks for no secret."""
        return self.chosen == NO_SECRET


def new_nonce() -> bytes:
    """Random bytes for one handshake."""
    return secrets.token_bytes(NONCE_BYTES)


def pack(kind: Kind, body: bytes = b"", version: int = PROTOCOL_VERSION) -> bytes:
    """A message."""
    return HEAD.pack(MAGIC, version, kind, len(body)) + body


def unpack_head(raw: bytes | bytearray | memoryview) -> tuple[int, Kind, int]:
    """Version, kind and length of the body; raises CorruptionError."""
    magic, version, kind, size = HEAD.unpack_from(raw)
    if magic != MAGIC:
        raise CorruptionError("it does not begin like this protocol")
    if kind not in Kind._value2member_map_ or size > BODY_BYTES_MAX:
        raise CorruptionError(f"a handshake message of kind {kind} with {size} bytes")
    return version, Kind(kind), size


def take_message(received: bytearray) -> Message | None:
    """Remove the first message from the received bytes; None while it is not complete. Raises CorruptionError."""
    if bytes(received[: len(MAGIC)]) != MAGIC[: len(received)]:
        raise CorruptionError("it does not begin like this protocol")
    if len(received) < HEAD.size:
        return None
    version, kind, size = unpack_head(received)
    end = HEAD.size + size
    if len(received) < end:
        return None
    raw = bytes(received[:end])
    del received[:end]
    return Message(version, kind, raw[HEAD.size :], raw)


def check_version(version: int, who: str) -> None:
    """Raise IncompatibleError unless both sides speak the same version."""
    if version != PROTOCOL_VERSION:
        older = "this side" if version > PROTOCOL_VERSION else "that side"
        raise IncompatibleError(f"{who} speaks protocol {version}, this side {PROTOCOL_VERSION}: upgrade {older}")


def pack_greeting(nonce: bytes, role: str, instance_id: str, target: str, offers: Sequence[bytes]) -> bytes:
    """A greeting; of more than 64 offers the first ones count."""
    kept = offers[:OFFERS_MAX]
    texts = map(_text, (role, instance_id, target))
    return pack(Kind.GREETING, b"".join((nonce, *texts, bytes([len(kept)]), *kept)))


def read_greeting(message: Message) -> Greeting:
    """Inverse of :func:`pack_greeting`; raises CorruptionError."""
    body = _body(message, Kind.GREETING)
    role, at = _read_text(message, NONCE_BYTES)
    instance_id, at = _read_text(message, at)
    target, at = _read_text(message, at)
    if len(body) < at + 1 or len(body) != at + 1 + ID_BYTES * body[at]:
        raise _broken(message)
    offers = tuple(body[id_at : id_at + ID_BYTES] for id_at in range(at + 1, len(body), ID_BYTES))
    return Greeting(body[:NONCE_BYTES], role, instance_id, target, offers)


def pack_instance(instance_id: str) -> bytes:
    """The message with the server's instance."""
    return pack(Kind.INSTANCE, _text(instance_id))


def read_instance(message: Message) -> str:
    """Inverse of :func:`pack_instance`; raises CorruptionError."""
    body = _body(message, Kind.INSTANCE)
    instance_id, end = _read_text(message, 0)
    if end != len(body) or not instance_id:
        raise _broken(message)
    return instance_id


def _text(text: str) -> bytes:
    raw = text.encode()[:TEXT_BYTES_MAX]
    return bytes([len(raw)]) + raw


def _read_text(message: Message, at: int) -> tuple[str, int]:
    """The text at a position, and the position of its end."""
    body = message.body
    if len(body) <= at or len(body) < at + 1 + body[at]:
        raise _broken(message)
    end = at + 1 + body[at]
    text = body[at + 1 : end].decode("ascii", "replace")
    if not (text.isascii() and text.isprintable()):  # the text goes to the log
        raise CorruptionError(f"a {message.kind.name} with a role or an id that is no plain text")
    return text, end


def pack_challenge(nonce: bytes, chosen: bytes, proof: bytes) -> bytes:
    """A challenge."""
    return pack(Kind.CHALLENGE, nonce + chosen + proof)


def read_challenge(message: Message) -> Challenge:
    """Inverse of :func:`pack_challenge`; raises CorruptionError."""
    body = _body(message, Kind.CHALLENGE)
    if len(body) != NONCE_BYTES + ID_BYTES + PROOF_BYTES:
        raise _broken(message)
    chosen_end = NONCE_BYTES + ID_BYTES
    return Challenge(body[:NONCE_BYTES], body[NONCE_BYTES:chosen_end], body[chosen_end:])


def pack_refusal(error: BookkeeperError) -> bytes:
    """A refusal with the code of an error class; it cuts a text that is too long."""
    content = {"code": error.code, "message": error.message[:REASON_MAX], "details": error.details}
    body = json.dumps(content).encode()
    return pack(Kind.REFUSAL, body if len(body) <= BODY_BYTES_MAX else json.dumps({"code": error.code}).encode())


def read_refusal(message: Message) -> tuple[str, str, dict[str, str]]:
    """Code, text (one line) and details; raises CorruptionError."""
    try:
        content = json.loads(_body(message, Kind.REFUSAL))
    except (ValueError, RecursionError):
        raise _broken(message) from None
    if not isinstance(content, dict):
        raise _broken(message)
    details = content.get("details")
    texts = {str(k): _one_line(str(v)) for k, v in details.items()} if isinstance(details, dict) else {}
    return str(content.get("code")), _one_line(str(content.get("message", "it gives no reason"))), texts


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def transcript_of(channel: bytes, messages: Sequence[bytes], nonce: bytes, chosen: bytes) -> bytes:
    """The transcript to which proofs and keys are bound: ``channel`` is the binding of the TLS connection (empty
    without TLS), ``messages`` are those before the challenge, ``nonce`` and ``chosen`` are of the challenge.
    """
    return b"".join((len(channel).to_bytes(2, "big"), channel, *messages, nonce, chosen))


def server_proof(key: bytes, transcript: bytes) -> bytes:
    """The proof for a client that the server has the key; ``transcript``: :func:`transcript_of`."""
    return _derived(key, b"server", transcript)


def client_proof(key: bytes, transcript: bytes) -> bytes:
    """The proof for a server that the client has the key."""
    return _derived(key, b"client", transcript)


def server_frames_key(key: bytes, transcript: bytes) -> bytes:
    """The key for the tags of a server's frames."""
    return _derived(key, b"server frames", transcript)


def client_frames_key(key: bytes, transcript: bytes) -> bytes:
    """The key for the tags of a client's frames."""
    return _derived(key, b"client frames", transcript)


def _derived(key: bytes, purpose: bytes, transcript: bytes) -> bytes:
    return hmac.digest(key, b"\x00".join((MAGIC, purpose, transcript)), hashlib.sha256)


def is_proof(expected: bytes, received: bytes) -> bool:
    """Whether a proof is right; the time of the comparison does not depend on the first difference."""
    return hmac.compare_digest(expected, received)


def _body(message: Message, kind: Kind) -> bytes:
    if message.kind is not kind:
        raise CorruptionError(f"a {message.kind.name} in place of a {kind.name}")
    return message.body


def _broken(message: Message) -> CorruptionError:
    return CorruptionError(f"a {message.kind.name} of {len(message.body)} bytes that does not parse")
