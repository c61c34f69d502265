"""The content of each page and JSON document, made of a :class:`Sample`: plain values for JSON and templates. Pure.

Names are those of the replication status, with units last. docs/monitor.md describes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct

from bookkeeper.model import TargetKey
from bookkeeper.monitor import pictures
from bookkeeper.monitor.observation import Books, Lag, Observation, RetainedFile, greatest_age
from bookkeeper.monitor.sampler import Sample
from bookkeeper.rpc.contract.messages import QuarantinedRange, TargetStatus, WaitCause

View = dict[str, Any]

QUARANTINED = "quarantined"
"""The phase of a status that is a range in quarantine, beside the status of its file."""

ROWS_MAX = 500
"""Maximum rows of one page."""


class Selection(Struct, frozen=True):
    """A filter and a page of a long list; "" = all rows. ``page`` counts from 1."""

    table: str = ""
    cluster: str = ""
    phase: str = ""
    page: int = 1
    rows: int = 50


def health(sample: Sample, now_ns: int, stale_after_ms: float) -> tuple[bool, View]:
    """Whether this process works: its session is valid and its last sample is recent (boot clock)."""
    age_ms = (now_ns - sample.sampled_ns) // 1_000_000
    healthy = sample.observation.is_alive and age_ms <= stale_after_ms
    return healthy, {"healthy": healthy, "session": sample.observation.session, "looked_ms_ago": age_ms}


def readiness(observation: Observation) -> tuple[bool, View]:
    """Whether clients can use the cluster: a master leads; if this one does, its cycles work and a tserver lives."""
    reason = ""
    if not observation.is_alive:
        reason = "the session of this master is over"
    elif observation.leader is None:
        reason = observation.problem or "no master of this cluster leads now"
    elif observation.leads and observation.books is None:
        reason = observation.problem
    elif observation.books is not None and observation.books.cycles.failed_in_row:
        books = observation.books
        reason = f"the last {books.cycles.failed_in_row} cycles failed: {'; '.join(books.problems)}"
    elif observation.books is not None and not observation.books.tservers:
        reason = "no tserver lives"
    return not reason, {"ready": not reason, "leads": observation.leads, "reason": reason}


def overview(sample: Sample) -> View:
    """The cluster in a few numbers. A master that stands by has only its own identity and the leader's."""
    observation = sample.observation
    view: View = {
        "cluster": observation.cluster,
        "instance_id": observation.instance_id,
        "at_ms": observation.at_ms,
        "master": observation.address,
        "session": observation.session,
        "leads": observation.leads,
        "leader": None
        if observation.leader is None
        else {
            "address": observation.leader.address,
            "epoch": observation.leader.epoch,
            "monitor": observation.leader.monitor,
        },
        "problem": observation.problem,
    }
    books = observation.books
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
        "quarantined_ranges": sum(found.state != "blocking" for found in books.quarantined),
        "blocking_ranges": sum(found.state == "blocking" for found in books.quarantined),
        "kept_files": len(sample.retained),
        "kept_bytes": sum(file.bytes for file in sample.retained),
        "files_deleted": books.files_deleted,
        "tablets_split": books.tablets_split,
        "tservers": [
            {"session": tserver.session, "address": tserver.address, "tablets": tserver.tablets}
            for tserver in books.tservers
        ],
        "replays": [
            {"session": replay.session, "address": replay.address, "works": replay.works} for replay in books.replays
        ],
        "replay_problem": books.replay_problem,
        "cycles": {
            "full": cycles.full,
            "quick": cycles.quick,
            "failed": cycles.failed,
            "full_ms": round(cycles.full_ms, 1),
            "quick_ms": round(cycles.quick_ms, 1),
        },
        "operations": list(books.operations),
        "problems": list(books.problems),
        "waits": [cause_row(cause) for cause in books.causes],
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
    """Each defined cluster with its lag, failures and counts, by name."""
    return [
        {
            "cluster": peer.cluster,
            "quorum": peer.quorum,
            "instance_id": peer.instance_id,
            "tables": sorted({target.table for target in books.targets if target.target.cluster == peer.cluster}),
            **lag_of(lag for lag in books.lags if lag.cluster == peer.cluster),
            "phases": phases_of(lag for lag in books.lags if lag.cluster == peer.cluster),
            "waits": [cause_row(cause) for cause in books.causes if cause.cluster == peer.cluster],
            "failures": peer.failures,
            "last_error": peer.last_error,
            "next_try_in_ms": peer.next_try_in_ms,
            "records_shipped": peer.records,
            "bytes_shipped": peer.sent_bytes,
            "resends": peer.resends,
        }
        for peer in books.peers
    ]


