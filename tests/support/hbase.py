"""A real HBase for tests: in a container where an engine answers, else as a local Java process.

Arrives: the wish for an HBase (``BOOKKEEPER_HBASE`` = ``container`` or ``local`` forces the kind). Leaves: an
:class:`HBaseInstance` whose Thrift gateway answers; the container or process is gone after the ``with`` block.
Survives a crash of the test run: nothing. A local process stops by itself when its parent is gone; a container of a
run that was killed is removed by the next one.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import happybase
import psutil

from bookkeeper.standalone.hbase.hbase_process import READY_LINE, HBaseProcess
from bookkeeper.standalone.hbase.java import why_not_runnable
from bookkeeper.standalone.ports import free_ports

if TYPE_CHECKING:
    from docker import DockerClient
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

Kind = Literal["container", "local"]
KIND_VARIABLE = "BOOKKEEPER_HBASE"

IMAGE_SCRIPT = Path(__file__).parents[2] / "docker" / "hbase" / "image.sh"
IMAGE_TIMEOUT_S = 600
START_TIMEOUT_S = 180
STOP_TIMEOUT_S = 60
THRIFT_PORT_INSIDE = 9090
HEAP_MB = 1024
"""One HBase serves all tests of a process, and each family that a test wrote to takes 2 MiB until its table goes."""
JVM_VARIABLE = "JDK_JAVA_OPTIONS"
"""Options that each JVM takes from its environment, also the one in a container."""
LOG_LINES = 30
ENDED_BY_ITSELF = (1, 3)
"""Exit codes: a server died; no memory was left (``-XX:+ExitOnOutOfMemoryError``)."""
OWNER_LABEL = "bookkeeper.test.owner"
DROP_TIMEOUT_MS = 60_000


class HBaseUnavailableError(Exception):
    """No HBase of the wanted kind can run here; the message says why and what to do."""


class HBaseEndedError(Exception):
    """An HBase ended while tests used it; the message has the end of its log."""


class HBaseInstance(Protocol):
    """A running HBase; the same data and the same address over ``kill9`` and ``restart``."""

    @property
    def host(self) -> str:
        """The host of the Thrift gateway."""
        ...

    @property
    def thrift_port(self) -> int:
        """The port of the Thrift gateway."""
        ...

    def kill9(self) -> None:
        """End all of it at once, as a crash would."""
        ...

    def restart(self) -> None:
        """Stop cleanly if it runs, then start over the same data."""
        ...


class ContainerHBase:
    """HBase in a container, driven through testcontainers."""

    def __init__(self, image: str, heap_mb: int) -> None:
        self.host = "127.0.0.1"
        self.thrift_port = free_ports(1)[0]  # a fixed one: an engine chooses anew at every start
        self._starts = 0
        self._container = self._describe(image, heap_mb)

    def start(self) -> None:
        """Create and start the container; returns when HBase is ready."""
        self._starts = 1
        self._container.start()

    def kill9(self) -> None:
        wrapped = self._container.get_wrapped_container()
        wrapped.kill(signal="SIGKILL")
        wrapped.wait(timeout=STOP_TIMEOUT_S)

    def restart(self) -> None:
        wrapped = self._container.get_wrapped_container()
        wrapped.stop(timeout=STOP_TIMEOUT_S)
        wrapped.start()
        self._starts += 1
        _ready(self._starts).wait_until_ready(self._container)

    def remove(self) -> None:
        """Remove the container and its data. One that has ended by itself is an error with the end of its log."""
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        state, log = wrapped.attrs["State"], wrapped.logs(tail=LOG_LINES).decode(errors="replace")
        self._container.stop()
        if state["ExitCode"] in ENDED_BY_ITSELF:
            raise HBaseEndedError(
                f"HBase ended by itself with exit code {state['ExitCode']}; its log ends with:\n{log}"
            )

    def _describe(self, image: str, heap_mb: int) -> DockerContainer:
        from testcontainers.core.container import DockerContainer

        container = DockerContainer(image).with_env("HBASE_HEAP", f"{heap_mb}m")
        container.with_env(JVM_VARIABLE, os.environ.get(JVM_VARIABLE, ""))
        container.with_bind_ports(THRIFT_PORT_INSIDE, self.thrift_port)
        container.with_kwargs(labels={OWNER_LABEL: str(os.getpid())})
        return container.waiting_for(_ready(1))


def _ready(starts: int) -> LogMessageWaitStrategy:
    """Wait until the log, which spans all starts of a container, has the ready line ``starts`` times."""
    from testcontainers.core.wait_strategies import LogMessageWaitStrategy

    pattern = re.compile(rf"(?:^{READY_LINE}[\s\S]*?){{{starts}}}", re.MULTILINE)
    return LogMessageWaitStrategy(pattern).with_startup_timeout(START_TIMEOUT_S).with_poll_interval(0.2)


def engine_client() -> DockerClient | None:
    """A client of the container engine, None if no engine answers."""
    # Read by testcontainers when it is imported: published ports on loopback, also from inside a container,
    # and no helper container, whose image an engine without a registry could not pull.
    os.environ.setdefault("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1")
    os.environ.setdefault("TESTCONTAINERS_CONNECTION_MODE", "docker_host")
    os.environ.setdefault("TESTCONTAINERS_RYUK_DISABLED", "true")
    import docker
    from docker.errors import DockerException

    try:
        client = docker.from_env()
        client.ping()
    except DockerException:
        return None
    return client


def why_no(kind: Kind) -> str | None:
    """Why no HBase of this kind can run here; None if it can."""
    if kind == "local":
        return why_not_runnable()
    client = engine_client()
    if client is None:
        return "no container engine answers; run 'make system-deps'"
    client.close()
    return None


def chosen_kind() -> Kind:
    """The kind ``BOOKKEEPER_HBASE`` forces, else the first that can run; raises HBaseUnavailableError if none can."""
    forced = os.environ.get(KIND_VARIABLE)
    if forced not in (None, "", "container", "local"):
        raise HBaseUnavailableError(f"{KIND_VARIABLE}={forced}: 'container' or 'local' expected")
    kinds: tuple[Kind, ...] = ("container", "local")
    reasons = []
    for kind in kinds:
        if forced and forced != kind:
            continue
        reason = why_no(kind)
        if reason is None:
            return kind
        reasons.append(f"{kind}: {reason}")
    raise HBaseUnavailableError("NO REAL HBASE, so nothing about it was tested. " + "; ".join(reasons))


@contextmanager
def running_hbase(data_dir: Path, kind: Kind | None = None, heap_mb: int = HEAP_MB) -> Iterator[HBaseInstance]:
    """An HBase of its own, gone afterwards; ``data_dir`` is used by a local one only."""
    wanted = kind or chosen_kind()
    if (reason := why_no(wanted)) is not None:
        raise HBaseUnavailableError(f"{wanted}: {reason}")
    if wanted == "local":
        with HBaseProcess(data_dir, heap_mb=heap_mb) as process:
            yield process
        return
    image = _image()
    _remove_orphans()
    instance = ContainerHBase(image, heap_mb)
    try:
        instance.start()
        yield instance
    finally:
        instance.remove()


def _image() -> str:
    built = subprocess.run([IMAGE_SCRIPT], capture_output=True, text=True, timeout=IMAGE_TIMEOUT_S, check=False)
    if built.returncode != 0:
        raise HBaseUnavailableError(f"docker/hbase/image.sh failed: {built.stderr.strip()}")
    return built.stdout.strip()


def _remove_orphans() -> None:
    """Remove the containers of test runs on this machine that are gone."""
    from docker.errors import APIError

    client = engine_client()
    assert client is not None
    for container in client.containers.list(all=True, filters={"label": OWNER_LABEL}):
        if not psutil.pid_exists(int(container.labels[OWNER_LABEL])):
            try:
                container.remove(force=True, v=True)
            except APIError as refused:
                if refused.status_code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                    raise  # these two mean that another run removes it just now
    client.close()


def drop_tables(hbase: HBaseInstance, prefix: str) -> None:
    """Remove the tables whose names begin so: each family that was written to takes 2 MiB of HBase's heap."""
    connection = happybase.Connection(hbase.host, hbase.thrift_port, timeout=DROP_TIMEOUT_MS)
    try:
        for table in connection.tables():
            if table.startswith(prefix.encode()):
                connection.delete_table(table, disable=True)
    finally:
        connection.close()
