"""One schedule from one number: what users and clusters do, accidents, and the end in which all laws are judged."""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

from bookkeeper.bulk.log_segments import read_segmented_log
from bookkeeper.errors import BookkeeperError, TransientError
from bookkeeper.master.fate.engine import Args, Operation
from bookkeeper.master.gc import orphan_files
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey
from bookkeeper.model import StreamKey
from bookkeeper.tserver.bulk import segment_uploads, session_holds
from bookkeeper.tserver.bulk.segment_uploads import Upload
from tests.support.adoption_simulation.cluster import FLIGHT_MS, TABLE, Cluster
from tests.support.adoption_simulation.nodes import Master, TServer, call
from tests.support.adoption_simulation.operations import EXPORT_KIND, IMPORT_KIND, ModelExport, ModelImport
from tests.support.replacement import Binding, replaced
from tests.support.simulation.cells import short
from tests.support.simulation.imports import SimUpload, SimUuid
from tests.support.simulation.kernel import Kernel, Process
from tests.support.simulation.patches import threaded
from tests.support.simulation.primitives import Running, SimThreading, kernel

HAPPENINGS = 18
"""The deeds of one schedule."""

STEPS_MAX = 120
"""Most steps of tasks between two of them."""

TRIES_MAX = 3
"""How often a cluster sends its files."""

SEARCH_MS = 2_000

OUTLIVE_MS = FLIGHT_MS * 2 // 3
"""How long a process acts, or sleeps, when its session is over."""


class LawBrokenError(AssertionError):
    """A law does not hold."""


