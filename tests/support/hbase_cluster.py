"""A real HBase cluster for tests: HDFS with three DataNodes, ZooKeeper, a master and two region servers.

Each is a Java process of its own, except that NameNode and DataNodes share one. It has no Thrift gateway: the hosts of
a cluster run their own. Arrives: a directory, and for a test that cuts links a network (``tests.support.namespaces``).
Leaves: the URL for each cluster's books, and the servers to kill, stop and start. All processes end with the block, and
with the thread that entered it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self
from xml.sax.saxutils import escape

from bookkeeper.clock import SystemClock
from bookkeeper.errors import NotFoundError, UnavailableError
from bookkeeper.standalone.children.parent_death import ended_with_parent
from bookkeeper.standalone.hbase.java import JVM_OPTIONS, class_path, find_java
from bookkeeper.standalone.ports import HOST, free_ports

HOME_VARIABLE = "BOOKKEEPER_HBASE_CLUSTER_HOME"
SERVERS = ("server1", "server2")
"""The region servers."""
DATA_NODES = 3
SESSION_MS = 10_000
"""A region server that is killed or stands still is noticed after this time."""
SESSION_MS_MAX = 180_000
START_S = 180.0
LOG_TAIL_CHARACTERS = 2_000
HDFS_READY = "HDFS READY"

HEAP_MB = {"zookeeper": 64, "hdfs": 320, "master": 256, "server1": 384, "server2": 384}
MAIN = {
    "zookeeper": "org.apache.zookeeper.server.quorum.QuorumPeerMain",
    "hdfs": "bookkeeper.hbase.ClusterHdfs",
    "master": "org.apache.hadoop.hbase.master.HMaster",
    **dict.fromkeys(SERVERS, "org.apache.hadoop.hbase.regionserver.HRegionServer"),
}
WEB_PAGES = ("hdfs", "datanode", "static")
"""HDFS does not start without these directories on its class path; the published jars lack them."""
OPTIONS = (
    *JVM_OPTIONS,
    "-XX:TieredStopAtLevel=1",
    "--add-opens=java.base/java.lang.reflect=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
)


class Network(Protocol):
    """Where the servers run: a network other than that of the test."""

    @property
    def address(self) -> str:
        """Of the servers."""
        ...

    def inside(self, command: list[str]) -> list[str]:
        """A command that runs ``command`` there."""
        ...


class Loopback:
    """The network of the test itself."""

    address = HOST

    def inside(self, command: list[str]) -> list[str]:
        return command


def cluster_home() -> Path:
    """The jars of the servers: ``$BOOKKEEPER_HBASE_CLUSTER_HOME``, else ``build/hbase-cluster``."""
    configured = os.environ.get(HOME_VARIABLE)
    return Path(configured) if configured else Path(__file__).parents[2] / "build" / "hbase-cluster"


def why_no_cluster() -> str | None:
    """Why no HBase cluster can run here; None if it can."""
    try:
        find_java()
    except NotFoundError as missing:
        return f"NO HBASE CLUSTER, so nothing about it was tested: {missing.message}"
    if not (cluster_home() / "stamp").is_file():
        return f"NO HBASE CLUSTER, so nothing about it was tested: no {cluster_home()}; run 'make hbase-cluster'"
    return None


class HBaseCluster:
    """A context manager. ``session_ms`` is the ZooKeeper session of the region servers, ``settings`` are HBase's."""

    def __init__(
        self,
        directory: Path,
        *,
        session_ms: int = SESSION_MS,
        settings: Mapping[str, object] | None = None,
        network: Network | None = None,
    ) -> None:
        self.directory = directory
        self.session_ms = session_ms
        self.network = network or Loopback()
        self._settings = settings or {}
        self.ports = dict(zip(MAIN, free_ports(len(MAIN)), strict=True))
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._asking = threading.Lock()

    @property
    def host(self) -> str:
        """The address of all servers."""
        return self.network.address

    @property
    def quorum(self) -> str:
        """The ZooKeeper server, as ``metadata.url`` names it."""
        return f"{self.host}:{self.ports['zookeeper']}"

    def url(self, name: str) -> str:
        """The metadata URL of the cluster of this name."""
        return f"hbase+zk://{self.quorum}/{name}"

    def __enter__(self) -> Self:
        try:
            self._start("zookeeper")
            self._start("hdfs")
            self._wait_hdfs()
            for name in ("master", *SERVERS):
                self._start(name)
            self.wait_ready()
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        self._processes = {}

    def wait_ready(self, servers: int = len(SERVERS)) -> None:
        """Return when so many region servers live and serve all regions; none moves by itself from then on."""
        self.ask("ready", str(servers))

    # ---- its servers

    def pid(self, name: str) -> int:
        """Of a server; ``name`` is ``master``, or one of SERVERS."""
        return self._processes[name].pid

    def kill9(self, name: str) -> None:
        """End a server at once, as a crash would."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def stop(self, name: str) -> None:
        """Let a server stand still; :meth:`resume` lets it go on."""
        self._processes[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        """Let a server go on."""
        self._processes[name].send_signal(signal.SIGCONT)

    def has_ended(self, name: str) -> bool:
        """Whether a server has ended by itself, or was killed."""
        process = self._processes.get(name)
        return process is None or process.poll() is not None

    def start_again(self, name: str, session_ms: int | None = None) -> None:
        """Start a server that was killed or has ended, and wait until it serves."""
        port = str(self.ports[name])
        before = int(self.ask("start", port))
        if name in self._processes:
            self.kill9(name)
        self._start(name, session_ms)
        clock, never = SystemClock(), threading.Event()
        deadline_ns = clock.boot_ns() + int(START_S * 1e9)
        while int(self.ask("start", port)) <= before:
            if self.has_ended(name) or clock.boot_ns() > deadline_ns:
                raise UnavailableError(f"{name} does not start; its log ends with {self._log_tail(name)}")
            clock.wait(never, 100)
        self.wait_ready()

    def mend(self) -> None:
        """Start each region server that has ended; all of them first, since none is ready alone."""
        ended = [name for name in SERVERS if self.has_ended(name)]
        for name in ended:
            self._start(name)
        if ended:
            self.wait_ready()

    # ---- its operator

    def ask(self, *words: str) -> str:
        """Ask something as HBase's operator (``docker/hbase/cluster``, ClusterAdmin). Raises UnavailableError."""
        process = self._processes["hdfs"]
        assert process.stdin is not None
        assert process.stdout is not None
        with self._asking:
            process.stdin.write(" ".join(words) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline().strip()
        if not answer.startswith("OK"):
            raise UnavailableError(f"HBase cluster: {' '.join(words)}: {answer}; {self._log_tail('hdfs')}")
        return answer.removeprefix("OK").strip()

    def server_of(self, table: str, row: bytes) -> str:
        """The region server that serves a row."""
        port = int(self.ask("where", table, _hex(row)))
        return next(name for name in SERVERS if self.ports[name] == port)

    def move(self, table: str, row: bytes, server: str) -> None:
        """Move the region with this row."""
        self.ask("move", table, _hex(row), str(self.ports[server]))

    def first_rows(self, table: str) -> list[bytes]:
        """The first row of each region of a table."""
        return sorted(bytes.fromhex(word.removeprefix("x")) for word in self.ask("regions", table).split())

    def rows(self, table: str, family: str) -> list[bytes]:
        """The rows of a table that have cells in a family, read from inside the network of the servers."""
        return [bytes.fromhex(word.removeprefix("x")) for word in self.ask("rows", table, family).split()]

    def move_all(self, table: str, server: str) -> None:
        """Move all regions of a table to one server."""
        for row in self.first_rows(table):
            self.move(table, row or b"\x00", server)

    def log(self, name: str) -> str:
        """The log of a server."""
        return (self.directory / name / "log").read_text(errors="replace")

    # ---- its processes

    def _start(self, name: str, session_ms: int | None = None) -> None:
        own, home = self.directory / name, cluster_home()
        own.mkdir(parents=True, exist_ok=True)
        for pages in WEB_PAGES:
            (own / "webapps" / pages).mkdir(parents=True, exist_ok=True)
        (own / "hbase-site.xml").write_text(_site(self._site(name, session_ms or self.session_ms)))
        (own / "zoo.cfg").write_text("".join(f"{key}={value}\n" for key, value in self._zookeeper().items()))
        arguments = {
            "zookeeper": [str(own / "zoo.cfg")],
            "hdfs": [str(own), self.host, str(self.ports["hdfs"]), str(DATA_NODES)],
        }.get(name, ["start"])
        command = [str(find_java()), f"-Xmx{HEAP_MB[name]}m", *OPTIONS, "-cp", class_path(home, own)]
        command += [MAIN[name], *arguments]
        with (own / "log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                ended_with_parent(self.network.inside(command), signal.SIGKILL),
                stdin=subprocess.PIPE if name == "hdfs" else subprocess.DEVNULL,
                stdout=subprocess.PIPE if name == "hdfs" else log,
                stderr=log,
                start_new_session=True,
                text=True,
                cwd=own,
            )

    def _wait_hdfs(self) -> None:
        process = self._processes["hdfs"]
        assert process.stdout is not None
        with ThreadPoolExecutor(1) as pool:
            line = pool.submit(process.stdout.readline)
            clock, never = SystemClock(), threading.Event()
            deadline_ns = clock.boot_ns() + int(START_S * 1e9)
            while not line.done() and clock.boot_ns() < deadline_ns:
                clock.wait(never, 50)
            if not line.done():
                process.kill()
            if line.result().strip() != HDFS_READY:
                raise UnavailableError(f"HDFS does not start; its log ends with {self._log_tail('hdfs')}")

    def _log_tail(self, name: str) -> str:
        return self.log(name)[-LOG_TAIL_CHARACTERS:]

    def _zookeeper(self) -> dict[str, object]:
        return {
            "tickTime": 500,
            "minSessionTimeout": 1_000,
            "maxSessionTimeout": SESSION_MS_MAX,
            "dataDir": self.directory / "zookeeper" / "data",
            "clientPort": self.ports["zookeeper"],
            "clientPortAddress": self.host,
            "admin.enableServer": "false",
            "maxClientCnxns": 0,
        }

    def _site(self, name: str, session_ms: int) -> dict[str, object]:
        return {
            "hbase.rootdir": f"hdfs://{self.host}:{self.ports['hdfs']}/hbase",
            "hbase.cluster.distributed": "true",
            "hbase.zookeeper.quorum": self.host,
            "hbase.zookeeper.property.clientPort": self.ports["zookeeper"],
            "zookeeper.session.timeout": SESSION_MS_MAX if name == "master" else session_ms,
            "hbase.tmp.dir": self.directory / name / "tmp",
            "hbase.wal.hsync": "true",
            "hbase.master.hostname": self.host,
            "hbase.unsafe.regionserver.hostname": self.host,
            "hbase.master.ipc.address": self.host,
            "hbase.regionserver.ipc.address": self.host,
            "hbase.master.port": self.ports["master"],
            "hbase.regionserver.port": self.ports.get(name, 0) if name in SERVERS else 0,
            "hbase.master.info.port": -1,
            "hbase.regionserver.info.port": -1,
            "hbase.master.wait.on.regionservers.mintostart": len(SERVERS),
            "hbase.master.wait.on.regionservers.maxtostart": len(SERVERS),
            "hbase.master.wait.on.regionservers.interval": 200,
            "hbase.regionserver.msginterval": 300,
            "hbase.regionserver.handler.count": 10,
            **self._settings,
        }


def _hex(row: bytes) -> str:
    return "x" + row.hex()


def _site(wanted: Mapping[str, object]) -> str:
    properties = "".join(
        f"<property><name>{escape(name)}</name><value>{escape(str(value))}</value></property>"
        for name, value in wanted.items()
    )
    return f"<configuration>{properties}</configuration>\n"
