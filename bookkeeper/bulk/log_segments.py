"""The segments with the records of an import's log, for peers that take segments without rewriting.

A manifest beside the log names them, and it is deleted with the log. Holds of the log (``file_holds``) keep the files
for as long as the log exists, because a target may need them. After a crash the manifest is complete or absent, and it
is written after the holds; without it the log's records are shipped. The checksums are those of the files as they were
written, so the receiver finds later damage. Law: L7.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from msgspec import Struct

from bookkeeper.bulk.booked_segment import segment_entry
from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.metadata.values import SegmentEntry
from bookkeeper.model import LocalityGroup
from bookkeeper.storage.columns import binary_offsets
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.volume.names import check_name
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.strict_json import encode_json, mapping, number, raw_bytes, read_fields, text, tuples, typed

MANIFEST_SUFFIX = ".segments"
"""Added to the name of the log; begins like ``recovery.SEGMENT_SUFFIX``, so the manifest is deleted with the log."""

VERSION = 2
READ_BYTES = 1 << 20
MANIFEST_BYTES_MAX = 1 << 28


class Lengths(Struct, frozen=True):
    """The longest row, the longest family, qualifier or visibility, and the longest value of records, in bytes."""

    row: int = 0
    column: int = 0
    value: int = 0

    def with_batch(self, batch: pa.RecordBatch) -> Lengths:
        """The lengths with these records, too."""
        found = {name: longest(batch.column(name)) for name in ("row", "family", "qualifier", "visibility", "value")}
        column = max(found[name] for name in ("family", "qualifier", "visibility"))
        return Lengths(max(self.row, found["row"]), max(self.column, column), max(self.value, found["value"]))


def longest(column: pa.Array) -> int:
    """Bytes of the longest value."""
    return int(np.diff(binary_offsets(column)).max()) if len(column) else 0


class LogSegment(Struct, frozen=True):
    """One file by its name on the Volume; ``entry`` describes all of its rows."""

    name: str
    entry: SegmentEntry
    sha256: str


class SegmentedLog(Struct, frozen=True):
    """A log as segments: the number of its records, the locality groups of its files, and the lengths of its records.
    The segments may be those of some groups only, for a target that gets no others.
    """

    records: int
    groups: tuple[LocalityGroup, ...]
    lengths: Lengths
    segments: tuple[LogSegment, ...]

    @property
    def size_bytes(self) -> int:
        """Size of all files."""
        return sum(segment.entry.size_bytes for segment in self.segments)

    def encode(self, log: str) -> bytes:
        """The manifest beside the log of this name; raises InvalidInputError."""
        return encode_json(
            lambda raw: self.decode(raw, log),
            {
                "version": VERSION,
                "records": self.records,
                "groups": {group.name: [b64encode(f).decode() for f in group.families] for group in self.groups},
                "lengths": {"row": self.lengths.row, "column": self.lengths.column, "value": self.lengths.value},
                "segments": [
                    [segment.name, segment.entry.encode().decode(), segment.sha256] for segment in self.segments
                ],
            },
        )

    @classmethod
    def decode(cls, raw: bytes, log: str) -> SegmentedLog:
        """Inverse of :meth:`encode`. Raises CorruptionError."""
        fields = read_fields(raw, "the manifest of a log", "version", "records", "groups", "lengths", "segments")
        number(fields, "version", VERSION)
        groups, lengths = mapping(fields, "groups"), mapping(fields, "lengths")
        found = cls(
            number(fields, "records", 1),
            tuple(LocalityGroup(name, tuple(_families(groups, name))) for name in groups),
            Lengths(*(number(lengths, name) for name in ("row", "column", "value"))),
            tuple(
                LogSegment(
                    _name_in(log, text(part, 0)),
                    SegmentEntry.decode(text(part, 1).encode()),
                    text(part, 2),
                )
                for part in tuples(fields, "segments", 3)
            ),
        )
        if sum(segment.entry.records for segment in found.segments) != found.records:
            raise CorruptionError(f"the segments beside {log} do not have its {found.records} records")
        return found


def _families(groups: Mapping[str, object], name: str) -> Iterable[bytes]:
    listed = dict(enumerate(typed(groups, name, list)))
    return (raw_bytes(listed, index) for index in listed)


def name_log_segments(
    volume: Volume,
    hold: Callable[[str, Collection[str]], None],
    log: str,
    records: int,
    refs: Sequence[SegmentRef],
    groups: GroupMap,
    lengths: Lengths,
) -> None:
    """Name the segments with a log's records beside it, durable on return; ``hold`` makes the log hold them first. They
    have another holder meanwhile. Raises OSError, TransientError.
    """
    hold(log, [ref.name for ref in refs])
    segments = tuple(LogSegment(ref.name, segment_entry(ref), sha256_of(volume, ref.name)) for ref in refs)
    named = tuple(LocalityGroup(name, tuple(sorted(families))) for name, families in sorted(groups.groups.items()))
    segmented = SegmentedLog(records, named, lengths, segments)
    volume.create_once(log + MANIFEST_SUFFIX, segmented.encode(log))


def _name_in(log: str, name: str) -> str:
    """The name of a file on the Volume. Raises CorruptionError."""
    try:
        return check_name(name)
    except InvalidInputError as error:
        raise CorruptionError(f"the manifest of {log} names a file: {error.message}") from error


def sha256_of(volume: Volume, name: str) -> str:
    """The SHA-256 of a file's content, in hex. Raises OSError."""
    digest, position = hashlib.sha256(), 0
    while part := volume.read_range(name, position, READ_BYTES):
        digest.update(part)
        position += len(part)
    return digest.hexdigest()


def read_segmented_log(volume: Volume, log: str) -> SegmentedLog | None:
    """The segments beside a log; None when there are none. Raises CorruptionError, OSError."""
    raw = volume.read(log + MANIFEST_SUFFIX, MANIFEST_BYTES_MAX)
    return None if raw is None else SegmentedLog.decode(raw, log)
