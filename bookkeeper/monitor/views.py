"""What each page and each JSON document says, from the latest look.

Arrives: a :class:`Sample`. Leaves: plain values that JSON and templates take. Pure. Names are those of the replication
status; units stand last in them. Described in docs/monitor.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bookkeeper.monitor.observation import Books, KeptFile, Lag, Observation
from bookkeeper.monitor.sampler import Sample
from bookkeeper.rpc.contract.messages import QuarantinedRange, TargetStatus

View = dict[str, Any]

ROWS_MAX = 500
"""Rows of one page at most, whatever is asked for."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows of a long list; "" = all. ``page`` counts from 1."""

    table: str = ""
    cluster: str = ""
    phase: str = ""
    page: int = 1
    rows: int = 50


def health(sample: Sample, now_ns: int, stale_after_ms: float) -> tuple[bool, View]:
    """Whether this process works: its session is valid, and its monitor looked not long ago (boot clock)."""
    age_ms = (now_ns - sample.looked_ns) // 1_000_000
    healthy = sample.seen.is_alive and age_ms <= stale_after_ms
    return healthy, {"healthy": healthy, "session": sample.seen.session, "looked_ms_ago": age_ms}


def readiness(seen: Observation) -> tuple[bool, View]:
    """Whether the cluster can be used through this master: somebody leads, and if it is this one, its cycles work."""
    reason = ""
    if not seen.is_alive:
        reason = "the session of this master is over"
    elif seen.leader is None:
        reason = seen.problem or "no master of this cluster leads now"
    elif seen.leads and seen.books is None:
        reason = seen.problem
    elif seen.books is not None and seen.books.cycles.failed_in_row:
        reason = f"the last {seen.books.cycles.failed_in_row} cycles failed: {'; '.join(seen.books.problems)}"
    elif seen.books is not None and not seen.books.tservers:
        reason = "no tserver lives"
    return not reason, {"ready": not reason, "leads": seen.leads, "reason": reason}


def overview(sample: Sample) -> View:
    """The cluster in a few numbers. Also of a master that stands by: then only who it is and who leads."""
    seen = sample.seen
    view: View = {
        "cluster": seen.cluster,
        "instance_id": seen.instance_id,
        "at_ms": seen.at_ms,
        "master": seen.address,
        "session": seen.session,
        "leads": seen.leads,
        "leader": None
        if seen.leader is None
        else {"address": seen.leader.address, "epoch": seen.leader.epoch, "monitor": seen.leader.monitor},
        "problem": seen.problem,
    }
    books = seen.books
    if books is None:
        return view
    cycles = books.cycles
    return view | {
        **lag_of(books.lags),
        "books_age_ms": round(books.age_ms),
        "tables": len(books.tables),
        "tablets": sum(table.tablets for table in books.tables),
        "unassigned_tablets": sum(table.unassigned for table in books.tables),
        "peers": len(books.peers),
        "outstanding_files": books.files_outstanding,
        "quarantined_ranges": len(books.quarantined),
        "kept_files": len(sample.kept),
        "kept_bytes": sum(file.bytes for file in sample.kept),
        "files_deleted": books.files_deleted,
        "tservers": [
            {"session": tserver.session, "address": tserver.address, "tablets": tserver.tablets}
            for tserver in books.tservers
        ],
        "cycles": {
            "full": cycles.full,
            "quick": cycles.quick,
            "failed": cycles.failed,
            "full_ms": round(cycles.full_ms, 1),
            "quick_ms": round(cycles.quick_ms, 1),
        },
        "operations": list(books.operations),
        "problems": list(books.problems),
    }


def tables(books: Books) -> list[View]:
    """Each table with its targets, by name."""
    return [
        {
            "table": table.name,
            "table_id": table.table_id,
            "state": table.state,
            "tablets": table.tablets,
            "unassigned_tablets": table.unassigned,
            "locality_groups": list(table.groups),
            **lag_of(lag for lag in books.lags if lag.table == table.name),
            "targets": [
                {
                    "cluster": target.target.cluster,
                    "remote_table": target.remote_table,
                    "groups": list(target.groups),
                }
                for target in books.targets
                if target.table == table.name
            ],
        }
        for table in books.tables
    ]


