"""``bookkeeper standalone``: runs one host of a cluster, or several on one machine, until SIGTERM or SIGINT."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.connect import leases_of, note_store, open_zookeeper
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.coordination.host_leases import HostLeases
from bookkeeper.coordination.lease_file import SessionProcess
from bookkeeper.errors import BookkeeperError, InvalidInputError, TransientError, unavailable
from bookkeeper.runtime.threads import guarded_thread
from bookkeeper.security.exposure import refuse_plaintext
from bookkeeper.security.private_files import keep_private
from bookkeeper.standalone.directory import close_to_others, complete_cluster
from bookkeeper.standalone.fencing import Fence
from bookkeeper.standalone.hbase.gateway_watch import keep_gateway
from bookkeeper.standalone.joining import local_hosts
from bookkeeper.standalone.one_machine import OneMachine, refuse_network
from bookkeeper.standalone.readiness import Expected, wait_until_ready
from bookkeeper.standalone.space import SpaceWatch
from bookkeeper.standalone.stores_lock import StoresLock
from bookkeeper.standalone.supervisor import Supervisor, roles_of

LOG = logging.getLogger(__name__)

STOP_TIMEOUT_MS = 10_000
RETRY_INTERVAL_MS = 1_000
DISK_CHECK_INTERVAL_MS = 1_000
SESSION_CHECK_INTERVAL_MS = 100
"""Time between two looks for processes that are gone; a look reads a few small files."""
NOTE_INTERVAL_MS = 10_000
"""Time between two notes of how far the coordination store is: nobody notices that younger changes are missing."""


def run_standalone(settings: Settings, report: Callable[[str], None]) -> None:
    """Run the hosts of a cluster on this machine until SIGTERM or SIGINT: the one in the directory of ``settings``
    and, if it is the cluster's first, as many others as ``standalone.hosts`` requires. ``report`` gets a line when the
    cluster answers, for each restart of a process, for each host that can't run, and when a disk becomes full. A
    temporary failure, such as a full disk, delays the start. A file that is damaged while processes run is reported,
    and ends no process.

    Raises InvalidInputError when a joined host is to run further ones; RefusedError when another supervisor runs this
    directory, when other users can open it and it belongs to one of them, when an embedded store is used by another
    machine or lies on a network file system, or when the settings bind an address beyond loopback without TLS;
    NotFoundError when Java or the jars of the gateway to the books are missing. Main thread only.
    """
    keep_private()
    refuse_plaintext(settings)
    refuse_network(settings)
    clock, stop = SystemClock(), threading.Event()
    report_safely = partial(_report_safely, report)
    if settings.host.cluster and settings.standalone.hosts > 1:
        raise InvalidInputError(
            f"{settings.directory} is a host of the cluster in {settings.cluster_directory}, which runs further hosts: "
            f"bookkeeper standalone {settings.cluster_directory} --hosts {settings.standalone.hosts}"
        )
    roles = roles_of(settings.standalone, settings.directory)
    supervisor = Supervisor(settings.directory, roles, report_safely, STOP_TIMEOUT_MS, clock)
    stores = StoresLock(settings.cluster_directory)
    for path in close_to_others(settings):
        report_safely(f"{path} was open to other users of this machine; its mode is now private")
    retry_until(stop, supervisor.acquire, report_safely, clock)
    threads: list[threading.Thread] = []
    try:
        threads += _keep_other_machines_out(settings, report_safely, clock, stop)
        threads += keep_gateway(settings, report_safely, clock, stop)
        for line in retry_until(stop, partial(_complete, settings, stores), report_safely, clock) or ():
            report_safely(line)
        hosts = [settings]
        for host in _further_hosts(settings, report_safely, clock, stop):
            threads += keep_gateway(host, report_safely, clock, stop)
            if _can_run(host, supervisor, report_safely):
                hosts.append(host)
        tasks = [("readiness", _announce), ("fence", _fence), ("space", _watch_space)]
        if settings.coordination_dir is None:
            tasks += [("session ends", _end_sessions), ("seen store", _note_store)]
            for host in hosts:
                leases_of(host, clock).clear()
        for name, task in tasks:
            threads.append(guarded_thread(name, partial(task, hosts, report_safely, clock, stop)))
            threads[-1].start()
        supervisor.run()
    finally:
        stop.set()
        for thread in threads:
            if thread.is_alive():
                thread.join()
        supervisor.release()
        stores.release()


Task = Callable[[Sequence[Settings], Callable[[str], None], Clock, threading.Event], None]
"""A thread of the supervisor. It gets the settings of the hosts that run here, beginning with the directory's."""

T = TypeVar("T")


def _keep_other_machines_out(
    settings: Settings, report: Callable[[str], None], clock: Clock, stop: threading.Event
) -> list[threading.Thread]:
    """The thread that renews the record of this machine; none with a store elsewhere. Raises RefusedError."""
    if settings.coordination_dir is None:
        return []
    machine = OneMachine(settings.cluster_directory, clock, report)
    retry_until(stop, partial(machine.begin, stop), report, clock)
    thread = guarded_thread("machine", partial(machine.run, stop))
    thread.start()
    return [thread]


def _complete(settings: Settings, stores: StoresLock) -> list[str]:
    alone = stores.enter()
    try:
        return complete_cluster(settings, alone=alone)
    except OSError as error:
        raise unavailable(f"{settings.directory} can't be written", error) from error
    finally:
        if alone:
            stores.share()


def _further_hosts(
    settings: Settings, report: Callable[[str], None], clock: Clock, stop: threading.Event
) -> list[Settings]:
    """The further hosts that are to run here; missing ones are made."""
    if settings.host.cluster:
        return []
    return retry_until(stop, partial(local_hosts, settings, report), report, clock) or []


