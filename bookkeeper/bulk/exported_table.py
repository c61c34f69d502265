"""A table as files: the manifest of an export, and files copied with their checksums.

An export has the content of a table at one moment: copies of its segments, and beside them ``manifest.json``. It is
complete once the manifest is written. The reader is strict, and compares the checksum of a file before it uses the
file (L7).
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from bookkeeper.bulk.booked_segment import SEQ_MAX
from bookkeeper.bulk.manifest import NAME, read_json, read_manifest
from bookkeeper.errors import CorruptionError
from bookkeeper.metadata.values import SegmentEntry, encode_row
from bookkeeper.model import LocalityGroup, RowRange, chain_break
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.strict_json import encode_json, mapping, number, raw_bytes, read_fields, read_object, text, typed

KIND = "bookkeeper table export"
VERSION = 1
SOURCES = "sources.json"
"""Beside the manifest of an export that is not copied yet: where its files lie on the Volume."""

COPY_BYTES = 4 << 20

TIME_MS_MAX = 1 << 53
"""Latest accepted server time of a tablet, in ms: the year 287,396."""


class ExportedTablet(Struct, frozen=True):
    """A tablet's rows, its last sequence number and server time, and its segments by the names of their files."""

    rows: RowRange
    last_seq: int
    last_time_ms: int
    segments: Mapping[str, SegmentEntry]


