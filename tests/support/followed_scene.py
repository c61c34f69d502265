"""A tserver with one log, of which the test is the task that follows the stream to east.

The books, the coordination store, the calls and the runs are real; the books fail or wait when the test says so.
Arrives: :meth:`Scene.poll` and :meth:`Scene.one`, as a task asks. Leaves: the ranges that it gets, and what is in the
books, in the journal and in the reports.
"""

from __future__ import annotations

import queue
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import new_settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import UnavailableError
from bookkeeper.metadata import keys, values
from bookkeeper.model import BlockTarget, TargetKey
from bookkeeper.peers.registry import Registry
from bookkeeper.replay.ranges import (
    RANGE_SCHEMA,
    RESULT_SCHEMA,
    Range,
    RangeError,
    RangeResult,
    decode_table,
    encode_table,
    ranges_from_table,
    results_to_batch,
)
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello, WorkItem, WorkReport
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.standalone.books import make_books
from bookkeeper.storage.volume.opening import open_volume
from bookkeeper.tserver.shipping.follower import SILENT_MS
from bookkeeper.tserver.shipping.open_streams import Destination
from bookkeeper.tserver.shipping.own_log import OwnLogs
from bookkeeper.tserver.shipping.worker import ReplicationWorker
from tests.support.books import books_of
from tests.support.failing_metadata import FailingMetadata
from tests.support.local_replay import LocalReplay
from tests.support.memory_peer import MemoryPeer, MemorySystem
from tests.support.wal_files import EAST, TO_EAST, WEST, Spec, write_wal

LIMIT_S = 60.0
SESSIONS = 2
"""Most sessions of the tserver in one test."""
LOG, LATER = "wal/s-1/000001.wal", "wal/s-1/000002.wal"
PLACE = Destination("memory://east", EAST, takes_small_messages=True)


class StillClock(SystemClock):
    """Time passes when a test says so."""

    now_ns = 0

    def boot_ns(self) -> int:
        """See the protocol."""
        return self.now_ns


class HeldReplay(LocalReplay):
    """Its tasks that follow are the test: ``begun`` has their names, and each one lasts until it has an ending.
    ``before_note`` is called before lines of the journal are taken.
    """

    before_note: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # type: ignore[arg-type]
        self.begun: queue.Queue[str] = queue.Queue()
        self.endings: dict[str, queue.Queue[str]] = defaultdict(queue.Queue)

    def follow(self, tserver: str, cluster: str, run: str) -> None:
        """See the contract."""
        assert (tserver, cluster) == ("127.0.0.1:1", "east")
        self.begun.put(run)
        problem = self.endings[run].get(timeout=LIMIT_S)
        if problem:
            raise UnavailableError(problem)

    def note(self, ranges: bytes, results: bytes) -> None:
        """See the contract."""
        self.before_note()
        super().note(ranges, results)


