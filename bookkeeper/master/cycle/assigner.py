"""WorkAssigner: the choice of the next ranges, and of the tserver that ships each.

Arrives: outstanding files, the progress of their targets, live tservers, ranges in flight, peers that back off. Leaves:
ranges to hand out: always from finished + 1, one for each (file, target), never past a barrier. A range in flight may
be extended: the worker continues behind its end. Pure; a range that is handed out twice does no harm. Rules: R11 and
R24.

Each peer has its own order, bound and backoff: one that is offline delays no other.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice

from msgspec import Struct, field

import combiners
from bookkeeper.master.index.barriers import FileBarrier, log_directory
from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.shipments import Shipment, Shipments, WorkKey
from bookkeeper.master.index.target_progress import Amount, Progress
from bookkeeper.model import Target, TargetKey

QueueKey = tuple[int, bytes, TargetKey]
"""Creation time (ms; 0 for all when unordered), file, target: sorts in the order of handing out."""

PROBES = 1
"""Ranges in flight to a peer whose last try failed: enough to learn that it is back."""


class WorkRange(Struct, frozen=True):
    """Ship records ``first`` to ``last`` of ``file`` to ``target`` from tserver ``session``."""

    file: bytes
    target: Target
    first: int
    last: int
    session: str


class WorkLimits(Struct, frozen=True):
    """Most ranges in flight for one peer, and for one peer at one tserver."""

    peer_max: int
    lane_max: int


class PlanInput(Struct, frozen=True):
    """The input of a plan. ``owner_of`` names the session that wrote a file, ``chosen_for`` the one that has its
    operation. ``backing_off`` are tservers that did not take a range lately.
    """

    files: Outstanding
    live: Mapping[str, str]
    shipping: Shipments
    owner_of: Callable[[bytes], str | None]
    chosen_for: Callable[[bytes], str | None]
    limits: WorkLimits
    now_ns: int
    backing_off: Collection[str] = ()


class PeerQueue(Struct):
    """The keys of work that may wait for one peer, in the order of dispatch.

    It has the first ``length_max`` keys only; ``overflow`` means that a full cycle has to bring the others. A plan
    drops keys of finished work.
    """

    length_max: int
    keys: list[QueueKey] = field(default_factory=list)
    overflow: bool = False

    def refill(self, keys: Iterator[QueueKey], may_go: Callable[[QueueKey], bool] = lambda _: True) -> None:
        """Replace the content by the first of ``keys``, which ascend (nearly: a name may give a wrong age).

        After a clock went back, the log that all others wait for (R24) may be the last of many. So where no file of the
        first ones ``may_go``, the first file that may replaces the last of them.
        """
        first = list(islice(keys, self.length_max))
        following = next(keys, None)
        self.overflow = following is not None
        if following is not None and not any(map(may_go, first)):
            first[-1] = next(filter(may_go, chain([following], keys)), first[-1])
        self.keys = sorted(first)

    def add(self, key: QueueKey) -> None:
        """Add a key, unless it sorts behind the keys that did not fit."""
        index = bisect.bisect_left(self.keys, key)
        if index < len(self.keys) and self.keys[index] == key:
            return
        if self.overflow and index == len(self.keys):
            return
        self.keys.insert(index, key)
        if len(self.keys) > self.length_max:
            self.keys.pop()
            self.overflow = True

    def drop(self, keys: Collection[QueueKey]) -> None:
        """Remove these keys: they have no waiting work."""
        self.keys = [key for key in self.keys if key not in keys]


def queue_key(entry: FileEntry, target: TargetKey, sequential: bool) -> QueueKey:
    """The sort key of a file's work. ``sequential``: files of a target in order of creation, otherwise by name."""
    return (entry.created_ms() if sequential else 0, entry.file, target)


def finished_of(entry: FileEntry, target: TargetKey, shipping: Shipments) -> int:
    """The finished offset of a file at a target: by the books, or by a later report."""
    shipment = shipping.shipments.get((entry.file, target))
    booked = entry.progress_of(target).offset
    return booked if shipment is None else max(booked, shipment.finished)


def finished_share_of(progress: Progress, shipment: Shipment | None) -> Amount:
    """The target's own records and bytes up to its finished offset: by the books, or by a later report."""
    known = Amount(progress.records, progress.size)
    return known if shipment is None else Amount(*map(max, known, shipment.share))