def cause_row(cause: WaitCause) -> View:
    """The cause of a wait."""
    return {
        "cluster": cause.cluster,
        "kind": cause.kind,
        "tables": list(cause.tables),
        "text": cause.text,
        "steps": [{"at": step.at, "command": step.command} for step in cause.steps],
        "needs_person": cause.needs_person,
        "since_seconds": None if cause.since_seconds is None else round(cause.since_seconds, 3),
        "files": cause.files,
        "records": cause.records,
        "bytes": cause.bytes,
        "file": cause.file,
        "next_try_in_ms": cause.next_try_in_ms,
        "tries": cause.tries,
    }


def lag_of(lags: Iterable[Lag]) -> View:
    """Sums of records and bytes, the maximum of the seconds (None: unknown), the number of files with lag."""
    found = list(lags)
    seconds = greatest_age(lag.seconds for lag in found)
    return {
        "lag_records": sum(lag.records for lag in found),
        "lag_bytes": sum(lag.bytes for lag in found),
        "lag_seconds": rounded(seconds),
        "files_behind": sum(lag.files - lag.phases.get("done", 0) for lag in found),
    }


def rounded(seconds: float | None) -> float | None:
    """Seconds to the millisecond."""
    return None if seconds is None else round(seconds, 3)


def phases_of(lags: Iterable[Lag]) -> dict[str, int]:
    """Files by phase."""
    count: Counter[str] = Counter()
    for lag in lags:
        count.update(lag.phases)
    return dict(sorted(count.items()))


def files(books: Books, selection: Selection) -> View:
    """Files and targets with replication work, the greatest lag first. ``left_out``: the number of rows that have less
    lag than those in the books' ``statuses`` and are in the sums only.
    """
    rows = [status for status in books.statuses if is_selected(status, selection)]
    return paged(rows, selection, "files", file_row) | {"left_out": left_out(books)}


def is_selected(status: TargetStatus, selection: Selection) -> bool:
    """Whether the row passes the selection's filter."""
    return (
        selection.table in ("", status.table)
        and selection.cluster in ("", status.target.cluster)
        and selection.phase in ("", status.phase)
    )


def file_row(status: TargetStatus) -> View:
    """The replication of one file to one target."""
    return {
        "file": status.file,
        "table": status.table,
        "cluster": status.target.cluster,
        "remote_table_id": status.target.remote_table_id,
        "groups": list(status.groups),
        "state": status.state,
        "phase": status.phase,
        "cause": status.cause,
        "root_cause": status.root_cause,
        "needed": status.needed,
        "finished": status.finished,
        "lag_records": status.lag_records,
        "lag_bytes": status.lag_bytes,
        "lag_seconds": rounded(status.lag_seconds),
        "worker": status.worker,
        "last_error": status.last_error,
        "next_try_in_ms": status.next_try_in_ms,
        "records_shipped": status.records_shipped,
        "bytes_shipped": status.bytes_shipped,
        "resends": status.resends,
    }


