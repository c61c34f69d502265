"""The ranges at workers, and their reports: one :class:`Shipment` for each (file, target).

Arrives: ranges that were handed out, reports of workers, sessions that ended, failures and successes of peers. Leaves:
ranges in flight, the progress of each target by the latest report, and when a peer or a range may be tried again. A new
leader counts anew; finished offsets are in the books before they are reported. Memory: one shipment a (file, target) in
flight or in trouble; forgotten with the file.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable

from msgspec import Struct, field

from bookkeeper.errors import AT_REPLAY, LogAwayError, OverloadedError
from bookkeeper.master.index.target_progress import NO_AMOUNT, Amount
from bookkeeper.master.index.write_times import WriteTimes
from bookkeeper.model import BlockRange, TargetKey

WorkKey = tuple[bytes, TargetKey]
"""File and target."""


class Flight(Struct, frozen=True):
    """A range at a worker: both offsets inclusive."""

    session: str
    txid: str
    first: int
    last: int
    since_ns: int


class Shipment(Struct):
    """The state of one file on its way to one target, beyond the books."""

    finished: int = 0
    share: Amount = NO_AMOUNT
    """The target's part of the file up to ``finished``."""
    flight: Flight | None = None
    error: str | None = None
    error_code: str | None = None
    failed_at: str = ""
    """The place of the error, see ``replay.ranges``; "" without an error, or when it is not known."""
    error_since_ns: int = 0
    """Boot clock at the first error since the last success."""
    failed: BlockRange | None = None
    """The blocks that the last permanent error is about; ``failures`` counts those about the same ones, in a row."""
    failures: int = 0
    next_try_ns: int = 0
    retry_requested: bool = False
    """An operator has asked for a try since the last report of a worker."""
    worker: str | None = None
    records: int = 0
    sent_bytes: int = 0
    resends: int = 0

    def launch(self, flight: Flight) -> None:
        """A worker has this range."""
        self.flight = flight

    def land(self) -> None:
        """No worker has a range."""
        self.flight = None

    def take_in(self, report: Report) -> None:
        """Take over a worker's numbers."""
        self.worker = report.session
        self.finished = max(self.finished, report.finished)
        self.share = Amount(*map(max, self.share, report.share))
        self.records += report.records
        self.sent_bytes += report.sent_bytes
        self.resends += report.resends

    def clear_error(self) -> None:
        """No error holds the file back."""
        self.error, self.error_code, self.failed, self.failed_at = None, None, None, ""
        self.failures, self.next_try_ns = 0, 0

    def press(self) -> None:
        """Try at once, on an operator's request."""
        self.clear_error()
        self.retry_requested = True

    def succeed(self) -> None:
        """A worker reports no error."""
        self.clear_error()
        self.retry_requested = False

    def note_failure(self, now_ns: int) -> None:
        """A try failed; the time of the first one in a row stays."""
        if self.error is None:
            self.error_since_ns = now_ns

    def excuse(self, error: str | None) -> None:
        """Show an error without a pause, because an operator has requested a try, or a replay process has started. The
        failed try may have started before that, and a worker does not queue a range twice: so the range is tried once
        more, at once.
        """
        self.error = error
        self.retry_requested = False

    def fail(self, report: Report, now_ns: int, wait_ns: Callable[[int], int]) -> None:
        """A permanent error: the next try is after ``wait_ns`` of the number of failures about the same blocks."""
        if not are_the_same(report.failed, self.failed):
            self.failures = 0
        self.error, self.error_code, self.failed = report.error, report.error_code, report.failed
        self.failed_at = report.failed_at
        self.failures += 1
        self.next_try_ns = now_ns + wait_ns(self.failures)

    def show_error(self, error: str | None) -> None:
        """An error of the peer, which delays more than this file."""
        self.error = error


class Report(Struct, frozen=True):
    """A worker's report on one range, from `report_work`."""

    session: str
    txid: str
    file: bytes
    target: TargetKey
    finished: int
    records: int
    sent_bytes: int
    resends: int
    error: str | None
    error_transient: bool
    error_code: str | None = None
    failed: BlockRange | None = None
    share: Amount = NO_AMOUNT
    failed_at: str = ""


