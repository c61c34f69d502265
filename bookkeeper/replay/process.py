"""One replay process: its server, its session, and the start of Spark.

The Thrift service ``Replay`` listens at a free port, and a coordination session of kind "replay" has its address. Spark
starts when the configuration names a peer, so that a cluster that only receives does not pay for it. After a crash the
supervisor starts the process again.
"""

from __future__ import annotations

import fcntl
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_tree import read_config
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import RefusedError, TransientError
from bookkeeper.model import HostIdentity
from bookkeeper.replay.last_words import LastWords
from bookkeeper.replay.service import EXIT_BROKEN, RUNS_MAX, ReplayService
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.dispatch import ServedService
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.rpc.rpc_server import Binding, RpcServer
from bookkeeper.security.access import entrance_of, process_credentials

LOG = logging.getLogger(__name__)

KIND = "replay"
CHECK_INTERVAL_MS = 500
"""Time between two checks of the lease and of the defined peers."""


class PeerWatch:
    """Checks whether the configuration names a peer; reads it again only after a change of its generation."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._generation = -1
        self._defined = False

    def are_defined(self) -> bool:
        """Whether the latest readable configuration names a peer; reads an unreadable one again."""
        try:
            generation = self._coordination.generation()
            if generation != self._generation:
                self._defined = bool(read_config(self._coordination).clusters)
                self._generation = generation
        except TransientError as error:
            LOG.warning("the configuration can't be read now: %s", error)
        return self._defined


@contextmanager
def only_one(directory: Path) -> Iterator[None]:
    """Lock the directory for one replay process: two would empty each other's scratch directory. Raises RefusedError,
    without a change, while another one runs; OSError.
    """
    (directory / "run").mkdir(exist_ok=True)
    with (directory / "run" / "replay.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(f"{directory}: another replay process runs here; stop it first") from None
        yield


def serve(settings: Settings, stop: threading.Event, clock: Clock) -> int:
    """Serve until ``stop`` is set (returns 0) or the lease is lost (EXIT_BROKEN); a dead JVM ends the process.

    Raises RefusedError when another replay process runs in this directory.
    """
    with only_one(settings.directory):
        return _serve(settings, stop, clock)


def _serve(settings: Settings, stop: threading.Event, clock: Clock) -> int:
    service = ReplayService(settings, clock)
    hello = Hello(PROTOCOL_VERSION, settings.instance.instance_id, settings.instance.name, KIND)
    served = ServedService("Replay", service, {"run": RUNS_MAX})
    binding = Binding(port=settings.replay.port)
    server = RpcServer(served, hello, settings.rpc, clock, binding=binding, entrance=entrance_of(settings))
    coordination = open_coordination(settings, clock)
    for dead in coordination.sessions(KIND):
        if not dead.alive:
            coordination.forget_session(dead.session_id)
    server.start()
    session = coordination.open_session(KIND, server.address, HostIdentity(settings.host.name, ""))
    LOG.info("replay %s answers at %s", session.session_id, server.address)
    pool = RpcPool(hello, settings.rpc, clock, process_credentials(settings))
    words = LastWords(coordination, pool, session.session_id)
    service.report_problems(words.tell)
    peers = PeerWatch(coordination)
    while session.is_valid() and not stop.is_set():
        if peers.are_defined():
            service.start()
        problem = service.problem()
        if service.is_warm:
            words.tell(problem)
        clock.wait(stop, CHECK_INTERVAL_MS)
    if not stop.is_set():
        LOG.critical("replay %s lost its lease", session.session_id)
    coordination.close()
    server.stop()
    service.stop()
    pool.close()
    return 0 if stop.is_set() else EXIT_BROKEN
