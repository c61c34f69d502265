"""Hosts with ``bookkeeper standalone``, whole clusters, and HBase, each on a machine of a test.

Arrives: a machine. Leaves: :class:`Host`, :class:`ClusterThere` and :class:`HBaseOn`, whose processes end with their
machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Any

from bookkeeper.client import Client
from bookkeeper.config.file import SETTINGS_FILE, load_settings
from bookkeeper.config.sections import Settings
from bookkeeper.standalone.cluster_process import RoleState, read_role
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.standalone.hbase.hbase_process import HBaseProcess
from bookkeeper.standalone.ports import free_ports
from tests.support.cluster import standalone_command
from tests.support.exchange import EXCHANGE
from tests.support.machines import Machine, Process, children_of
from tests.support.set_clock import SET_CLOCK
from tests.support.trust import trust_everybody
from tests.support.workloads_clusters import SETTINGS

READY_MS = 90_000.0
STOP_S = 30.0
END_S = 120.0
JOIN_FILE = "join"
BOOKKEEPER = (sys.executable, "-m", "shell.main")


class HBaseOn(HBaseProcess):
    """An HBase on a machine, at the machine's address."""

    machine: Machine | None = None

    @classmethod
    def of(cls, machine: Machine) -> HBaseOn:
        """It does not run yet. Its ZooKeeper listens at loopback alone, so the machine lets packets for it in."""
        names = ("unsafe.regionserver.hostname", "master.hostname", "master.ipc.address", "regionserver.ipc.address")
        settings = {f"hbase.{name}": machine.address for name in names}
        made = cls(machine.directory / "hbase", settings=settings, host=machine.address, machine=machine)
        port = str(made.ports.zookeeper)
        machine.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/eth0/route_localnet")
        arrives = ("-d", machine.address, "-p", "tcp", "--dport", port)
        machine.run("iptables", "-t", "nat", "-A", "PREROUTING", *arrives, "-j", "DNAT", "--to", f"127.0.0.1:{port}")
        return made

    @property
    def pid(self) -> int:
        """Of the JVM, which runs, as the test sees it."""
        assert self._process is not None
        (pid,) = children_of(self._process.pid)
        return pid

    def kill9(self) -> None:
        """Kill the JVM with SIGKILL."""
        if self.running:
            os.kill(self.pid, Signals.SIGKILL)
        super().kill9()

    def _command(self) -> list[str]:
        assert self.machine is not None
        return self.machine.inside(super()._command())


