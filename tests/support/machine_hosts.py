"""Clusters on the machines of a test: a host with ``bookkeeper standalone`` on its machine, and a whole cluster.

Arrives: a machine. Leaves: :class:`Host` and :class:`ClusterThere`, whose processes end with their machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import Any

from bookkeeper.client import Client
from bookkeeper.config.file import SETTINGS_FILE, load_settings
from bookkeeper.config.sections import Settings
from bookkeeper.standalone.cluster_process import read_role
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.standalone.ports import free_ports
from tests.support.cluster import standalone_command
from tests.support.exchange import EXCHANGE
from tests.support.machines import Machine, Process
from tests.support.set_clock import SET_CLOCK
from tests.support.trust import trust_everybody
from tests.support.workloads_clusters import SETTINGS

READY_MS = 90_000.0
STOP_S = 30.0
BOOKKEEPER = (sys.executable, "-m", "shell.main")


class Host:
    """One host of the cluster ``west``, with ``bookkeeper standalone`` on its machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.home = machine.directory / "west"
        self._clock_file = machine.directory / "clock"
        self.process: Process | None = None

    @property
    def settings(self) -> Settings:
        """Of the host, which is made."""
        return load_settings(self.home)

    def init_command(self, *words: str, **named: object) -> list[str]:
        """Makes the host at the address of its machine; ``words`` make a cluster, or join one."""
        address = self.machine.address
        own = {**SETTINGS, "rpc.bind_host": address, "master.host": address, "replicas.repair_after_ms": 600_000}
        values = {**own, "standalone.processes": '["master","tserver"]', **named}
        settings = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        return [*BOOKKEEPER, "init", str(self.home), *words, *settings]

    def init(self, *words: str, **named: object) -> None:
        """Run :meth:`init_command`. Raises CalledProcessError."""
        self.machine.run(*self.init_command(*words, **named))

    def start(self) -> None:
        """Run its processes, whose wall clock :meth:`set_clock` sets."""
        environment = {"PYTHONPATH": str(SET_CLOCK), "SET_CLOCK_FILE": str(self._clock_file)}
        with (self.machine.directory / "standalone.log").open("ab") as log:
            command = standalone_command(self.home, environment)
            self.process = self.machine.start(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def set_clock(self, ahead_ms: int) -> None:
        """Set the wall clock of its processes ahead, or back."""
        written = self._clock_file.with_suffix(".new")
        written.write_text(str(ahead_ms))
        written.replace(self._clock_file)

    def signal(self, role: str, number: Signals) -> int:
        """Send a signal to the latest process of a role, unless it has ended; its pid there."""
        pid = read_role(self.home, role).pid
        self.send(pid, number)
        return pid

    def send(self, pid: int, number: Signals) -> None:
        """Send a signal to a process of the machine, unless it has ended."""
        send_to(self.machine, pid, number)

    def shell(self, *words: str) -> str:
        """What a command of the shell prints. Raises CalledProcessError."""
        return self.machine.run(*BOOKKEEPER, "shell", str(self.home), *words)

    def rows(self) -> Counter[str]:
        """The cells of the table ``t``, each row and value."""
        lines = self.shell("scan", "t", "--json").splitlines()
        return Counter(f"{cell['row']} {cell['value']}" for cell in map(json.loads, lines))

    def is_ended(self) -> bool:
        """Whether its supervisor has ended, which is a failure."""
        return self.process is None or self.process.poll() is not None

    def hosts(self) -> dict[str, dict[str, Any]]:
        """The hosts by name, as this one hears; none while no master answers it."""
        assert not self.is_ended(), (self.machine.directory / "standalone.log").read_text()
        try:
            found: list[dict[str, Any]] = json.loads(self.shell("hosts", "--json"))
        except subprocess.CalledProcessError:
            return {}
        return {one["host"]: one for one in found}

    def alive(self) -> set[str]:
        """The hosts that live."""
        return {name for name, one in self.hosts().items() if one["state"] == "alive"}

    def lacks(self, *names: str) -> int:
        """The segments that hosts lack, all by default; -1 while no master answers."""
        found = self.hosts()
        return sum(one["lacks"] for name, one in found.items() if name in names or not names) if found else -1


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
