"""The monitor's address, and the thread behind it: it listens at once, and loads and looks only when somebody comes.

Arrives: settings, a source. Leaves: a page server inside the master's process. It costs nothing until somebody comes;
then one thread looks and one answers, behind :mod:`bookkeeper.monitor.connection_limiter`. Whatever dies in here is
logged and begun anew after a pause: the master goes on without it. Nothing survives a crash.
"""

from __future__ import annotations

import logging
import select
import socket
import threading
from typing import TYPE_CHECKING

from bookkeeper.clock import Clock
from bookkeeper.config import MonitorSettings
from bookkeeper.monitor.observation import Source
from bookkeeper.rpc.trust.admission import RefusalLog
from bookkeeper.security.tls import TlsFiles, server_context
from bookkeeper.security.viewers import Viewers

if TYPE_CHECKING:
    import uvicorn

    from bookkeeper.monitor.sampler import Sampler

LOG = logging.getLogger(__name__)

AGAIN_MS = 5_000
"""ms until a monitor that could not listen, or died, begins anew."""

BACKLOG = 64
STOP_S = 5.0


class Monitor:
    """One master's page. ``start`` and ``stop`` once each; with port 0 there is none, unless ``port`` is given."""

    def __init__(
        self,
        settings: MonitorSettings,
        source: Source,
        clock: Clock,
        viewers: Viewers,
        port: int | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        """``viewers``: who may look. ``port``: another one than that of the settings, for a second master; 0 = any
        free one. ``tls`` None: plain HTTP.
        """
        self._tls = tls
        self._settings, self._source, self._clock, self._viewers = settings, source, clock, viewers
        self._is_wanted = port is not None or settings.port > 0
        self._port = settings.port if port is None else port
        self._stop = threading.Event()
        self._woken, self._wake = socket.socketpair()
        self._listening: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._thread = threading.Thread(target=self._run, name="monitor", daemon=True)

    @property
    def url(self) -> str:
        """Where it answers, "" while it does not listen."""
        listening = self._listening
        if listening is None:
            return ""
        return url_of(self._settings.host, self._port, self._tls is not None)

    def start(self) -> None:
        """Listen, unless there is to be no page. A port that is taken is tried again later, and nobody waits for it."""
        if self._is_wanted:
            self._listen()
            self._thread.start()

    def stop(self) -> None:
        """End the page; requests under way are not waited for."""
        self._stop.set()
        self._wake.send(b"x")
        server = self._server
        if server is not None:
            server.should_exit = server.force_exit = True
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _listen(self) -> None:
        host = self._settings.host
        listening = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((host, self._port))
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            LOG.warning("no monitor at %s:%d yet: %s", host, self._port, error.strerror or error)
            return
        self._port = listening.getsockname()[1]
        self._listening = listening
        LOG.info("the monitor answers at %s%s", self.url, "" if self._viewers.accepted else ", whoever asks")

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._listening is not None and self._somebody_comes(self._listening):
                    self._serve(self._listening)
            except BaseException:
                LOG.critical("the monitor died and begins anew; replication is not concerned", exc_info=True)
            self._close()
            if not self._clock.wait(self._stop, AGAIN_MS):
                self._listen()

    def _close(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def _somebody_comes(self, listening: socket.socket) -> bool:
        ready, _, _ = select.select([listening, self._woken], [], [])
        return listening in ready and not self._stop.is_set()

    def _serve(self, listening: socket.socket) -> None:
        import asyncio  # only a master that somebody looks at pays for these

        import uvicorn

        from bookkeeper.monitor import connection_limiter
        from bookkeeper.monitor.app import build_app
        from bookkeeper.monitor.sampler import Sampler

        sampler = Sampler(self._source, self._clock, self._settings.sample_interval_ms)
        sampler.look()
        config = uvicorn.Config(
            build_app(sampler, self._clock, self._settings.sample_interval_ms, self._viewers),
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
        over = threading.Event()
        looking = threading.Thread(target=self._look, args=(sampler, server, over), name="monitor-looks", daemon=True)
        looking.start()
        try:
            if not self._stop.is_set():
                asyncio.run(
                    connection_limiter.serve(server, listening, RefusalLog(self._clock), server_context(self._tls))
                )
        finally:
            over.set()
            looking.join()
            self._server = None

    def _look(self, sampler: Sampler, server: uvicorn.Server, over: threading.Event) -> None:
        try:
            sampler.run(over)
        except BaseException:
            LOG.critical("the monitor's look at the master failed; it begins anew", exc_info=True)
            server.should_exit = True


def url_of(host: str, port: int, has_tls: bool) -> str:
    """The address of a monitor, without a token."""
    return f"http{'s' if has_tls else ''}://{f'[{host}]' if ':' in host else host}:{port}/"
