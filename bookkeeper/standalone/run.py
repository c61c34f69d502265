"""``bookkeeper standalone``: supervise the processes of one cluster, and say when it answers.

Arrives: the settings of a cluster. Leaves: a running cluster until SIGTERM or SIGINT, and lines for the operator.
Survives a crash: see :mod:`bookkeeper.standalone.supervisor`.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config import Settings
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.errors import TransientError
from bookkeeper.standalone.directory import complete_cluster
from bookkeeper.standalone.fencing import Fence
from bookkeeper.standalone.readiness import wait_until_ready
from bookkeeper.standalone.supervisor import Supervisor, roles_of

LOG = logging.getLogger(__name__)

STOP_TIMEOUT_MS = 10_000
EXIT_THREAD_DIED = 70


def run_standalone(settings: Settings, report: Callable[[str], None]) -> None:
    """Run until told to stop; ``report`` gets one line when the cluster answers and one for each restart.

    Raises RefusedError when another supervisor runs this directory. Main thread only.
    """
    complete_cluster(settings)
    clock, stop = SystemClock(), threading.Event()
    threads = [
        threading.Thread(target=_guarded, args=(what, settings, report, clock, stop), name=name, daemon=True)
        for name, what in (("readiness", _announce), ("fence", _fence))
    ]
    supervisor = Supervisor(settings.directory, roles_of(settings.standalone.tservers), report, STOP_TIMEOUT_MS, clock)
    for thread in threads:
        thread.start()
    try:
        supervisor.run()
    finally:
        stop.set()
        for thread in threads:
            thread.join()


Task = Callable[[Settings, Callable[[str], None], Clock, threading.Event], None]


def _guarded(
    what: Task, settings: Settings, report: Callable[[str], None], clock: Clock, stop: threading.Event
) -> None:
    try:
        what(settings, report, clock, stop)
    except BaseException:
        LOG.critical("the %s thread died", threading.current_thread().name, exc_info=True)
        os._exit(EXIT_THREAD_DIED)


def _fence(settings: Settings, report: Callable[[str], None], clock: Clock, stop: threading.Event) -> None:
    coordination = EmbeddedCoordination(settings.coordination_dir, settings.coordination, clock)
    fence = Fence(coordination.processes, settings.coordination.session_margin_ms * 1_000_000, report)
    try:
        while not clock.wait(stop, settings.coordination.session_renew_ms):
            try:
                fence.run_once(clock.boot_ns())
            except TransientError as error:
                LOG.warning("sessions can't be looked at, trying again: %s", error)
    finally:
        coordination.close()


def _announce(settings: Settings, report: Callable[[str], None], clock: Clock, stop: threading.Event) -> None:
    state = wait_until_ready(settings, clock, stop)
    if state is not None:
        report(
            f"cluster {settings.instance.name} answers at {state.master} with {len(state.tservers)} tservers "
            f"({', '.join(state.tservers)}); bookkeeper shell {settings.directory}"
        )
