"""A process that takes part in coordination, driven from a test by one JSON command a line.

Run as ``python -m tests.support.coordination_process SWITCH STORE ARGUMENT...`` where STORE names one of
:data:`STORES`, and SWITCH a fault, or is empty.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import pytest
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.config_changes import next_count
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.coordination.host_leases import HostLeases
from bookkeeper.coordination.zookeeper.access import Access
from bookkeeper.coordination.zookeeper.url import parse_url
from bookkeeper.coordination.zookeeper.zookeeper import ZooKeeperCoordination, make_root
from tests.support.faults import fault
from tests.support.machines import Machine
from tests.support.zookeeper import ZooKeeperServer

RENEW_MS, MARGIN_MS = 100, 200
LEASE_MS = 60_000
"""No session ends because the machine is busy, and no call of ZooKeeper."""
SHORT_LEASE_MS = 900
"""For tests that wait until a lease is over."""
CALL_MS = 20_000


SETTINGS = CoordinationSettings(session_lease_ms=LEASE_MS, session_renew_ms=RENEW_MS, session_margin_ms=MARGIN_MS)


def open_embedded(directory: str, lease_ms: int | str = LEASE_MS) -> Coordination:
    return EmbeddedCoordination(Path(directory), replace(SETTINGS, session_lease_ms=int(lease_ms)))


def open_zookeeper(place: str, lease_ms: int | str = LEASE_MS) -> ZooKeeperCoordination:
    """``place``: the URL, the id of the store, and the directory of the host's lease files. A process gets the lease as
    text.
    """
    url, store_id, leases = place.split(" ")
    clock, settings = SystemClock(), replace(SETTINGS, url=url, store_id=store_id, session_lease_ms=int(lease_ms))
    leases_of_host = HostLeases(Path(leases), settings.session_lease_ms, clock)
    return ZooKeeperCoordination(Access(parse_url(url)), settings, leases_of_host, clock)


STORES: dict[str, Callable[..., Coordination]] = {"embedded": open_embedded, "zookeeper": open_zookeeper}


def new_store(name: str, request: pytest.FixtureRequest, directory: Path) -> str:
    """The argument with which a new store of :data:`STORES` is opened."""
    if name == "embedded":
        return str(directory / "coordination")
    server: ZooKeeperServer = request.getfixturevalue("zookeeper")
    return new_root(server, directory)


def new_root(server: ZooKeeperServer, directory: Path) -> str:
    """The place of a new store, see :func:`open_zookeeper`."""
    url = f"zk://{server.quorum}/{secrets.token_hex(8)}"
    store_id = make_root(Access(parse_url(url)), SystemClock(), CALL_MS)
    return f"{url} {store_id} {directory / 'leases'}"


class CoordinationProcess:
    """The test's end: starts the process, asks it, and stops or kills it."""

    def __init__(self, store: str, *arguments: str, machine: Machine | None = None, switch: str = "") -> None:
        """``machine``: where it runs; None: that of the test. ``switch``: the fault that it has, of
        :mod:`tests.support.faults`.
        """
        self._store, self._arguments, self._machine = store, arguments, machine
        command = [sys.executable, "-m", "tests.support.coordination_process", switch, store, *arguments]
        if machine is not None:
            self._process: subprocess.Popen[str] = machine.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        else:
            home = Path(__file__).parents[2]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=home
            )

    def ask(self, command: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([command, *arguments]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def freeze(self) -> None:
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill the process, as its supervisor sees: that ends its sessions in a store of several machines, with the
        token in its lease files. On a machine of its own it has no supervisor.
        """
        from bookkeeper.standalone.foreground import end_abandoned  # the process itself does without it

        self._process.kill()
        self._process.wait()
        if self._machine is not None:
            return
        coordination = STORES[self._store](*self._arguments)
        if isinstance(coordination, ZooKeeperCoordination):
            end_abandoned(coordination._leases, coordination.end_session)
        coordination.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def _main(store: str, *arguments: str) -> None:
    coordination = STORES[store](*arguments)
    sessions = {}
    for line in sys.stdin:
        command, *given = json.loads(line)
        answer: Any
        if command == "open":
            session = coordination.open_session(*given)
            sessions[session.session_id] = session
            answer = session.session_id
        elif command == "lead":
            leader = coordination.try_lead(sessions[given[0]])
            answer = None if leader is None else [leader.session_id, leader.epoch]
        elif command == "valid":
            answer = sessions[given[0]].is_valid()
        elif command == "expires":
            answer = sessions[given[0]]._valid_until_ns  # type: ignore[attr-defined]
        elif command == "count":
            answer = [next_count(coordination, given[0]) for _ in range(given[1])]
        elif command == "begin":
            connection = sqlite3.connect(Path(arguments[0]) / "coordination.db", isolation_level=None)
            connection.execute("BEGIN IMMEDIATE")
            answer = None
        elif command == "write":
            path, times = given
            answer = [coordination.put(f"{path}{n}", str(n).encode()) for n in range(times)]
        else:
            raise ValueError(command)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    with fault(sys.argv[1]) if sys.argv[1] else nullcontext():
        _main(*sys.argv[2:])
