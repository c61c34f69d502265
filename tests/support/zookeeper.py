"""A real ZooKeeper server as one Java process, from the jars of the assembled HBase, for tests."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.errors import UnavailableError
from bookkeeper.standalone.children.log_end import log_end
from bookkeeper.standalone.children.parent_death import ended_with_parent
from bookkeeper.standalone.hbase.java import archive_options, class_path, default_home, find_java, why_not_runnable
from bookkeeper.standalone.ports import HOST, free_ports
from tests.support.hbase import HBaseUnavailableError
from tests.support.machines import Machine, Process
from tests.support.tcp_proxy import TcpProxy

TICK_MS = 1_000
INIT_LIMIT = 5
LEADER_RETRY_MS = 500
"""As docs/operations.md asks for. By ZooKeeper's defaults a follower gives a new leader half a second to open its port;
then the leader waits `initLimit` ticks for followers that have left it, and the election is repeated.
"""

HEAP_MB = 96
START_S = 60.0
LOOK_MS = 20


def state_of(task: Path) -> str:
    """The state of a thread: T = it stands still."""
    return (task / "stat").read_text().rpartition(") ")[2][0]


class Member(NamedTuple):
    """One of several servers: its number, the lines of the settings that name all of them, its machine (None: that of
    the test), and the ticks for which a leader that hears nothing of its followers goes on.
    """

    number: int
    servers: Sequence[str]
    machine: Machine | None = None
    sync_limit: int = 5


@contextmanager
def three_servers(
    directory: Path, machines: Sequence[Machine] = (), *, can_be_left_alone: bool = False
) -> Iterator[list[ZooKeeperServer]]:
    """Three servers that run and form a quorum, each on a machine of its own when ``machines`` has three.
    ``can_be_left_alone``: the others reach the one that leads by its ``followers``, and it goes on for a minute without
    them. Raises HBaseUnavailableError, UnavailableError.
    """
    ports, hosts = free_ports(6), [machine.address for machine in machines] or [HOST] * 3
    with ExitStack() as stack:
        ways = (TcpProxy(HOST, port) if can_be_left_alone else None for port in ports[:3])
        proxies = [None if proxy is None else stack.enter_context(proxy) for proxy in ways]

        def line(number: int, seen_by: int) -> str:
            proxy = proxies[number - 1]
            port = ports[number - 1] if number == seen_by or proxy is None else proxy.port
            return f"server.{number}={hosts[number - 1]}:{port}:{ports[number + 2]}"

        def server(own: int) -> ZooKeeperServer:
            machine = machines[own - 1] if machines else None
            home = directory if machine is None else machine.directory
            lines = [line(number, own) for number in (1, 2, 3)]
            member = Member(own, lines, machine, 60 if can_be_left_alone else 5)
            return ZooKeeperServer(home / f"server{own}", member=member, followers=proxies[own - 1])

        servers = [server(own) for own in (1, 2, 3)]
        for one in servers:
            stack.callback(one.kill9)
            one.launch()
        for one in servers:
            one.wait()
        yield servers


@contextmanager
def own_server(directory: Path, lost: str) -> Iterator[ZooKeeperServer]:
    """One server that runs, for a test that stops it or counts what it does. Where none can run the test is skipped;
    ``lost`` says what was not tested then.
    """
    made = ZooKeeperServer(directory)
    try:
        made.start()
    except HBaseUnavailableError as error:
        pytest.skip(f"NO ZOOKEEPER, so {lost}: {error}")
    try:
        yield made
    finally:
        made.kill9()


class ZooKeeperServer:
    """One server over a directory, at the same port after each start. Not safe for use by several threads at once."""

    def __init__(
        self,
        directory: Path,
        users: Mapping[str, str] | None = None,
        member: Member | None = None,
        followers: TcpProxy | None = None,
    ) -> None:
        """``users``: the passwords of those who may log in by SASL. ``member``: of several servers; ``followers``: the
        way of the others to this one while it leads.
        """
        self.followers = followers
        self._directory = directory
        self._users = users or {}
        self._member = member
        self._process: subprocess.Popen[bytes] | Process | None = None
        self._machine = None if member is None else member.machine
        self._host = HOST if self._machine is None else self._machine.address
        (self.port,) = free_ports(1)

    @property
    def data(self) -> Path:
        """The directory of all that it has."""
        return self._directory / "data"

    @property
    def quorum(self) -> str:
        """The server's address."""
        return f"{self._host}:{self.port}"

    def start(self) -> None:
        """Start, and return when it answers. Raises HBaseUnavailableError without Java or jars, UnavailableError."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start, and return at once. Raises HBaseUnavailableError."""
        if (missing := why_not_runnable()) is not None:
            raise HBaseUnavailableError(missing)
        self._directory.mkdir(parents=True, exist_ok=True)
        settings, log = self._directory / "zoo.cfg", self._directory / "zookeeper.log"
        settings.write_text(
            f"tickTime={TICK_MS}\ndataDir={self._directory / 'data'}\nclientPort={self.port}\n"
            f"clientPortAddress={self._host}\nadmin.enableServer=false\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n"
        )
        home = default_home()
        command = [str(find_java()), f"-Xmx{HEAP_MB}m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        command += archive_options(home)
        if self._users:
            logins = "\n".join(f'  user_{name}="{password}"' for name, password in self._users.items())
            jaas = self._directory / "jaas.conf"
            jaas.write_text(
                f"Server {{\n  org.apache.zookeeper.server.auth.DigestLoginModule required\n{logins};\n}};\n"
            )
            with settings.open("a") as out:
                out.write("authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n")
            command.append(f"-Djava.security.auth.login.config={jaas}")
        command += ["-cp", class_path(home)]
        main = "ZooKeeperServerMain"
        if self._member is not None:
            main = "quorum.QuorumPeerMain"
            (self._directory / "data").mkdir(exist_ok=True)
            (self._directory / "data" / "myid").write_text(f"{self._member.number}\n")
            with settings.open("a") as out:
                out.write(
                    f"initLimit={INIT_LIMIT}\nsyncLimit={self._member.sync_limit}\n"
                    f"leaderConnectDelayDuringRetryMs={LEADER_RETRY_MS}\n"
                    + "".join(f"{line}\n" for line in self._member.servers)
                )
        command += [f"org.apache.zookeeper.server.{main}", str(settings)]
        with log.open("ab") as output:
            if self._machine is not None:
                self._process = self._machine.start(command, stdout=output, stderr=output)
            else:
                self._process = subprocess.Popen(
                    ended_with_parent(command, signal.SIGKILL), stdout=output, stderr=output, start_new_session=True
                )

    def wait(self) -> None:
        """Return when it serves, with the others of its quorum. Raises UnavailableError."""
        assert self._process is not None
        clock, never = SystemClock(), threading.Event()
        deadline_ns = clock.boot_ns() + int(START_S * 1e9)
        while not self.mode:
            if self._process.poll() is not None or clock.boot_ns() > deadline_ns:
                self.kill9()
                words = log_end(self._directory / "zookeeper.log", 4_000)
                raise UnavailableError(f"ZooKeeper at {self.quorum} does not answer:\n{words}")
            clock.wait(never, LOOK_MS)

    @property
    def ports(self) -> list[int]:
        """All ports at which it listens: for clients, and those for the others of its quorum."""
        if self._member is None:
            return [self.port]
        own = [line for line in self._member.servers if line.startswith(f"server.{self._member.number}=")]
        return [self.port, *(int(port) for line in own for port in line.split(":")[1:])]

    @property
    def mode(self) -> str:
        """``standalone``, ``leader`` or ``follower``; "" while it does not serve."""
        try:
            said = self.ask("srvr")
        except OSError:
            return ""
        return next((line.removeprefix("Mode: ") for line in said.splitlines() if line.startswith("Mode: ")), "")

    @property
    def packets(self) -> int:
        """All that it has got and sent so far. Raises OSError."""
        said = dict(line.split(": ", 1) for line in self.ask("srvr").splitlines() if ": " in line)
        return int(said["Received"]) + int(said["Sent"])

    def ask(self, word: str) -> str:
        """The answer to one of ZooKeeper's words of four letters. Raises OSError."""
        network: AbstractContextManager[None] = nullcontext() if self._machine is None else self._machine.network()
        with network, socket.create_connection((self._host, self.port), 1.0) as connection:
            connection.sendall(word.encode())
            return connection.makefile(encoding="utf-8", errors="replace").read()

    @property
    def pid(self) -> int:
        """Of the process, which runs."""
        assert self._process is not None
        (pid,) = self._process.pids if isinstance(self._process, Process) else [self._process.pid]
        return pid

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """The process stands still, all of its threads."""
        from tests.support.standstill import thread_state  # a process of coordination starts without all that it needs

        os.kill(self.pid, signal.SIGSTOP)
        try:
            clock, never, tasks = SystemClock(), threading.Event(), Path(f"/proc/{self.pid}/task")
            while not {thread_state(self.pid, int(task.name)) for task in tasks.iterdir()} <= {"T", None}:
                clock.wait(never, 1)
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def kill9(self) -> None:
        """End the process; what it acknowledged stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill9()
