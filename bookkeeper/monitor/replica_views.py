"""The content of the pages and JSON documents about hosts and replicas, made of a :class:`ReplicaSample`. Pure.

The facts are those of the commands ``hosts``, ``tablets`` and ``segments``, under the same names.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from bookkeeper.monitor.observation import ReplicaHealth
from bookkeeper.monitor.pictures import bar
from bookkeeper.monitor.replica_sampler import ReplicaSample
from bookkeeper.monitor.views import Selection, View, paged
from bookkeeper.rpc.contract.messages import (
    HostInfo,
    ReplicaLag,
    ReplicaStanding,
    SegmentStanding,
    TabletReplicas,
    WaitingFiles,
)

NAMES_MAX = 20
"""Most names of files that wait for one reason; the others are counted."""


def hosts(sample: ReplicaSample) -> list[View]:
    """Each host, by name."""
    return [host_row(host) for host in sample.hosts]


def host_row(host: HostInfo) -> View:
    """One host."""
    return {
        "host": host.name,
        "state": host_state(host),
        "zone": host.zone or None,
        "away_since": None if host.away_since_ms is None else moment(host.away_since_ms),
        "address": host.address,
        "incarnation": host.incarnation,
        "replicas": host.replicas,
        "joining": host.joining,
        "leaving": host.leaving or 0,
        "joining_bytes": host.joining_bytes,
        "joined_bytes": host.joined_bytes,
        "serves": host.leads,
        "bytes": host.bytes,
        "lacks": host.lacking_segments,
        "lacking_bytes": host.lacking_bytes,
        "unsent_segments": host.unsent_segments,
        "unsent_bytes": host.unsent_bytes,
        "problem": host.problem,
    }


def holdings(rows: Sequence[View]) -> list[View]:
    """Bars of the load of each host: its replicas, the tablets that it serves, and its bytes, each beside the most that
    a host has.
    """
    most = {name: max((row[name] or 0 for row in rows), default=0) for name in ("replicas", "serves", "bytes")}
    return [
        {
            "host": row["host"],
            "state": row["state"],
            "voters": row["replicas"] - row["joining"],
            "joining": row["joining"],
            "serves": row["serves"],
            "bytes": row["bytes"],
            "replica_bar": bar(
                (("voters", row["replicas"] - row["joining"]), ("joining", row["joining"])), most["replicas"]
            ),
            "serves_bar": bar((("serves", row["serves"]),), most["serves"]),
            "bytes_bar": bar((("bytes", row["bytes"] or 0),), most["bytes"]),
        }
        for row in rows
    ]


def moment(time_ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def host_state(host: HostInfo) -> str:
    """One word for people."""
    if host.incarnation is None:
        return "away"
    return "draining" if host.draining else "alive"


def health(found: ReplicaHealth) -> View:
    """The tablets that a repair has to do with, and its progress."""
    return {
        "tablets_under_replicated": found.under_replicated,
        "tablets_in_danger": found.in_danger,
        "replicas_joining": found.joining,
        "lacking_segments_max": found.lacking_segments,
        "damaged_files": found.damaged_files,
        "lacking_bytes": found.lacking_bytes,
        "joining_bytes": found.joining_bytes,
        "joined_bytes": found.joined_bytes,
    }


def tablets(sample: ReplicaSample, selection: Selection) -> View:
    """The tablets of a table, in order."""
    return paged(sample.tablets, selection, "tablets", tablet_row)


def tablet_row(tablet: TabletReplicas) -> View:
    """One tablet in a few words."""
    voters = [one for one in tablet.replicas if one.role == "voter"]
    return {
        "directory": tablet.directory,
        "rows": rows_text(tablet),
        "leader": leader_of(tablet),
        "replicas": [replica_text(one) for one in tablet.replicas],
        "named": tablet.named,
        "newest": newest(tablet),
        "copies": sum(holds_named(one, tablet.named) for one in voters),
        "copies_needed": tablet.copies_needed,
        "wanted": tablet.wanted,
        "lacks": max((lag.lacking for one in tablet.replicas for lag in lags_of(one)), default=0),
        "problem": problem_of(tablet),
    }


def problem_of(tablet: TabletReplicas) -> str:
    """Why nobody leads a tablet; or what it lacks and what its hosts lack, its records first. Empty = nothing."""
    if tablet.problem:
        return tablet.problem
    lost = f"it is served without the records of {', '.join(tablet.lost_logs)}" if tablet.lost_logs else ""
    own = tablet.warning or lost
    return "; ".join(
        [*([own] if own else []), *(f"{one.host}: {one.problem}" for one in tablet.replicas if one.problem)]
    )


def leader_of(tablet: TabletReplicas) -> str | None:
    """The host that leads a tablet."""
    return next((one.host for one in tablet.replicas if one.leads), None)


def tablet(sample: ReplicaSample, selection: Selection) -> View:
    """One tablet: its replicas, its segments, newest first, and the files that wait to be deleted."""
    (found,) = sample.tablets
    to_come = {lag.host: lag for one in found.replicas for lag in lags_of(one)}
    rows = []
    for one in found.replicas:
        lag = to_come.get(one.host)
        rows.append(
            replica_row(one, found.named)
            | {"lacks": 0 if lag is None else lag.lacking, "lacking_bytes": 0 if lag is None else lag.bytes}
        )
    waiting = [waiting_row(one.host, files) for one in found.replicas for files in one.waiting]
    segments = paged(found.segments[::-1], selection, "segments", segment_row)
    return tablet_row(found) | segments | {"standings": rows, "waiting": waiting}


def replica_row(replica: ReplicaStanding, named: int) -> View:
    """One replica of a tablet. ``has_named``: its host holds each file of the state that the books name."""
    held = replica.held
    return {
        "host": replica.host,
        "role": replica.role,
        "leads": replica.leads,
        "placement": replica.placement,
        "stage": None if held is None else held.stage,
        "newest": None if held is None else held.root,
        "has_named": holds_named(replica, named),
        "files": None if held is None else held.files,
        "bytes": None if held is None else held.bytes,
        "incoming_bytes": 0 if held is None else held.incoming_bytes,
        "problem": replica.problem,
    }


def segment_row(segment: SegmentStanding) -> View:
    """One segment of a tablet."""
    return {
        "segment": segment.segment_id,
        "base": segment.base,
        "major": segment.is_major,
        "files": segment.files,
        "bytes": segment.bytes,
        "retained": segment.retained,
        "held_by": list(segment.held_by),
        "acked_by": list(segment.acked_by),
        "waits_for": segment.waits_for,
    }


def waiting_row(host: str, waiting: WaitingFiles) -> View:
    """Files on a host that wait to be deleted, for one reason."""
    return {
        "host": host,
        "files": len(waiting.names),
        "bytes": waiting.bytes,
        "reason": waiting.reason,
        "names": list(waiting.names[:NAMES_MAX]),
        "left_out": max(0, len(waiting.names) - NAMES_MAX),
    }


# ---- words and numbers of one tablet


def lags_of(replica: ReplicaStanding) -> tuple[ReplicaLag, ...]:
    """The leader's word about the other hosts."""
    return replica.held.lags if replica.leads and replica.held is not None else ()


