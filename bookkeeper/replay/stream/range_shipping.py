"""Ships ranges inside a task: each file is read once for all its targets, each stream keeps its order.

Arrives: ranges of one task. Leaves: messages to peers, one result per range. Memory is bounded by one message and one
block per target. An error stops its own stream only, and is a row of the results. A task that has used up its time
stops between two blocks, and its ranges come back short, without an error. For speed a message has 1 to 4 MB, and no
record becomes a Python object.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

from msgspec import Struct, field
from msgspec.structs import replace

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.sections import Settings
from bookkeeper.errors import BookkeeperError, CorruptionError, UnavailableError
from bookkeeper.model import StreamKey
from bookkeeper.peers.protocol import Peer, ReplicaSession
from bookkeeper.peers.registry import Registry, retry_limits, split_quorum
from bookkeeper.replay.ranges import Range, RangeResult
from bookkeeper.replay.stream.block_stream import CALLS_MAX, RangeStream
from bookkeeper.replay.stream.segment_transfer import TransferOutcome, try_segment_transfer
from bookkeeper.replay.stream.steps import Steps, Unwatched
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.storage.wal.reading.block_reader import first_block_behind, read_blocks
from bookkeeper.storage.wal.reading.log_formats import BlockAt

SESSIONS_MAX = 256
"""Open streams that one task process retains between runs."""

RECORDS_AT_LEAST_MS = 1_000
"""Time for the records of a file whose segments the peer declined when the time for the run was up."""

SessionKey = tuple[str, Peer, StreamKey]


class Sessions:
    """Replica sessions, retained between runs of one process; the least used one goes, and one that failed."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        sessions_max: int = SESSIONS_MAX,
        steps: Steps | None = None,
    ) -> None:
        """Retains at most ``sessions_max``. ``steps`` gets those of the task that uses the sessions; None = nobody
        watches it.
        """
        self._registry = registry
        self._limits = retry_limits(settings)
        self._sessions_max = sessions_max
        self.steps: Steps = steps or Unwatched()
        self._open: OrderedDict[SessionKey, ReplicaSession] = OrderedDict()

    def session(self, wanted: Range) -> ReplicaSession:
        """The session for a range's stream, opened if need be; raises what the replica system raises."""
        key = _key_of(wanted)
        if key not in self._open:
            with self.waiting(CALLS_MAX):
                self._open[key] = self._registry.system(key[0]).open(key[1], key[2], self._limits)
        self._open.move_to_end(key)
        if len(self._open) > self._sessions_max:
            self._open.popitem(last=False)[1].close()
        return self._open[key]

    def forget(self, wanted: Range) -> None:
        """Close the session for a range's stream, if there is one: something went wrong with it."""
        session = self._open.pop(_key_of(wanted), None)
        if session is not None:
            session.close()

    @contextmanager
    def waiting(self, calls: int = 1, more_ms: float = 0) -> Iterator[None]:
        """The block waits for the peer: for ``calls`` answers, each as long as for that to a message, and
        ``more_ms``.
        """
        self.steps.step(calls * self._limits.message_timeout_ms + more_ms)
        try:
            yield
        finally:
            self.steps.step()


def _key_of(wanted: Range) -> SessionKey:
    system, quorum = split_quorum(wanted.peer_quorum)
    return system, Peer(wanted.target.cluster, quorum, wanted.peer_instance_id), wanted.stream


