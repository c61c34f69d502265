"""The monitor's listening socket and its threads, inside the master's process.

It listens at once, but loads its libraries and samples the master only after the first connection. Then one thread
samples the master, one the hosts, and one answers, behind :mod:`bookkeeper.monitor.connection_limiter`. A failure in
the monitor is logged, and it restarts after a pause; the master goes on without it.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from typing import TYPE_CHECKING

from bookkeeper.clock import Clock
from bookkeeper.config.sections import MonitorSettings
from bookkeeper.monitor.observation import Source
from bookkeeper.rpc.trust.admission import RefusalLog
from bookkeeper.security.tls import TlsFiles, server_context
from bookkeeper.security.viewers import Viewers

if TYPE_CHECKING:
    import uvicorn

    from bookkeeper.monitor.replica_sampler import ReplicaSampler
    from bookkeeper.monitor.sampler import Sampler

LOG = logging.getLogger(__name__)

RESTART_MS = 5_000
"""ms until a monitor that could not listen, or failed, restarts."""

BACKLOG = 64
STOP_S = 5.0


class Monitor:
    """The monitor of one master; ``start`` and ``stop`` once each. With port 0 in the settings and no ``port`` it does
    nothing.
    """

    def __init__(
        self,
        settings: MonitorSettings,
        source: Source,
        clock: Clock,
        viewers: Viewers,
        port: int | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        """``viewers``: secrets with valid tokens. ``port`` replaces that of the settings, for a second master; 0 = any
        free port. ``tls`` None: plain HTTP.
        """
        self._tls = tls
        self._settings, self._source, self._clock, self._viewers = settings, source, clock, viewers
        self._is_enabled = port is not None or settings.port > 0
        self._port = settings.port if port is None else port
        self._stop = threading.Event()
        self._woken, self._wake = socket.socketpair()
        self._listening: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)

    @property
    def url(self) -> str:
        """The address of the pages, "" while the monitor does not listen."""
        listening = self._listening
        if listening is None:
            return ""
        return url_of(self._settings.announced_host or self._settings.host, self._port, self._tls is not None)

    def start(self) -> None:
        """Listen, if enabled. When the port is in use, the monitor's thread tries again later."""
        if self._is_enabled:
            self._listen()
            self._thread.start()

    def stop(self) -> None:
        """Stop at once, without waiting for requests under way."""
        self._stop.set()
        self._wake.send(b"x")
        server = self._server
        if server is not None:
            server.should_exit = server.force_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        if not self._thread.is_alive():
            self._woken.close()
            self._wake.close()

    def _listen(self) -> None:
        host = self._settings.host
        listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, self._port))
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            LOG.warning("the monitor can't listen at %s:%d yet: %s", host, self._port, error.strerror or error)
            return
        self._port = listening.getsockname()[1]
        self._listening = listening
        LOG.info("the monitor answers at %s%s", self.url, "" if self._viewers.accepted else ", without a token")

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._listening is not None and self._wait_for_connection(self._listening):
                    self._serve(self._listening)
            except BaseException:
                LOG.critical("the monitor failed and restarts; replication goes on", exc_info=True)
            self._close()
            if not self._clock.wait(self._stop, RESTART_MS):
                self._listen()

    def _close(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def _wait_for_connection(self, listening: socket.socket) -> bool:
        ready, _, _ = select.select([listening, self._woken], [], [])
        return listening in ready and not self._stop.is_set()

    def _serve(self, listening: socket.socket) -> None:
        import asyncio  # only a master with a viewer pays for these

        import uvicorn

        from bookkeeper.monitor import connection_limiter
        from bookkeeper.monitor.app import build_app
        from bookkeeper.monitor.replica_sampler import ReplicaSampler
        from bookkeeper.monitor.sampler import Sampler

        sampler = Sampler(self._source, self._clock, self._settings.sample_interval_ms)
        sampler.sample()
        replicas = ReplicaSampler(self._source, self._clock, self._settings.sample_interval_ms)
        config = uvicorn.Config(
            build_app(sampler, replicas, self._clock, self._settings.sample_interval_ms, self._viewers),
            log_config=None,
            log_level="error",
            access_log=False,
            lifespan="off",
            http="h11",
            ws="none",
            server_header=False,
            timeout_keep_alive=connection_limiter.IDLE_S,
            timeout_graceful_shutdown=1,
        )
        server = self._server = uvicorn.Server(config)
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._run_sampler, args=(one, server, stop), name=name, daemon=True)
            for one, name in ((sampler, "monitor-sampler"), (replicas, "monitor-replicas"))
        ]
        for thread in threads:
            thread.start()
        try:
            if not self._stop.is_set():
                asyncio.run(
                    connection_limiter.serve(server, listening, RefusalLog(self._clock), server_context(self._tls))
                )
        finally:
            stop.set()
            replicas.wake()
            for thread in threads:
                thread.join()
            self._server = None

    def _run_sampler(self, sampler: Sampler | ReplicaSampler, server: uvicorn.Server, stop: threading.Event) -> None:
        try:
            sampler.run(stop)
        except BaseException:
            LOG.critical("the monitor can't sample the master and restarts", exc_info=True)
            server.should_exit = True


def url_of(host: str, port: int, has_tls: bool) -> str:
    """The URL of a monitor, without a token."""
    return f"http{'s' if has_tls else ''}://{f'[{host}]' if ':' in host else host}:{port}/"