def holds_named(replica: ReplicaStanding, named: int) -> bool:
    """Whether the host holds each file of the state that the books name."""
    return replica.held is not None and (named == 0 or named in replica.held.complete)


def newest(tablet: TabletReplicas) -> int:
    """The newest state on any host, 0 = none."""
    return max((one.held.root or 0 for one in tablet.replicas if one.held is not None), default=0)


def replica_text(replica: ReplicaStanding) -> str:
    """A host in a few words: ``*`` marks the leader."""
    notes = [*([] if replica.role == "voter" else [replica.role]), *([] if replica.held else ["nothing held"])]
    return f"{replica.host}{'*' * replica.leads}" + (f" ({', '.join(notes)})" if notes else "")


def rows_text(tablet: TabletReplicas) -> str:
    """The rows of a tablet."""
    extent = tablet.extent
    after = "" if extent.prev_row is None else f"after {printable(extent.prev_row)} "
    return after + ("to the end" if extent.end_row is None else f"through {printable(extent.end_row)}")


def printable(raw: bytes) -> str:
    r"""A row as text: printable ASCII stays; all other bytes and the backslash become ``\xHH``."""
    return "".join(chr(b) if 0x20 <= b < 0x7F and b != 0x5C else f"\\x{b:02x}" for b in raw)