def peers(books: Books) -> list[View]:
    """Each cluster that is defined, by name, and how it fares."""
    return [
        {
            "cluster": peer.cluster,
            "quorum": peer.quorum,
            "instance_id": peer.instance_id,
            "tables": sorted({target.table for target in books.targets if target.target.cluster == peer.cluster}),
            **lag_of(lag for lag in books.lags if lag.cluster == peer.cluster),
            "phases": phases_of(lag for lag in books.lags if lag.cluster == peer.cluster),
            "failures": peer.failures,
            "last_error": peer.last_error,
            "next_try_in_ms": peer.next_try_in_ms,
            "records_shipped": peer.records,
            "bytes_shipped": peer.sent_bytes,
            "resends": peer.resends,
        }
        for peer in books.peers
    ]


def lag_of(lags: Iterable[Lag]) -> View:
    """Sums of records and bytes, the greatest of the seconds, files that are behind."""
    found = list(lags)
    return {
        "lag_records": sum(lag.records for lag in found),
        "lag_bytes": sum(lag.bytes for lag in found),
        "lag_seconds": round(max((lag.seconds for lag in found), default=0.0), 3),
        "files_behind": sum(lag.files - lag.phases.get("done", 0) for lag in found),
    }


def phases_of(lags: Iterable[Lag]) -> dict[str, int]:
    """Files by phase."""
    count: Counter[str] = Counter()
    for lag in lags:
        count.update(lag.phases)
    return dict(sorted(count.items()))


def files(books: Books, wanted: Selection) -> View:
    """Files and targets that are not done with, the greatest lag first. ``left_out``: rows that were not looked at in
    detail, because too many have more lag.
    """
    rows = [status for status in books.statuses if is_wanted(status, wanted)]
    known = sum(lag.files for lag in books.lags)
    return paged(rows, wanted, "files", file_row) | {"left_out": max(0, known - len(books.statuses))}


def is_wanted(status: TargetStatus, wanted: Selection) -> bool:
    """Whether a selection has the row."""
    return (
        wanted.table in ("", status.table)
        and wanted.cluster in ("", status.target.cluster)
        and wanted.phase in ("", status.phase)
    )


def file_row(status: TargetStatus) -> View:
    """One file on its way to one target."""
    return {
        "file": status.file,
        "table": status.table,
        "cluster": status.target.cluster,
        "remote_table_id": status.target.remote_table_id,
        "groups": list(status.groups),
        "state": status.state,
        "phase": status.phase,
        "needed": status.needed,
        "finished": status.finished,
        "lag_records": status.lag_records,
        "lag_bytes": status.lag_bytes,
        "lag_seconds": round(status.lag_seconds, 3),
        "worker": status.worker,
        "last_error": status.last_error,
        "next_try_in_ms": status.next_try_in_ms,
        "records_shipped": status.records_shipped,
        "bytes_shipped": status.bytes_shipped,
        "resends": status.resends,
    }


def quarantine(books: Books) -> list[View]:
    """Ranges that block their queue or are set aside."""
    return [quarantined_row(held) for held in books.quarantined]


def quarantined_row(held: QuarantinedRange) -> View:
    """One range."""
    return {
        "range_id": held.range_id,
        "table": held.table,
        "cluster": held.target.cluster,
        "file": held.file,
        "first": held.blocks.first,
        "last": held.blocks.last,
        "state": held.state,
        "error_code": held.error_code,
        "error": held.error,
        "tries": held.tries,
    }


def kept(sample: Sample, wanted: Selection) -> View:
    """What the collector keeps and for whom, the largest first."""
    return paged(sample.kept, wanted, "files", kept_row) | {
        "at_ms": sample.kept_at_ms,
        "problem": sample.kept_problem,
        "reasons": kept_sums(sample.kept),
    }


def kept_sums(found: Iterable[KeptFile]) -> dict[str, View]:
    """Files and bytes by kind of reason; a file with several reasons counts in each."""
    sums: dict[str, View] = {}
    for file in found:
        for kind in sorted({reason.kind for reason in file.reasons}):
            sum_ = sums.setdefault(kind, {"files": 0, "bytes": 0})
            sum_["files"] += 1
            sum_["bytes"] += file.bytes
    return dict(sorted(sums.items()))


def kept_row(file: KeptFile) -> View:
    """One file."""
    return {
        "file": file.file,
        "bytes": file.bytes,
        "sealed": file.is_sealed,
        "owner": file.owner,
        "reasons": [{"kind": reason.kind, "who": reason.who, "detail": reason.detail} for reason in file.reasons],
    }


def paged(rows: Sequence[Any], wanted: Selection, name: str, form: Any) -> View:
    """One page of rows, and where it lies. A page beyond the last is the last."""
    size = min(max(1, wanted.rows), ROWS_MAX)
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, wanted.page), pages)
    chosen = rows[(page - 1) * size : page * size]
    return {name: [form(row) for row in chosen], "total": len(rows), "page": page, "pages": pages}
