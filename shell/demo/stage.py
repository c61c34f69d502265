"""The demo's two clusters: separate processes on this machine, their books in SQLite or in one real HBase.

Arrives: a directory, and where the books shall be. Leaves: two running clusters, ``west`` and ``east``. Whatever
happens, all processes are gone when the stage is left; killed with -9, they end by themselves.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bookkeeper.client import Client
from bookkeeper.errors import InvalidInputError
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.standalone.cluster_process import ClusterProcess
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.standalone.hbase_process import HBaseProcess
from shell.demo.screen import Screen

TSERVERS = 2
READY_S = 120.0
STOP_S = 20.0

SETTINGS: dict[str, object] = {
    "tserver.wal_roll_bytes": 4 * 1024 * 1024,
    "master.gc_interval_ms": 1_000,
}
"""Logs roll early, so that files are opened, closed, shipped to their end and deleted while one looks on."""


@dataclass(frozen=True, slots=True)
class Side:
    """One cluster: its processes and a client."""

    process: ClusterProcess
    client: Client

    @property
    def name(self) -> str:
        """``west`` or ``east``."""
        return self.process.settings.instance.name

    @property
    def quorum(self) -> str:
        """Where its master answers."""
        return self.process.settings.master.address


@dataclass(frozen=True, slots=True)
class Stage:
    """Both clusters, answering."""

    west: Side
    east: Side

    def secret_file(self, table: str) -> Path:
        """With what is in it, west may replicate to the table of east."""
        east = self.east.process.settings
        own = east.instance
        west = self.west.process.settings.instance
        made = SecretStore(east.directory).make_for_peer(
            west.name, own.name, own.instance_id, west.instance_id, [table]
        )
        return made.path


@contextmanager
def running_stage(directory: Path, metadata: str, screen: Screen) -> Iterator[Stage]:
    """Start everything below ``directory``; ``metadata`` is ``sqlite``, ``hbase`` (started here) or ``hbase://H:P``."""
    with ExitStack() as cleanup:
        books = _books(directory, metadata, cleanup, screen)
        processes = {}
        for name in ("west", "east"):
            settings = init_cluster(directory / name, name, None, TSERVERS, books and f"{books}_{name}", SETTINGS)
            command = [sys.executable, "-m", "shell.main", "standalone", str(settings.directory)]
            process = processes[name] = ClusterProcess(settings, command)
            cleanup.callback(process.stop, STOP_S)
            process.start()
        with screen.waiting("starting two clusters of a master, two tservers and a replay process each"):
            sides = {name: _side(process, cleanup, screen) for name, process in processes.items()}
        yield Stage(sides["west"], sides["east"])


def _books(directory: Path, metadata: str, cleanup: ExitStack, screen: Screen) -> str | None:
    """The URL under which clusters keep their books, up to a suffix; None: each in a SQLite file of its own."""
    if metadata == "sqlite":
        return None
    if metadata == "hbase":
        screen.say("starting a real HBase for the books of both clusters")
        hbase = HBaseProcess(directory / "hbase")
        cleanup.callback(hbase.stop)
        with screen.waiting("HBase starts"):
            hbase.start()
        metadata = f"hbase://{hbase.host}:{hbase.thrift_port}"
        screen.say(f"HBase answers at {metadata}")
    if not metadata.startswith("hbase://"):
        raise InvalidInputError(f"METADATA={metadata}: write sqlite, hbase, or hbase://HOST:PORT")
    return f"{metadata}/demo_{secrets.token_hex(4)}"


def _side(process: ClusterProcess, cleanup: ExitStack, screen: Screen) -> Side:
    process.wait_ready(READY_S)
    settings = process.settings
    client = cleanup.enter_context(Client.connect(settings.directory))
    roles = ["master", *(f"tserver{n}" for n in range(1, TSERVERS + 1)), "replay"]
    pids = ", ".join(f"{role} {process.role(role).pid}" for role in roles)
    screen.say(f"{settings.instance.name} answers at {settings.master.address} (pids: {pids})")
    return Side(process, client)
