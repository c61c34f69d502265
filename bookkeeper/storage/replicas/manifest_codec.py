"""The bytes of a manifest: one line with format, version and CRC-32C of the rest, then strict JSON.

Only what survives the process is written: memory, transfers under way and counts of declines are gone with it. Decoding
is strict, so a process never drops a field that it does not know. Pure.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from bookkeeper.errors import CorruptionError, IncompatibleError, InvalidInputError
from bookkeeper.model import Extent
from bookkeeper.replicas.values import (
    INCOMING_MAX,
    Entry,
    KeyRange,
    Placement,
    Positions,
    Replica,
    Segment,
    Stage,
    Target,
)
from bookkeeper.storage.replicas.file_checks import extended
from bookkeeper.storage.replicas.manifest import HeldFile, Manifest, ReplicaKey
from bookkeeper.strict_json import (
    INT_MAX,
    check_names,
    encode_json,
    mapping,
    number,
    raw_bytes,
    read_fields,
    text,
    texts,
    tuples,
    typed,
)

MAGIC = b"replica-manifest"
VERSION = 2

PASSING_FIELDS = ("has_memory", "incoming", "incoming_max", "merged", "declined", "replayed", "named")
"""Fields of a replica that end with the process."""

REPLICA_FIELDS = (
    "host",
    "placement",
    "stage",
    "root",
    "leader",
    "term",
    "led",
    "made",
    "given_up",
    "damaged",
    "targets",
    "entries",
)


def durable_part(replica: Replica) -> Replica:
    """The replica as a manifest has it."""
    return replace(
        replica,
        has_memory=False,
        incoming=(),
        incoming_max=INCOMING_MAX,
        merged=(),
        declined=(),
        replayed=(),
        named=None,
    )


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of a manifest. Raises InvalidInputError where its parts contradict each other."""
    manifest.check()
    body = encode_json(
        _read_body,
        {
            "table": manifest.key.table_id,
            "directory": manifest.key.directory,
            "end_row": _encoded(manifest.extent.end_row),
            "prev_row": _encoded(manifest.extent.prev_row),
            "replica": _replica_fields(manifest.replica),
            "files": [
                [file.name, file.size_bytes, file.crc32c, _base64(file.entry)]
                for _, file in sorted(manifest.files.items())
            ],
            "states": [[state, _base64(raw)] for state, raw in sorted(manifest.states.items())],
        },
    )
    return b"%s %d %08x\n%s" % (MAGIC, VERSION, extended(0, body), body)


def decode_manifest(raw: bytes) -> Manifest:
    """Parse :func:`encode_manifest`. Raises CorruptionError, and IncompatibleError for another version."""
    line, _, body = raw.partition(b"\n")
    words = line.split(b" ")
    if len(words) != 3 or words[0] != MAGIC or not words[1].isdigit():
        raise CorruptionError(f"it does not begin like a manifest: {line[:80]!r}")
    if int(words[1]) != VERSION:
        raise IncompatibleError(f"it has format {int(words[1])}, and this program writes {VERSION}: use that program")
    if words[2] != b"%08x" % extended(0, body):
        raise CorruptionError("its checksum differs from its content")
    manifest = _read_body(body)
    try:
        return manifest.check()
    except InvalidInputError as error:
        raise CorruptionError(error.message) from error


def _read_body(body: bytes) -> Manifest:
    names = ("table", "directory", "end_row", "prev_row", "replica", "files", "states")
    fields = read_fields(body, "a manifest", *names)
    table_id = text(fields, "table")
    files = [
        HeldFile(text(part, 0), number(part, 1), number(part, 2), raw_bytes(part, 3))
        for part in tuples(fields, "files", 4)
    ]
    states = {number(part, 0): raw_bytes(part, 1) for part in tuples(fields, "states", 2)}
    if len({file.name for file in files}) != len(files) or len(states) != len(fields["states"]):
        raise CorruptionError("a manifest names a file or a state twice")
    return Manifest(
        ReplicaKey(table_id, text(fields, "directory")),
        Extent(table_id, _decoded(fields, "end_row"), _decoded(fields, "prev_row")),
        _read_replica(mapping(fields, "replica"), body, frozenset(file.name for file in files)),
        {file.name: file for file in files},
        states,
    )


# ---- the replica


