"""Calls of a hostile client, peer or process of the cluster: calls of every method, most of them nearly right.

The inputs are a seed and the names of a cluster; the outputs are frames (without their length), each with its change. A
call follows the contract, with values that a server may know, huge numbers, strange Arrow; then one field of it is
replaced, or its bytes are changed. Pure. A fully correct call that may harm others' tables is never sent: see
:func:`harms`.
"""

from __future__ import annotations

import functools
import hashlib
import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from bookkeeper.errors import BookkeeperError, InvalidInputError
from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.model import Extent, StreamKey
from bookkeeper.origins import Root, Runs, root_of
from bookkeeper.rpc.contract.messages import (
    OfferedSegment,
    ReplicateRequest,
    ScanRequest,
    SegmentPart,
    SegmentsOffer,
    WriteBatch,
)
from bookkeeper.rpc.contract.specs import FieldSpec, TypeSpec, WireType
from bookkeeper.rpc.contract.tables import PEER_METHODS, PROCESS_METHODS, SERVICES, STRUCTS
from bookkeeper.rpc.frames.envelope import FRAME_HEADER, method_codec, read_start
from bookkeeper.storage.wal.blocks.block import decode_batch, encode_batch
from bookkeeper.storage.wal.blocks.block_origins import BlockOrigins, block_origins_to_pb, exact_claims
from tests.soak.fuzz_inside import CHECKED, LONG, POSING, Inside, hostile_end, numbers_of, poses, right_call, words_of
from tests.support.ipc_forms import bomb, old_bomb
from tests.support.tservers import records, source_block

FUZZ_INSTANCE = "fuzz-instance"
FUZZ_TABLES = ("fuzz", "fuzz2")
FRAME_BYTES = 32 << 20

READING = frozenset(
    {
        "leader",
        "tables",
        "locate",
        "locate_tablet",
        "is_read_only",
        "flush_table",
        "compact_table",
        "disk_usage",
        "authorizations",
        "hosts",
        "table_replicas",
        "operations",
        "clusters",
        "replication_config",
        "replication_status",
        "quarantine",
        "replication_mark",
        "replication_pending",
        "resolve_table",
        "pick_tserver",
        "scan",
        "status",
    }
)
"""These calls change nothing with any arguments, so they may name anything."""

ADMINISTRATION = frozenset({"set_read_only", "define_cluster", "delete_cluster", "set_authorizations"})
"""These are of the whole cluster: they are sent broken only."""

DEEP = (
    "write",
    "write_if",
    "scan",
    "open_stream",
    "replicate",
    "replicate",
    "offer_segments",
    "put_segment",
    "take_segments",
    "segment_offer",
    "segment_transit",
    "segment_transit",
)
"""Most code of a server reads the arguments of these calls, so they come more often."""

NO_SEGMENT = b"PAR1" + bytes(range(192)) + b"PAR1"
"""A file that is none, and arrives whole."""

INTEGERS = (0, 1, -1, 2, 7, 255, 2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63))
WORDS = ("", "x", "a" * 300, "../..", "file:///etc/passwd", "\x00", "ü" * 50, "%s%n", "-1", "null")
SMALL = 2_000
"""Elements that are shorter in print fill a very long list."""
BLOBS = (b"", b"\x00", b"\xff" * 40, b"m", b"zzz", b"\x00" * 70_000)


@dataclass(slots=True)
class Names:
    """The names of the cluster that the attacker knows. ``others``: names and ids of tables, clusters and instances
    that are not the attacker's. ``inside``: what only processes of the cluster know.
    """

    own_ids: Sequence[str]
    own_extents: Sequence[Extent]
    other_extents: Sequence[Extent]
    others: frozenset[str]
    tokens: list[tuple[str, StreamKey]] = field(default_factory=list)
    inside: Inside | None = None


@dataclass(frozen=True, slots=True)
class Attack:
    """A frame without its length, the length to announce, and its description, for people."""

    service: str
    method: str
    message: bytes
    announced: int
    what: str

    @property
    def is_whole(self) -> bool:
        """Whether the server has nothing to wait for."""
        return self.announced <= len(self.message)


