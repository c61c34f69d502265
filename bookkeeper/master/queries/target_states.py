"""The replication status: the progress, phase, lag and error of each file at each target. Pure.

Arrives: outstanding files, shipments, the health of peers. Leaves: :class:`TargetState` values, and the (file, target)
pairs below a mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf

from msgspec import Struct

from bookkeeper.errors import TableGoneError
from bookkeeper.master.cycle.assigner import barrier_limit, finished_of, finished_share_of
from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.shipments import Retry, Shipment, Shipments
from bookkeeper.master.index.target_progress import NO_AMOUNT, Amount, Progress
from bookkeeper.master.quarantine.quarantined_ranges import RangeKey, advice, is_blocking
from bookkeeper.master.queries.causes import DONE, NO_WAIT, Cause, Causes, Now, since_writing
from bookkeeper.model import Target, TargetKey

STATUS_ROWS_MAX = 20_000
"""Most rows of one answer, the largest lag first, because messages have a maximum size."""


class TargetState(Struct, frozen=True):
    """The state of a file at a target. ``phase``: waiting, shipping, blocked, backing_off, failing, unsealed or done.

    ``needed`` and ``finished`` are offsets of the file, which may have records of other tables; the lag counts the
    target's records only. ``lag_seconds``: the age of the first missing record, None while it is unknown; no missing
    record is older than ``age_max_s``.
    """

    file: str
    target: Target
    closed: bool
    needed: int
    finished: int
    lag_records: int
    lag_bytes: int
    lag_seconds: float | None
    age_max_s: float
    phase: str
    last_error: str | None
    next_try_in_ms: int | None
    worker: str | None
    under_way: int | None
    """The last offset of the range that the worker has now."""
    records_shipped: int
    bytes_shipped: int
    resends: int
    lacks_table: bool = False
    """The peer's last answer: it has no table with the target's id."""
    cause: Cause = NO_WAIT

    @property
    def waits(self) -> bool:
        """Whether the target waits for something. One that lacks only records of others waits for nothing, although its
        offset is not passed yet.
        """
        return self.cause.kind != DONE and (self.lag_records > 0 or self.finished >= self.needed)


def target_states(
    files: Outstanding, shipping: Shipments, now: Now, wanted: Callable[[Target], bool], tries: int
) -> list[TargetState]:
    """The states of every outstanding file at each wanted target, largest lag first, at most :data:`STATUS_ROWS_MAX`.

    ``tries``: see :func:`is_blocking`.
    """
    states = list(all_states(files, shipping, now, wanted, tries))
    states.sort(key=most_lag_first)
    return states[:STATUS_ROWS_MAX]


def most_lag_first(state: TargetState) -> tuple[float, int, str, TargetKey]:
    """The sort key of a status. An unknown lag may be as large as the file is old."""
    return -state.age_max_s, -state.lag_records, state.file, state.target.key


def all_states(
    files: Outstanding, shipping: Shipments, now: Now, wanted: Callable[[Target], bool], tries: int
) -> Iterator[TargetState]:
    """The states of every outstanding file at each wanted target, unsorted."""
    causes = Causes(files, shipping, now, tries)
    for entry in files.values():
        for index, target in enumerate(entry.scope.targets):
            if wanted(target):
                yield target_state(entry, target, entry.progress_at(index), files, shipping, now, tries, causes)


def target_state(
    entry: FileEntry,
    target: Target,
    progress: Progress,
    files: Outstanding,
    shipping: Shipments,
    now: Now,
    tries: int,
    causes: Causes | None = None,
) -> TargetState:
    """The state of one file at one target. ``causes``: those of the same moment, which share what they found."""
    shipment = shipping.shipments.get((entry.file, target.key)) or Shipment()
    retry = shipping.peers.get(target.key.cluster) or Retry()
    finished = finished_of(entry, target.key, shipping)
    behind = finished < entry.needed
    share = finished_share_of(progress, shipment)
    lacking = lacking_of(entry.amount_of(target.key), share) if behind else NO_AMOUNT
    times, key = shipping.times, (entry.file, target.key)
    written_ns = times.written_ns(key, share.records, now.boot_ns) if lacking.records else None
    age_s = lag_seconds(written_ns, now) if lacking.records else 0.0
    limit, barrier = barrier_limit(entry, target.key, files, shipping) if behind else (0, None)
    causes = causes or Causes(files, shipping, now, tries)
    cause = causes.of_records(entry, target.key, finished, limit, barrier) if behind else causes.of_end(entry)
    next_try_ns = max(shipment.next_try_ns, retry.next_try_ns if retry.failures else 0)
    waits = behind and next_try_ns > now.boot_ns
    error = shipment.error or (retry.last_error if behind and retry.failures else None)
    failing = shipment.failed is not None and is_blocking(shipment, tries)
    if shipment.failed is not None and failing:
        range_id = RangeKey(entry.name(), target.key, shipment.failed.first).range_id
        error = advice(range_id, shipment.failed, shipment.error, shipment.failures)
    at_barrier = barrier is not None and finished >= barrier.offset - 1
    phase = phase_of(behind, shipment, waits, at_barrier)
    if phase == "waiting" and finished >= entry.safe and entry.file in now.held_back:
        phase = "uncopied"
    if phase == "done" and not entry.is_closed() and now.has_lost_owner(entry.name()):
        phase = "unsealed"
    return TargetState(
        file=entry.name(),
        target=target,
        closed=entry.is_closed(),
        needed=entry.needed,
        finished=finished,
        lag_records=lacking.records,
        lag_bytes=lacking.size,
        lag_seconds=age_s,
        age_max_s=file_age_s(entry.created_ms(), now) if age_s is None else age_s,
        phase="failing" if failing else phase,
        last_error=error,
        next_try_in_ms=max(0, (next_try_ns - now.boot_ns) // 1_000_000) if waits else None,
        worker=shipment.flight.session if shipment.flight is not None else shipment.worker,
        under_way=None if shipment.flight is None else shipment.flight.last,
        records_shipped=shipment.records,
        bytes_shipped=shipment.sent_bytes,
        resends=shipment.resends,
        lacks_table=behind and shipment.error_code == TableGoneError.code,
        cause=since_writing(cause, written_ns),
    )


def lacking_of(needed: Amount, finished: Amount) -> Amount:
    """The exact records and bytes of an unfinished file that a target lacks: its needed share minus its finished share.
    Other tables' records count in neither share (R13), so the result may be nothing.
    """
    return Amount(max(0, needed.records - finished.records), max(0, needed.size - finished.size))


def phase_of(behind: bool, shipment: Shipment, waits: bool, at_barrier: bool) -> str:
    """The phase of a file. ``blocked``: the peer needs another file first (rule R24). The caller reports a waiting log
    of which the next records are on its host's disk alone as ``uncopied`` (R15).

    The caller reports a done log of a dead tserver as ``unsealed`` before recovery seals it: the books may lack its
    last records.
    """
    if not behind:
        return "done"
    if shipment.flight is not None:
        return "shipping"
    if waits:
        return "backing_off"
    return "blocked" if at_barrier else "waiting"


def lag_seconds(written_ns: int | None, now: Now) -> float | None:
    """The age of the first record that the target lacks; None: a new leader has not learned it yet."""
    return None if written_ns is None else max(0.0, (now.boot_ns - written_ns) / 1e9)


def file_age_s(created_ms: int, now: Now) -> float:
    """The age of a file, at least that of its records; without an end where no cell has it."""
    return max(0.0, (now.wall_ms - created_ms) / 1000) if created_ms else inf


def pending_of_marks(
    marks: Mapping[str, int],
    outstanding: Mapping[str, Iterable[Target]],
    finished: Callable[[str, Target], int],
) -> list[tuple[str, Target]]:
    """The (file, target) pairs that are below their mark.

    ``marks``: file to offset. ``outstanding``: the files with `repl:` columns now and their configured targets. A file
    without `repl:` columns is done: its cell was written before the mark and is deleted only when all targets are done.
    """
    return [
        (file, target)
        for file, offset in sorted(marks.items())
        for target in outstanding.get(file, ())
        if finished(file, target) < offset
    ]