@dataclass(slots=True)
class Scene:
    """A tserver with one log, of which a task follows the stream to east from record 2 on."""

    directory: Path
    metadata: FailingMetadata
    worker: ReplicationWorker
    replay: HeldReplay
    peer: MemoryPeer
    logs: OwnLogs
    clock: StillClock
    places: dict[TargetKey, Destination]
    limit_s: float = LIMIT_S
    reports: list[WorkReport] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def report(self, reports: Sequence[WorkReport]) -> None:
        with self.changed:
            self.reports += reports
            self.changed.notify_all()

    def wait_for(self, wanted: Callable[[], bool], what: str) -> None:
        """Wait for reports, or for anything else."""
        never, clock, deadline_s = threading.Event(), SystemClock(), self.limit_s
        end_ns = clock.boot_ns() + int(deadline_s * 1e9)
        while not wanted():
            assert clock.boot_ns() < end_ns, f"never: {what}"
            clock.wait(never, 2)

    def finished(self, file: str = LOG) -> int:
        """The offset in the books."""
        row = self.metadata.get(keys.repl_row(file), ("done",))
        cell = row.cells.get(keys.done_column(TO_EAST)) if row else None
        return values.decode_status(cell.value).replication_finished_offset if cell else 0

    def wait_finished(self, offset: int) -> None:
        self.wait_for(lambda: self.finished() >= offset, f"the books have {offset}, and not {self.finished()}")

    def item(self, first: int, last: int, **others: object) -> WorkItem:
        made = WorkItem("tx", LOG, TO_EAST, first, last, "memory://east", EAST, 1)
        return replace(made, **others) if others else made

    def next_session(self) -> None:
        """The tserver is killed, and another one has its address."""
        tools = self.worker._tools
        self.worker.stop()
        self.logs = OwnLogs("s-2")
        self.worker = ReplicationWorker(
            tools.settings,
            tools.volume,
            tools.metadata,
            tools.coordination,
            tools.pool,
            self.report,
            tools.own_address,
            self.logs,
            lambda: self.places,
            self.clock,
        )

    def wal(self, name: str) -> None:
        """A file of this session with three blocks; the first one is durable. Its rows are w1-1, w1-2 and so on."""
        sizes, row = [BlockTarget(TO_EAST, None)], b"w%s-%%d" % Path(name).stem[-1:].encode()
        specs = [
            Spec([row % n for n in offsets], block_targets=sizes)
            for offsets in (range(1, 2), range(2, 6), range(6, 10))
        ]
        write_wal(self.directory / name, specs, root=self.directory)
        self.logs.begin(name)
        self.logs.enter(name)
        self.logs.note_uses(name, frozenset({TO_EAST.source_table_id}), ())
        self.logs.note_end(name, 1)

    def open(self) -> str:
        """The stream is open, and a task asks for it; its name. The task asks late, so a run has shipped record 1."""
        run = self.open_for_runs()
        # The report is the last thing of a run. The lane may ship the record before it gets the range of the master.
        self.wait_for(lambda: any(report.txid == "tx" for report in self.reports), "the run for the range is over")
        assert self.poll(run) == []
        return run

    def open_for_runs(self) -> str:
        """The stream is open. Its task, whose name this is, does not ask, so runs ship."""
        self.wal(LOG)
        self.worker.assign([self.item(1, 1)])
        run = self.replay.begun.get(timeout=LIMIT_S)
        self.jump(SILENT_MS + 1)
        self.wait_finished(1)
        return run

    def poll(self, run: str, *results: RangeResult, wait_ms: int = 0) -> list[Range] | None:
        """The next ranges; None: the task is over."""
        raw = encode_table([results_to_batch(results)], RESULT_SCHEMA)
        answer = self.worker.follow("east", run, raw, wait_ms)
        return ranges_from_table(decode_table(answer, RANGE_SCHEMA)) if answer else None

    def one(self, run: str, *results: RangeResult, wait_ms: int = 0) -> Range:
        """The one next range. A stream that begins waits for its cell first."""
        found = self.poll(run, *results, wait_ms=wait_ms)
        assert found is not None
        (r,) = found
        return r

    def jump(self, ms: int) -> None:
        """Time passes, and everybody who waits looks again."""
        self.clock.now_ns += ms * 1_000_000
        for lane in self.worker._lanes.values():
            with lane._changed:
                lane._changed.notify_all()
                if lane._follower is not None:
                    lane._follower._ends.notify_all()
                lane._books._news.notify_all()


def acked(r: Range, to: int | None = None, error: RangeError | None = None) -> RangeResult:
    """The peer has a range, or a part of it."""
    last = r.last if to is None else to
    count = max(0, last - r.finished)
    return RangeResult(r.range_id, last, 0, None, count, 9 * count, 0, 0, 1, count, 9 * count, error, "h", 7, 0.1)


@contextmanager
def followed_scene(directory: Path) -> Iterator[Scene]:
    """A scene in a directory."""
    settings = new_settings(directory, "west", instance_id=WEST, overrides={"security.authentication": "none"})
    make_books(settings)
    metadata, coordination = FailingMetadata(books_of(settings)), open_coordination(settings)
    peer, clock, logs = MemoryPeer(EAST), StillClock(), OwnLogs("s-1")
    system = MemorySystem({"east": peer})
    replay = HeldReplay(settings, coordination, lambda: Registry({"memory": lambda: system}))
    pool = RpcPool(Hello(PROTOCOL_VERSION, WEST, "west", "tserver"), settings.rpc)
    places: dict[TargetKey, Destination] = {TO_EAST: PLACE}

    worker = ReplicationWorker(
        settings,
        open_volume(settings),
        metadata,
        coordination,
        pool,
        lambda reports: made.report(reports),
        "127.0.0.1:1",
        logs,
        lambda: places,
        clock,
    )
    made = Scene(directory, metadata, worker, replay, peer, logs, clock, places)
    with replay:
        yield made
        made.worker.stop()
        for run in list(replay.endings):
            for _ in range(SESSIONS):
                replay.endings[run].put("")
    pool.close()
    coordination.close()
    metadata.close()
