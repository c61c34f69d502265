"""The senders of led tablets: one lane for each other host, so a slow or stopped host delays no other one.

A lane gives each of its tablets one segment in turn, and none a second one before the first is acknowledged (E-29). It
is awake when a state is made or a tablet is loaded, and after waits. A disk that does not answer makes all its tablets
wait; one that declines, the tablet alone. A wiped host has a new disk, and tablets whose rows name the old one wait
without the others.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from functools import partial

from bookkeeper.clock import Clock
from bookkeeper.errors import BookkeeperError, CorruptionError, TransientError
from bookkeeper.replicas.values import Target
from bookkeeper.rpc.contract.messages import StateConfirmation
from bookkeeper.runtime.threads import BackgroundThread, Die
from bookkeeper.tserver.leading.confirmation import (
    OFFERS_AT_ONCE,
    Confirmation,
    confirmation_message,
    confirmation_of,
    next_look_ns,
    next_to_confirm,
)
from bookkeeper.tserver.leading.copy_pace import CopyPace
from bookkeeper.tserver.leading.host_calls import HostCalls
from bookkeeper.tserver.leading.lane_plan import LanePlan, disk_of
from bookkeeper.tserver.leading.leader_chain import LeaderChain
from bookkeeper.tserver.leading.led_tablets import LedTablets
from bookkeeper.tserver.leading.transfer import Outcome, SentCounters, Transfer

LOG = logging.getLogger(__name__)

TICK_MS = 250
"""ms between looks for tablets whose wait is over."""

SENDING = "a copy to other hosts"

Suspect = Callable[[CorruptionError], bool]
"""Compares the file that an error names with its checksum; returns whether this host has marked it as damaged, and gets
it from another one.
"""


PaceOf = Callable[[threading.Event], CopyPace]
"""The pace of a lane that ends with an event."""


def lacking_target(chain: LeaderChain, host: str) -> Target | None:
    """The target on a host, if it lacks a segment of the chain."""
    progress = chain.progress.get(host)
    return None if progress is None or progress.is_in_sync or not chain.leads else progress.target


def in_sync_target(chain: LeaderChain, host: str) -> Target | None:
    """The target on a host, if it has every segment of the chain."""
    progress = chain.progress.get(host)
    return None if progress is None or not progress.is_in_sync or not chain.leads else progress.target


def is_target(chain: LeaderChain, target: Target) -> bool:
    """Whether a host still is to get the chain's segments; it may leave the tablet while a lane serves others."""
    progress = chain.progress.get(target.host)
    return progress is not None and progress.target.placement == target.placement


def by_disk(targets: Mapping[bytes, Target]) -> list[list[bytes]]:
    """The rows of targets on one host, by disk: rows that name a disk that was wiped go apart."""
    found: dict[bytes, list[bytes]] = {}
    for row, target in targets.items():
        found.setdefault(disk_of(target), []).append(row)
    return list(found.values())


def plan_keys(chain: LeaderChain, host: str) -> list[bytes]:
    """The waits that concern a chain at one host: that of its tablet, and that of the host's disk."""
    disks = [disk_of(target) for target in chain.replica.targets if target.host == host]
    return [chain.tablet.row, *disks] if disks else []


