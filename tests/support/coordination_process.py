"""A process that takes part in coordination, driven from a test by one JSON command a line.

Run as ``python -m tests.support.coordination_process STORE ARGUMENT...`` where STORE names one of :data:`STORES`.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.config_changes import next_count
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.embedded import EmbeddedCoordination

LEASE_MS, RENEW_MS, MARGIN_MS = 900, 100, 200


def open_embedded(directory: str) -> Coordination:
    settings = CoordinationSettings(session_lease_ms=LEASE_MS, session_renew_ms=RENEW_MS, session_margin_ms=MARGIN_MS)
    return EmbeddedCoordination(Path(directory), settings)


STORES: dict[str, Callable[..., Coordination]] = {"embedded": open_embedded}


class CoordinationProcess:
    """The test's end: starts the process, asks it, and stops or kills it."""

    def __init__(self, store: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.coordination_process", store, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[2],
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
        self._process.kill()
        self._process.wait()

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
    _main(*sys.argv[1:])
