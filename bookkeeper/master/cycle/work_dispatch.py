"""The dispatch of work: a queue of outstanding files for each peer, plans, and calls to tservers.

Arrives: outstanding files and those that have just grown, reports, returned ranges. Leaves: `assign_work` calls, each
in the lane of its tserver, after the file's operation is in the books. Used by the master's thread alone; others only
read ``shipping``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_tree import PeerCluster
from bookkeeper.errors import BookkeeperError
from bookkeeper.master.books.books_cycle import Growth
from bookkeeper.master.calls.tserver_calls import TServerCalls
from bookkeeper.master.cycle import assigner
from bookkeeper.master.cycle.assigner import PeerQueue, PlanInput, WorkLimits, WorkRange
from bookkeeper.master.cycle.event_queue import EventQueue
from bookkeeper.master.cycle.replicate_file import ReplicateFiles
from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.shipments import Flight, Report, Shipments, WorkKey
from bookkeeper.master.index.write_times import Look
from bookkeeper.master.quarantine.quarantined_ranges import Quarantine, blocking_ranges
from bookkeeper.master.reign.leader import Reign
from bookkeeper.model import TargetKey
from bookkeeper.rpc.contract.messages import WorkItem

LOG = logging.getLogger(__name__)

QUEUE_FACTOR = 4
"""The length of a peer's queue, as a multiple of the files that may be in flight to it."""

RESEND_NS = 30 * 1_000_000_000
"""A range in flight for so long is sent again: its report may have been lost, and the tserver drops repeats."""


LOOKS_SLACK_MS = 500
"""How much longer than the interval of full cycles two reads of a tserver's tablets are apart at most, as a rule."""


class DispatchSettings(Struct, frozen=True):
    """Settings of the dispatch. ``sequential``: files of a target in order of creation; ``items_max``: most ranges in
    one call; ``looks_apart_ns``: growth that a read finds is new, if the read before is not longer ago.
    """

    sequential: bool
    limits: WorkLimits
    items_max: int
    looks_apart_ns: int

    @classmethod
    def of(cls, settings: Settings) -> DispatchSettings:
        """From the settings of a cluster."""
        master = settings.master
        limits = WorkLimits(master.work_queue_files_max, settings.tserver.lane_ranges_max)
        looks_apart_ns = (master.scan_interval_ms + LOOKS_SLACK_MS) * 1_000_000
        return cls(master.assigner == "sequential", limits, master.work_items_max, looks_apart_ns)