def _replica_fields(replica: Replica) -> dict[str, Any]:
    return {
        "host": replica.host,
        "placement": _placement_list(replica.placement),
        "stage": replica.stage.value,
        "root": replica.root,
        "leader": replica.leader,
        "term": replica.term,
        "led": replica.led,
        "made": replica.made,
        "given_up": [list(pair) for pair in replica.given_up],
        "damaged": sorted(replica.damaged),
        "targets": [
            [target.host, *_placement_list(target.placement), _range_list(target.key_range), target.term]
            for target in replica.targets
        ],
        "entries": [_entry_fields(entry) for entry in replica.entries],
    }


def _read_replica(fields: dict[str, Any], raw: bytes, files: frozenset[str]) -> Replica:
    check_names(fields, raw, "a replica", *REPLICA_FIELDS)
    damaged = frozenset(texts(fields, "damaged"))
    if not damaged <= files:
        raise CorruptionError(f"a manifest has no facts about the damaged file {min(damaged - files)}")
    return Replica(
        host=text(fields, "host"),
        placement=_placement(dict(enumerate(typed(fields, "placement", list)))),
        stage=_stage(text(fields, "stage")),
        root=_number_or_none(fields, "root"),
        entries=tuple(_entry(typed({0: entry}, 0, dict), raw) for entry in typed(fields, "entries", list)),
        files=files - damaged,
        damaged=damaged,
        leader=None if fields["leader"] is None else text(fields, "leader"),
        term=number(fields, "term"),
        led=number(fields, "led"),
        made=number(fields, "made"),
        targets=tuple(
            Target(text(part, 0), Placement(text(part, 1), text(part, 2)), _key_range(part[3]), number(part, 4))
            for part in tuples(fields, "targets", 5)
        ),
        given_up=_positions(fields, "given_up"),
    )


def _entry_fields(entry: Entry) -> dict[str, Any]:
    segment = entry.segment
    return {
        "id": segment.id,
        "base": segment.base,
        "major": segment.is_major,
        "included": list(segment.included),
        "files": list(segment.files),
        "retained": list(segment.retained),
        "logs": [list(pair) for pair in segment.logs],
        "acked": [_placement_list(placement) for placement in sorted(entry.acked)],
    }


def _entry(fields: dict[str, Any], raw: bytes) -> Entry:
    names = ("id", "base", "major", "included", "files", "retained", "logs", "acked")
    check_names(fields, raw, "an entry", *names)
    included = dict(enumerate(typed(fields, "included", list)))
    segment = Segment(
        id=number(fields, "id"),
        base=_number_or_none(fields, "base"),
        is_major=typed(fields, "major", bool),
        included=tuple(number(included, index) for index in included),
        files=texts(fields, "files"),
        retained=texts(fields, "retained"),
        logs=_positions(fields, "logs"),
    )
    return Entry(segment, frozenset(_placement(part) for part in tuples(fields, "acked", 2)))


def _stage(name: str) -> Stage:
    try:
        return Stage(name)
    except ValueError as error:
        raise CorruptionError(f"{name!r} is no stage of a replica") from error


def _placement_list(placement: Placement) -> list[str]:
    return [placement.id, placement.incarnation]


def _placement(part: Mapping[Any, Any]) -> Placement:
    if part.keys() != {0, 1}:
        raise CorruptionError(f"a placement has an id and an incarnation, not {len(part)} fields")
    return Placement(text(part, 0), text(part, 1))


def _range_list(key_range: KeyRange | None) -> list[str | None] | None:
    return None if key_range is None else [key_range.begin, key_range.end]


def _key_range(given: Any) -> KeyRange | None:
    if given is None:
        return None
    part = dict(enumerate(typed({0: given}, 0, list)))
    if part.keys() != {0, 1}:
        raise CorruptionError(f"a range of keys has two ends, not {len(part)}")
    begin, end = (None if part[index] is None else text(part, index) for index in (0, 1))
    return KeyRange(begin, end)


def _positions(fields: Mapping[str, Any], name: str) -> Positions:
    return tuple((number(part, 0, -INT_MAX), number(part, 1)) for part in tuples(fields, name, 2))


def _number_or_none(fields: Mapping[str, Any], name: str) -> int | None:
    return None if fields[name] is None else number(fields, name)


def _base64(raw: bytes) -> str:
    return b64encode(raw).decode()


def _encoded(row: bytes | None) -> str | None:
    return None if row is None else _base64(row)


def _decoded(fields: Mapping[str, Any], name: str) -> bytes | None:
    return None if fields[name] is None else raw_bytes(fields, name)