class Retry(Struct):
    """Exponential backoff with full jitter: after ``failures`` in a row, nothing before ``next_try_ns``."""

    failures: int = 0
    next_try_ns: int = 0
    last_error: str | None = None
    error_code: str | None = None
    failed_at: str = ""
    """The place of the last error, see ``replay.ranges``."""
    since_ns: int = 0
    """Boot clock at the first failure in a row."""

    def fail(self, now_ns: int, wait_ns: Callable[[int], int]) -> None:
        """One more failure, unless it belongs to a try that was counted already; ``wait_ns``: of so many in a row."""
        if now_ns >= self.next_try_ns:
            self.since_ns = self.since_ns if self.failures else now_ns
            self.failures += 1
            self.next_try_ns = now_ns + wait_ns(self.failures)

    def note_error(self, report: Report) -> None:
        """The error to show."""
        self.last_error, self.error_code, self.failed_at = report.error, report.error_code, report.failed_at

    def try_now(self) -> None:
        """The next try may come at once; its failure counts as one more."""
        self.next_try_ns = 0


class Shipped(Struct):
    """Counters of one peer from workers' reports, since the reign began; they outlive the files."""

    records: int = 0
    sent_bytes: int = 0
    resends: int = 0

    def add(self, report: Report) -> None:
        """Add a worker's numbers."""
        self.records += report.records
        self.sent_bytes += report.sent_bytes
        self.resends += report.resends


def retry_after_ns(failures: int, base_ms: int, max_ms: int, rng: random.Random) -> int:
    """The pause after that many failures in a row, ns: doubled each time, capped, half of it jitter."""
    ceiling_ms = min(max_ms, base_ms * 2 ** min(failures - 1, 30))
    return int((ceiling_ms / 2 + rng.random() * ceiling_ms / 2) * 1_000_000)