class Attacker:
    """An endless, repeatable sequence of attacks with one kind of secret."""

    def __init__(self, seed: str, names: Names, rights: Mapping[str, frozenset[str]], *, may_harm: bool) -> None:
        """``may_harm``: the secret gives rights to others' tables, and a call that would use them is not sent."""
        self._may_harm = may_harm
        self._rng = random.Random(seed)
        self._names = names
        self._is_inside = rights is PROCESS_METHODS
        allowed = [(service, method) for service in ("Master", "TServer") for method in sorted(rights[service])]
        everything = [(service, method) for service in ("Master", "TServer") for method in sorted(SERVICES[service])]
        deep = [("TServer", method) for method in DEEP if method in rights["TServer"]]
        self._methods = [call for call in allowed if call[1] != "hello"] * 3 + deep * 12 + everything

    @property
    def _inside(self) -> Inside | None:
        return self._names.inside if self._is_inside else None

    def __iter__(self) -> Iterator[Attack]:
        while True:
            service, method = self._rng.choice(self._methods)
            attack = self._attack(service, method)
            if not (self._may_harm and harms(attack, self._names)):
                yield attack

    def _attack(self, service: str, method: str) -> Attack:
        codec = method_codec(service, method)
        arguments = self._arguments(service, method, codec.spec.arguments)
        message = b"".join(codec.call(1, arguments, 1 << 30))[FRAME_HEADER.size :]
        return self.broken(service, method, message)

    def broken(self, service: str, method: str, message: bytes) -> Attack:
        """A call, or an answer, as it is or with other bytes."""
        rng, announced = self._rng, None
        kind = rng.choice(("as it is", "as it is", "bytes changed", "cut", "behind it more", "announced longer"))
        if kind == "bytes changed":
            raw = bytearray(message)
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(len(raw))
                width = rng.choice((1, 1, 2, 4))
                raw[at : at + width] = rng.choice((rng.randbytes(width), b"\xff" * width, b"\x00" * width))
            message = bytes(raw)
        elif kind == "cut":
            message = message[: rng.randint(1, max(1, len(message) - 1))]
        elif kind == "behind it more":
            message += rng.randbytes(rng.randint(1, 200))
        elif kind == "announced longer":
            announced = rng.choice((len(message) + 1, len(message) + 5_000, FRAME_BYTES, FRAME_BYTES + 1, 2**31 - 1))
        return Attack(service, method, message, announced or len(message), kind)

    # ---- arguments

    def _arguments(self, service: str, method: str, specs: Sequence[FieldSpec]) -> tuple[Any, ...]:
        """Those of a call that is right, with one field replaced; or any."""
        right = self._right(service, method)
        if right is None or self._rng.random() < 0.2:
            return tuple(self._value(spec.type, spec.name) for spec in specs)
        if self._rng.random() < 0.3:
            return right
        place = self._rng.randrange(len(right))
        changed = self._changed(right[place], specs[place])
        return (*right[:place], changed, *right[place + 1 :])

    def changed_result(self, value: Any, spec: TypeSpec) -> Any:
        """The result of a call with one field somewhere in it replaced."""
        return self._changed(value, FieldSpec(0, "success", spec, True))

    def _changed(self, value: Any, spec: FieldSpec) -> Any:
        """The same with one field somewhere in it replaced."""
        if type(value) in STRUCTS and self._rng.random() < 0.9:
            inner = self._rng.choice(STRUCTS[type(value)])
            found = getattr(value, inner.name)
            changed = self._value(inner.type, inner.name) if found is None else self._changed(found, inner)
            return replace(value, **{inner.name: changed})
        if isinstance(value, tuple) and value and spec.type.element is not None and self._rng.random() < 0.8:
            place = self._rng.randrange(len(value))
            inner = FieldSpec(0, spec.name, spec.type.element, True)
            return (*value[:place], self._changed(value[place], inner), *value[place + 1 :])
        return self._value(spec.type, spec.name)

    def _right(self, service: str, method: str) -> tuple[Any, ...] | None:
        rng, names = self._rng, self._names
        extent = rng.choice([*names.own_extents, *names.other_extents])
        row = (extent.prev_row or b"") + b"\x00fuzz"
        raw = encode_batch(records([(row, b"v")] * rng.randint(1, 3), timestamp=1)).to_pybytes()
        if method == "write":
            return ((WriteBatch(extent, raw),), "sync", f"fuzz-{rng.randrange(5)}", rng.randrange(1, 100))
        if method == "write_if":
            return (extent, (), raw, "sync")
        if method == "scan":
            return (ScanRequest(extent, None, None, (), (), None, 1000),)
        if service == "TServer" and method in PEER_METHODS["TServer"] - {"hello"}:
            return self._right_of_peer(method, extent)
        return None if self._inside is None else right_call(rng, method, self._inside)

    def _right_of_peer(self, method: str, extent: Extent) -> tuple[Any, ...] | None:
        rng, names = self._rng, self._names
        fresh = StreamKey(FUZZ_INSTANCE, f"file:///fuzz/{rng.randrange(30)}.wal", "9", extent.table_id, 1)
        token, stream = rng.choice(names.tokens) if names.tokens else ("none", fresh)
        if method == "open_stream":
            return (fresh,)
        if method == "take_segments":
            return (token, stream)
        if method == "offer_segments":
            entry = SegmentEntry("default", 2, len(NO_SEGMENT), b"a", b"b", 1, 2, 1).encode()
            file = OfferedSegment(entry, hashlib.sha256(NO_SEGMENT).hexdigest())
            root = rng.choice((None, self._foreign_root().encode(), "no root"))
            return (SegmentsOffer(token, stream, (FUZZ_INSTANCE,), 2, (), 9, 9, 9, (file,), root),)
        if method == "put_segment":
            start = rng.choice((0, 0, 100))
            return (SegmentPart(token, stream, 0, start, NO_SEGMENT[start:]),)
        after = rng.choice((0, 0, 2, 50))
        block = source_block(after + 1, records([(b"fuzz-%d" % rng.randrange(99), b"v")] * 2, timestamp=1))
        origins = rng.choice((None, None, self._told_origins(stream)))
        passed: tuple[str, ...] = (FUZZ_INSTANCE,)
        if origins is not None:
            block, passed = replace(block, block_origins=origins), (self._foreign_root().instance_id, FUZZ_INSTANCE)
        return (ReplicateRequest(token, stream, passed, after, after, after + 2, (block,)),)

    def _foreign_root(self) -> Root:
        """A log of another cluster, of which this peer is no relay."""
        instance = self._rng.choice((*sorted(self._names.others), "i-north"))
        return Root(instance, f"file:///fuzz/{self._rng.randrange(30)}.wal", "9")

    def _told_origins(self, stream: StreamKey) -> bytes:
        """Origins of two records: as another cluster's, with a claim of many more."""
        root, first = self._foreign_root(), self._rng.choice((1, 7, 1 << 40))
        sections = ((root, Runs.of((first, first + 1))),)
        claims = exact_claims(((root, Runs.of((1, first + self._rng.choice((1, 1000, 1 << 40))))),))
        return block_origins_to_pb(BlockOrigins(sections, claims), root_of(stream)).SerializeToString()

    # ---- values

    def _value(self, spec: TypeSpec, name: str) -> Any:
        rng = self._rng
        if spec.wire is WireType.STRING:
            return self._blob(name) if spec.binary else self._text(name)
        if spec.wire is WireType.STRUCT:
            assert spec.struct is not None
            if spec.struct is Extent and rng.random() < 0.6:
                return rng.choice([*self._names.own_extents, *self._names.other_extents])
            members = {
                inner.name: self._value(inner.type, inner.name) if inner.required or rng.random() < 0.5 else None
                for inner in STRUCTS[spec.struct]
            }
            return spec.struct(**members)
        if spec.wire is WireType.LIST:
            assert spec.element is not None
            if self._inside is not None and rng.random() < 0.02:
                one = self._value(spec.element, name)
                return (one,) * (LONG if len(repr(one)) < SMALL else 1)
            return tuple(self._value(spec.element, name) for _ in range(rng.choice((0, 1, 1, 3, 40))))
        if spec.wire is WireType.MAP:
            assert spec.key is not None
            assert spec.element is not None
            count = rng.choice((0, 1, 5))
            return {self._value(spec.key, name): self._value(spec.element, "value") for _ in range(count)}
        if spec.wire is WireType.BOOL:
            return rng.random() < 0.5
        if spec.wire is WireType.DOUBLE:
            return rng.choice((0.0, -1.0, 1e308, float("inf"), float("nan")))
        known = [] if self._inside is None else numbers_of(self._inside, name)
        if known and rng.random() < 0.5:
            return rng.choice(known)
        bits = {WireType.BYTE: 8, WireType.I16: 16, WireType.I32: 32}.get(spec.wire, 64)
        return rng.choice([n for n in INTEGERS if -(1 << (bits - 1)) <= n < 1 << (bits - 1)])

    def _text(self, name: str) -> str:
        rng, names = self._rng, self._names
        known: list[str] = [*FUZZ_TABLES, *names.own_ids, *sorted(names.others)]
        words = [] if self._inside is None else words_of(self._inside, name)
        if words and rng.random() < 0.8:
            return rng.choice(words) if rng.random() < 0.6 else hostile_end(rng, rng.choice(words))
        if name == "stream_session" and names.tokens:
            known = [token for token, _ in names.tokens]
        elif name in ("source_instance_id", "instance_id", "provenance", "route"):
            known = [FUZZ_INSTANCE]
        elif name == "durability":
            known = ["sync", "none", "default"]
        elif name in ("quorum", "address"):
            known = ["127.0.0.1:1", "127.0.0.1"]
        elif name in ("properties", "changes", "removals"):
            known = ["table.versions.max", "table.durability", "table.compaction.segments_max"]
        return rng.choice(known) if rng.random() < 0.8 else rng.choice(WORDS)

    def _blob(self, name: str) -> bytes:
        rng = self._rng
        if name != "records":
            return rng.choice((*BLOBS, rng.randbytes(rng.randint(1, 50))))
        right = encode_batch(records([(b"\x00fuzz", b"v")], timestamp=1)).to_pybytes()
        return rng.choice(
            (
                right,
                right[: rng.randint(0, len(right))],
                rng.choice(bombs()),
                rng.randbytes(300),
            )
        )