class Host:
    """One host of a cluster, with ``bookkeeper standalone`` on its machine. ``home`` is its directory as the machine
    sees it, the same path on each machine; ``directory`` is the same directory as the test sees it.
    """

    def __init__(self, machine: Machine, name: str = "west") -> None:
        self.machine, self.home, self.directory = machine, machine.here / name, machine.directory / name
        self._clock_file = machine.directory / "clock"
        """Has the milliseconds by which its wall clock is set ahead."""
        self._process: Process | None = None

    @property
    def settings(self) -> Settings:
        """Of the host, which is made."""
        return load_settings(self.directory)

    def init_command(self, *words: str, **named: object) -> list[str]:
        """Makes the host at the address of its machine; ``words`` make a cluster, or join one."""
        address = self.machine.address
        own = {**SETTINGS, "rpc.bind_host": address, "master.host": address, "replicas.repair_after_ms": 600_000}
        settings = [word for key, value in {**own, **named}.items() for word in ("--set", f"{key}={value}")]
        settings += ["--master-port", str(free_ports(1)[0])]  # the servers of this machine have ports of the test, too
        return [*BOOKKEEPER, "init", str(self.home), *words, *settings]

    def init(self, *words: str, **named: object) -> None:
        """Run :meth:`init_command`. Raises CalledProcessError."""
        self.machine.run(*self.init_command(*words, **named))

    def exported(self) -> bytes:
        """The file that lets a new host in, made here. Raises CalledProcessError."""
        self.machine.run(*BOOKKEEPER, "secret", "export", str(self.home), str(self.machine.here / JOIN_FILE))
        file = self.machine.directory / JOIN_FILE
        content = file.read_bytes()
        file.unlink()
        return content

    def join_command(self, url: str, join_file: bytes, *words: str, **named: object) -> list[str]:
        """Makes the host by a file of another host, which lies on this machine from now on."""
        file = self.machine.directory / JOIN_FILE
        file.write_bytes(join_file)
        file.chmod(0o600)
        return self.init_command("--join", url, "--secret-file", str(self.machine.here / JOIN_FILE), *words, **named)

    # ---- its processes

    @property
    def log(self) -> Path:
        """The file with the lines of its supervisor."""
        return self.machine.directory / "standalone.log"

    @property
    def supervisor(self) -> Process:
        """The supervisor, which was started."""
        assert self._process is not None
        return self._process

    def start(self) -> None:
        """Run its processes, whose wall clock :meth:`set_clock` sets."""
        environment = {"PYTHONPATH": str(SET_CLOCK), "SET_CLOCK_FILE": str(self._clock_file)}
        with self.log.open("ab") as log:
            command = standalone_command(self.home, environment)
            self._process = self.machine.start(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self) -> None:
        """End its processes in order."""
        self.supervisor.terminate()
        self.supervisor.wait()

    def wait(self) -> int:
        """The exit code of its supervisor, once that has ended."""
        return self.supervisor.wait(END_S)

    def is_ended(self) -> bool:
        """Whether its supervisor has ended, or was never started."""
        return self._process is None or self._process.poll() is not None

    def role(self, name: str) -> RoleState:
        """The latest process of a role; the pid is as the machine sees it."""
        return read_role(self.directory, name)

    def starts(self) -> dict[str, int]:
        """How often the supervisor has started each role."""
        return {name: self.role(name).starts for name in ("master", "tserver1")}

    def signal(self, role: str, number: Signals) -> int:
        """Send a signal to the latest process of a role, unless it has ended; its pid there. ``gateway`` is the role of
        that to the books.
        """
        pid = self.role(role).pid
        self.send(pid, number)
        return pid

    def send(self, pid: int, number: Signals) -> None:
        """Send a signal to a process of the machine, unless it has ended."""
        send_to(self.machine, pid, number)

    def log_text(self, role: str) -> str:
        """The lines of the processes of a role so far."""
        return (self.directory / "logs" / f"{role}.log").read_text(errors="replace")

    def set_clock(self, ahead_ms: int) -> None:
        """Set the wall clock of its processes ahead, or back."""
        written = self._clock_file.with_suffix(".new")
        written.write_text(str(ahead_ms))
        written.replace(self._clock_file)

    # ---- what it says

    def shell(self, *words: str) -> str:
        """What a command of the shell prints. Raises CalledProcessError."""
        return self.machine.run(*BOOKKEEPER, "shell", str(self.home), *words)

    def hosts(self) -> dict[str, dict[str, Any]]:
        """The hosts by name, as this one hears; none while no master answers it."""
        assert not self.is_ended(), self.log.read_text()
        try:
            found: list[dict[str, Any]] = json.loads(self.shell("hosts", "--json"))
        except subprocess.CalledProcessError:
            return {}
        return {one["host"]: one for one in found}


def send_to(machine: Machine, inner: int, number: Signals) -> None:
    """Send a signal to a process, by its pid on its machine, unless it has ended."""
    pid = machine.pid_of(inner)
    if pid is not None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


class ClusterThere:
    """A whole cluster on a machine, with its books in SQLite; the caller starts and stops it."""

    def __init__(self, machine: Machine, name: str, overrides: Mapping[str, object] | None = None) -> None:
        binds = {"rpc.bind_host": machine.address, "master.host": machine.address}
        wanted = {**EXCHANGE, **SETTINGS, **binds, "security.beyond_loopback": "plaintext", **(overrides or {})}
        self.machine, self.settings = machine, init_cluster(machine.directory / name, name, overrides=wanted)
        trust_everybody(self.settings)
        self.process: Process | None = None

    @property
    def home(self) -> Path:
        """Its directory."""
        return self.settings.directory

    def launch(self) -> None:
        """Run it."""
        with (self.settings.logs_dir / "standalone.log").open("ab") as log:
            command = standalone_command(self.home)
            self.process = self.machine.start(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def start(self) -> Client:
        """Run it, and return a client once it answers."""
        self.launch()
        return Client.connect(self.home, budget_ms=READY_MS)

    def stop(self) -> None:
        """Stop it cleanly."""
        if self.process is not None:
            self.process.terminate()
            self.process.wait(STOP_S)
            self.process = None

    def signal(self, role: str, number: Signals) -> int:
        """As :meth:`Host.signal`."""
        pid = read_role(self.home, role).pid
        send_to(self.machine, pid, number)
        return pid

    def move_master(self) -> None:
        """Its master answers at another port from the next start on."""
        file, before = self.home / SETTINGS_FILE, f"\nport = {self.settings.master.port}\n"
        text = file.read_text()
        assert text.count(before) == 1
        file.write_text(text.replace(before, f"\nport = {free_ports(1)[0]}\n"))
        self.settings = load_settings(self.home)
