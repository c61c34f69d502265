"""A process that has imported what the processes of a cluster import, and forks them: a start costs no import.

``python -m bookkeeper.standalone.children.fork_server SOCKET PARENT WARM...`` is the child of a supervisor, which alone
speaks to it, through :class:`bookkeeper.standalone.children.forked_starts.ForkedStarts`. It imports the modules WARM,
says so, and then forks one process for each order. It runs one thread and opens no file, no store and no socket but
SOCKET. So a forked process inherits no lock that is held, no descriptor of another process and no lease.

A forked process becomes a child of the supervisor: the fork server forks an intermediate process, which ends at once,
and the supervisor adopts its orphans (``PR_SET_CHILD_SUBREAPER``). So the supervisor gets the exit code, and the death
of the fork server ends no process of the cluster. A forked process runs nothing before the supervisor knows its pid and
writes one byte into the pipe of the order; it ends when that pipe is closed without a byte.
"""

from __future__ import annotations

import ctypes
import errno
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import setproctitle

from bookkeeper.coordination.lease import TOKEN_VARIABLE
from bookkeeper.tserver.__main__ import ALLOCATOR, KEEP_FREED_PAGES

ORDER_BYTES_MAX = 64 * 1024
READY = b"ready"
STALE = "stale"
PR_SET_PDEATHSIG = 1

SINGLE_THREADED = {"OPENBLAS_NUM_THREADS": "1", ALLOCATOR: f"{KEEP_FREED_PAGES},background_thread:false"}
"""Environment of the fork server: libraries that would start threads when they are loaded start none. A process that is
forked while another thread holds a lock would wait for that lock for ever. Arrow's jemalloc keeps freed pages, as
:mod:`bookkeeper.tserver.__main__` says."""


def main(arguments: Sequence[str]) -> tuple[str, list[str]] | None:
    """Serve orders until the supervisor closes the socket. Returns only in a forked process: what it has to run."""
    channel = socket.socket(fileno=int(arguments[0]))
    parent, warm = int(arguments[1]), arguments[2:]
    for name in warm:
        importlib.import_module(name)
    if len(os.listdir("/proc/self/task")) > 1:  # noqa: PTH208
        os.execv(sys.executable, [sys.executable, "-m", __spec__.name, *arguments[:2]])  # cold, but safe
    sources = Sources()
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy the pages of all these objects
    channel.send(READY)
    while True:
        raw, descriptors, _, _ = socket.recv_fds(channel, ORDER_BYTES_MAX, 2)
        if not raw:
            return None
        output, go = descriptors
        reply: dict[str, Any]
        try:
            if sources.have_changed():
                reply = {STALE: True}
            else:
                pid = fork_orphan()
                if pid == 0:
                    channel.close()
                    return become(json.loads(raw), output, go, parent)
                reply = {"pid": pid}
        except OSError as error:
            reply = {"errno": error.errno or errno.EAGAIN}
        os.close(output)
        os.close(go)
        channel.send(json.dumps(reply).encode())


class Sources:
    """The files of the modules that are imported here, and when each was changed last."""

    def __init__(self) -> None:
        files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
        self._changed_ns = {file: os.stat(file).st_mtime_ns for file in files if file is not None}  # noqa: PTH116

    def have_changed(self) -> bool:
        """Whether a file was changed or removed since: a process that starts now has to run the new code."""
        try:
            return any(os.stat(file).st_mtime_ns != known for file, known in self._changed_ns.items())  # noqa: PTH116
        except FileNotFoundError:
            return True


def fork_orphan() -> int:
    """Fork a process whose parent has ended: 0 in that process, its pid here. Raises OSError when there is no room."""
    read, write = os.pipe()
    try:
        intermediate = os.fork()
    except OSError:
        os.close(read)
        os.close(write)
        raise
    if intermediate == 0:
        try:
            pid = os.fork()
        except OSError as error:
            pid = -(error.errno or errno.EAGAIN)
        if pid == 0:
            os.close(read)
            os.close(write)
            return 0
        os.write(write, str(pid).encode())
        os._exit(0)
    os.close(write)
    os.waitpid(intermediate, 0)  # from now on the orphan is the supervisor's child
    answer = int(os.read(read, 32))
    os.close(read)
    if answer < 0:
        raise OSError(-answer, os.strerror(-answer))
    return answer


def become(order: Mapping[str, Any], output: int, go: int, parent: int) -> tuple[str, list[str]]:
    """Turn a forked process into the one of the order; returns its module and arguments. Ends the process when the
    supervisor does not want it, or has ended.
    """
    os.setsid()
    if not os.read(go, 1):
        os._exit(0)
    libc = ctypes.CDLL(None)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the line above, so no signal comes
        os._exit(0)
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    os.close(go)
    os.environ[TOKEN_VARIABLE] = str(order["token"])
    module, arguments = str(order["module"]), [str(argument) for argument in order["arguments"]]
    setproctitle.setproctitle(" ".join([sys.executable, "-m", module, *arguments]))
    return module, arguments


def run_forked(module: str, arguments: Sequence[str]) -> None:
    """Run a module as ``python -m`` does."""
    sys.argv[:] = [module, *arguments]
    sys.modules.pop(f"{module}.__main__", None)  # it was imported for what it imports; now it runs
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    order = main(sys.argv[1:])
    if order is not None:
        run_forked(*order)