class Lane:
    """Everything that goes to one host. Used by its thread alone."""

    def __init__(
        self,
        host: str,
        led: LedTablets,
        hosts: HostCalls,
        clock: Clock,
        rng: random.Random,
        counters: SentCounters,
        has_lease: Callable[[], bool],
        suspect: Suspect,
        pace: CopyPace,
    ) -> None:
        self._host = host
        self._pace = pace
        self._suspect = suspect
        self._has_lease = has_lease
        self._confirmed_ns: dict[bytes, int] = {}
        self._confirm_ns = 0
        """Until this time (boot clock) no tablet is looked at for a confirmation."""
        self._led = led
        self._hosts = hosts
        self._clock = clock
        self._rng = rng
        self._counters = counters
        self._plan = LanePlan()

    def run(self, is_over: Callable[[], bool]) -> None:
        """Send until no tablet is due."""
        while not is_over() and self._round(is_over):
            pass
        self._confirm(is_over)

    def _confirm(self, is_over: Callable[[], bool]) -> None:
        """Confirm newest states that the host has and that lack nothing, in turns, all with one call; those that the
        host does not know like this are offered again.
        """
        now_ns = self._clock.boot_ns()
        if now_ns < self._confirm_ns:
            return
        chains = {chain.tablet.row: chain for chain in self._led.all()}
        self._confirmed_ns = {row: at_ns for row, at_ns in self._confirmed_ns.items() if row in chains}
        in_sync = {row: target for row, chain in chains.items() if (target := in_sync_target(chain, self._host))}
        due = [row for row, target in in_sync.items() if self._is_due(chains[row], target, now_ns)]
        said: dict[bytes, Confirmation] = {}
        for row in next_to_confirm(due, self._confirmed_ns, now_ns):
            self._confirmed_ns[row] = now_ns
            confirmation = confirmation_of(chains[row], self._clock, self._has_lease)
            if confirmation is not None:
                said[row] = confirmation
        for rows in by_disk({row: in_sync[row] for row in said}):
            if is_over():
                return
            messages = {row: confirmation_message(chains[row], in_sync[row], said[row]) for row in rows}
            unknown = self._confirm_states(chains[rows[0]].replica.host, in_sync[rows[0]], messages)
            for row in unknown[OFFERS_AT_ONCE:]:
                del self._confirmed_ns[row]
            for row in unknown[:OFFERS_AT_ONCE]:
                turn = partial(Transfer.confirm, confirmation=said[row], is_over=is_over)
                if not is_over():
                    self._serve(chains[row], in_sync[row], turn)
        self._confirm_ns = next_look_ns(in_sync, self._confirmed_ns, now_ns)

    def _confirm_states(self, leader: str, target: Target, messages: Mapping[bytes, StateConfirmation]) -> list[bytes]:
        """Confirm states to one disk; returns the rows that it does not know like this."""
        try:
            host = self._hosts.find(target)
            if host is None:
                self._away(target, f"no live process holds disk {target.placement.incarnation} of it")
                return []
            confirmed = host.confirm_states(leader, list(messages.values()))
        except TransientError as error:
            self._away(target, error.message)
            return []
        except BookkeeperError as error:
            LOG.error("host %s confirms no states for now: %s", self._host, error)
            return list(messages)  # an offer of each tells what is wrong
        self._plan.succeeded(disk_of(target))
        return [row for row, is_confirmed in zip(messages, confirmed, strict=True) if not is_confirmed]

    def _round(self, is_over: Callable[[], bool]) -> bool:
        """One segment for each due tablet; returns whether there may be more."""
        lacking = [(chain, target) for chain in self._led.all() if (target := lacking_target(chain, self._host))]
        if self._plan.has_waits:
            self._plan.retain({key for one in self._led.all() for key in plan_keys(one, self._host)})
        sent = False
        for chain, target in lacking:
            if is_over():
                return False
            if self._is_due(chain, target, self._clock.boot_ns()):
                sent |= self._serve(chain, target, partial(Transfer.turn, is_over=is_over))
        return sent

    def _is_due(self, chain: LeaderChain, target: Target, now_ns: int) -> bool:
        return self._plan.is_due(disk_of(target), now_ns) and self._plan.is_due(chain.tablet.row, now_ns)

    def _serve(self, chain: LeaderChain, target: Target, turn: Callable[[Transfer], Outcome]) -> bool:
        tablet = chain.tablet
        try:
            host = self._hosts.link(target)
            if host is None:
                self._away(target, f"no live process holds disk {target.placement.incarnation} of it")
                return False
            outcome = turn(Transfer(chain, target, host, self._counters, self._pace))
        except TransientError as error:
            self._away(target, error.message)
            return False
        except BookkeeperError as error:
            if isinstance(error, CorruptionError) and self._suspect(error):
                self._plan.failed(tablet.row, self._clock.boot_ns(), self._rng.random())
                return False
            if not is_target(chain, target):
                LOG.info("host %s is to get no more of tablet %s: %s", self._host, tablet.extent, error)
                return False
            LOG.error("tablet %s can't be copied to host %s for now: %s", tablet.extent, self._host, error)
            tablet.work_failed(SENDING, f"host {self._host} can't get a copy: {error.message}")
            self._plan.failed(tablet.row, self._clock.boot_ns(), self._rng.random())
            return False
        self._plan.succeeded(disk_of(target))
        if outcome is Outcome.LATER:
            self._plan.failed(tablet.row, self._clock.boot_ns(), self._rng.random())
            return False
        tablet.work_succeeded(SENDING)
        self._plan.succeeded(tablet.row)
        if outcome is Outcome.SENT:
            self._led.acknowledged()
        return outcome is Outcome.SENT

    def _away(self, target: Target, reason: str) -> None:
        self._hosts.forget()
        if self._plan.failed(disk_of(target), self._clock.boot_ns(), self._rng.random()) == 1:
            LOG.warning("host %s gets no copies for now: %s", self._host, reason)


class Senders:
    """The lanes, each with a thread. A lane is made when a led tablet has a replica on its host."""

    def __init__(
        self,
        led: LedTablets,
        hosts: HostCalls,
        clock: Clock,
        rng: random.Random,
        die: Die,
        has_lease: Callable[[], bool],
        suspect: Suspect,
        pace_of: PaceOf,
    ) -> None:
        """``has_lease``: whether this process has its session, so that no other one leads its tablets."""
        self._pace_of = pace_of
        self._suspect = suspect
        self._has_lease = has_lease
        self._led = led
        self._hosts = hosts
        self._clock = clock
        self._rng = rng
        self._die = die
        self._counters = SentCounters()
        self._lock = threading.Lock()
        self._threads: dict[str, BackgroundThread] = {}
        self._is_closed = False

    @property
    def counters(self) -> SentCounters:
        """Counts of segments sent since the start."""
        return self._counters

    def start(self) -> None:
        """Serve the hosts of led tablets from here on."""
        self._led.listen(self._wake)

    def close(self) -> None:
        """End the lanes; a segment under way is offered again by the next leader or the next process."""
        with self._lock:
            self._is_closed = True
            threads = list(self._threads.values())
        for thread in threads:
            thread.close()

    def _wake(self) -> None:
        hosts = {target.host for chain in self._led.all() for target in chain.replica.targets}
        with self._lock:
            for host in sorted(hosts - self._threads.keys()) if not self._is_closed else ():
                self._threads[host] = self._started(host)
            threads = list(self._threads.values())
        for thread in threads:
            thread.wake()

    def _started(self, host: str) -> BackgroundThread:
        thread = BackgroundThread(f"sender-{host}", self._clock, self._die)
        lane = Lane(
            host,
            self._led,
            self._hosts,
            self._clock,
            self._rng,
            self._counters,
            self._has_lease,
            self._suspect,
            self._pace_of(thread.closing),
        )
        thread.start(lambda: lane.run(thread.closing.is_set), TICK_MS)
        return thread