def barrier_limit(
    entry: FileEntry, target: TargetKey, files: Outstanding, shipping: Shipments
) -> tuple[int, FileBarrier | None]:
    """Rule R24: the highest offset that may be shipped now, and the barrier behind it, if there is one.

    Barriers are offsets: with barriers between complete files, two tablets that swap servers would deadlock. Nothing
    beyond ``entry.safe`` is shipped, because barriers are complete only up to there.
    """
    for barrier in entry.barriers:
        if barrier.offset > entry.safe:
            break
        if not is_passed(barrier, target, files, shipping):
            return barrier.offset - 1, barrier
    return entry.safe, None


def is_passed(barrier: FileBarrier, target: TargetKey, files: Outstanding, shipping: Shipments) -> bool:
    """Whether the file of a barrier is no longer outstanding for ``target``, or finished far enough; and so are older
    logs, if the barrier includes them.
    """
    before = files.get(barrier.file)
    if before is not None and before.index_of(target) is not None:
        until = min(barrier.until_offset, before.needed) if before.is_closed() else barrier.until_offset
        if finished_of(before, target, shipping) < until:
            return False
    return not barrier.all_before or older_are_over(barrier.file, target, files, shipping)


def older_are_over(file: bytes, target: TargetKey, files: Outstanding, shipping: Shipments) -> bool:
    """Rule R24: whether the same tserver's logs before ``file`` will never again have records for ``target``."""
    oldest = oldest_left(file, target, files, shipping)
    return oldest is None or oldest >= file


def oldest_left(file: bytes, target: TargetKey, files: Outstanding, shipping: Shipments) -> bytes | None:
    """The oldest log of the tserver of ``file`` that may have records which ``target`` lacks; None when none has."""
    directory = log_directory(file)
    if directory is None:
        return None
    return files.oldest_left(directory, target, lambda entry: is_over(entry, target, shipping))


def is_over(entry: FileEntry, target: TargetKey, shipping: Shipments) -> bool:
    """Whether the target has all records that the file will ever have, or needs none of it."""
    if entry.index_of(target) is None:
        return True
    return entry.is_closed() and finished_of(entry, target, shipping) >= entry.needed


def next_range(entry: FileEntry, target: TargetKey, files: Outstanding, shipping: Shipments) -> tuple[int, int] | None:
    """First and last offset to ship next, None when no record may be shipped: from finished + 1, so without a gap."""
    last, _ = barrier_limit(entry, target, files, shipping)
    finished = finished_of(entry, target, shipping)
    return combiners.range_needing_replication(
        combiners.ReplicationStatus(replication_needed_offset=last, replication_finished_offset=finished)
    )


def choose_tserver(world: PlanInput, entry: FileEntry, cluster: str) -> str | None:
    """The tserver for the file: the one that wrote it if it is alive, else the one that ships it already to any target,
    else the least busy one.

    None when that tserver is at its limit: a file does not change tservers because its tserver is busy.
    """
    known = world.owner_of(entry.file), world.chosen_for(entry.file)
    for session in chain(known, flying_at(world, entry)):
        if session is not None and session in world.live:
            return session if has_room(world, session, cluster) else None
    candidates = [session for session in sorted(world.live) if has_room(world, session, cluster)]
    return min(candidates, key=lambda session: world.shipping.load(session, cluster), default=None)


def flying_at(world: PlanInput, entry: FileEntry) -> Iterator[str]:
    """The sessions with ranges of the file in flight, to any target, ranges of this plan included."""
    for target in entry.scope.targets:
        shipment = world.shipping.shipments.get((entry.file, target.key))
        if shipment is not None and shipment.flight is not None:
            yield shipment.flight.session


def has_room(world: PlanInput, session: str, cluster: str) -> bool:
    """Whether the tserver's lane for that peer takes another range."""
    return session not in world.backing_off and world.shipping.load(session, cluster) < world.limits.lane_max


def peer_allowance(world: PlanInput, cluster: str) -> int:
    """The number of further ranges for a peer now: none while it backs off, a probe after a failure."""
    retry = world.shipping.peers.get(cluster)
    flying = world.shipping.in_flight(cluster)
    if retry is None or not retry.failures:
        return world.limits.peer_max - flying
    return PROBES - flying if world.now_ns >= retry.next_try_ns else 0


