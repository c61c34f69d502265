"""A real HBase as the home of two clusters' books, whose servers can be killed, stopped and started again.

Two processes, as an operator has them: HBase itself, and a Thrift server of its own between HBase and the clusters. So
each can fail without the other. Arrives: a directory. Leaves: the URL for each cluster's books. Both processes end with
the block; killed with the test run, HBase ends by itself, and the Thrift server with the parent-death signal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Self
from xml.sax.saxutils import escape

import psutil

from bookkeeper.clock import SystemClock
from bookkeeper.errors import UnavailableError
from bookkeeper.standalone.children.parent_death import ended_with_parent
from bookkeeper.standalone.hbase.hbase_process import HBaseProcess
from bookkeeper.standalone.hbase.java import archive_options, class_path, find_java
from bookkeeper.standalone.ports import free_ports
from tests.support.hbase import HBaseUnavailableError, why_no

START_S = 180.0
PROBE_MS = 5_000
HEAP_MB = 768
SESSION_MS = 180_000
"""HBase's servers give themselves up when their ZooKeeper session ends, and both stand still together: with HBase's own
40 s a slow test would end them.
"""
SESSIONS = {
    "zookeeper.session.timeout": str(SESSION_MS),
    "hbase.zookeeper.property.maxSessionTimeout": str(SESSION_MS),
}


class ThriftServer:
    """HBase's own Thrift server in a process of its own, always at the same port."""

    def __init__(self, directory: Path, hbase: HBaseProcess) -> None:
        self._directory = directory
        self._hbase = hbase
        self._process: subprocess.Popen[bytes] | None = None
        (self.port,) = free_ports(1)

    def start(self) -> None:
        """Start, and return when it answers from HBase. Raises UnavailableError."""
        home = self._hbase.home
        self._directory.mkdir(parents=True, exist_ok=True)
        (self._directory / "hbase-site.xml").write_text(_site(self._hbase))
        command = [str(find_java()), "-Xmx256m", "-XX:+UseSerialGC", *archive_options(home)]
        command += ["-cp", class_path(home, self._directory), "bookkeeper.hbase.ThriftGateway"]
        command += ["--bind", self._hbase.host, "-p", str(self.port), "--infoport", "-1", "start"]
        with (self._directory / "thrift.log").open("ab") as log:
            command = ended_with_parent(command, signal.SIGKILL)
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self._wait_answers()

    def _wait_answers(self) -> None:
        clock, never = SystemClock(), threading.Event()
        deadline_ns = clock.boot_ns() + int(START_S * 1e9)
        while not answers(self._hbase.host, self.port):
            if self._process is None or self._process.poll() is not None or clock.boot_ns() > deadline_ns:
                self.kill9()
                raise UnavailableError(f"HBase's Thrift server does not answer; see {self._directory / 'thrift.log'}")
            clock.wait(never, 100)

    def kill9(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def send(self, number: signal.Signals) -> None:
        """Stop it or let it go on."""
        if self._process is not None:
            self._process.send_signal(number)


class HBaseHome:
    """A context manager. Raises HBaseUnavailableError where no HBase can run as a process."""

    def __init__(self, directory: Path) -> None:
        if (reason := why_no("local")) is not None:
            raise HBaseUnavailableError(f"NO REAL HBASE, so nothing about it was tested: {reason}")
        self._hbase = HBaseProcess(directory / "hbase", heap_mb=HEAP_MB, settings=SESSIONS)
        self._thrift = ThriftServer(directory / "thrift", self._hbase)

    def __enter__(self) -> Self:
        try:
            self._hbase.start()
            self._thrift.start()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        self.resume()
        self._thrift.kill9()
        self._hbase.kill9()

    def url(self, name: str) -> str:
        """The metadata URL of the cluster of this name."""
        return f"hbase://{self._hbase.host}:{self._thrift.port}/{name}"

    def kill_hbase(self) -> None:
        """Kill -9 HBase, then start it again over the same data. The Thrift server lives on."""
        self._hbase.kill9()
        self._hbase.start()

    def restart_hbase(self) -> None:
        """End HBase cleanly, and start it again."""
        self._hbase.restart()

    def kill_thrift(self) -> None:
        """Kill -9 the Thrift server, and start another one at its port."""
        self._thrift.kill9()
        self._thrift.start()

    def stop_hbase(self) -> None:
        """Stop HBase's process; :meth:`resume` lets it go on."""
        self._hbase_process().send_signal(signal.SIGSTOP)

    def stop_thrift(self) -> None:
        """Stop the Thrift server's process; :meth:`resume` lets it go on."""
        self._thrift.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let both go on that were stopped."""
        self._thrift.send(signal.SIGCONT)
        if self._hbase.running:
            self._hbase_process().send_signal(signal.SIGCONT)

    def _hbase_process(self) -> psutil.Process:
        data = str(self._hbase.data_dir)
        for process in psutil.Process(os.getpid()).children():
            if process.name() == "java" and data in process.cmdline():
                return process
        raise UnavailableError(f"HBase over {data} does not run")


def answers(host: str, port: int) -> bool:
    """Whether a Thrift server there reads from its HBase."""
    import happybase
    from happybase.pool import TException

    try:
        connection = happybase.Connection(host, port, timeout=PROBE_MS)
        try:
            connection.tables()
        finally:
            connection.close()
    except (OSError, TException):
        return False
    return True


def _site(hbase: HBaseProcess) -> str:
    wanted = {
        "hbase.zookeeper.quorum": hbase.host,
        "hbase.zookeeper.property.clientPort": str(hbase.ports.zookeeper),
    }
    properties = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in wanted.items()
    )
    return f"<configuration>{properties}</configuration>\n"