def file_way(sample: Sample, books: Books, file: str) -> View | None:
    """The way of a log to each peer, and the reasons why it is kept; None: no peer is known to lack a record of it, and
    it is not kept.
    """
    statuses = [status for status in books.statuses if status.file == file]
    kept = next((one for one in sample.retained if one.file == file), None)
    if not statuses and kept is None:
        return None
    ways: dict[TargetKey, View] = {}
    for status in sorted(statuses, key=lambda one: (one.target.cluster, one.table, one.phase == QUARANTINED)):
        if status.target not in ways:
            ways[status.target] = way_row(status, books)
    known = {"bytes": None, "sealed": None, "owner": None, "reasons": []} if kept is None else retained_row(kept)
    return {**known, "file": file, "ways": list(ways.values()), "left_out": left_out(books)}


def way_row(status: TargetStatus, books: Books) -> View:
    """The way of a log to one target: its offsets as spans, each with the ranges in quarantine that it is."""
    ranges = [one for one in books.quarantined if (one.file, one.target) == (status.file, status.target)]
    needed = max([status.needed, *(one.blocks.last for one in ranges)])
    finished = needed if status.phase == QUARANTINED else status.finished
    under_way = books.under_way.get((status.file, status.target))
    found = pictures.spans(needed, finished, under_way, (one.blocks for one in ranges if one.state != "blocking"))
    return file_row(status) | {
        "needed": needed,
        "finished": finished,
        "under_way": under_way,
        "spans": [{"kind": kind, "first": first, "last": last} for kind, first, last in found],
        "ranges": [quarantined_row(one) for one in ranges],
    }


def left_out(books: Books) -> int:
    """Pairs of a file and a target with less lag than those of ``statuses``: they are in the sums only."""
    return max(0, sum(lag.files for lag in books.lags) - len(books.statuses))


def quarantine(books: Books) -> list[View]:
    """Ranges that block their queue or were skipped."""
    return [quarantined_row(quarantined) for quarantined in books.quarantined]


def quarantined_row(quarantined: QuarantinedRange) -> View:
    """One range."""
    return {
        "range_id": quarantined.range_id,
        "table": quarantined.table,
        "cluster": quarantined.target.cluster,
        "file": quarantined.file,
        "first": quarantined.blocks.first,
        "last": quarantined.blocks.last,
        "state": quarantined.state,
        "error_code": quarantined.error_code,
        "error": quarantined.error,
        "tries": quarantined.tries,
    }


def retained(sample: Sample, selection: Selection) -> View:
    """Retained files with their reasons, the largest first."""
    return paged(sample.retained, selection, "files", retained_row) | {
        "at_ms": sample.retained_at_ms,
        "problem": sample.retained_problem,
        "reasons": retained_sums(sample.retained),
    }


def retained_sums(found: Iterable[RetainedFile]) -> dict[str, View]:
    """Files and bytes by kind of reason; a file with several reasons counts in each."""
    sums: dict[str, View] = {}
    for file in found:
        for kind in sorted({reason.kind for reason in file.reasons}):
            sum_ = sums.setdefault(kind, {"files": 0, "bytes": 0})
            sum_["files"] += 1
            sum_["bytes"] += file.bytes
    return dict(sorted(sums.items()))


def retained_row(file: RetainedFile) -> View:
    """One file."""
    return {
        "file": file.file,
        "bytes": file.bytes,
        "sealed": file.is_sealed,
        "owner": file.owner,
        "reasons": [{"kind": reason.kind, "who": reason.who, "detail": reason.detail} for reason in file.reasons],
    }


def paged(rows: Sequence[Any], selection: Selection, name: str, form: Any) -> View:
    """One page of rows with its number and the totals. A page beyond the last one is the last one."""
    size = min(max(1, selection.rows), ROWS_MAX)
    pages = max(1, -(-len(rows) // size))
    page = min(max(1, selection.page), pages)
    chosen = rows[(page - 1) * size : page * size]
    return {name: [form(row) for row in chosen], "total": len(rows), "page": page, "pages": pages}
