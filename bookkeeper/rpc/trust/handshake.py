"""What is said on a connection before the first call: who may come in, and in which version of the protocol.

Arrives: nonces, secrets, the bytes of one message. Leaves: messages, proofs and keys; pure. The secret is never sent.
Rule: R23.

========  =========================================================================================
client    ``GREETING``: nonce (32), role, its instance id, the id of the instance that it means (texts,
          each with 1 byte of length), count (1), that many ids of secrets for that instance (8 each)
server    ``INSTANCE``: its instance id (text); only when the caller names no instance and a secret is
          asked for. The client answers with a second ``GREETING`` that names it
server    ``CHALLENGE``: nonce (32), the id that it chose (8; zeros: no secret is asked for), its proof (32)
client    ``PROOF``: its proof (32); only when a secret was chosen
server    ``WELCOME``: nothing; or at any time ``REFUSAL``: JSON with ``code``, ``message`` and ``details``
========  =========================================================================================

Every message begins with ``BKPR``, the version (2 bytes), its kind (1) and the length of what follows (2), big-endian;
this, ``GREETING``'s place as the first message, and ``REFUSAL`` are the same in all versions. A proof is HMAC-SHA256
with the secret's key over the side's name and the words of the handshake: the channel binding of the TLS connection
(empty without TLS), every message before the challenge, and the challenge without its proof. So it holds for these two
nonces, these two instances, this role, version and connection only, and neither side's proof is any use to the other
side or to anybody between them. Without TLS the same words make a key for each direction, and every frame that follows
has a tag (:mod:`bookkeeper.rpc.frames.frame_tags`): whoever only passes a handshake on can add, change or repeat
nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

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
"""Of a role or an instance id."""
REASON_MAX = 500

HEAD = struct.Struct(">4sHBH")


class Kind(IntEnum):
    """What a message is."""

    GREETING = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSAL = 5
    INSTANCE = 6


@dataclass(frozen=True, slots=True)
class Message:
    """One message; ``raw`` is all of it."""

    version: int
    kind: Kind
    body: bytes
    raw: bytes


@dataclass(frozen=True, slots=True)
class Greeting:
    """Who comes, whom it means, and the ids of the secrets that it could prove to it.

    ``instance_id`` is empty for a plain client, ``target`` while the caller does not know who answers at the address.
    """

    nonce: bytes
    role: str
    instance_id: str
    target: str
    offers: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Challenge:
    """What the server answers; ``chosen`` and ``proof`` are zeros when it asks for no secret."""

    nonce: bytes
    chosen: bytes
    proof: bytes

    @property
    def is_open(self) -> bool:
        """Whether no secret is asked for."""
        return self.chosen == NO_SECRET


def new_nonce() -> bytes:
    """Bytes that nobody can foresee."""
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


def take_message(event_queue: bytearray) -> Message | None:
    """The first message of what came, taken out of it; None while it is not whole. Raises CorruptionError."""
    if bytes(event_queue[: len(MAGIC)]) != MAGIC[: len(event_queue)]:
        raise CorruptionError("it does not begin like this protocol")
    if len(event_queue) < HEAD.size:
        return None
    version, kind, size = unpack_head(event_queue)
    end = HEAD.size + size
    if len(event_queue) < end:
        return None
    raw = bytes(event_queue[:end])
    del event_queue[:end]
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
    """Which instance the server belongs to."""
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
    """The text that begins there, and where it ends."""
    body = message.body
    if len(body) <= at or len(body) < at + 1 + body[at]:
        raise _broken(message)
    end = at + 1 + body[at]
    text = body[at + 1 : end].decode("ascii", "replace")
    if not (text.isascii() and text.isprintable()):  # it would be shown in the log
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
    """A refusal with the code of an error class; one that is too long loses its end."""
    facts = {"code": error.code, "message": error.message[:REASON_MAX], "details": error.details}
    body = json.dumps(facts).encode()
    return pack(Kind.REFUSAL, body if len(body) <= BODY_BYTES_MAX else json.dumps({"code": error.code}).encode())


def read_refusal(message: Message) -> tuple[str, str, dict[str, str]]:
    """Code, text (one line) and facts; raises CorruptionError."""
    try:
        facts = json.loads(_body(message, Kind.REFUSAL))
    except (ValueError, RecursionError):
        raise _broken(message) from None
    if not isinstance(facts, dict):
        raise _broken(message)
    details = facts.get("details")
    texts = {str(k): _one_line(str(v)) for k, v in details.items()} if isinstance(details, dict) else {}
    return str(facts.get("code")), _one_line(str(facts.get("message", "it says no more"))), texts


def _one_line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def words_of(channel: bytes, said: Sequence[bytes], nonce: bytes, chosen: bytes) -> bytes:
    """What proofs and keys are bound to: ``channel`` is the binding of the TLS connection (empty without), ``said`` the
    messages before the challenge, ``nonce`` and ``chosen`` are of the challenge.
    """
    return b"".join((len(channel).to_bytes(2, "big"), channel, *said, nonce, chosen))


def server_proof(key: bytes, words: bytes) -> bytes:
    """What shows a client that the server has the key; ``words``: :func:`words_of`."""
    return _derived(key, b"server", words)


def client_proof(key: bytes, words: bytes) -> bytes:
    """What shows a server that the client has the key."""
    return _derived(key, b"client", words)


def server_frames_key(key: bytes, words: bytes) -> bytes:
    """With which the tags of a server's frames are made."""
    return _derived(key, b"server frames", words)


def client_frames_key(key: bytes, words: bytes) -> bytes:
    """With which the tags of a client's frames are made."""
    return _derived(key, b"client frames", words)


def _derived(key: bytes, what: bytes, words: bytes) -> bytes:
    return hmac.digest(key, b"\x00".join((MAGIC, what, words)), hashlib.sha256)


def is_proof(expected: bytes, shown: bytes) -> bool:
    """Compare in a time that does not depend on where they differ."""
    return hmac.compare_digest(expected, shown)


def _body(message: Message, kind: Kind) -> bytes:
    if message.kind is not kind:
        raise CorruptionError(f"a {message.kind.name} in place of a {kind.name}")
    return message.body


def _broken(message: Message) -> CorruptionError:
    return CorruptionError(f"a {message.kind.name} of {len(message.body)} bytes that does not parse")