class Exported(Struct, frozen=True):
    """An export: the table's settings, its tablets in order, and the SHA-256 of each file."""

    table: str
    groups: tuple[LocalityGroup, ...]
    properties: Mapping[str, str]
    tablets: tuple[ExportedTablet, ...]
    checksums: Mapping[str, str]

    @property
    def records(self) -> int:
        """Records of all files, older versions and deletes included."""
        entries = {name: entry for tablet in self.tablets for name, entry in tablet.segments.items()}
        return sum(entry.records for entry in entries.values())

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of each file."""
        return {name: entry.size_bytes for tablet in self.tablets for name, entry in tablet.segments.items()}

    def encode(self) -> bytes:
        """The manifest; raises InvalidInputError."""
        return encode_json(
            self.decode,
            {
                "kind": KIND,
                "version": VERSION,
                "table": self.table,
                "groups": {group.name: [b64encode(f).decode() for f in group.families] for group in self.groups},
                "properties": dict(self.properties),
                "tablets": [_encode_tablet(tablet) for tablet in self.tablets],
                "checksums": dict(self.checksums),
            },
        )

    @classmethod
    def decode(cls, raw: bytes) -> Exported:
        """Parse :meth:`encode`. Raises CorruptionError."""
        what = "the manifest of an export"
        fields = read_fields(raw, what, "kind", "version", "table", "groups", "properties", "tablets", "checksums")
        if text(fields, "kind") != KIND or number(fields, "version") != VERSION:
            raise CorruptionError(f"{what} is of kind {fields['kind']!r}, version {fields['version']!r}")
        groups, properties = mapping(fields, "groups"), mapping(fields, "properties")
        checksums = mapping(fields, "checksums")
        found = cls(
            text(fields, "table"),
            tuple(LocalityGroup(name, _families(groups, name)) for name in groups),
            {key: text(properties, key) for key in properties},
            tuple(_decode_tablet(tablet) for tablet in typed(fields, "tablets", list)),
            {name: text(checksums, name) for name in checksums},
        )
        found.check()
        return found

    def check(self) -> None:
        """Raise CorruptionError unless the tablets join up, their numbers leave room for more, and their files are
        plain names with checksums.
        """
        if chain_break([tablet.rows for tablet in self.tablets]) is not None:
            raise CorruptionError("the tablets of an export do not join up")
        for tablet in self.tablets:
            check_numbers(tablet)
        named = {name for tablet in self.tablets for name in tablet.segments}
        unusable = [name for name in named if name in ("", ".", "..", NAME) or "/" in name]
        if unusable or named != set(self.checksums):
            raise CorruptionError(f"the files of an export are not those it has checksums of: {sorted(unusable)[:1]}")

    def write(self, volume: Volume, directory: str) -> None:
        """Write the manifest of files in a directory of the Volume, durable on return. Raises OSError."""
        volume.create_once(f"{directory}/{NAME}", self.encode())

    @classmethod
    def read(cls, volume: Volume, directory: str) -> Exported:
        """As :meth:`decode`, from the file. Raises CorruptionError, InvalidInputError when there is none,
        UnavailableError.
        """
        return cls.decode(read_manifest(volume, directory))


def write_sources(volume: Volume, directory: str, sources: Mapping[str, str]) -> None:
    """Write where the files of an export lie on the Volume, by their names in the export. Raises OSError."""
    volume.create_once(f"{directory}/{SOURCES}", encode_json(_decode_sources, dict(sources)))


def read_sources(volume: Volume, directory: str) -> dict[str, str]:
    """Inverse of :func:`write_sources`. Raises CorruptionError, InvalidInputError when there are none,
    UnavailableError.
    """
    return _decode_sources(read_json(volume, directory, SOURCES))


def _decode_sources(raw: bytes) -> dict[str, str]:
    fields = read_object(raw, "the files of an export")
    return {name: text(fields, name) for name in fields}


def check_numbers(tablet: ExportedTablet) -> None:
    """Raise CorruptionError unless the tablet's sequence numbers cover its files and leave room for more, and the
    tablet has every row that it refers to.
    """
    if tablet.last_seq > SEQ_MAX or tablet.last_time_ms > TIME_MS_MAX:
        raise CorruptionError(
            f"a tablet of an export has counted to {tablet.last_seq} at {tablet.last_time_ms} ms: at most {SEQ_MAX} "
            f"and {TIME_MS_MAX} are taken"
        )
    for name, entry in tablet.segments.items():
        if entry.last_seq + entry.shift > tablet.last_seq:
            raise CorruptionError(f"{name} has sequence numbers above {tablet.last_seq}, the last one of its tablet")
        if not lies_in(entry, tablet.rows):
            raise CorruptionError(f"{name} has rows outside of its tablet")


def lies_in(entry: SegmentEntry, rows: RowRange) -> bool:
    """Whether all rows that an entry refers to are among ``rows``."""
    if entry.ranges:
        return all(part.part_in(rows) == part for part in entry.ranges)
    return rows.contains(entry.min_row) and rows.contains(entry.max_row)


def _encode_tablet(tablet: ExportedTablet) -> dict[str, Any]:
    return {
        "prev_row": encode_row(tablet.rows.prev_row),
        "end_row": encode_row(tablet.rows.end_row),
        "last_seq": tablet.last_seq,
        "last_time_ms": tablet.last_time_ms,
        "segments": {name: entry.encode().decode() for name, entry in tablet.segments.items()},
    }


def _decode_tablet(fields: Any) -> ExportedTablet:
    names = {"prev_row", "end_row", "last_seq", "last_time_ms", "segments"}
    if type(fields) is not dict or fields.keys() != names:
        raise CorruptionError(f"a tablet of an export has {', '.join(sorted(names))}, and nothing else")
    segments = mapping(fields, "segments")
    start, end = (None if fields[name] is None else raw_bytes(fields, name) for name in ("prev_row", "end_row"))
    return ExportedTablet(
        RowRange(start, end),
        number(fields, "last_seq"),
        number(fields, "last_time_ms"),
        {name: SegmentEntry.decode(text(segments, name).encode()) for name in segments},
    )


def _families(groups: dict[str, Any], name: str) -> tuple[bytes, ...]:
    listed = dict(enumerate(typed(groups, name, list)))
    return tuple(raw_bytes(listed, index) for index in listed)


def parts_of_file(volume: Volume, name: str) -> Iterator[bytes]:
    """The content of a file on the Volume. Raises OSError."""
    position = 0
    while part := volume.read_range(name, position, COPY_BYTES):
        yield part
        position += len(part)


class CopiedBytes:
    """The bytes that a copy of several files has left, as its parts pass; tells them to ``report``."""

    def __init__(self, left: int, report: Callable[[int, str], None]) -> None:
        self._left, self._report = left, report

    def of(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """The same parts. A file that begins anew counts again."""
        for part in parts:
            self._left -= len(part)
            self._report(max(0, self._left), "bytes")
            yield part


class Checksum:
    """The SHA-256 of what passes through it."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()

    def of(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """The same parts."""
        for part in parts:
            self._digest.update(part)
            yield part

    def hex(self) -> str:
        """In hex, of all parts so far."""
        return self._digest.hexdigest()