@dataclass(eq=False)
class Schedule:
    """A cluster and what happens to it."""

    cluster: Cluster
    rng: Random
    tservers: list[TServer] = field(default_factory=list)
    masters: list[Master] = field(default_factory=list)
    assigned: dict[bytes, TServer] = field(default_factory=dict)
    sending: int = 0
    """Transfers of other clusters under way."""
    delayed: set[tuple[int, int]] = field(default_factory=set)
    """Tasks and steps that were slow once."""
    _made: int = 0

    def __post_init__(self) -> None:
        self.kernel = self.cluster.kernel
        self.world = Process("world", "")
        self.kernel.observe = self._judge
        for _ in range(2):
            self._add_tserver()
        self._add_master()

    # ---- processes

    def _add_tserver(self) -> None:
        self._made += 1
        node = TServer(self.cluster, f"t{self._made}", self._find)
        self.tservers.append(node)
        self.kernel.spawn(node.process, "boot", node.boot)

    def _add_master(self) -> None:
        self._made += 1
        master = Master(self.cluster, f"m{self._made}", self._kinds)
        self.masters.append(master)
        self.kernel.spawn(master.process, "main", master.main)

    def _kinds(self, stores: ReignStores) -> dict[str, Operation]:
        return {
            IMPORT_KIND: ModelImport(self.cluster, stores, self._find),
            EXPORT_KIND: ModelExport(self.cluster, stores),
        }

    def _find(self, key: bytes) -> TServer | None:
        node = self.assigned.get(key)
        return node if node is not None and node.is_up else None

    def mend(self) -> None:
        """As a supervisor and a master do: dead processes are replaced, and tablets without a server get one."""
        up = [node for node in self.tservers if node.is_up]
        booting = [n for n in self.tservers if n.session is None and not n.process.dead]
        for _ in range(2 - len(up) - len(booting)):
            self._add_tserver()
        if not any(not m.process.dead and (m.session is None or not m.session.dead) for m in self.masters):
            self._add_master()
        for key in self.cluster.rows:
            if self._find(key) is None and up:
                node = self.rng.choice(up)
                self.assigned[key] = node
                self._spawn(node.process, "load", partial(node.load, key))

    def _spawn(self, process: Process, name: str, act: Callable[[], object]) -> None:
        self.kernel.spawn(process, name, lambda: ignored(act))

    def _end_session(self, process: Process, expire: Callable[[], None], sleeps: bool) -> None:
        """A process outlives its session: it goes on, or sleeps and goes on, until its lease ends it."""
        expire()
        now_ns = self.kernel.now_ns
        process.suspended = sleeps
        wakes_ns = now_ns + self.rng.randrange(OUTLIVE_MS) * 1_000_000

        def wake() -> None:
            kernel().wait("wake", lambda: kernel().now_ns >= wakes_ns, wakes_ns - now_ns)
            process.suspended = False
            kernel().wait("end", lambda: False, OUTLIVE_MS * 1_000_000 // 4)
            kernel().kill(process, "its lease is over")

        self.kernel.spawn(self.world, "supervisor", wake)

    # ---- happenings

    def happen(self) -> None:
        """Something happens."""
        self.mend()
        self.rng.choice(
            (
                self.receive, self.receive, self.receive, self.import_files, self.import_files, self.export,
                self.compact, self.compact, self.compact, self.ship, self.ship, self.hurt_tserver, self.hurt_tserver,
                self.hurt_master, self.pass_time, self.pass_time, self.delay, self.delay, self.delay,
            )
        )()  # fmt: skip

    def _labels(self) -> tuple[str, list[str]]:
        self._made += 1
        name = f"given-{self._made}"
        return name, [f"{name}#{number}" for number in range(self.rng.randint(1, 2))]

    def import_files(self) -> None:
        """An operator imports files."""
        request, labels = self._labels()
        self._submit(IMPORT_KIND, {"request": request, "labels": list(labels)})

    def export(self) -> None:
        """An operator exports the table."""
        self._submit(EXPORT_KIND, {"request": f"export-{self._made}"})

    def _submit(self, kind: str, args: Args) -> None:
        for master in self.masters:
            fate = master.fate
            if master.leads and fate is not None:
                self._spawn(master.process, "submit", partial(fate.submit, kind, args))

    def receive(self) -> None:
        """Another cluster sends files, and tries again."""
        name, labels = self._labels()
        stream = StreamKey("east", name, "7", TABLE, 1)

        def send() -> None:
            self.sending += 1
            for _ in range(TRIES_MAX):
                up = [node for node in self.tservers if node.is_up]
                node = self.rng.choice(up) if up else None
                try:
                    if node is not None:
                        call(node, "receive", partial(node.receive, stream, labels))
                        self.cluster.taken.update(labels)
                        self.cluster.counts["transfers"] += 1
                        break
                except BookkeeperError:
                    pass
                kernel().wait("send again", lambda: False, 500_000_000)
            self.sending -= 1

        self.kernel.spawn(self.world, "sender", send)

    def compact(self) -> None:
        """A tablet is compacted, and idle uploads end."""
        self._tidy(self.rng.choice(self.cluster.rows))

    def _tidy(self, key: bytes) -> None:
        node = self._find(key)
        if node is not None:
            self._spawn(node.process, "compact", partial(node.compact, key))
        for receiver in self.tservers:
            if receiver.is_up:
                self._spawn(receiver.process, "incoming", receiver.expire_uploads)

    def ship(self) -> None:
        """Peers get the logs that tablets name: by the names of files beside them, which are all there."""
        for row in self.cluster.table.rows(b"", ("repl",)):
            for column in row.cells if row.key in self.cluster.rows else ():
                log = keys.parse_file(column.qualifier)
                found = read_segmented_log(self.cluster.volume, log)
                names = [] if found is None else [segment.name for segment in found.segments]
                if found is None or not all(map(self.cluster.volume.is_there, names)):
                    self.cluster.broken.append(f"a peer lacks a file of {short(log)}")
                self.cluster.table.purge([CellKey(row.key, column)])
                self.cluster.counts["logs shipped"] += 1

    def hurt_tserver(self) -> None:
        """A tserver is killed, or outlives its session, awake or asleep."""
        up = [node for node in self.tservers if node.is_up]
        if up:
            node = self.rng.choice(up)
            self.cluster.counts["tservers hurt"] += 1
            self._hurt(node.process, node.session.expire if node.session is not None else int)

    def hurt_master(self) -> None:
        """The same of the master that leads."""
        for master in self.masters:
            if master.leads and master.session is not None:
                self.cluster.counts["masters hurt"] += 1
                self._hurt(master.process, master.session.expire)

    def _hurt(self, process: Process, expire: Callable[[], object]) -> None:
        if self.rng.random() < 0.4:
            self.kernel.kill(process)
        else:
            self._end_session(process, lambda: void(expire()), self.rng.random() < 0.6)

    def delay(self) -> None:
        """One call is slow: a write arrives while it can be in flight, and anything else takes as long as it likes."""
        waiting = [task for task in self.kernel.runnable() if task.process is not self.world and task.last_step]
        if not waiting:
            return
        slow = self.rng.choice(waiting)
        at, is_write = slow.last_step, slow.label.startswith(("put", "purge", "delete"))
        until_ns = self.kernel.now_ns + self.rng.randrange(OUTLIVE_MS if is_write else 5 * FLIGHT_MS) * 1_000_000
        if (slow.number, at) not in self.delayed:
            self.delayed.add((slow.number, at))
            self.cluster.counts["delays"] += 1
            self.kernel.hold(lambda task: task is slow and task.last_step == at and self.kernel.now_ns < until_ns)

    def pass_time(self) -> None:
        """All tasks stop for a while, or much longer than any write is in flight."""
        self.kernel.run_for(self.rng.choice((0.5, 2.0, FLIGHT_MS / 1_000)))

    # ---- the end

    def settle(self) -> None:
        """Nothing more happens; every operation and transfer ends, and the collector has time."""
        self.kernel.holds.clear()
        for _ in range(3):
            self.mend()
            self.kernel.run_for(1.2)
        for _ in range(40):
            self.mend()
            self.ship()
            for key in self.cluster.rows:
                self._tidy(key)
            self.kernel.run_for(1.2)
            self.kernel.advance(self.kernel.now_ns + FLIGHT_MS * 1_000_000)
            if not self._is_busy() and not self.cluster.left_over():
                break
        self._judge()
        left = self.cluster.left_over() + self.cluster.wrong_content()
        if self._is_busy() or left:
            raise LawBrokenError("\n".join(left[:6]) or f"an operation is stuck: {self._busy()}")

    def _busy(self) -> list[str]:
        fates = [master.fate for master in self.masters if master.leads]
        return [run.note for fate in fates if fate is not None for run in fate.pending() if not run.ended]

    def _is_busy(self) -> bool:
        return bool(self.sending or self._busy()) or not any(master.leads for master in self.masters)

    def _judge(self) -> None:
        broken = [*self.cluster.broken, *self.kernel.failures, *self.cluster.table.broken_laws]
        if broken:
            raise LawBrokenError("\n".join(broken[:4]))


def ignored(act: Callable[[], object]) -> None:
    """Something that may fail: others try again."""
    try:
        act()
    except TransientError as error:
        kernel().note(error.message)


def void(_result: object) -> None:
    """Nothing."""


EDGES = (
    *((Binding(module, threading), SimThreading) for module in threaded()),
    (Binding(session_holds, uuid), SimUuid),
    (Binding(segment_uploads, uuid), SimUuid),
    (Binding(segment_uploads, Upload), SimUpload),
    (Binding(orphan_files, "SCAN_INTERVAL_MS"), SEARCH_MS),
)


@contextmanager
def edges() -> Iterator[None]:
    """Threads are tasks, and names are the kernel's."""
    with ExitStack() as stack:
        for target, replacement in EDGES:
            stack.enter_context(replaced(target, replacement))
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def run_schedule(seed: int) -> Counter[str]:
    """One schedule, within :func:`edges`; returns how often things happened. Raises LawBrokenError, with the steps that
    led to it.
    """
    rng = Random(seed)
    running = Kernel(Random(seed))
    Running.kernel = running
    directory = Path(tempfile.mkdtemp())
    try:
        schedule = Schedule(Cluster(running, directory / "west", rng.random() < 0.5), rng)
        running.run_for(0.5)
        for _ in range(HAPPENINGS):
            schedule.happen()
            running.burst(rng.randint(0, STEPS_MAX), rng)
        schedule.settle()
        return schedule.cluster.counts
    except AssertionError as error:
        error.add_note(f"seed {seed}; the last steps:\n" + "\n".join(running.trace[-80:]))
        raise
    finally:
        running.close()
        Running.kernel = None
        shutil.rmtree(directory, ignore_errors=True)
