"""What is said on a connection before the first call: who may come in, and in which version of the protocol.

Arrives: nonces, secrets, the bytes of one message. Leaves: messages and proofs; pure. The secret itself is never sent.

========  =========================================================================================
client    ``GREETING``: nonce (32), role (1 byte of length, text), count (1), that many secret ids (8 each)
server    ``CHALLENGE``: nonce (32), the id that it chose (8; zeros: no secret is asked for), its proof (32)
client    ``PROOF``: its proof (32); only when a secret was chosen. Its first call may follow at once
server    ``WELCOME``: nothing; or at any time ``REFUSAL``: JSON with ``code``, ``message`` and ``details``
========  =========================================================================================

Every message begins with ``BKPR``, the version (2 bytes), its kind (1) and the length of what follows (2), big-endian;
this, ``GREETING``'s place as the first message, and ``REFUSAL`` are the same in all versions. A proof is HMAC-SHA256
with the secret's key over the side's name, the whole greeting, and the challenge without its proof; so it holds for
these two nonces, this role and this version only, and neither side's proof is any use to the other.
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
from bookkeeper.rpc.messages import PROTOCOL_VERSION

MAGIC = b"BKPR"
NONCE_BYTES = 32
ID_BYTES = 8
PROOF_BYTES = 32
NO_SECRET = bytes(ID_BYTES)
OFFERS_MAX = 64
BODY_BYTES_MAX = 4096
ROLE_BYTES_MAX = 64
TEXT_MAX = 500

HEAD = struct.Struct(">4sHBH")


class Kind(IntEnum):
    """What a message is."""

    GREETING = 1
    CHALLENGE = 2
    PROOF = 3
    WELCOME = 4
    REFUSAL = 5


@dataclass(frozen=True, slots=True)
class Message:
    """One message; ``raw`` is all of it."""

    version: int
    kind: Kind
    body: bytes
    raw: bytes


@dataclass(frozen=True, slots=True)
class Greeting:
    """Who comes, and the ids of the secrets that it could prove."""

    nonce: bytes
    role: str
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


def take_message(inbox: bytearray) -> Message | None:
    """The first message of what came, taken out of it; None while it is not whole. Raises CorruptionError."""
    if bytes(inbox[: len(MAGIC)]) != MAGIC[: len(inbox)]:
        raise CorruptionError("it does not begin like this protocol")
    if len(inbox) < HEAD.size:
        return None
    version, kind, size = unpack_head(inbox)
    end = HEAD.size + size
    if len(inbox) < end:
        return None
    raw = bytes(inbox[:end])
    del inbox[:end]
    return Message(version, kind, raw[HEAD.size :], raw)


def check_version(version: int, who: str) -> None:
    """Raise IncompatibleError unless both sides speak the same version."""
    if version != PROTOCOL_VERSION:
        older = "this side" if version > PROTOCOL_VERSION else "that side"
        raise IncompatibleError(f"{who} speaks protocol {version}, this side {PROTOCOL_VERSION}: upgrade {older}")


def pack_greeting(nonce: bytes, role: str, offers: Sequence[bytes]) -> bytes:
    """A greeting; of more than 64 offers the first ones count."""
    name = role.encode()[:ROLE_BYTES_MAX]
    kept = offers[:OFFERS_MAX]
    return pack(Kind.GREETING, b"".join((nonce, bytes([len(name)]), name, bytes([len(kept)]), *kept)))


def read_greeting(message: Message) -> Greeting:
    """Inverse of :func:`pack_greeting`; raises CorruptionError."""
    body = _body(message, Kind.GREETING)
    name_at = NONCE_BYTES + 1
    if len(body) < name_at + 1:
        raise _broken(message)
    ids_at = name_at + body[NONCE_BYTES] + 1
    if len(body) < ids_at or len(body) != ids_at + ID_BYTES * body[ids_at - 1]:
        raise _broken(message)
    role = body[name_at : ids_at - 1].decode("ascii", "replace")
    if not (role.isascii() and role.isprintable()):
        raise CorruptionError("a GREETING with a role that is no plain text")  # it would be shown in the log
    offers = tuple(body[at : at + ID_BYTES] for at in range(ids_at, len(body), ID_BYTES))
    return Greeting(body[:NONCE_BYTES], role, offers)


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
    facts = {"code": error.code, "message": error.message[:TEXT_MAX], "details": error.details}
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


def server_proof(key: bytes, greeting: bytes, nonce: bytes, chosen: bytes) -> bytes:
    """What shows a client that the server has the key; ``greeting`` is the whole message."""
    return _proof(key, b"server", greeting, nonce, chosen)


def client_proof(key: bytes, greeting: bytes, nonce: bytes, chosen: bytes) -> bytes:
    """What shows a server that the client has the key."""
    return _proof(key, b"client", greeting, nonce, chosen)


def _proof(key: bytes, side: bytes, greeting: bytes, nonce: bytes, chosen: bytes) -> bytes:
    return hmac.digest(key, b"\x00".join((MAGIC, side, greeting + nonce + chosen)), hashlib.sha256)


def is_proof(expected: bytes, shown: bytes) -> bool:
    """Compare in a time that does not depend on where they differ."""
    return hmac.compare_digest(expected, shown)


def _body(message: Message, kind: Kind) -> bytes:
    if message.kind is not kind:
        raise CorruptionError(f"a {message.kind.name} in place of a {kind.name}")
    return message.body


def _broken(message: Message) -> CorruptionError:
    return CorruptionError(f"a {message.kind.name} of {len(message.body)} bytes that does not parse")
