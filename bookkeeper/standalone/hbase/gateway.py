"""The host's own Thrift gateway to an HBase cluster: a Java process on loopback.

A gateway that stands still may hold a write and send it when it goes on, long after its writer has ended (rule R4).
Nobody but the host's supervisor can stop and end its own gateway for sure, and the time limits of its HBase client are
set here. So a write that a dead process left in it has a bound: :mod:`bookkeeper.metadata.flight`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import escape

from msgspec import Struct

from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.errors import NotFoundError, UnavailableError, unavailable
from bookkeeper.metadata.flight import GATEWAY_LOOK_MS, GATEWAY_OPERATION_MS, GATEWAY_RPC_MS, GATEWAY_UNCONFIRMED_MS
from bookkeeper.metadata.hbase.gateway_probe import gateway_answers
from bookkeeper.security.private_files import DIRECTORY_MODE
from bookkeeper.standalone.children.log_end import log_end
from bookkeeper.standalone.children.parent_death import ended_with_parent
from bookkeeper.standalone.hbase.java import default_home, java_command, why_not_runnable
from bookkeeper.standalone.ports import HOST, is_in_use

GATEWAY_PORT = "standalone.gateway_port"
HEAP_MB = 256
PROBE_MS = GATEWAY_LOOK_MS // 2
START_MS = 60_000
"""A JVM of a busy machine answers within this time."""
LOOK_MS = 100
LOG_END_BYTES = 2_000


class Gateway(Struct):
    """A gateway to the HBase of ZooKeeper ``quorum``. Used by one thread at a time; the process ends with that thread,
    too. ``site`` is the directory of its HBase settings, ``log`` has what it writes, ``record`` its pid and starts.
    """

    quorum: str
    port: int
    site: Path
    log: Path
    record: Path | None = None
    starts: int = 0
    _process: subprocess.Popen[bytes] | None = None
    _pidfd: int = -1

    @classmethod
    def of_host(cls, settings: Settings) -> Gateway:
        """The gateway that the supervisor of a host runs."""
        run, log = settings.directory / "run", settings.logs_dir / "gateway.log"
        port = settings.standalone.gateway_port
        return cls(settings.hbase_quorum, port, run / "gateway", log, run / "gateway.json")

    @property
    def pid(self) -> int | None:
        """Of the process, while it runs."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process; it answers some seconds later. Raises NotFoundError when Java or the jars are missing,
        UnavailableError when another process has its port or its files can't be written.
        """
        refuse_missing_parts()
        if is_in_use(self.port):
            raise UnavailableError(
                f"another process listens at {HOST}:{self.port}, the port of this host's Thrift gateway: end that "
                "process, or set standalone.gateway_port to a free port"
            )
        try:
            for directory in (self.site, self.log.parent):
                directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            (self.site / "hbase-site.xml").write_text(site_xml(self.quorum))
            with self.log.open("ab") as output:
                command = ended_with_parent(self._command(), signal.SIGKILL)
                process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
            self._process, self._pidfd, self.starts = process, os.pidfd_open(process.pid), self.starts + 1
            if self.record is not None:
                self.record.write_text(json.dumps({"pid": process.pid, "starts": self.starts}))
        except OSError as error:
            self.kill()
            raise unavailable("this host's Thrift gateway can't be started", error) from error

    def _command(self) -> list[str]:
        command = java_command(default_home(), "bookkeeper.hbase.ThriftGateway", HEAP_MB, self.site)
        return [*command, "--bind", HOST, "-p", str(self.port), "--infoport", "-1", "start"]

    def answers(self) -> bool:
        """Whether it answers now; a gateway that stands still does not."""
        return gateway_answers(HOST, self.port, PROBE_MS)

    def has_ended(self) -> bool:
        """Whether the process has ended by itself or was killed; then it is reaped."""
        if self._process is None:
            return True
        try:
            signal.pidfd_send_signal(self._pidfd, 0)
        except ProcessLookupError:
            self._reap()
        else:
            if self._process.poll() is not None:
                self._reap()
        return self._process is None

    def kill(self) -> None:
        """End the process, be it stopped or not; what it holds is never sent."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            self._process.wait()
            self._reap()

    def _reap(self) -> None:
        os.close(self._pidfd)
        self._process, self._pidfd = None, -1


def refuse_missing_parts() -> None:
    """Raise NotFoundError when Java or the jars of a gateway are missing."""
    if (missing := why_not_runnable()) is not None:
        raise NotFoundError(f"no Thrift gateway for the books: {missing}")


@contextmanager
def gateway_for(settings: Settings, clock: Clock) -> Iterator[None]:
    """The books can be reached inside the block: a gateway that runs serves, or one is started for the block. Does
    nothing for books without a gateway of ours. Raises as :meth:`Gateway.start`.
    """
    if not settings.hbase_quorum or gateway_answers(HOST, settings.standalone.gateway_port, PROBE_MS):
        yield
        return
    with TemporaryDirectory(prefix="bookkeeper-gateway-") as name:
        site = Path(name)
        gateway = Gateway(settings.hbase_quorum, settings.standalone.gateway_port, site, site / "gateway.log")
        gateway.start()
        try:
            wait_answers(gateway, clock)
            yield
        finally:
            gateway.kill()


def wait_answers(gateway: Gateway, clock: Clock) -> None:
    """Wait until it answers. Raises UnavailableError with the end of its log."""
    never, deadline_ns = threading.Event(), clock.boot_ns() + START_MS * 1_000_000
    while not gateway.answers():
        ended = gateway.has_ended()
        if ended or clock.boot_ns() > deadline_ns:
            reason = "ended" if ended else f"does not answer after {START_MS // 1000} s"
            end = log_end(gateway.log, LOG_END_BYTES)
            raise UnavailableError(f"this host's Thrift gateway {reason}; {gateway.log} says: {end}")
        clock.wait(never, LOOK_MS)


def site_xml(quorum: str) -> str:
    """The settings of the gateway's HBase client. With HBase's own, it would try for 20 minutes, and its kernel for a
    quarter of an hour.
    """
    wanted = {
        "hbase.zookeeper.quorum": quorum,
        "hbase.client.operation.timeout": GATEWAY_OPERATION_MS,
        "hbase.client.meta.operation.timeout": GATEWAY_OPERATION_MS,
        "hbase.rpc.timeout": GATEWAY_RPC_MS,
        "hbase.rpc.read.timeout": GATEWAY_RPC_MS,
        "hbase.rpc.write.timeout": GATEWAY_RPC_MS,
        "hbase.client.retries.number": 1,
        "bookkeeper.gateway.unconfirmed.ms": GATEWAY_UNCONFIRMED_MS,
    }
    properties = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(str(value))}</value></property>"
        for name, value in wanted.items()
    )
    return f"<configuration>{properties}</configuration>\n"
