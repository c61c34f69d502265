"""``python -m bookkeeper.replay DIR``: the replay process of a cluster.

Arrives: the directory of a cluster. Leaves: a Thrift service ``Replay`` at a free port, known to the cluster as a
coordination session of kind "replay". Survives a crash: nothing; the supervisor starts it again.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading

from bookkeeper.clock import SystemClock
from bookkeeper.config import load_settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.replay.service import EXIT_BROKEN, ReplayService
from bookkeeper.rpc.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.server import RpcServer

KIND = "replay"
LEASE_CHECK_MS = 500
RUNS_MAX = 24
"""Runs that may wait or work at once; the other threads of the server stay free for status and warm."""


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
    service.start()
    server.start()
    session = coordination.open_session(KIND, server.address)
    logging.getLogger(__name__).info("replay %s answers at %s", session.session_id, server.address)
    while not clock.wait(stop, LEASE_CHECK_MS) and session.is_valid():
        pass
    exit_code = 0 if stop.is_set() else EXIT_BROKEN
    coordination.close()
    server.stop()
    service.stop()
    logging.shutdown()
    os._exit(exit_code)  # threads of jobs that hang are not waited for


if __name__ == "__main__":
    main(sys.argv[1])