class Shipper(Struct):
    """Ships the ranges of one task, with the sessions of its process."""

    sessions: Sessions
    volume: Volume
    settings: Settings
    clock: Clock = field(default_factory=SystemClock)

    def ship(self, ranges: Sequence[Range], budget_ms: int) -> Iterator[RangeResult]:
        """Results in the order of files; within a stream in the order of offsets. Stops reading after ``budget_ms``."""
        deadline_ns = self.clock.boot_ns() + budget_ms * 1_000_000
        for units in files_of(ranges):
            yield from self._ship_file(units, deadline_ns)

    def _ship_file(self, ranges: Sequence[Range], deadline_ns: int) -> list[RangeResult]:
        self.sessions.steps.begin(ranges[0])
        by_segments: list[RangeResult] = []
        streams: list[RangeStream] = []
        forms: dict[int, str] = {}
        for ranges_of_stream in streams_of(ranges):
            tried = self._try_segment_transfer(ranges_of_stream[0], deadline_ns)
            if tried.result is not None:
                by_segments.append(tried.result)
                continue
            if tried.reason:  # the try took its time: a few records go at least
                deadline_ns = max(deadline_ns, self.clock.boot_ns() + RECORDS_AT_LEAST_MS * 1_000_000)
                forms[ranges_of_stream[0].range_id] = tried.way
            message_bytes = self.settings.replay.message_bytes
            streams.append(RangeStream(ranges_of_stream, self.sessions, message_bytes, self.clock, self.volume))
        results = self._ship_records(ranges[0].file, streams, deadline_ns) if streams else []
        return by_segments + [replace(result, way=forms.get(result.range_id, "")) for result in results]

    def _try_segment_transfer(self, r: Range, deadline_ns: int) -> TransferOutcome:
        """A range that begins a stream goes at once, unless the time for this run is up."""
        if self.clock.boot_ns() >= deadline_ns:
            return TransferOutcome()
        return try_segment_transfer(self.volume, r, self.sessions, self.clock, self.settings.replay.run_timeout_ms // 3)

    def _ship_records(self, file: str, streams: Sequence[RangeStream], deadline_ns: int) -> list[RangeResult]:
        try:
            self._read_on(file, streams, deadline_ns)
        except BookkeeperError as error:
            fail_all(streams, error)
        except OSError as error:
            fail_all(streams, UnavailableError(f"{file} can't be read: {error}"))
        return [result for stream in streams for result in stream.results()]

    def _read_on(self, file: str, streams: Sequence[RangeStream], deadline_ns: int) -> None:
        """Damage stops the streams that want the damaged records; those that begin behind it go on from there."""
        position = 0
        while True:
            try:
                self._read(file, streams, deadline_ns, position)
            except CorruptionError as error:
                with self.sessions.waiting(CALLS_MAX):  # for the disk: a search may read all of the file
                    behind = block_behind(self.volume, file, error)
                fail_all([stream for stream in streams if stream.wants_before(behind)], error, behind)
                if behind is None:
                    return
                position = behind.position
            else:
                return

    def _read(self, file: str, streams: Sequence[RangeStream], deadline_ns: int, position: int) -> None:
        wanted = [stream for stream in streams if stream.active]
        if not wanted or self._expired(deadline_ns, wanted):
            return
        first = min(wanted, key=lambda stream: stream.next_offset)
        last_offset = max(stream.last_offset for stream in wanted)
        position_hint = max(position, first.position_hint) or None
        step = self.sessions.steps.step
        for block in read_blocks(self.volume, file, first.next_offset, last_offset, position_hint, step):
            step()
            for stream in wanted:
                stream.take(block)
            wanted = [stream for stream in wanted if stream.active]
            if not wanted or self._expired(deadline_ns, wanted):
                return

    def _expired(self, deadline_ns: int, streams: Sequence[RangeStream]) -> bool:
        if self.clock.boot_ns() < deadline_ns:
            return False
        for stream in streams:
            stream.expire()
        return True


def fail_all(streams: Sequence[RangeStream], error: BookkeeperError, behind: BlockAt | None = None) -> None:
    """The file can't be read on: the records read before still go out, then every unfinished stream has the error.
    ``behind``: the first intact block behind the damage.
    """
    for stream in streams:
        stream.fail(error, behind)


def block_behind(volume: Volume, file: str, damage: CorruptionError) -> BlockAt | None:
    """The first intact block behind the damage; None when there is none, or the file can't be read at all."""
    position = damage.details.get("position", "")
    try:
        return first_block_behind(volume, file, int(position)) if position.isdecimal() else None
    except CorruptionError:
        return None


def files_of(ranges: Sequence[Range]) -> list[list[Range]]:
    """Ranges grouped by file and peer, least order key first: a group reads its file once and waits for one peer."""
    groups: dict[tuple[str, str], list[Range]] = {}
    for r in ranges:
        groups.setdefault((r.file, r.peer_instance_id), []).append(r)
    return sorted(groups.values(), key=lambda group: min((r.order_key, r.file) for r in group))


def streams_of(ranges: Sequence[Range]) -> list[list[Range]]:
    """Ranges of one file grouped by target, each ascending."""
    ordered = sorted(ranges, key=lambda r: (r.target, r.first))
    return [list(group) for _, group in groupby(ordered, key=lambda r: r.target)]
