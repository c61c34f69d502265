"""A master or tserver that is stopped while others take over its work, and then goes on without noticing.

The pair ends with a replacement, and the old process ends by itself. Its supervisor is stopped meanwhile, because it
would end the process, and fencing is off for every process: only the process's own checks before it acknowledges or
decides remain. Signals go to pids that the
supervisor wrote down, and to the second master, which this module starts.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psutil

from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.errors import TransientError
from bookkeeper.standalone.children.parent_death import ended_with_parent
from bookkeeper.storage.wal.writing.seal import read_seal
from tests.support.cluster import Cluster
from tests.support.standstill import stand_still
from tests.support.volumes import MACHINE, name_at

LIMIT_S = 240.0


def session_of(coordination: EmbeddedCoordination, pid: int) -> str | None:
    """The session of a process."""
    found = [process.session_id for process in coordination.processes() if process.pid == pid]
    return found[-1] if found else None


def take_over(cluster: Cluster, role: str) -> str | None:
    """Stop ``role``, wait until others have its work, let it go on, wait until it has ended; returns what went wrong.
    None when all went well. Nothing is done when the process has no session yet.
    """
    coordination = open_coordination(cluster.settings)
    assert isinstance(coordination, EmbeddedCoordination)
    try:
        victim = psutil.Process(cluster.pid(role))
        supervisor = victim.parent()
        session = session_of(coordination, victim.pid)
        if supervisor is None or session is None:
            return None
        with _still(victim, cluster), _still(supervisor, cluster), _replacement(cluster, role):
            look = _leads_another if role == "master" else _is_recovered
            cluster.wait_until(
                partial(look, cluster, coordination, session), f"others with the work of {role}", LIMIT_S
            )
            victim.send_signal(signal.SIGCONT)
            try:
                cluster.wait_until(lambda: has_ended(victim), f"end of {role}", LIMIT_S)
            except TransientError as error:
                return f"{role} (pid {victim.pid}) was replaced, went on and did not end: {error.message}"
    except psutil.NoSuchProcess:
        return None
    finally:
        coordination.close()
    return None


@contextmanager
def _still(process: psutil.Process, cluster: Cluster) -> Iterator[None]:
    """The process stands still, without a lock that the others wait for: its supervisor stands still, too."""
    try:
        stand_still(process.pid, cluster.settings)
        yield
    finally:
        if process.is_running():
            process.send_signal(signal.SIGCONT)


@contextmanager
def _replacement(cluster: Cluster, role: str) -> Iterator[None]:
    """A second master, when the stopped process is one; a tserver has its peers."""
    if role != "master":
        yield
        return
    command = [sys.executable, "-m", "bookkeeper.master", str(cluster.directory), "--port", "0"]
    with (cluster.settings.logs_dir / "master2.log").open("ab") as log:
        second = subprocess.Popen(ended_with_parent(command, signal.SIGKILL), stdout=log, stderr=log)
    try:
        yield
    finally:
        second.terminate()
        second.wait(LIMIT_S)


def _leads_another(_cluster: Cluster, coordination: Coordination, session: str) -> bool:
    leader = coordination.leader()
    return leader is not None and leader.session_id != session


def _is_recovered(cluster: Cluster, coordination: Coordination, session: str) -> bool:
    """Every process takes it for dead, and each log of it is sealed, or gone."""
    if any(info.session_id == session and info.alive for info in coordination.sessions("tserver")):
        return False
    logs = sorted((cluster.settings.wal_dir / session).glob("*.wal"))
    return all(read_seal(MACHINE, name_at(log)) is not None or not log.exists() for log in logs)


def has_ended(process: psutil.Process) -> bool:
    """Its parent is stopped, so it stays as a zombie."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
