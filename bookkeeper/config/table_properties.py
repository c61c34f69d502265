"""The properties of a table: every key with its type, bounds, default and meaning.

Arrives: keys and values as text, from a user or from the configuration tree. Leaves: one frozen
:class:`TableProperties`, or an InvalidInputError that names the key and the nearest known one. Each field's description
says what it means, its unit, and why that default. Keys that begin with ``table.custom.`` are the user's own: they are
kept and mean nothing here.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bookkeeper.errors import InvalidInputError

CUSTOM_PREFIX = "table.custom."
PROPERTIES_MAX = 1_000
VALUE_BYTES_MAX = 64 * 1024

DurabilityName = Literal["sync", "flush", "log", "none"]
CompressionName = Literal["lz4", "zstd", "snappy", "none"]
SwitchName = Literal["false", "true"]

_Millis = Annotated[int, Field(ge=0, le=1000 * 365 * 24 * 3600 * 1000)]
_Bytes = Annotated[int, Field(ge=0, le=2**40)]


class TableProperties(BaseModel):
    """What a table's properties say; the field's alias is the key."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    versions_max: Annotated[int, Field(ge=1, le=2**31 - 1)] = Field(
        default=1,
        alias="table.versions.max",
        description="Versions of a cell that count; older ones are not shown, and compactions drop them. 1 is what a "
        "table of current values needs.",
    )
    age_off_ms: _Millis = Field(
        default=0,
        alias="table.age_off_ms",
        description="ms after which a cell is too old to be shown, by its timestamp; compactions drop it. 0 = never. A "
        "peer goes by the setting of its own table.",
    )
    memtable_bytes: _Bytes = Field(
        default=0,
        alias="table.flush.memtable_bytes",
        description="A tablet's memory is flushed to segments beyond this many bytes. 0 = as the site's "
        "tserver.memtable_flush_bytes says.",
    )
    compression: CompressionName = Field(
        default="lz4",
        alias="table.compression",
        description="Of new segments; older ones keep theirs until a compaction. lz4 costs the least time, zstd the "
        "least space.",
    )
    durability: DurabilityName = Field(
        default="sync",
        alias="table.durability",
        description="Of writes that do not ask for one: acknowledged when synced to disk, handed to the operating "
        "system, queued for the log, or not logged at all.",
    )
    read_only: SwitchName = Field(
        default="false",
        alias="table.read_only",
        description="true: writes of users are refused, replicated data still comes in. The command readonly sets it. "
        "false: a table is there to be written to.",
    )
    segments_max: Annotated[int, Field(ge=2, le=1_000)] = Field(
        default=10,
        alias="table.compaction.segments_max",
        description="Most segments of one locality group of a tablet: beyond it the smallest are merged, whatever "
        "their sizes. Each costs a scan a few ms at its start.",
    )
    ratio: Annotated[float, Field(ge=1.0, le=1_000.0)] = Field(
        default=3.0,
        alias="table.compaction.ratio",
        description="Segments are merged when together they have this many times the bytes of the largest of them: "
        "higher means fewer rewrites of a record, and more segments to read.",
    )
    deletes_kept_ms: _Millis = Field(
        default=0,
        alias="table.compaction.deletes_kept_ms",
        description="A delete younger than this is kept by every compaction. Where two clusters write the same cells "
        "and replicate to each other, longer than they may be apart: an older put may still arrive. 0 needs no room.",
    )


@dataclass(frozen=True, slots=True)
class Property:
    """One key: its default as text, what it means, and the words it may be, if they are few."""

    key: str
    default: str
    meaning: str
    choices: tuple[str, ...]


def _known() -> Iterator[Property]:
    for name, field in TableProperties.model_fields.items():
        choices = tuple(word for word in get_args(field.annotation) if isinstance(word, str))
        yield Property(field.alias or name, f"{field.default}", field.description or "", choices)


PROPERTIES: Mapping[str, Property] = {known.key: known for known in _known()}
"""Every key there is, but for those of :data:`CUSTOM_PREFIX`."""


def parse_properties(given: Mapping[str, str]) -> TableProperties:
    """The value of all properties, defaults for those not given. Raises InvalidInputError."""
    if len(given) > PROPERTIES_MAX:
        raise InvalidInputError(f"{len(given)} properties of one table: at most {PROPERTIES_MAX} are kept")
    for key, value in given.items():
        if len(key.encode()) + len(value.encode()) > VALUE_BYTES_MAX:
            raise InvalidInputError(f"property {key[:100]} is above {VALUE_BYTES_MAX} bytes")
    meant = {key: value for key, value in given.items() if not is_custom(key)}
    check_keys(meant)
    try:
        return TableProperties.model_validate(meant)
    except ValidationError as error:
        detail = error.errors()[0]
        key = str(detail["loc"][0])
        raise InvalidInputError(f"property {key} can't be {meant.get(key)!r}: {detail['msg'].lower()}") from None


def is_custom(key: str) -> bool:
    """Whether a key is the user's own."""
    return key.startswith(CUSTOM_PREFIX) and key != CUSTOM_PREFIX


def check_keys(keys: Collection[str]) -> None:
    """Raise InvalidInputError on a key that is neither known nor custom, with the nearest one."""
    for key in keys:
        if key not in PROPERTIES and not is_custom(key):
            near = difflib.get_close_matches(key, PROPERTIES, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(PROPERTIES)}"
            raise InvalidInputError(f"unknown property {key}, {hint} (your own begin with {CUSTOM_PREFIX})")


def changed(
    current: Mapping[str, str], changes: Mapping[str, str], removals: Collection[str]
) -> tuple[dict[str, str], TableProperties]:
    """Properties with some set and some taken away, and what they say then; pure. Raises InvalidInputError."""
    check_keys([*changes, *removals])
    after = {key: value for key, value in current.items() if key not in removals} | dict(changes)
    return after, parse_properties(after)


DEFAULT_PROPERTIES = TableProperties()
