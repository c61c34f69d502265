"""``python -m bookkeeper.replay DIR``: the replay process of a cluster.

Arrives: the directory of a cluster. Leaves: a Thrift service ``Replay`` at a free port, known to the cluster as a
coordination session of kind "replay". Survives a crash: nothing; the supervisor starts it again. Spark is started when
the configuration names a peer, so that a cluster that only receives pays nothing for it.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

from bookkeeper.clock import SystemClock
from bookkeeper.config import load_settings
from bookkeeper.coordination.config_tree import read_config
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.protocol import Coordination
from bookkeeper.errors import TransientError
from bookkeeper.replay.service import EXIT_BROKEN, ReplayService
from bookkeeper.rpc.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.server import RpcServer

LOG = logging.getLogger(__name__)

KIND = "replay"
LEASE_CHECK_MS = 500
RUNS_MAX = 24
"""Runs that may wait or work at once; the other threads of the server stay free for status and warm."""


class PeerWatch:
    """Tells whether the configuration names a peer; reads it again only when its generation changed."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._generation = -1
        self._defined = False

    def are_defined(self) -> bool:
        """Once True for a generation, it costs one look a call; an unreadable configuration is looked at again."""
        try:
            generation = self._coordination.generation()
            if generation != self._generation:
                self._defined = bool(read_config(self._coordination).clusters)
                self._generation = generation
        except TransientError as error:
            LOG.warning("the configuration can't be read now: %s", error)
        return self._defined


def main(directory: str) -> None:
    """Serve until a termination signal (exit code 0), a lost lease or a dead JVM (70)."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    settings, clock, stop = load_settings(directory), SystemClock(), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    service = ReplayService(settings, clock)
    hello = Hello(PROTOCOL_VERSION, settings.instance.instance_id, settings.instance.name, KIND)
    server = RpcServer("Replay", service, hello, settings.rpc, clock, concurrency={"run": RUNS_MAX})
    coordination = open_coordination(settings, clock)
    for dead in coordination.sessions(KIND):
        if not dead.alive:
            coordination.forget_session(dead.session_id)
    server.start()
    session = coordination.open_session(KIND, server.address)
    LOG.info("replay %s answers at %s", session.session_id, server.address)
    peers = PeerWatch(coordination)
    while session.is_valid():
        if peers.are_defined():
            service.start()
        if clock.wait(stop, LEASE_CHECK_MS):
            break
    exit_code = 0 if stop.is_set() else EXIT_BROKEN
    coordination.close()
    server.stop()
    service.stop()
    logging.shutdown()
    os._exit(exit_code)  # threads of jobs that hang are not waited for


if __name__ == "__main__":
    main(sys.argv[1])