def _can_run(host: Settings, supervisor: Supervisor, report: Callable[[str], None]) -> bool:
    """Give the roles of a further host to the supervisor; reports why it can't run, and returns whether it can."""
    try:
        for line in complete_cluster(host, alone=False):
            report(line)
        supervisor.add_host(host.directory, roles_of(host.standalone, host.directory, host.host.name))
    except (BookkeeperError, OSError) as error:
        report(f"host {host.host.name} is not run: {error}")
        return False
    return True


def _report_safely(report: Callable[[str], None], text: str) -> None:
    """Report a line to the operator. A failure, such as a full disk or a closed pipe, is logged and ends nothing."""
    try:
        report(text)
    except OSError as error:
        LOG.warning("can't write a line for the operator (%s): %s", error, text)


def retry_until(
    stop: threading.Event,
    act: Callable[[], T],
    report: Callable[[str], None],
    clock: Clock,
    retried: type[BookkeeperError] = TransientError,
) -> T | None:
    """Call ``act`` until it does not raise ``retried``, and return its result; None once ``stop`` is set. Reports an
    error when it differs from the previous one.
    """
    previous = ""
    while True:
        try:
            return act()
        except retried as error:
            if error.message != previous:
                report(f"waiting: {error.message}")
            previous = error.message
        if clock.wait(stop, RETRY_INTERVAL_MS):
            return None


def _watch_space(hosts: Sequence[Settings], report: Callable[[str], None], clock: Clock, stop: threading.Event) -> None:
    settings = hosts[0]
    directories = [
        *(host.directory for host in hosts),
        settings.wal_dir,
        settings.tables_dir,
        settings.logs_dir,
    ]
    if settings.coordination_dir is not None:
        directories.append(settings.coordination_dir)
    watch = SpaceWatch(tuple(directories), settings.tserver.disk_reserve_bytes, report)
    watch.run_once()
    while not clock.wait(stop, DISK_CHECK_INTERVAL_MS):
        watch.run_once()


def _fence(hosts: Sequence[Settings], report: Callable[[str], None], clock: Clock, stop: threading.Event) -> None:
    settings = hosts[0]
    if settings.coordination_dir is None:
        leases = [leases_of(host, clock) for host in hosts]
        _fence_processes(settings, lambda: processes_of(leases), report, clock, stop)
        return
    open_store = partial(EmbeddedCoordination, settings.coordination_dir, settings.coordination, clock)
    coordination = retry_until(stop, open_store, report, clock, BookkeeperError)
    if coordination is None:
        return
    try:
        _fence_processes(settings, coordination.processes, report, clock, stop)
    finally:
        coordination.close()


def _fence_processes(
    settings: Settings,
    read_processes: Callable[[], list[SessionProcess]],
    report: Callable[[str], None],
    clock: Clock,
    stop: threading.Event,
) -> None:
    fence = Fence(read_processes, settings.coordination.session_margin_ms * 1_000_000, report)
    while not clock.wait(stop, settings.coordination.session_renew_ms):
        retry_until(stop, lambda: fence.run_once(clock.boot_ns()), report, clock, BookkeeperError)


def processes_of(leases: Sequence[HostLeases]) -> list[SessionProcess]:
    """The processes of these hosts that hold a lease file."""
    return [process for one in leases for process in one.processes()]


def _end_sessions(
    hosts: Sequence[Settings], report: Callable[[str], None], clock: Clock, stop: threading.Event
) -> None:
    """End the sessions of processes that are gone, so that nobody waits for the end of their lease."""
    settings = hosts[0]
    coordination = retry_until(stop, partial(open_zookeeper, settings, clock), report, clock, BookkeeperError)
    if coordination is None:
        return
    try:
        while not clock.wait(stop, SESSION_CHECK_INTERVAL_MS):
            for leases in [leases_of(host, clock) for host in hosts]:
                end = partial(end_abandoned, leases, coordination.end_session)
                retry_until(stop, end, report, clock, BookkeeperError)
    finally:
        coordination.close()


def _note_store(hosts: Sequence[Settings], report: Callable[[str], None], clock: Clock, stop: threading.Event) -> None:
    """Note how far the store is on each host that runs here: a later start refuses an older copy of it."""
    settings = hosts[0]
    coordination = retry_until(stop, partial(open_zookeeper, settings, clock), report, clock, BookkeeperError)
    if coordination is None:
        return
    try:
        while True:
            for host in hosts:
                retry_until(stop, partial(note_store, host, coordination), report, clock, BookkeeperError)
            if clock.wait(stop, NOTE_INTERVAL_MS):
                return
    finally:
        coordination.close()


def end_abandoned(leases: HostLeases, end_session: Callable[[str, str], None]) -> None:
    """End the sessions of the host's processes that are gone, with the tokens in their files, and remove the files.
    Raises UnavailableError.
    """
    for path in leases.abandoned():
        if (session := leases.session_of(path)) is not None:
            end_session(*session)
        path.unlink(missing_ok=True)


def _announce(hosts: Sequence[Settings], report: Callable[[str], None], clock: Clock, stop: threading.Event) -> None:
    settings, wanted = hosts[0], Expected.of(hosts)
    state = retry_until(stop, partial(wait_until_ready, settings, wanted, clock, stop), report, clock, BookkeeperError)
    if state is not None:
        report(
            f"cluster {settings.instance.name} answers at {state.master} with {len(state.tservers)} tservers "
            f"({', '.join(state.tservers)}); bookkeeper shell {settings.directory}"
        )
