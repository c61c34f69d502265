"""A real HBase as one local Java process, for tests and demos.

``docker/hbase/assemble.sh`` provides the jars and the launcher; they need no container engine. The data directory has
the data and the port numbers, so that each start is the same server, with everything that it acknowledged before a
crash of the process. A crash of the machine may lose acknowledged writes, because HBase can't sync to a local
filesystem. The Java process reads from a pipe of its owner and stops cleanly when the pipe closes, so it never outlives
its owner.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO

from msgspec import Struct, field
from msgspec.structs import asdict

from bookkeeper.errors import CorruptionError, NotFoundError, RefusedError, UnavailableError
from bookkeeper.standalone.children.log_end import log_end
from bookkeeper.standalone.hbase.java import default_home, java_command, why_not_runnable
from bookkeeper.standalone.ports import HOST, free_ports

READY_LINE = "HBASE READY"
START_TIMEOUT_S = 180.0
STOP_TIMEOUT_S = 60.0
LOG_END_BYTES = 4_000


class HBasePorts(Struct, frozen=True):
    """The four ports of one instance. They are part of the servers' names, so the same data needs the same ports."""

    zookeeper: int
    master: int
    regionserver: int
    thrift: int


class HBaseProcess(Struct):
    """One HBase over ``data_dir``; a context manager. Not safe for use by several threads at once."""

    data_dir: Path
    heap_mb: int = 512
    """Java heap in MiB. 512 is enough for tests and a demo; set 1024 or more under load to limit garbage collection."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """HBase settings (hbase-site keys) that replace those of the launcher."""
    home: Path = field(default_factory=default_home)
    host: str = HOST
    _ports: HBasePorts | None = None
    _process: subprocess.Popen[bytes] | None = None

    @property
    def ports(self) -> HBasePorts:
        """The ports of this data directory, chosen at its first start."""
        if self._ports is None:
            self._ports = self._load_or_choose_ports()
        return self._ports

    @property
    def thrift_port(self) -> int:
        """Port of the Thrift gateway."""
        return self.ports.thrift

    @property
    def log(self) -> Path:
        """File with warnings and errors of the Java process, from all its starts."""
        return self.data_dir / "hbase.log"

    @property
    def running(self) -> bool:
        """Whether the process lives; it may not be ready yet."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start, and return when reads and Thrift answer. Raises RefusedError when HBase runs already, NotFoundError
        when a part is missing, UnavailableError with the end of the log.
        """
        if self.running:
            raise RefusedError(f"HBase over {self.data_dir} runs already")
        if (missing := why_not_runnable(self.home)) is not None:
            raise NotFoundError(missing)
        self.data_dir.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                self._command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )
        self._process = process
        assert process.stdout is not None
        watch = _ReadyWatch(process.stdout)
        if not watch.wait(timeout_s):
            self.kill9()
            reason = "ended" if watch.ended else f"was not ready after {timeout_s:.0f} s"
            end = log_end(self.log, LOG_END_BYTES)
            raise UnavailableError(f"HBase over {self.data_dir} {reason}; the end of {self.log}:\n{end}")

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop cleanly, with a flush of memory; after ``timeout_s`` kill. Does nothing if HBase does not run."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
        self._reap(process)

    def kill9(self) -> None:
        """Kill the process with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._reap(self._process)

    def restart(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Stop cleanly if HBase runs, then start with the same data and ports."""
        self.stop()
        self.start(timeout_s)

    def __enter__(self) -> HBaseProcess:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
        self._process = None

    def _command(self) -> list[str]:
        command = java_command(self.home, "bookkeeper.hbase.SingleJvmHBase", self.heap_mb)
        command += ["--data", str(self.data_dir)]
        for name, port in asdict(self.ports).items():
            command += [f"--{name}-port", str(port)]
        for key, value in self.settings.items():
            command += ["--set", f"{key}={value}"]
        return [*command, "--thrift-host", self.host, "--stop-on-stdin-eof"]

    def _load_or_choose_ports(self) -> HBasePorts:
        path = self.data_dir / "ports.json"
        if path.is_file():
            try:
                return HBasePorts(**json.loads(path.read_text()))
            except (ValueError, TypeError) as malformed:
                raise CorruptionError(f"{path}: {malformed}; remove it together with its directory") from malformed
        ports = HBasePorts(*free_ports(4))
        self.data_dir.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".part")
        partial.write_text(json.dumps(asdict(ports)))
        partial.rename(path)
        return ports


class _ReadyWatch:
    """Reads the launcher's standard output to its end, in a thread, so that the pipe never fills."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.ended = False
        self._ready = False
        self._decided = threading.Event()
        self._stream = stream
        threading.Thread(target=self._read, name="hbase-ready", daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        """Wait for the ready line. Returns False when the stream ends first or after ``timeout_s``."""
        self._decided.wait(timeout_s)
        return self._ready

    def _read(self) -> None:
        with self._stream:
            for line in self._stream:
                if line.startswith(READY_LINE.encode()):
                    self._ready = True
                    self._decided.set()
        self.ended = True
        self._decided.set()
