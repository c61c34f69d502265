"""The faults of a plan at two clusters of three hosts each; each lasting fault is healed before its step ends.

Operations and flushes run beside the next faults, so a kill strikes them half-way; :meth:`HostFaults.finish` waits for
them. Where logs lie on hosts, a host with the only copy of a record may be away, and is never destroyed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field

from bookkeeper.errors import TransientError
from tests.soak.hosts.host_files import flip, named_tablets, still_damaged
from tests.soak.hosts.host_logs import needed_logs
from tests.soak.hosts.host_operations import HostOperations
from tests.soak.hosts.host_plan import DESTRUCTIVE, LASTING, LOADED, OPERATIONS, HostFault, HostStep
from tests.soak.trace import Trace
from tests.support.books import books_of
from tests.support.hosted_cluster import MOVABLE, REPLICAS, HostedCluster
from tests.support.workloads_clusters import READY_S
from tests.support.workloads_hosts import Trios

CUTTING = (HostFault.STOP, HostFault.AWAY)
"""While these hold, nobody can read the logs on the disk of their host."""


@dataclass(slots=True)
class HostFaults:
    """Executes one step after the other."""

    trios: Trios
    trace: Trace
    pool: ThreadPoolExecutor
    _running: list[Future[None]] = field(default_factory=list)
    _waiting: frozenset[str] = frozenset()
    """Tables whose writes may wait for a host that has their logs."""

    @property
    def operations(self) -> HostOperations:
        """The orders to the clusters."""
        return HostOperations(self.trios, self.trace)

    def finish(self) -> None:
        """Return when all operations and flushes are over. Raises BookkeeperError, AssertionError."""
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
        with self._begun(step, hosted), self._cut(step):
            for inner in step.inner:
                self.do(inner)
            self._write(step.meanwhile)
        if step.fault in LASTING:
            self.trace.say(f"{self.trios.written()}  over: {step}")

    def _begun(self, step: HostStep, hosted: HostedCluster) -> AbstractContextManager[None]:
        lasting: dict[HostFault, Callable[[], AbstractContextManager[None]]] = {
            HostFault.STOP: lambda: hosted.stopped(step.host),
            HostFault.AWAY: hosted.away,
            HostFault.DESTROY: lambda: self._destroyed(hosted),
            HostFault.FILL: lambda: self._full(hosted),
            HostFault.DRAIN: lambda: hosted.drained(step.host),
            HostFault.FLIP: lambda: self._flipped(step, hosted),
        }
        momentary: dict[HostFault, Callable[[], None]] = {
            HostFault.KILL: lambda: hosted.kill(step.host),
            HostFault.KILL_ALL: hosted.kill_all,
            HostFault.KILL_MASTER: hosted.kill_master,
            HostFault.WIPE: lambda: self._wipe(step, hosted),
            HostFault.FLUSH: lambda: self._begin(lambda: self._flush(hosted)),
        }
        if step.fault in OPERATIONS:
            self._begin(lambda: self.operations.give(step))
            return nullcontext()
        if step.fault in lasting:
            return lasting[step.fault]()
        momentary[step.fault]()
        return nullcontext()

    def _begin(self, work: Callable[[], None]) -> None:
        self._running.append(self.pool.submit(work))

    def _write(self, batches: int) -> None:
        if batches:
            self.trios.wait_written(batches, self._waiting)

    @contextmanager
    def _cut(self, step: HostStep) -> Iterator[None]:
        """With logs on hosts, only the tables with ``table.failover`` are written while their host is cut off."""
        turn, before = self.trios.turn, self._waiting
        if turn.are_logs_on_hosts and step.fault in CUTTING and step.side == LOADED:
            self._waiting = self.trios.tables - turn.failover
        yield
        self._waiting = before

    @contextmanager
    def _saved(self, hosted: HostedCluster, host: str) -> Iterator[None]:
        """With logs on hosts, nothing is written inside the block, and nobody needs a log on the disk of the host; then
        an operator accepts their loss.
        """
        if not self.trios.turn.are_logs_on_hosts:
            yield
            return
        name = hosted.cluster.settings.instance.name
        with self.trios.paused():
            self.trios.wait_replicated()
            self.trios.wait_equal()
            self.trios.wait_none(lambda: self._needed(hosted, host), f"needed on {name} {host}")
            incarnation = hosted.incarnations()[host]
            self.trace.say(f"nobody needs a log on {name} {host}")
            yield
            hosted.forget(host, incarnation)

    def _needed(self, hosted: HostedCluster, host: str) -> list[str]:
        self.trios.flush()
        return needed_logs(hosted.look().rows, host)

    def _wipe(self, step: HostStep, hosted: HostedCluster) -> None:
        with self._saved(hosted, step.host):
            hosted.wipe(step.host)

    @contextmanager
    def _destroyed(self, hosted: HostedCluster) -> Iterator[None]:
        with ExitStack() as stack:
            with self._saved(hosted, MOVABLE):
                stack.enter_context(hosted.destroyed())
            yield

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
        for table in hosted.tables:
            try:
                hosted.cluster.client.tables.flush(table)
            except TransientError as error:
                self.trace.say(f"not flushed: {error.message}")