class WorkDispatcher(Struct):
    """Plans ranges for each peer and sends them to tservers."""

    settings: DispatchSettings
    clock: Clock
    reign: Reign
    calls: TServerCalls
    event_queue: EventQueue
    replicating: ReplicateFiles
    shipping: Shipments
    quarantine: Quarantine
    read_headers: Callable[[Sequence[FileEntry] | None], None] = lambda _behind: None
    """Begins to read write times that are unknown, in a lane of its own; see :meth:`HeaderTimes.begin`."""
    queues: dict[str, PeerQueue] = field(default_factory=dict)

    @property
    def _sequential(self) -> bool:
        return self.settings.sequential

    # ---- the state of work

    def absorb(
        self,
        reports: Iterable[Report],
        returned: Iterable[tuple[WorkKey, str]],
        files: Outstanding,
    ) -> None:
        """Apply reports of workers; those about files or targets that are not outstanding are dropped (R11)."""
        now_ns = self.clock.boot_ns()
        for key, txid in returned:
            shipment = self.shipping.shipments.get(key)
            if shipment is not None and shipment.flight is not None and shipment.flight.txid == txid:
                self.shipping.turned_away(shipment.flight.session, now_ns)
                self.shipping.take_back(key)
        for report in reports:
            entry = files.get(report.file)
            if entry is not None and assigner.target_of(entry, report.target) is not None:
                self.shipping.report(report, now_ns)

    def try_now(self, streams: Iterable[WorkKey], files: Outstanding) -> None:
        """Try these streams again, even during a try: a worker drops repeats."""
        for key in streams:
            entry = files.get(key[0])
            if entry is not None and entry.index_of(key[1]) is not None:
                self.shipping.try_now(key)
                self.shipping.take_back(key)
                self._queue(key[1].cluster).add(assigner.queue_key(entry, key[1], self._sequential))

    def press(self, streams: Iterable[WorkKey], files: Outstanding) -> None:
        """Try these streams at once, on an operator's request."""
        requested = list(streams)
        self.try_now(requested, files)
        for key in requested:
            self.shipping.press(key)

    def set_aside(self, files: Outstanding) -> None:
        """Unblock queues at ranges in quarantine: those that the policy puts there now, and those of operators. Raises
        TransientError.
        """
        self.quarantine.hold_due(self.shipping)
        failing = [key for key, *_ in blocking_ranges(self.shipping, tries=1)]
        self.try_now([key.work for key in failing if key in self.quarantine.ranges], files)

    def refresh_quarantine(self, configured: Collection[TargetKey]) -> None:
        """Read the ranges in quarantine anew, and drop those of targets that are not configured."""
        self.quarantine.refresh()
        self.shipping.times.keep_ranges({(*key.work, key.first) for key in self.quarantine.ranges})
        self.quarantine.drop_unconfigured(configured)

    def retry_now(self) -> None:
        """A replay process has started: retry the work that failed without one."""
        self.shipping.note_new_replay(self.clock.boot_ns())

    def refill(self, behind: Sequence[FileEntry], files: Outstanding) -> None:
        """Rebuild every peer's queue from the files, sorted, that some target lacks."""
        waiting = assigner.waiting_work(behind)
        may_go = partial(assigner.may_go, files=files, shipping=self.shipping)
        for cluster in {*self.queues, *waiting}:
            self._queue(cluster).refill(assigner.in_order(waiting.get(cluster, ()), cluster, self._sequential), may_go)
        self.read_headers(behind)

    def note_growth(self, growths: Sequence[Growth], since_ns: int) -> None:
        """Queue files that have grown, and note the time: see :meth:`note_write_times`."""
        self.note_write_times(growths, since_ns)
        for entry, *_ in growths:
            for target in entry.scope.targets:
                self._queue(target.key.cluster).add(assigner.queue_key(entry, target.key, self._sequential))
        self.read_headers(None)

    def note_write_times(self, growths: Iterable[Growth], since_ns: int) -> None:
        """Note when the new records of files were written: now, if the read before began at ``since_ns`` (boot clock)
        or later and that is not long ago. Otherwise the headers have to tell.
        """
        now_ns = self.clock.boot_ns()
        look = Look(now_ns, now_ns - since_ns <= self.settings.looks_apart_ns)
        times = self.shipping.times
        for entry, before, is_new in growths:
            for index, target in enumerate(entry.scope.targets):
                key, records = (entry.file, target.key), entry.amount_at(index).records
                known = 0 if before is None else before.amount_of(target.key).records
                if before is None and not is_new:
                    times.note_found(key)
                elif is_new or records > known:
                    shipment = self.shipping.shipments.get(key)
                    finished = assigner.finished_share_of(entry.progress_at(index), shipment).records
                    times.note_growth(key, finished, known, records, look)

    def note_full_look(self, began_ns: int) -> None:
        """A full cycle, whose read began then, has noted all growth. A quick cycle reads only some tservers' files."""
        self.shipping.times.note_look(began_ns + self.settings.looks_apart_ns)

    def drop_ended(self, files: Outstanding) -> None:
        """Drop the shipments, the write times and the operations of files that are no longer outstanding."""
        self.shipping.forget({file for file, _ in self.shipping.shipments if file not in files})
        self.shipping.times.forget_all_but(files)
        self.shipping.times.thin(self.clock.boot_ns())
        self.replicating.end_all_but(files)

    def next_try_ns(self) -> int | None:
        """The end of the next backoff of a peer with waiting work, or of a tserver (boot clock); None without one."""
        now_ns = self.clock.boot_ns()
        tries = [retry.next_try_ns for retry in self.shipping.tservers.values() if retry.next_try_ns > now_ns]
        tries += [
            retry.next_try_ns
            for cluster, retry in self.shipping.peers.items()
            if retry.failures and cluster in self.queues and self.queues[cluster].keys
            if self.shipping.in_flight(cluster) < assigner.PROBES
        ]
        return min(tries, default=None)

    def _queue(self, cluster: str) -> PeerQueue:
        if cluster not in self.queues:
            self.queues[cluster] = PeerQueue(self.settings.limits.peer_max * QUEUE_FACTOR)
        return self.queues[cluster]

    # ---- handing out

    def may_assign(self, files: Outstanding, live: Mapping[str, str]) -> bool:
        """Whether :meth:`assign` may find a range to hand out, or ask for a full cycle."""
        world = self._world(files, live, self.clock.boot_ns())
        return any(
            queue.overflow or any(assigner.plan_one(world, key) is not None for key in queue.keys)
            for queue in self.queues.values()
        )

    def assign(
        self, files: Outstanding, live: Mapping[str, str], clusters: Mapping[str, PeerCluster]
    ) -> list[WorkRange]:
        """Plan ranges for every peer, persist the tserver of each file, and send them. Raises TransientError."""
        now_ns = self.clock.boot_ns()
        self.set_aside(files)
        self._recall_silent(files, now_ns)
        world = self._world(files, live, now_ns)
        works: list[WorkRange] = []
        for cluster, queue in sorted(self.queues.items()):
            if cluster not in clusters:
                continue
            for work in assigner.plan_peer(world, cluster, queue):
                works.append(work)
                flight = Flight(work.session, "", work.first, work.last, now_ns)
                self.shipping.hand_out(assigner.work_key(work), flight)
            if queue.overflow and not queue.keys:
                self.event_queue.ask_full()
        if works:
            self._persist(works)
            self._send(works, live, clusters)
        return works

    def _world(self, files: Outstanding, live: Mapping[str, str], now_ns: int) -> PlanInput:
        return PlanInput(
            files=files,
            live=live,
            shipping=self.shipping,
            owner_of=lambda file: self.calls.tservers.session_of(file.decode()),
            chosen_for=self.replicating.session_for,
            limits=self.settings.limits,
            now_ns=now_ns,
            backing_off=self.shipping.sessions_backing_off(now_ns),
        )

    def _recall_silent(self, files: Outstanding, now_ns: int) -> None:
        for key, shipment in self.shipping.shipments.items():
            flight, entry = shipment.flight, files.get(key[0])
            if flight is not None and entry is not None and now_ns - flight.since_ns > RESEND_NS:
                self.shipping.take_back(key)
                self._queue(key[1].cluster).add(assigner.queue_key(entry, key[1], self._sequential))

    def _persist(self, works: Sequence[WorkRange]) -> None:
        """Write the operations of these files to the books first; if that fails, no range is sent."""
        try:
            self.replicating.ensure(works)
        except BookkeeperError:
            for work in works:
                self.shipping.take_back(assigner.work_key(work))
            raise
        for work in works:
            txid = self.replicating.chosen[work.file].txid
            self.shipping.confirm(assigner.work_key(work), txid, self.clock.boot_ns())

    def _send(self, works: Sequence[WorkRange], live: Mapping[str, str], clusters: Mapping[str, PeerCluster]) -> None:
        by_session: dict[str, list[WorkItem]] = {}
        for work in works:
            by_session.setdefault(work.session, []).append(self._item(work, clusters[work.target.key.cluster]))
        for session, items in by_session.items():
            for first in range(0, len(items), self.settings.items_max):
                self._submit(session, live[session], items[first : first + self.settings.items_max])

    def _item(self, work: WorkRange, peer: PeerCluster) -> WorkItem:
        return WorkItem(
            txid=self.replicating.chosen[work.file].txid,
            file=work.file.decode(),
            target=work.target.key,
            first_offset=work.first,
            last_offset=work.last,
            peer_quorum=peer.quorum,
            peer_instance_id=work.target.peer_instance_id,
            epoch=self.reign.epoch,
            passed=self.quarantine.passed((work.file, work.target.key)),
        )

    def _submit(self, session: str, address: str, items: Sequence[WorkItem]) -> None:
        returned = [((item.file.encode(), item.target), item.txid) for item in items]

        def send() -> None:
            try:
                self.calls.tservers.at(address).assign_work(items)
            except BookkeeperError as error:
                LOG.warning("%d ranges did not reach %s: %s", len(items), session, error.message)
                self.event_queue.give_back(returned)

        if not self.calls.lanes.submit(work_lane(session), send):
            self.event_queue.give_back(returned)


def work_lane(session: str) -> str:
    """The lane of a tserver for work; orders about tablets, which may take long, have another lane."""
    return f"work-{session}"