class Shipments(Struct):
    """The table of shipments, the health of peers, and the age of what targets lack. Used under the master's lock."""

    backoff_base_ms: int
    backoff_max_ms: int
    rng: random.Random
    shipments: dict[WorkKey, Shipment] = field(default_factory=dict)
    peers: dict[str, Retry] = field(default_factory=dict)
    tservers: dict[str, Retry] = field(default_factory=dict)
    shipped: dict[str, Shipped] = field(default_factory=dict)
    times: WriteTimes = field(default_factory=WriteTimes)
    replay_since_ns: int = 0
    """Boot clock when the newest replay process was noted; 0: none was noted in this reign."""
    _load: Counter[tuple[str, str]] = field(default_factory=Counter)

    def shipment(self, key: WorkKey) -> Shipment:
        """The shipment of a (file, target), made when there is none."""
        return self.shipments.setdefault(key, Shipment())

    def peer(self, cluster: str) -> Retry:
        """The health of a peer."""
        return self.peers.setdefault(cluster, Retry())

    def load(self, session: str, cluster: str) -> int:
        """Ranges in flight at one tserver for one peer."""
        return self._load[session, cluster]

    def in_flight(self, cluster: str) -> int:
        """Ranges in flight for one peer."""
        return sum(count for (_, peer), count in self._load.items() if peer == cluster)

    def hand_out(self, key: WorkKey, flight: Flight) -> None:
        """Note a range that is about to go to a worker."""
        shipment = self.shipment(key)
        self._land(key, shipment)
        shipment.launch(flight)
        self._load[flight.session, key[1].cluster] += 1

    def confirm(self, key: WorkKey, txid: str, now_ns: int) -> None:
        """The operation of a range that was handed out is in the books."""
        shipment = self.shipments[key]
        flight = shipment.flight
        if flight is not None:
            shipment.launch(Flight(flight.session, txid, flight.first, flight.last, now_ns))

    def take_back(self, key: WorkKey) -> None:
        """End a flight: the worker did not get the range, or is dead."""
        shipment = self.shipments.get(key)
        if shipment is not None:
            self._land(key, shipment)

    def turned_away(self, session: str, now_ns: int) -> None:
        """Pause a tserver that did not accept ranges."""
        self.tservers.setdefault(session, Retry()).fail(now_ns, self._wait_ns)

    def sessions_backing_off(self, now_ns: int) -> set[str]:
        """Tservers that get no ranges now."""
        return {session for session, retry in self.tservers.items() if now_ns < retry.next_try_ns}

    def report(self, report: Report, now_ns: int) -> None:
        """Apply a worker's report: success ends a backoff, an error starts or prolongs one."""
        key = (report.file, report.target)
        self.tservers.pop(report.session, None)
        shipment = self.shipment(key)
        shipment.take_in(report)
        self.shipped.setdefault(report.target.cluster, Shipped()).add(report)
        flight = shipment.flight
        if flight is not None and flight.session == report.session and lands(flight, report):
            self._land(key, shipment)
        if report.error is None:
            self._succeeded(shipment, report)
        elif flight is not None and report.failed_at == AT_REPLAY and flight.since_ns < self.replay_since_ns:
            shipment.excuse(report.error)  # it failed at an earlier replay process: the new one gets its try at once
        else:
            self._failed(shipment, report, now_ns)

    def try_now(self, key: WorkKey) -> None:
        """End the pause of a stream: the cause of its failure is handled, or the range is in quarantine."""
        shipment = self.shipments.get(key)
        if shipment is not None:
            shipment.clear_error()

    def note_new_replay(self, now_ns: int) -> None:
        """A replay process has started: end the backoff of every peer, which may come from the lack of one."""
        self.replay_since_ns = now_ns
        for retry in self.peers.values():
            retry.try_now()

    def press(self, key: WorkKey) -> None:
        """Try a stream at once, on an operator's request: ends its own pause and its peer's, and ignores a failure of a
        try that began before.
        """
        shipment = self.shipments.get(key)
        if shipment is not None:
            shipment.press()
            self.peer(key[1].cluster).try_now()

    def session_ended(self, session: str) -> None:
        """A tserver is dead: end all its flights."""
        self.tservers.pop(session, None)
        for key, shipment in self.shipments.items():
            if shipment.flight is not None and shipment.flight.session == session:
                self._land(key, shipment)

    def forget(self, files: Iterable[bytes]) -> None:
        """Drop the shipments of these files: they are no longer outstanding."""
        gone = set(files)
        for key in [key for key in self.shipments if key[0] in gone]:
            self._land(key, self.shipments.pop(key))

    def _land(self, key: WorkKey, shipment: Shipment) -> None:
        if shipment.flight is not None:
            lane = (shipment.flight.session, key[1].cluster)
            self._load[lane] -= 1
            if not self._load[lane]:
                del self._load[lane]
            shipment.land()

    def _succeeded(self, shipment: Shipment, report: Report) -> None:
        shipment.succeed()
        self.peers[report.target.cluster] = Retry()

    def _failed(self, shipment: Shipment, report: Report, now_ns: int) -> None:
        """A transient failure is the peer's and delays all its work, unless the log is away. Any other failure delays
        this range alone.
        """
        shipment.note_failure(now_ns)
        if shipment.retry_requested:
            shipment.excuse(report.error)
        elif report.error_transient and report.error_code != LogAwayError.code:  # its host is away, not the peer
            shipment.show_error(report.error)
            peer = self.peer(report.target.cluster)
            # A run that found no slot here has waited already and says nothing about the peer: its pause does not grow.
            found_no_slot = report.failed_at == AT_REPLAY and report.error_code == OverloadedError.code
            peer.fail(now_ns, (lambda _failures: self._wait_ns(1)) if found_no_slot else self._wait_ns)
            peer.note_error(report)
        else:
            shipment.fail(report, now_ns, self._wait_ns)

    def _wait_ns(self, failures: int) -> int:
        return retry_after_ns(failures, self.backoff_base_ms, self.backoff_max_ms, self.rng)


def are_the_same(one: BlockRange | None, other: BlockRange | None) -> bool:
    """Whether two errors are about the same records, or both about none; only one may have positions."""
    if one is None or other is None:
        return one is other
    return (one.first, one.last) == (other.first, other.last)


def lands(flight: Flight, report: Report) -> bool:
    """Whether the report ends the flight: its range is done, or it failed."""
    return flight.txid == report.txid and (report.error is not None or report.finished >= flight.last)
