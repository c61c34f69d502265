"""A real cluster for tests: made by init, run by the supervisor, its processes killed and waited for by role.

Arrives: a directory and settings. Leaves: :class:`Cluster`. Nothing outlives the test run: the supervisor ends with
the process that started it, and takes its processes along.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from bookkeeper.client import Client
from bookkeeper.config.file import load_settings
from bookkeeper.config.sections import Settings
from bookkeeper.standalone.cluster_process import ClusterProcess, RoleState
from bookkeeper.standalone.directory import init_cluster
from tests.support.exchange import EXCHANGE
from tests.support.trust import trust_everybody

READY_S = 90.0
STOP_S = 30.0


THIRD_PARTY = Path(__file__).parent / "third_party"
"""Packages that are installed in every cluster of a test, in the way in which a third party installs its own."""


def standalone_command(directory: Path, environment: Mapping[str, str] | None = None) -> list[str]:
    """The command that runs ``bookkeeper standalone DIR`` with this interpreter, and its environment: that of the test
    and ``environment``.
    """
    given = dict(environment or {})
    paths = [str(THIRD_PARTY), given.get("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")]
    given["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    added = [f"{name}={value}" for name, value in given.items()]
    return ["env", *added, sys.executable, "-m", "shell.main", "standalone", str(directory)]


class Cluster:
    """One standalone cluster in ``directory``, which the constructor makes; a context manager that starts and stops it.

    Roles are ``master``, ``tserver1`` to ``tserver<n>``, and ``replay``. ``overrides`` are settings by dotted name.
    """

    def __init__(
        self,
        directory: Path,
        name: str,
        tservers: int = 2,
        metadata_url: str | None = None,
        overrides: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.settings: Settings = init_cluster(
            directory, name, None, tservers, metadata_url, {**EXCHANGE, **(overrides or {})}
        )
        trust_everybody(self.settings)
        self._prepare(environment)

    @classmethod
    def opened(cls, directory: Path) -> Self:
        """The cluster that lies in ``directory`` already."""
        cluster = cls.__new__(cls)
        cluster.settings = load_settings(directory)
        cluster._prepare(None)
        return cluster

    def _prepare(self, environment: Mapping[str, str] | None) -> None:
        self._process = ClusterProcess(self.settings, standalone_command(self.directory, environment))
        self._client: Client | None = None

    @property
    def directory(self) -> Path:
        """The cluster's directory."""
        return self.settings.directory

    @property
    def quorum(self) -> str:
        """The quorum that a peer uses: ``host:port`` of the cluster's master."""
        return self.settings.master.address

    @property
    def client(self) -> Client:
        """One client for as long as the cluster runs; it outlives restarts of single processes."""
        if self._client is None:
            self._client = Client.connect(self.directory)
        return self._client

    def start(self, timeout_s: float = READY_S) -> None:
        """Start all processes; returns when the master answers and every tserver is registered."""
        self.launch()
        self.wait_ready(timeout_s)

    def launch(self) -> None:
        """Start all processes and return at once."""
        self._process.start()

    def crash(self) -> None:
        """End the supervisor with -9, and all processes with it; :meth:`launch` begins anew. The client stays."""
        self._process.crash()

    def stop(self) -> None:
        """Disconnect and stop all processes cleanly; it can be started again."""
        if self._client is not None:
            self._client.close()
            self._client = None
        self._process.stop(STOP_S)

    def wait_ready(self, timeout_s: float = READY_S) -> None:
        """Return when the master answers and every tserver is registered."""
        self._process.wait_ready(timeout_s)

    def wait_until(self, condition: Callable[[], bool], what: str, timeout_s: float = READY_S) -> None:
        """Poll until ``condition`` holds; raises UnavailableError when it does not in time."""
        self._process.wait_until(condition, what, timeout_s)

    def pid(self, role: str) -> int:
        """The role's latest process."""
        return self._process.role(role).pid

    def kill9(self, role: str) -> int:
        """End a role's process as a crash would; returns its pid. The supervisor starts it again."""
        return self._process.kill9(role)

    def wait_restarted(self, role: str, old_pid: int, timeout_s: float = READY_S) -> RoleState:
        """The process that the supervisor started after ``old_pid``."""
        return self._process.wait_restarted(role, old_pid, timeout_s)

    def log_text(self, role: str) -> str:
        """The log of the role so far."""
        return (self.settings.logs_dir / f"{role}.log").read_text(errors="replace")

    def __enter__(self) -> Cluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
