"""The properties of a table: every key with its type, bounds, default and meaning.

Keys and values are text, from a user or from the configuration tree. They become one frozen :class:`TableProperties`,
or an InvalidInputError that names the key and the nearest known one. Each field's description has its meaning, its unit
and the reason for its default. Keys that begin with ``table.custom.`` are the user's own: stored without a meaning
here.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, ValidationError, convert

from bookkeeper.config.setting import Section, choices_of, expected, fields_of, stored
from bookkeeper.errors import InvalidInputError

CUSTOM_PREFIX = "table.custom."
PROPERTIES_MAX = 1_000
VALUE_BYTES_MAX = 64 * 1024
REPLICAS_MAX = 7
"""Most replicas of a tablet: a leader sends each new segment to every other one."""

WAIT = "wait"
"""Value of ``table.failover``: a tablet waits for the host that has its log."""

DurabilityName = Literal["sync", "flush", "log", "none"]
CompressionName = Literal["lz4", "zstd", "snappy", "none"]
SwitchName = Literal["false", "true"]

_Millis = Annotated[int, Meta(ge=0, le=1000 * 365 * 24 * 3600 * 1000)]
_Bytes = Annotated[int, Meta(ge=0, le=2**40)]


class TableProperties(Section, frozen=True):
    """The values of a table's properties; each field declares its key."""

    versions_max: Annotated[int, Meta(ge=1, le=2**31 - 1)] = stored(
        "table.versions.max",
        1,
        "Maximum versions of a cell; scans do not show older ones, and compactions drop them. 1 is right "
        "for a table of current values.",
    )
    age_off_ms: _Millis = stored(
        "table.age_off_ms",
        0,
        "Maximum age of a cell by its timestamp, ms; scans do not show older cells, and compactions drop "
        "them. 0 = no limit. A peer uses the property of its own table.",
    )
    memtable_bytes: _Bytes = stored(
        "table.flush.memtable_bytes",
        0,
        "A tablet's memtable is flushed to segments beyond this many bytes. 0 = "
        "tserver.memtable_flush_bytes of the settings.",
    )
    flush_interval_ms: _Millis = stored(
        "table.flush.interval_ms",
        30_000,
        "A tablet with several replicas is flushed when its oldest record in memory is older, ms. "
        "Other hosts get records with segments, and a destroyed disk with logs loses no older ones. 0 = when it is "
        "full. Each interval with a record makes a segment, and compactions merge them.",
    )
    compression: CompressionName = stored(
        "table.compression",
        "lz4",
        "Compression of new segments; older ones keep theirs until a compaction. lz4 takes the least time, "
        "zstd the least space.",
    )
    durability: DurabilityName = stored(
        "table.durability",
        "sync",
        "Durability of writes without one: acknowledged when synced to disk, written to the operating "
        "system, queued for the log, or not logged at all.",
    )
    read_only: SwitchName = stored(
        "table.read_only",
        "false",
        "true: the table refuses users' writes and still takes replicated records. The command readonly "
        "sets it. false: the table takes all writes.",
    )
    conditional_received: SwitchName = stored(
        "table.conditional.received",
        "false",
        "Whether tablets take conditional writes while another cluster sends records to them. false: they are refused, "
        "as in the table that is replicated: a condition is judged by the records that have arrived. true: they are "
        "taken, and the cells may differ from those of the other cluster.",
    )
    segments_max: Annotated[int, Meta(ge=2, le=1_000)] = stored(
        "table.compaction.segments_max",
        10,
        "Maximum segments of one locality group of a tablet: beyond it the smallest are merged, also when "
        "table.compaction.ratio does not require it. Each segment delays the start of a scan by a few ms.",
    )
    ratio: Annotated[float, Meta(ge=1.0, le=1_000.0)] = stored(
        "table.compaction.ratio",
        3.0,
        "Segments are merged when their total size is this many times that of the largest one: a higher "
        "ratio means fewer rewrites of a record, and more segments to read.",
    )
    deletes_kept_ms: _Millis = stored(
        "table.compaction.deletes_kept_ms",
        0,
        "Compactions keep deletes younger than this, ms. Where two clusters write the same cells and "
        "replicate to each other, set it above their longest separation: an older put may still arrive. 0 takes no "
        "space.",
    )
    split_bytes: _Bytes = stored(
        "table.split.bytes",
        1024 * 1024 * 1024,
        "A tablet whose segments have more bytes is split near their middle. 0 = never. As "
        "table.split.threshold in Accumulo: a compaction rewrites one tablet at a time, and more tablets spread the "
        "load. A split row is the last row of a row group (up to 4 MiB): choose some hundred MiB or more.",
    )
    replicas: Annotated[int, Meta(ge=1, le=REPLICAS_MAX)] = stored(
        "table.replicas",
        1,
        "Hosts that hold the segments of each tablet. 1: they lie on the cluster's Volume. More: each of "
        "these hosts has them on its own disk. It may change while the table is written. 1 is right for one machine.",
    )
    copies_min: Annotated[int, Meta(ge=0, le=REPLICAS_MAX)] = stored(
        "table.copies_min",
        0,
        "Replicas that must hold a new segment durably before the books name it and its logs may go; at "
        "most table.replicas. 0 = a majority of table.replicas: a destroyed disk has none of the only copies.",
    )

    failover: Annotated[
        str, Meta(pattern=r"^(wait|[1-9][0-9]{0,12})\Z", description="wait, or a number of ms from 1 on")
    ] = stored(
        "table.failover",
        WAIT,
        "What a tablet does when its newest records are in a log on a host that stays away. wait: it is "
        "not served until the host is back, and loses nothing. A number of ms: after so long without the host it is "
        "served without these records, and gets them when the host is back. Needs several replicas. wait is right "
        "where each read must see each acknowledged write.",
    )

    @property
    def failover_ms(self) -> int | None:
        """The time without a host after which the logs on it are given up; None = never."""
        return None if self.failover == WAIT else int(self.failover)

    @property
    def copies_needed(self) -> int:
        """``copies_min``, 0 replaced by a majority of ``replicas``."""
        return copies_needed(self, 0)


