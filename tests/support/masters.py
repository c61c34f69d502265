"""Masters that run: inside the test (:class:`LocalMaster`), or as processes that can be killed (:class:`MasterNode`).

Arrives: settings of a cluster directory. Leaves: a master that answers. Nothing outlives the test.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import NotLeaderError, NotServingError, TransientError, UnavailableError
from bookkeeper.master.leadership import Leadership
from bookkeeper.master.process import MasterProcess
from bookkeeper.rpc.contract.services import Master
from bookkeeper.rpc.rpc_pool import RpcPool, plain_hello
from bookkeeper.security.access import process_credentials
from bookkeeper.standalone.children.parent_death import ended_with_parent
from tests.support.books import books_of
from tests.support.time_limit import TimeLimit
from tests.support.trust import trust_everybody

LIMIT_S = 60.0
T = TypeVar("T")


def eventually(what: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """Call until it does not fail for now any more; the last error when it does for long."""
    limit = TimeLimit(limit_s)
    while True:
        try:
            return what()
        except (NotLeaderError, NotServingError, UnavailableError, TransientError):
            if limit.is_over():
                raise
        limit.pause()


class LocalMaster:
    """A master inside the test, with stores of its own; a context manager."""

    def __init__(self, settings: Settings, clock: Clock | None = None, port: int | None = None) -> None:
        self.settings = settings
        trust_everybody(settings)
        self._clock = clock or SystemClock()
        self._coordination = open_coordination(settings)
        self._table = books_of(settings)
        self.process = MasterProcess(settings, self._coordination, self._table, self._clock, port=port)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self.process.run, args=(self._stop,), daemon=True)
        self._pool = RpcPool(plain_hello(), settings.rpc, None, process_credentials(settings))

    @property
    def address(self) -> str:
        """The address of the master."""
        return self.process.address

    @property
    def coordination(self) -> Coordination:
        """Its own."""
        return self._coordination

    @property
    def calls(self) -> Master:
        """Calls to it."""
        return self._pool.master(self.address)

    @property
    def leadership(self) -> Leadership:
        """The leadership of the master. Raises AssertionError when the master does not lead."""
        assert self.process.leadership is not None
        return self.process.leadership

    def __enter__(self) -> Self:
        self._thread.start()
        eventually(self.calls.tables)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._pool.close()
        self._table.close()
        self._coordination.close()

    def stop(self) -> None:
        """End its threads; later calls find no server."""
        self._stop.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()


class MasterNode:
    """``python -m bookkeeper.master`` as a process of its own."""

    def __init__(self, settings: Settings, log: Path, port: int | None = None) -> None:
        self.address = f"{settings.master.host}:{settings.master.port if port is None else port}"
        self._log = log.open("ab")
        extra = [] if port is None else ["--port", str(port)]
        command = [sys.executable, "-m", "bookkeeper.master", str(settings.directory), *extra]
        command = ended_with_parent(command, signal.SIGKILL)
        self.process = subprocess.Popen(command, stdout=self._log, stderr=self._log, start_new_session=True)

    def kill9(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(LIMIT_S)
        self._log.close()

    def signal(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def terminate(self) -> int:
        """End it cleanly; returns its exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(LIMIT_S)
        self._log.close()
        return code

    def end(self) -> None:
        """Make sure that it is gone."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill9()
