"""Hosts on machines of their own, with one boot id, network and directory each: power goes, and a link is cut."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bookkeeper.standalone.hbase.hbase_process import HBaseProcess
from bookkeeper.standalone.hbase.java import default_home, find_java, why_not_runnable
from bookkeeper.standalone.ports import free_ports
from tests.support.machines import Machine, Machines, why_no_machines
from tests.support.machines_settings import NO_VOLUME
from tests.support.tservers import wait_until
from tests.support.workloads_clusters import SETTINGS

pytestmark = [pytest.mark.integration, pytest.mark.hbase, pytest.mark.long, pytest.mark.timeout(600)]

READY_S = 90.0
PROPERTIES = {"table.versions.max": "50", "table.flush.interval_ms": "1000", "table.failover": "1000"}
"""A record that is applied twice shows as a version more. The table goes on without the log of a host that is away."""

BOOKKEEPER = (sys.executable, "-m", "shell.main")


class HBaseOn(HBaseProcess):
    """An HBase on a machine."""

    machine: Machine | None = None

    def _command(self) -> list[str]:
        assert self.machine is not None
        return self.machine.inside(super()._command())


def start_zookeeper(machine: Machine, port: int) -> None:
    """Start a ZooKeeper server at every address of a machine; it ends with it, and answers after a second or two."""
    home = default_home()
    server = ["org.apache.zookeeper.server.ZooKeeperServerMain", str(port), str(machine.directory / "zookeeper")]
    options = ["-Xmx96m", "-Dzookeeper.admin.enableServer=false", "-cp", f"{home}/conf:{home}/lib/*"]
    with (machine.directory / "zookeeper.log").open("ab") as log:
        subprocess.Popen(machine.inside([str(find_java()), *options, *server]), stdout=log, stderr=log)


class Host:
    """One host of the cluster, with ``bookkeeper standalone`` on its machine."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.home = machine.directory / "west"
        self.process: subprocess.Popen[bytes] | None = None

    def init(self, *words: str, **named: object) -> None:
        """Make the host at the address of its machine; ``words`` make a cluster, or join one."""
        address = self.machine.address
        own = {**SETTINGS, "rpc.bind_host": address, "master.host": address, "replicas.repair_after_ms": 600_000}
        values = {**own, "standalone.processes": '["master","tserver"]', **named}
        settings = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        self.machine.run(*BOOKKEEPER, "init", str(self.home), *words, *settings)

    def start(self) -> None:
        """Run its processes."""
        with (self.machine.directory / "standalone.log").open("ab") as log:
            command = [*BOOKKEEPER, "standalone", str(self.home)]
            inside = self.machine.inside(command)
            self.process = subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def shell(self, *words: str) -> str:
        """What a command of the shell prints. Raises CalledProcessError."""
        return self.machine.run(*BOOKKEEPER, "shell", str(self.home), *words)

    def rows(self) -> Counter[str]:
        """The cells of the table, each row and value."""
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


def test_power_goes_and_a_host_is_cut_from_its_stores(tmp_path: Path) -> None:
    for reason in (why_no_machines(), why_not_runnable()):
        if reason is not None:
            pytest.skip(reason)
    with ExitStack() as stack:
        machines = stack.enter_context(Machines(tmp_path / "machines", 4))
        stores, *others = machines.all
        (port,) = free_ports(1)
        start_zookeeper(stores, port)
        hbase = HBaseOn(stores.directory / "hbase", host=stores.address)
        hbase.machine = stores
        stack.enter_context(hbase)
        hosts = [Host(machine) for machine in others]
        first, second, third = hosts
        url = f"zk://{stores.address}:{port}/west"
        books = f"hbase://{stores.address}:{hbase.thrift_port}/west"
        new = {**NO_VOLUME, "coordination.url": url, "security.beyond_loopback": "plaintext"}
        first.init("--name", "west", "--metadata", books, **new)
        first.start()
        first.machine.run(*BOOKKEEPER, "secret", "export", str(first.home), str(first.machine.directory / "join"))
        for host in (second, third):
            carried = host.machine.directory / "join"
            carried.write_text(first.machine.run("cat", str(first.machine.directory / "join")))
            carried.chmod(0o600)
            host.init("--join", url, "--secret-file", str(carried))
            carried.unlink()
            host.start()
        wait_until(lambda: first.alive() == {"host1", "host2", "host3"}, "three hosts", READY_S)
        first.shell("createtable", "t", "--replicas", "3")
        for key, value in PROPERTIES.items():
            first.shell("config", "-t", "t", "-s", f"{key}={value}")
        for row in "abc":
            second.shell("insert", "t", row, "f", "q", "1")
        first.shell("flush", "t")
        wait_until(lambda: first.lacks() == 0, "all copies", READY_S)

        machines.pull(second.machine)
        third.shell("insert", "t", "d", "f", "q", "2")
        assert third.rows() == Counter(["a 1", "b 1", "c 1", "d 2"]), "rows are lost with a machine"
        wait_until(lambda: third.alive() == {"host1", "host3"}, "the end of host2", READY_S)

        third.shell("flush", "t")
        wait_until(lambda: first.lacks("host3") == 0, "the copies of host3", READY_S)
        machines.cut(first.machine, stores)
        third.shell("insert", "t", "e", "f", "q", "3")
        machines.join_all()
        wait_until(lambda: third.alive() == {"host1", "host3"}, "the return of host1", READY_S)
        expected = Counter(["a 1", "b 1", "c 1", "d 2", "e 3"])
        wait_until(lambda: first.rows() == third.rows() == expected, "all rows, each once", READY_S)
