"""The real replay process of a cluster directory: start it, talk to it, see and kill what belongs to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence, Set
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from bookkeeper.config.sections import Settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import TransientError
from bookkeeper.replay.ranges import (
    RANGE_SCHEMA,
    RESULT_SCHEMA,
    Range,
    RangeResult,
    decode_table,
    encode_table,
    ranges_to_table,
    results_from_table,
)
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.security.access import process_credentials
from bookkeeper.security.secret_store import SecretStore
from tests.support.time_limit import TimeLimit

START_S = 240.0
"""A Spark session on a busy machine takes its time."""


def wait_until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Poll until the condition holds or the limit has passed; tells which."""
    limit = TimeLimit(limit_s)
    while not condition():
        if limit.is_over():
            return False
        limit.pause()
    return True


def pool_of(settings: Settings) -> RpcPool:
    """Connections to the processes of a cluster, as one of its own."""
    hello = Hello(PROTOCOL_VERSION, "test", "test", "client")
    return RpcPool(hello, settings.rpc, None, process_credentials(settings))


def until_warm(settings: Settings) -> None:
    """Wait until a replay process of a running cluster has its Spark session."""
    with closing(pool_of(settings)) as pool, closing(open_coordination(settings)) as coordination:

        def is_warm() -> bool:
            alive = [session for session in coordination.sessions("replay") if session.alive]
            with suppress(TransientError):
                for session in alive:
                    pool.replay(session.address, START_S * 1000).warm()
                return bool(alive)
            return False

        assert wait_until(is_warm, START_S), f"no replay process of {settings.directory} has a Spark session"


@dataclass(slots=True)
class ReplayProcess:
    """A context manager: started (and warm, unless told otherwise) inside, killed with all it started outside."""

    settings: Settings
    log: Path
    warm: bool = True
    process: subprocess.Popen[bytes] = field(init=False)
    address: str = ""
    _pool: RpcPool = field(init=False)

    def __enter__(self) -> Self:
        """Start, and wait until it answers."""
        own = self.settings.instance
        SecretStore(self.settings.directory).complete(own.name, own.instance_id)
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "bookkeeper.replay", str(self.settings.directory)]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
        self._pool = pool_of(self.settings)
        coordination = open_coordination(self.settings)
        try:
            known = {s.session_id for s in coordination.sessions("replay") if not s.alive}

            def registered() -> bool:
                alive = [s for s in coordination.sessions("replay") if s.alive and s.session_id not in known]
                self.address = alive[-1].address if alive else ""
                return bool(alive) or self.process.poll() is not None

            assert wait_until(registered, START_S), self.log.read_text()
        finally:
            coordination.close()
        assert self.process.poll() is None, self.log.read_text()
        if self.warm:
            self._pool.replay(self.address, START_S * 1000).warm()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Kill all processes that are left."""
        self._pool.close()
        family = self.family()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for member in family:
            if member.is_running():
                member.kill()

    def status(self) -> dict[str, str]:
        """The status of the process, as it answers."""
        return dict(self._pool.replay(self.address).status())

    def run(self, ranges: Sequence[Range], timeout_s: float = 120.0) -> dict[int, RangeResult]:
        """One run; results by range id."""
        raw = encode_table(ranges_to_table(ranges).to_batches(), RANGE_SCHEMA)
        answer = self._pool.replay(self.address, timeout_s * 1000).run(raw)
        return {result.range_id: result for result in results_from_table(decode_table(answer, RESULT_SCHEMA))}

    def run_raw(self, raw: bytes) -> bytes:
        """One run with any bytes."""
        return self._pool.replay(self.address).run(raw)

    def family(self) -> list[psutil.Process]:
        """Everything that this process started: JVM, daemon, task processes."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def jvm(self) -> psutil.Process:
        """The JVM."""
        return psutil.Process(int(self.status()["jvm_pid"]))


def workers_connected_to(replay: int, ports: Set[int]) -> list[int]:
    """The Python workers of a replay process (its pid) with a connection to one of these ports."""
    pids = []
    for one in psutil.Process(replay).children(recursive=True):
        with suppress(psutil.Error):  # it has just ended
            if {port for found in one.net_connections("tcp") for port in tuple(found.raddr)[1:]} & ports:
                pids.append(one.pid)
    return pids


def all_gone(members: Sequence[psutil.Process], limit_s: float = 60.0) -> bool:
    """Wait until none of these processes runs any more; zombies count as gone."""

    def gone(member: psutil.Process) -> bool:
        try:
            return not member.is_running() or member.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True

    return wait_until(lambda: all(gone(member) for member in members), limit_s)
