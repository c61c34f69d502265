"""A manifest: the list of the segments in a directory, in a file that is complete or absent.

``manifest.json`` has the segments and their owner's facts about them, and is read strictly. Law: L7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import astuple

from bookkeeper.bulk.booked_segment import segment_entry, segment_ref
from bookkeeper.errors import BookkeeperError, CorruptionError, InvalidInputError, UnavailableError
from bookkeeper.metadata.values import SegmentEntry, encode_row
from bookkeeper.model import RowRange
from bookkeeper.rpc.contract.messages import ImportedLog
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.strict_json import encode_json, mapping, number, raw_bytes, read_fields, text, tuples

NAME = "manifest.json"
VERSION = 1
BYTES_MAX = 1 << 30


def encode_segments(refs: Sequence[SegmentRef]) -> dict[str, Any]:
    """Segments by the names of their files."""
    return {ref.name.rpartition("/")[2]: segment_entry(ref).encode().decode() for ref in refs}


def decode_segments(fields: Mapping[str, Any], directory: str) -> list[SegmentRef]:
    """Inverse of :func:`encode_segments`, for files in ``directory``. Raises CorruptionError."""
    found = []
    for name, raw in fields.items():
        if name in ("", ".", "..") or "/" in name or not isinstance(raw, str):
            raise CorruptionError(f"a manifest names the file {name!r}")
        found.append(segment_ref(f"{directory}/{name}", SegmentEntry.decode(raw.encode())))
    return found


class Imported(Struct, frozen=True):
    """The segments that an import made, their records, and of a replicated table each tablet's log by its rows."""

    segments: tuple[SegmentRef, ...]
    logs: Mapping[RowRange, ImportedLog] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """Records in all of them."""
        return sum(ref.records for ref in self.segments)

    def write(self, volume: Volume, directory: str) -> None:
        """Write it into ``directory``, durable on return. Raises OSError."""
        decode = lambda raw: self.parse(raw, directory)  # noqa: E731
        logs = [[encode_row(rows.prev_row), encode_row(rows.end_row), *astuple(log)] for rows, log in self.logs.items()]
        fields = {"version": VERSION, "segments": encode_segments(self.segments), "logs": logs}
        raw = encode_json(decode, fields)
        volume.create_once(f"{directory}/{NAME}", raw)

    @classmethod
    def parse(cls, raw: bytes, directory: str) -> Imported:
        """The manifest of an import in ``directory``. Raises CorruptionError."""
        fields = read_fields(raw, "the manifest of an import", "version", "segments", "logs")
        number(fields, "version", VERSION)
        logs = dict(map(_log, tuples(fields, "logs", 6)))
        return cls(tuple(decode_segments(mapping(fields, "segments"), directory)), logs)

    @classmethod
    def read(cls, volume: Volume, directory: str) -> Imported:
        """As :func:`parse`, from the file. Raises CorruptionError, InvalidInputError when there is none,
        UnavailableError.
        """
        return cls.parse(read_manifest(volume, directory), directory)


def _log(fields: dict[int, Any]) -> tuple[RowRange, ImportedLog]:
    rows = RowRange(*(None if fields[index] is None else raw_bytes(fields, index) for index in (0, 1)))
    return rows, ImportedLog(text(fields, 2), number(fields, 3, 1), number(fields, 4, 1), number(fields, 5))


def read_manifest(volume: Volume, directory: str) -> bytes:
    """The bytes of the manifest in a directory of the Volume. Raises InvalidInputError when there is none,
    UnavailableError.
    """
    return read_json(volume, directory, NAME)


def read_json(volume: Volume, directory: str, name: str) -> bytes:
    """The bytes of a file beside a manifest. Raises InvalidInputError when there is none, UnavailableError."""
    raw = volume.read(f"{directory}/{name}", BYTES_MAX)
    if raw is None:
        raise InvalidInputError(f"{directory} has no {name}: nothing was written there, or not to its end")
    return raw


def manifest_error(directory: Path, error: OSError) -> BookkeeperError:
    """Why the manifest in an operator's directory can't be read."""
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        return InvalidInputError(f"{directory} has no {NAME}: nothing was exported there, or not to its end")
    return UnavailableError(f"{directory / NAME} can't be read: {error.strerror}")
