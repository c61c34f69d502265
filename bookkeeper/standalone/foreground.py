"""``bookkeeper standalone``: supervise the processes of one cluster, and say when it answers.

Arrives: the settings of a cluster. Leaves: a running cluster until SIGTERM or SIGINT, and lines for the operator.
Survives a crash: see :mod:`bookkeeper.standalone.supervisor`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config import Settings
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.errors import BookkeeperError, TransientError, unavailable
from bookkeeper.runtime.threads import guarded_thread
from bookkeeper.security.exposure import refuse_plaintext
from bookkeeper.security.private_files import keep_private
from bookkeeper.standalone.directory import close_to_others, complete_cluster
from bookkeeper.standalone.fencing import Fence
from bookkeeper.standalone.readiness import wait_until_ready
from bookkeeper.standalone.space import SpaceWatch
from bookkeeper.standalone.supervisor import Supervisor, roles_of

LOG = logging.getLogger(__name__)

STOP_TIMEOUT_MS = 10_000
TRY_AGAIN_MS = 1_000
SPACE_LOOK_MS = 1_000


def run_standalone(settings: Settings, report: Callable[[str], None]) -> None:
    """Run until told to stop; ``report`` gets one line when the cluster answers, one for each restart, and one when a
    disk is full. What can't be used for now, as a full disk, is waited for; a file that is damaged while processes run
    is said, and ends none of them.

    Raises RefusedError when another supervisor runs this directory, when it is open to others and somebody else's, or
    when the settings bind an address beyond loopback without TLS. Main thread only.
    """
    keep_private()
    refuse_plaintext(settings)
    clock, stop = SystemClock(), threading.Event()
    say = partial(_say, report)
    supervisor = Supervisor(settings.directory, roles_of(settings.standalone.tservers), say, STOP_TIMEOUT_MS, clock)
    for path in close_to_others(settings):
        say(f"{path} was open to other users of this machine, and is no more")
    _insist(supervisor.acquire, say, clock, stop)
    threads = [
        guarded_thread(name, partial(what, settings, say, clock, stop))
        for name, what in (("readiness", _announce), ("fence", _fence), ("space", _watch_space))
    ]
    try:
        _insist(partial(_complete, settings), say, clock, stop)
        for thread in threads:
            thread.start()
        supervisor.run()
    finally:
        stop.set()
        for thread in threads:
            if thread.is_alive():
                thread.join()
        supervisor.release()


Task = Callable[[Settings, Callable[[str], None], Clock, threading.Event], None]
T = TypeVar("T")


def _complete(settings: Settings) -> None:
    try:
        complete_cluster(settings)
    except OSError as error:
        raise unavailable(f"{settings.directory} can't be written", error) from error


def _say(report: Callable[[str], None], text: str) -> None:
    """A line for the operator. What takes it may be a file on a full disk, or gone: that ends nothing."""
    try:
        report(text)
    except OSError as error:
        LOG.warning("nobody takes what there is to say (%s): %s", error, text)


def _insist(
    act: Callable[[], T],
    say: Callable[[str], None],
    clock: Clock,
    stop: threading.Event,
    passing: type[BookkeeperError] = TransientError,
) -> T | None:
    """``act`` until it does not raise ``passing``, each reason said once; None when ``stop`` was set before."""
    said = ""
    while True:
        try:
            return act()
        except passing as error:
            if error.message != said:
                say(f"waiting: {error.message}")
            said = error.message
        if clock.wait(stop, TRY_AGAIN_MS):
            return None


def _watch_space(settings: Settings, report: Callable[[str], None], clock: Clock, stop: threading.Event) -> None:
    directories = (
        settings.directory,
        settings.wal_dir,
        settings.tables_dir,
        settings.coordination_dir,
        settings.logs_dir,
    )
    watch = SpaceWatch(directories, settings.tserver.disk_reserve_bytes, report)
    watch.run_once()
    while not clock.wait(stop, SPACE_LOOK_MS):
        watch.run_once()


def _fence(settings: Settings, report: Callable[[str], None], clock: Clock, stop: threading.Event) -> None:
    opened = partial(EmbeddedCoordination, settings.coordination_dir, settings.coordination, clock)
    coordination = _insist(opened, report, clock, stop, BookkeeperError)
    if coordination is None:
        return
    fence = Fence(coordination.processes, settings.coordination.session_margin_ms * 1_000_000, report)
    try:
        while not clock.wait(stop, settings.coordination.session_renew_ms):
            _insist(lambda: fence.run_once(clock.boot_ns()), report, clock, stop, BookkeeperError)
    finally:
        coordination.close()


def _announce(settings: Settings, report: Callable[[str], None], clock: Clock, stop: threading.Event) -> None:
    state = _insist(partial(wait_until_ready, settings, clock, stop), report, clock, stop, BookkeeperError)
    if state is not None:
        report(
            f"cluster {settings.instance.name} answers at {state.master} with {len(state.tservers)} tservers "
            f"({', '.join(state.tservers)}); bookkeeper shell {settings.directory}"
        )
