"""Starts processes as forks of a warm ``fork_server``, and keeps that running.

For the supervisor, which becomes the parent of the started processes; main thread only.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from bookkeeper.clock import Clock
from bookkeeper.standalone.children import fork_server
from bookkeeper.standalone.children.parent_death import ended_with_parent

RESTART_DELAY_MIN_MS = 100
RESTART_DELAY_MAX_MS = 5_000
STABLE_AFTER_MS = 10_000
"""A process that lived this long is restarted at once."""
ANSWER_TIMEOUT_S = 5.0
"""A fork takes milliseconds. A fork server without an answer, such as a stopped one, is replaced."""
PR_SET_CHILD_SUBREAPER = 36

WARM: Mapping[str, tuple[str, ...]] = {
    "bookkeeper.master": ("bookkeeper.master.__main__", "bookkeeper.monitor.app", "uvicorn"),
    "bookkeeper.tserver": ("bookkeeper.tserver.run", "pandas"),
    "bookkeeper.replay": ("bookkeeper.replay.__main__",),
}
"""What the fork server imports for the modules that it will run."""


def warm_modules(modules: Iterable[str]) -> list[str]:
    """What a fork server imports for processes that run these modules."""
    return [name for module in modules for name in WARM.get(module, ())]


def restart_delay_ms(previous_ms: int | None, lived_ms: int) -> int:
    """The delay of the next start: none after a long life, and none for the first restart (``previous_ms`` None). Else
    it doubles as long as a process ends soon after its start.
    """
    if lived_ms >= STABLE_AFTER_MS or previous_ms is None:
        return 0
    return min(RESTART_DELAY_MAX_MS, max(RESTART_DELAY_MIN_MS, 2 * previous_ms))


class StaleServerError(OSError):
    """The fork server runs code that was changed since."""


def adopt_orphans() -> None:
    """Become the parent of all processes below this one whose own parent ends. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


class ForkedStarts:
    """A fork server that imports the modules ``warm``, and the socket to it."""

    def __init__(self, warm: Iterable[str], clock: Clock, selector: selectors.BaseSelector) -> None:
        self._warm = tuple(dict.fromkeys(warm))
        self._clock = clock
        self._selector = selector
        self._server: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket | None = None
        self._opened_ns = 0
        self._open_at_ns = 0
        self._delay_ms: int | None = None
        self.is_ready = False
        """Whether the fork server has imported everything, and takes orders."""

    @property
    def due_ns(self) -> int | None:
        """When the next fork server is due (boot clock); None while one runs."""
        return self._open_at_ns if self._channel is None else None

    @property
    def pid(self) -> int | None:
        """The pid of the fork server; None while none runs."""
        return None if self._server is None else self._server.pid

    def keep_open(self) -> None:
        """Start a fork server when none runs and one is due, and return at once; the selector has its socket, with this
        object as data, until it ends. Raises OSError; then the next one is due after a pause.
        """
        now = self._clock.boot_ns()
        if self._channel is not None or now < self._open_at_ns:
            return
        self._opened_ns = now
        try:
            self._server, self._channel = self._spawn()
        except OSError:
            self._set_due()
            raise
        self._selector.register(self._channel, selectors.EVENT_READ, self)

    def _spawn(self) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", fork_server.__name__, str(theirs.fileno()), str(os.getpid()), *self._warm]
            try:
                server = subprocess.Popen(
                    ended_with_parent(command, signal.SIGKILL),
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                    pass_fds=[theirs.fileno()],
                    env={**os.environ, **fork_server.SINGLE_THREADED},
                )
            except OSError:
                ours.close()
                raise
        ours.settimeout(ANSWER_TIMEOUT_S)
        return server, ours

    def _set_due(self) -> None:
        now = self._clock.boot_ns()
        self._delay_ms = restart_delay_ms(self._delay_ms, (now - self._opened_ns) // 1_000_000)
        self._open_at_ns = now + self._delay_ms * 1_000_000

    def receive(self) -> None:
        """Take what the fork server says without an order: that it is ready, or that it has ended. One that ends while
        it imports is followed by one that imports nothing: then each process tells its own error.
        """
        assert self._channel is not None
        try:
            said = self._channel.recv(fork_server.ORDER_BYTES_MAX)
        except OSError:
            said = b""
        if said == fork_server.READY:
            self.is_ready = True
            return
        if not self.is_ready:
            self._warm = ()
        self.close()

    def start(self, module: str, arguments: Sequence[str], output: int, token: str) -> int:
        """Start ``python -m module arguments`` with its output in this descriptor; returns its pid. Its environment has
        the ``token`` of its sessions, because every user of the machine sees its command line. It ends with this
        process. Raises StaleServerError, OSError; then no process runs.
        """
        assert self._channel is not None
        read, write = os.pipe()
        try:
            order = json.dumps({"module": module, "arguments": list(arguments), "token": token}).encode()
            try:
                socket.send_fds(self._channel, [order], [output, read])
                reply = json.loads(self._channel.recv(fork_server.ORDER_BYTES_MAX) or b"{}")
            except OSError:
                self.close()
                raise
            if reply.get(fork_server.STALE):
                self.close()
                self._delay_ms, self._open_at_ns = None, 0
                raise StaleServerError
            if "pid" not in reply:
                code = int(reply.get("errno", errno.EPIPE))
                raise OSError(code, os.strerror(code))
            os.write(write, b"g")
            return int(reply["pid"])
        finally:
            os.close(read)
            os.close(write)

    def close(self) -> None:
        """End the fork server; started processes go on. Idempotent."""
        channel, server = self._channel, self._server
        self._channel = self._server = None
        self.is_ready = False
        if channel is None or server is None:
            return
        self._selector.unregister(channel)
        channel.close()
        server.kill()
        server.wait()
        self._set_due()