def harms(attack: Attack, names: Names) -> bool:
    """Whether a server that does as it is told would change what is not the attacker's."""
    try:
        start = read_start(memoryview(attack.message))
        codec = method_codec(attack.service, start.method)
        arguments = codec.read_call(memoryview(attack.message), start)
    except (BookkeeperError, struct.error, TypeError):
        return False
    if start.method in READING or start.method in CHECKED:
        return False
    if start.method in POSING:
        return names.inside is not None and poses(start.method, arguments, names.inside, names.others)
    if start.method in ADMINISTRATION:
        return True
    if start.method in ("write", "write_if", "replicate", "apply_replicated"):
        return _names_others(arguments, names) and any(map(_is_readable, _payloads(arguments)))
    return _names_others(arguments, names)


def _names_others(value: object, names: Names) -> bool:
    if isinstance(value, str):
        return value in names.others
    if type(value) in STRUCTS:
        return any(_names_others(getattr(value, found.name), names) for found in STRUCTS[type(value)])
    if isinstance(value, Mapping):
        return any(_names_others(one, names) for pair in value.items() for one in pair)
    return isinstance(value, tuple) and any(_names_others(one, names) for one in value)


def _payloads(value: object) -> Iterator[bytes]:
    """All that may be a batch of records."""
    if isinstance(value, bytes | memoryview):
        yield bytes(value)
    elif type(value) in STRUCTS:
        for found in STRUCTS[type(value)]:
            yield from _payloads(getattr(value, found.name))
    elif isinstance(value, tuple):
        for one in value:
            yield from _payloads(one)


@functools.cache
def bombs() -> tuple[bytes, ...]:
    """Batches that no server takes: their row is too long, or their form another one."""
    return bomb(1 << 20, "lz4"), bomb(60 << 20), old_bomb(8 << 20)


def _refuse_large(size: int) -> None:
    if size > 1 << 19:
        raise InvalidInputError(f"{size} bytes: a bomb")


def _is_readable(raw: bytes) -> bool:
    try:
        return bool(decode_batch(raw, _refuse_large).num_rows)
    except BookkeeperError:
        return False
