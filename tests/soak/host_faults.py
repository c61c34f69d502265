"""The faults of a plan at two clusters of three hosts each; each lasting fault is healed before its step ends.

Splits and flushes run beside the next faults, so a kill strikes them half-way; :meth:`HostFaults.finish` waits for
them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field

from bookkeeper.errors import TransientError
from tests.soak.host_files import REPLICAS, flip, named_tablets, still_damaged
from tests.soak.host_plan import DESTRUCTIVE, LASTING, HostFault, HostStep
from tests.soak.trace import Trace
from tests.support.books import books_of
from tests.support.workloads import LinkedList
from tests.support.workloads_clusters import READY_S
from tests.support.workloads_hosts import HostedCluster, Trios

TABLETS_MAX = 6
"""A table with so many tablets is not split any more."""


@dataclass(slots=True)
class HostFaults:
    """Executes one step after the other."""

    trios: Trios
    trace: Trace
    pool: ThreadPoolExecutor
    _running: list[Future[None]] = field(default_factory=list)

    def finish(self) -> None:
        """Return when all splits and flushes are over. Raises BookkeeperError."""
        for running in self._running:
            running.result()

    def do(self, step: HostStep) -> None:
        """Write the batches before it, do it, write while it lasts, and heal it."""
        hosted = self.trios.hosted[step.side]
        self._write(step.before)
        if step.fault in LASTING:
            hosted.cluster.wait_ready(READY_S)  # a stopped supervisor starts nothing that was killed before
        if step.fault in DESTRUCTIVE:
            hosted.wait_voting()
        self.trace.say(f"{self.trios.written()}  {step}")
        with self._begun(step, hosted):
            for inner in step.inner:
                self.do(inner)
            self._write(step.meanwhile)
        if step.fault in LASTING:
            self.trace.say(f"{self.trios.written()}  over: {step}")

    def _begun(self, step: HostStep, hosted: HostedCluster) -> AbstractContextManager[None]:
        lasting: dict[HostFault, Callable[[], AbstractContextManager[None]]] = {
            HostFault.STOP: lambda: hosted.stopped(step.host),
            HostFault.AWAY: hosted.away,
            HostFault.DESTROY: hosted.destroyed,
            HostFault.FILL: lambda: self._full(hosted),
            HostFault.DRAIN: lambda: hosted.drained(step.host),
            HostFault.FLIP: lambda: self._flipped(step, hosted),
        }
        momentary: dict[HostFault, Callable[[], None]] = {
            HostFault.KILL: lambda: hosted.kill(step.host),
            HostFault.KILL_ALL: hosted.kill_all,
            HostFault.KILL_MASTER: hosted.kill_master,
            HostFault.WIPE: lambda: hosted.wipe(step.host),
            HostFault.FLUSH: lambda: self._begin(lambda: self._flush(hosted)),
            HostFault.SPLIT: lambda: self._begin(lambda: self._split(step, hosted)),
        }
        if step.fault in lasting:
            return lasting[step.fault]()
        momentary[step.fault]()
        return nullcontext()

    def _begin(self, work: Callable[[], None]) -> None:
        self._running.append(self.pool.submit(work))

    def _write(self, batches: int) -> None:
        if batches:
            self.trios.wait_written(batches)

    def _full(self, hosted: HostedCluster) -> AbstractContextManager[None]:
        if hosted.disk is None:
            self.trace.say(f"not filled: {self.trios.no_disk}")
            return nullcontext()
        return hosted.full()

    @contextmanager
    def _flipped(self, step: HostStep, hosted: HostedCluster) -> Iterator[None]:
        """After the block the host has mended each file, or needs it no longer."""
        with closing(books_of(hosted.cluster.settings)) as table:
            tablets = [tablet for tablet in named_tablets(table.scan()) if step.host in tablet.voters]
        rng, root = random.Random(step.pick), hosted.home(step.host) / REPLICAS
        sound = {}
        for tablet in tablets:
            path = root / rng.choice(sorted(tablet.files) or [""])
            if (content := flip(path, rng)) is not None:
                sound[path] = content
        self.trace.say(f"{len(sound)} files are damaged")
        yield
        hosted.cluster.wait_until(lambda: not still_damaged(sound), f"sound files of {step.host}", READY_S)

    def _flush(self, hosted: HostedCluster) -> None:
        for table in hosted.replicas_of:
            try:
                hosted.cluster.client.tables.flush(table)
            except TransientError as error:
                self.trace.say(f"not flushed: {error.message}")

    def _split(self, step: HostStep, hosted: HostedCluster) -> None:
        """Split at a row between those that the workloads write."""
        rng = random.Random(step.pick)
        workload = rng.choice([loader.workload for loader in self.trios.loaders])
        row = b"%04x" % rng.randrange(1 << 16) if isinstance(workload, LinkedList) else b"row-%04d" % rng.randrange(150)
        tables = hosted.cluster.client.tables
        try:
            if len(tables.splits(workload.table)) + 1 >= TABLETS_MAX:
                self.trace.say(f"not split: {workload.table} has {TABLETS_MAX} tablets")
                return
            tables.add_splits(workload.table, [row])
        except TransientError as error:
            self.trace.say(f"not split: {error.message}")