def copies_needed(properties: TableProperties, voters: int) -> int:
    """How many of a tablet's voters have to hold a state before it is named (N3). Without ``copies_min`` it is a
    majority of ``replicas``: a destroyed disk takes its voter out of the row, and the state waits for another copy.
    While the row has more voters, because the table gets fewer replicas, it is a majority of them.
    """
    return properties.copies_min or max(properties.replicas, voters) // 2 + 1


class Property(Struct, frozen=True):
    """One key: its default as text, its meaning, and its possible values if they are few."""

    key: str
    default: str
    meaning: str
    choices: tuple[str, ...]


def _properties() -> Iterator[Property]:
    for name, kind in fields_of(TableProperties).items():
        said = TableProperties.documented[name]
        yield Property(said.key, f"{said.default}", said.meaning, choices_of(kind))


PROPERTIES: Mapping[str, Property] = {item.key: item for item in _properties()}
"""All keys except those of :data:`CUSTOM_PREFIX`."""

_FIELDS = {said.key: name for name, said in TableProperties.documented.items()}


def parse_properties(properties: Mapping[str, str]) -> TableProperties:
    """The values of all properties, with defaults for absent ones. Raises InvalidInputError."""
    parsed = TableProperties(**parse_values(properties))
    if parsed.copies_min > parsed.replicas:
        raise InvalidInputError(
            f"property table.copies_min is {parsed.copies_min} and table.replicas is {parsed.replicas}: no segment "
            "would ever have so many copies; set table.copies_min to at most table.replicas"
        )
    if parsed.failover != WAIT and parsed.replicas == 1:
        raise InvalidInputError(
            f"property table.failover is {parsed.failover} and table.replicas is 1: no other host has the segments of "
            "such a table; give it several replicas, or leave table.failover at wait"
        )
    return parsed


def parse_values(properties: Mapping[str, str]) -> dict[str, Any]:
    """Each of these values by the name of its field, whatever the other properties of its table are. Raises
    InvalidInputError.
    """
    if len(properties) > PROPERTIES_MAX:
        raise InvalidInputError(f"{len(properties)} properties of one table: at most {PROPERTIES_MAX} are allowed")
    for key, value in properties.items():
        if len(key.encode()) + len(value.encode()) > VALUE_BYTES_MAX:
            raise InvalidInputError(f"property {key[:100]} is above {VALUE_BYTES_MAX} bytes")
    own = {key: value for key, value in properties.items() if not is_custom(key)}
    check_keys(own)
    values: dict[str, Any] = {}
    for key, text in own.items():
        name = _FIELDS[key]
        try:
            values[name] = convert(text, fields_of(TableProperties)[name], strict=False)
        except ValidationError:
            must = expected(fields_of(TableProperties)[name])
            raise InvalidInputError(f"property {key} can't be {text!r}: it must be {must}") from None
    return values


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
    """Properties with ``changes`` set and ``removals`` removed, and their values; pure. Raises InvalidInputError."""
    check_keys([*changes, *removals])
    after = {key: value for key, value in current.items() if key not in removals} | dict(changes)
    return after, parse_properties(after)


DEFAULT_PROPERTIES = TableProperties()