def plan_peer(world: PlanInput, cluster: str, queue: PeerQueue) -> Iterator[WorkRange]:
    """Ranges for one peer, in the queue's order. The caller hands each one out before it asks for the next."""
    idle: set[QueueKey] = set()
    try:
        for key in queue.keys:
            if peer_allowance(world, cluster) <= 0 or not any(has_room(world, s, cluster) for s in world.live):
                return
            work = plan_one(world, key)
            if work is not None:
                yield work
            elif not is_waiting(world, key):
                idle.add(key)
    finally:
        if idle:
            queue.drop(idle)


def plan_one(world: PlanInput, key: QueueKey) -> WorkRange | None:
    """The next range of one (file, target), None when there is none now. Rule R11: a file that is not outstanding has
    none.
    """
    _, file, target_key = key
    entry = world.files.get(file)
    target = None if entry is None else target_of(entry, target_key)
    if entry is None or target is None:
        return None
    work = next_range(entry, target_key, world.files, world.shipping)
    shipment = world.shipping.shipments.get((file, target_key))
    if work is None or not is_due(shipment, work[1], world.now_ns):
        return None
    flight = None if shipment is None else shipment.flight
    session = choose_tserver(world, entry, target_key.cluster) if flight is None else flight.session
    if session is None or session in world.backing_off:
        return None
    return WorkRange(file, target, work[0], work[1], session)


def is_due(shipment: Shipment | None, last: int, now_ns: int) -> bool:
    """Whether a range may leave now: no error of its stream delays it, and no flight of it reaches ``last``."""
    if shipment is None:
        return True
    if shipment.flight is not None:
        return last > shipment.flight.last
    return now_ns >= shipment.next_try_ns


def may_go(key: QueueKey, files: Outstanding, shipping: Shipments) -> bool:
    """Whether barriers allow a part of the work; it may be in flight, or wait for its next try."""
    entry = files.get(key[1])
    return entry is not None and next_range(entry, key[2], files, shipping) is not None


def is_waiting(world: PlanInput, key: QueueKey) -> bool:
    """Whether the target lacks needed records, so that the work stays in the queue; also behind a barrier."""
    _, file, target = key
    entry = world.files.get(file)
    if entry is None or target_of(entry, target) is None:
        return False
    return finished_of(entry, target, world.shipping) < entry.needed


def target_of(entry: FileEntry, key: TargetKey) -> Target | None:
    """The configured target of that key, None when it is not configured for the file."""
    index = entry.index_of(key)
    return None if index is None else entry.scope.targets[index]


def waiting_work(behind: Iterable[FileEntry]) -> dict[str, list[FileEntry]]:
    """Files that some target lacks, per cluster that has a target of them, in the order of ``behind``."""
    waiting: dict[str, list[FileEntry]] = {}
    for entry in behind:
        for cluster in entry.scope.clusters:
            known = waiting.get(cluster)
            if known is None:
                known = waiting[cluster] = []
            known.append(entry)
    return waiting


def in_order(waiting: Sequence[FileEntry], cluster: str, sequential: bool) -> Iterator[QueueKey]:
    """The keys of the waiting files that a cluster lacks, in the order of dispatch, made one by one. ``waiting`` is
    sorted by name.

    Files of one directory are created in the order of their names, so a merge of directories gives order of creation
    without reading each file.
    """
    if not sequential:
        return _keys_of(waiting, 0, len(waiting), cluster, False)
    runs: list[Iterator[QueueKey]] = []
    start = 0
    while start < len(waiting):
        directory = waiting[start].file.rpartition(b"/")[0]
        end = bisect.bisect_left(waiting, directory + b"0", lo=start, key=lambda entry: entry.file)
        runs.append(_keys_of(waiting, start, max(end, start + 1), cluster, True))
        start = max(end, start + 1)
    return heapq.merge(*runs)


def _keys_of(waiting: Sequence[FileEntry], start: int, end: int, cluster: str, sequential: bool) -> Iterator[QueueKey]:
    for number in range(start, end):
        entry = waiting[number]
        for index, target in enumerate(entry.scope.targets):
            if target.key.cluster == cluster and entry.finished_at(index) < entry.needed:
                yield queue_key(entry, target.key, sequential)


def work_key(work: WorkRange) -> WorkKey:
    """The key of the range's shipment."""
    return work.file, work.target.key
