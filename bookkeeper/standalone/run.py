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
from bookkeeper.standalone.directory import complete_cluster
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
    watch = threading.Thread(target=_announce, args=(settings, report, clock, stop), name="readiness", daemon=True)
    supervisor = Supervisor(settings.directory, roles_of(settings.standalone.tservers), report, STOP_TIMEOUT_MS, clock)
    watch.start()
    try:
        supervisor.run()
    finally:
        stop.set()
        watch.join()


def _announce(settings: Settings, report: Callable[[str], None], clock: Clock, stop: threading.Event) -> None:
    try:
        state = wait_until_ready(settings, clock, stop)
    except BaseException:
        LOG.critical("the readiness thread died", exc_info=True)
        os._exit(EXIT_THREAD_DIED)
    if state is not None:
        report(
            f"cluster {settings.instance.name} answers at {state.master} with {len(state.tservers)} tservers "
            f"({', '.join(state.tservers)}); bookkeeper shell {settings.directory}"
        )
