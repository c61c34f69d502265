"""The streams that a lane ships by itself: logs of this session, to targets in the configuration.

Arrives: ranges of the master, ends of logs, outcomes of runs. Leaves: ranges for the lane's queue, as if the master had
handed them out. A stream begins with the first record of its table in a log. The master only says more than the tserver
knows: that a barrier is passed, or which ranges are in quarantine. A stream ends with a permanent error, until the
master hands out a range of it again, and when its target is no longer configured. Rules: R9, R14 and R24.

A sync costs as much as there are streams with news: more records of their table, the end of a run, a passed barrier.
The other ones of the log go on with it now and then, so that `done:` follows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct, field
from msgspec.structs import replace

from bookkeeper.clock import Clock
from bookkeeper.errors import LogAwayError
from bookkeeper.model import Barrier, TargetKey
from bookkeeper.replay.ranges import RangeError
from bookkeeper.rpc.contract.messages import WorkItem
from bookkeeper.runtime.threads import SELDOM_MS
from bookkeeper.tserver.shipping.extension import Known, may_extend
from bookkeeper.tserver.shipping.own_log import OwnLogs
from bookkeeper.tserver.shipping.worker_plan import LanePlan, Outcome, Queued, StreamId, merged_item, stream_of

PAUSE_BASE_MS, PAUSE_MAX_MS = 500, 30_000
"""After a transient error, and at most after many in a row: nobody waits for the master's probe in the meantime."""


LOOK_MS = 1_000
"""Between two looks into the books for what other sessions shipped."""

SWEEP_MS = 100
"""So long after a log grew, streams of tables without new records go on to its end: nobody waits for these."""

Elsewhere = tuple[str, TargetKey]
"""A log of another session, and a target."""


class Destination(Struct, frozen=True):
    """Where a target is, by the configuration in force. ``takes_small_messages``: a message of one record costs little
    there; a directory makes a file of each.
    """

    quorum: str
    instance_id: str
    takes_small_messages: bool


class OpenStreams(Struct):
    """The open streams of one lane. Used under the lane's lock."""

    cluster: str
    own_logs: OwnLogs
    destinations: Callable[[], Mapping[TargetKey, Destination]]
    """By the configuration in force: another mapping when it has changed."""
    clock: Clock
    items: dict[StreamId, WorkItem] = field(default_factory=dict)
    """The master's last word on each open stream. Its last offset is the highest that it handed out, 0 = none."""
    newest: dict[TargetKey, WorkItem] = field(default_factory=dict)
    """Of each target, the item of the newest log that has a stream, or had one."""
    _configured: Mapping[TargetKey, Destination] | None = None
    """The configuration in force at the last look."""
    _targets: dict[str, list[TargetKey]] = field(default_factory=dict)
    """Table id to its configured targets of this lane."""
    _news: int = 0
    """The number of the last news of own logs that was looked at."""
    _swept: int = 0
    """Its value when all streams were looked at last."""
    _sweep_at_ns: int | None = None
    """When all of them are looked at again; None: no log has grown since."""
    _opened: dict[TargetKey, None] = field(default_factory=dict)
    """Targets that the master opened a stream of since the last look."""
    _ready: dict[StreamId, None] = field(default_factory=dict)
    """Open streams that may have something to ship; the others have nothing."""
    _blocked: dict[TargetKey, dict[StreamId, None]] = field(default_factory=dict)
    """Those that wait at a barrier, by target."""
    _waiting: dict[StreamId, Elsewhere] = field(default_factory=dict)
    """What open streams wait for: the peer has to have it first, and another session ships it."""
    _shipped_elsewhere: dict[Elsewhere, int] = field(default_factory=dict)
    """Of that, the finished offsets that the books had at the last look."""
    _look_at_ns: int = 0
    _judged: dict[StreamId, tuple[int, int]] = field(default_factory=dict)
    """Of each open stream, the last record that was allowed, and the number of late barriers then."""
    _stopped: set[TargetKey] = field(default_factory=set)
    """Targets with a stream that ended with a permanent error, until the master opens one again."""
    _failures: int = 0
    _pause_until_ns: int = 0

    def open(self, item: WorkItem) -> None:
        """The master handed out a range. Streams of other logs, and repeated runs, stay with it."""
        if item.run_id or self.own_logs.find(item.file) is None:
            return
        key = stream_of(item)
        self._stopped.discard(item.target)
        previous = self.items.get(key)
        self.items[key] = item if previous is None else merged_item(previous, item)
        newest = self.newest.get(item.target)
        if newest is None or item.file >= newest.file:
            self.newest[item.target] = self.items[key]
        self._opened[item.target] = self._ready[key] = None

    def due(self, plan: LanePlan, elsewhere: Collection[StreamId] = ()) -> list[WorkItem]:
        """The ranges that may be shipped now and are not queued; none of streams that are ``elsewhere``."""
        if self.pause_ms() > 0:
            return []
        self._take_news()
        known = Known(self.own_logs.find, self.own_logs.is_own, partial(self._finished_of, plan))
        for key in [key for key in self._ready if not (key in plan.running or key in elsewhere)]:
            if self._is_over(key, plan):
                self._close(key)
        found = (
            self._extended(key, plan, known)
            for key in list(self._ready)
            if not (key in plan.running or key in elsewhere)
        )
        return [item for item in found if item is not None][: max(0, plan.ranges_max - len(plan))]

    def may_be_followed(self) -> bool:
        """Whether a task may follow some stream: its log is one to go on with, and its peer takes small messages."""
        destinations = self.destinations()
        places = (destinations.get(item.target) for item in self.newest.values())
        return any(place and place.takes_small_messages for place in places)

    @property
    def must_look(self) -> bool:
        """Whether streams wait for finished offsets that the books may have by now."""
        return self.look_ms <= 0

    @property
    def look_ms(self) -> float:
        """The time until the next look into the books, if no stream begins to wait."""
        if not self._waiting:
            return SELDOM_MS
        return max(0, -(-(self._look_at_ns - self.clock.boot_ns()) // 1_000_000))

    def take_look(self) -> Sequence[Elsewhere]:
        """What has to be read in the books now: finished offsets that streams wait for; empty = nothing."""
        if not self.must_look:
            return ()
        self._look_at_ns = self.clock.boot_ns() + LOOK_MS * 1_000_000
        return list(dict.fromkeys(self._waiting.values()))

    def note_shipped_elsewhere(self, finished: dict[Elsewhere, int]) -> None:
        """The books were read."""
        self._shipped_elsewhere = finished
        self._ready.update(dict.fromkeys(self._waiting))

    def settle(self, outcomes: Iterable[tuple[Queued, Outcome]]) -> None:
        """Runs are over."""
        errors = [(stream_of(queued.item), outcome.error) for queued, outcome in outcomes]
        transient = [error for _, error in errors if error is not None and error.transient and is_of_peer(error)]
        for key, error in errors:
            if error is not None and not error.transient:
                self.end(key)
            self.note_progress(key)
        self._failures = self._failures + 1 if transient else 0
        pause_ms = min(PAUSE_MAX_MS, PAUSE_BASE_MS << min(self._failures - 1, 10)) if self._failures else 0
        self._pause_until_ns = self.clock.boot_ns() + pause_ms * 1_000_000

    def note_progress(self, key: StreamId) -> None:
        """The progress of a stream is another one: it is looked at again, and with it those that wait at a barrier."""
        if key in self.items:
            self._ready[key] = None
        self._ready.update(self._blocked.get(key[1], {}))

    def end(self, key: StreamId) -> None:
        """A permanent error ends a stream."""
        self._stopped.add(key[1])
        self._close(key)

    @property
    def flows(self) -> bool:
        """Whether nothing holds a stream up, neither an error nor a log of another session."""
        return not (self._stopped or self._waiting or self.pause_ms())

    def pause_ms(self) -> int:
        """The time until open streams are tried again after an error, rounded up; 0 = now."""
        return max(0, -(-(self._pause_until_ns - self.clock.boot_ns()) // 1_000_000))

    def wait_ms(self) -> float:
        """The time until the lane has to ask again, if no log grows and no range comes."""
        return self.pause_ms() or self._sweep_ms()

    def _sweep_ms(self) -> float:
        """The time until streams without new records go on, rounded up."""
        if self._sweep_at_ns is None:
            return SELDOM_MS
        return max(1, -(-(self._sweep_at_ns - self.clock.boot_ns()) // 1_000_000))

    def _take_news(self) -> None:
        """Find the streams that may have something to ship, and begin those of more logs and targets."""
        self._news, grown = self.own_logs.news_since(self._news)
        targets, self._opened = self._opened, {}
        if (destinations := self.destinations()) is not self._configured:
            self._configure(destinations)
            targets = {**targets, **dict.fromkeys(target for found in self._targets.values() for target in found)}
            self._ready.update(dict.fromkeys(self.items))
        for log, table in grown:
            if table is None:
                self._ready.update(dict.fromkeys(self.items))
                continue
            for target in self._targets.get(table, ()):
                targets[target] = None
                if (log, target, "") in self.items:
                    self._ready[log, target, ""] = None
        for target in targets:
            self._go_on(target, destinations.get(target))
        self._sweep()

    def _sweep(self) -> None:
        now_ns = self.clock.boot_ns()
        if self._sweep_at_ns is not None and now_ns >= self._sweep_at_ns:
            self._ready.update(dict.fromkeys(self.items))
            self._swept, self._sweep_at_ns = self._news, None
        elif self._sweep_at_ns is None and self._swept != self._news:
            self._sweep_at_ns = now_ns + SWEEP_MS * 1_000_000

    def _configure(self, destinations: Mapping[TargetKey, Destination]) -> None:
        self._configured, self._targets = destinations, {}
        for target in destinations:
            if target.cluster == self.cluster:
                self._targets.setdefault(target.source_table_id, []).append(target)
        for target in [target for target in self.newest if target not in destinations]:
            self._go_on(target, None)

    def _go_on(self, target: TargetKey, place: Destination | None) -> None:
        """Begin the streams of a target in the logs of this session that have none of it."""
        newest = self.newest.get(target)
        if place is None:
            self.newest.pop(target, None)
            self._stopped.discard(target)
        elif newest is not None:
            self._open_later_logs(newest)
        elif place.takes_small_messages:
            self._begin(target, place)

    def _begin(self, target: TargetKey, place: Destination) -> None:
        """Begin its streams in all logs of this session with records of its table."""
        for log in filter(None, map(self.own_logs.find, self.own_logs.names())):
            if target.source_table_id in log.tables and not log.through_master:
                self._add(WorkItem("", log.name, target, 1, 0, place.quorum, place.instance_id, 0))

    def _open_later_logs(self, item: WorkItem) -> None:
        """A target's stream goes on in the next log of this session; the barriers there keep the order."""
        for name in self.own_logs.later_than(item.file):
            log = self.own_logs.find(name)
            if log is not None and item.target.source_table_id in log.tables:
                item = replace(item, txid="", file=name, first_offset=1, last_offset=0, passed=())
                self._add(item)

    def _add(self, item: WorkItem) -> None:
        key = stream_of(item)
        self.items.setdefault(key, item)
        self.newest[item.target] = item
        self._ready[key] = None

    def _is_over(self, key: StreamId, plan: LanePlan) -> bool:
        item, progress = self.items[key], plan.progress_of.get(key)
        log, destination = self.own_logs.find(item.file), self.destinations().get(item.target)
        if log is None or destination is None or not is_at(destination, item):
            return True
        return log.is_sealed and log.end <= (0 if progress is None else progress.offset)

    def _extended(self, key: StreamId, plan: LanePlan, known: Known) -> WorkItem | None:
        item, progress, queued = self.items[key], plan.progress_of.get(key), plan.queue.get(key)
        log, destination = self.own_logs.find(item.file), self.destinations().get(item.target)
        if log is None or destination is None:
            return None
        finished = 0 if progress is None else progress.offset
        judged, late = self._judged.get(key, (0, 0))
        vouched = max(item.last_offset, judged) if late == log.late else item.last_offset
        extension = may_extend(log, item.target, vouched, known)
        last, barrier = extension.last, extension.barrier
        self._note_barrier(key, barrier)
        self._judged[key] = last, log.late
        if last <= finished:
            del self._ready[key]
            return None
        if queued is not None and last <= queued.item.last_offset:
            return None
        return replace(item, first_offset=finished + 1, last_offset=last, peer_quorum=destination.quorum)

    def _note_barrier(self, key: StreamId, barrier: Barrier | None) -> None:
        """What a stream waits for, if anything."""
        self._waiting.pop(key, None)
        if barrier is None:
            self._blocked.get(key[1], {}).pop(key, None)
            return
        self._blocked.setdefault(key[1], {})[key] = None
        if not self.own_logs.is_own(barrier.file):
            self._waiting[key] = barrier.file, key[1]

    def _finished_of(self, plan: LanePlan, file: str, target: TargetKey) -> int:
        """The offset up to which the peer has a file, as far as this lane knows: it shipped it, or read the books."""
        progress = plan.progress_of.get((file, target, ""))
        shipped = 0 if progress is None else min(progress.offset, progress.recorded)
        return max(shipped, self._shipped_elsewhere.get((file, target), 0))

    def _close(self, key: StreamId) -> None:
        """A stream ends, and others of its target may go on."""
        self.items.pop(key, None)
        self._judged.pop(key, None)
        self._ready.pop(key, None)
        self._note_barrier(key, None)
        self._ready.update(self._blocked.get(key[1], {}))


def is_of_peer(error: RangeError) -> bool:
    """Whether an error delays all streams of the lane: the host of one log may be away while the peer works."""
    return error.code != LogAwayError.code


def is_at(destination: Destination, item: WorkItem) -> bool:
    """Whether the peer of an item is the same instance as before (R23), and may get a record at a time."""
    return destination.instance_id == item.peer_instance_id and destination.takes_small_messages
