"""The own Thrift gateway of a host, on a real HBase: it is kept running, and nothing outlives its end (R4)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import happybase
import psutil
import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.clock import SystemClock
from bookkeeper.config.file import SETTINGS_FILE, load_settings
from bookkeeper.config.sections import Settings
from bookkeeper.errors import BookkeeperError, NotFoundError
from bookkeeper.metadata.hbase.hbase_table import ALL_FAMILIES
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.standalone.hbase import java
from bookkeeper.standalone.hbase.gateway import GATEWAY_PORT, Gateway
from bookkeeper.standalone.hbase.gateway_watch import GatewayWatch
from bookkeeper.standalone.hbase.hbase_process import HBaseProcess
from bookkeeper.standalone.hbase.java import HOME_VARIABLE, why_not_runnable
from bookkeeper.standalone.ports import free_ports
from tests.support.cluster import Cluster, standalone_command
from tests.support.faults import fault
from tests.support.hbase import HEAP_MB
from tests.support.hbase_copies import TableCopy
from tests.support.replacement import Binding, replaced
from tests.support.tservers import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.hbase, pytest.mark.long, pytest.mark.timeout(300)]

SILENCE_MS = 5_000
CALL_MS = 1_500
LATE = b"~late"
FAMILY = b"fate"
"""A family of the books in which nobody looks for this row."""


@pytest.fixture(scope="module")
def hbase(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBaseProcess]:
    if (reason := why_not_runnable()) is not None:
        pytest.skip(f"NO REAL HBASE, so nothing about a host's own gateway was tested: {reason}")
    with HBaseProcess(tmp_path_factory.mktemp("hbase"), heap_mb=HEAP_MB) as process:
        yield process


def url_of(hbase: HBaseProcess, name: str) -> str:
    return f"hbase+zk://{hbase.host}:{hbase.ports.zookeeper}/{name}"


@contextmanager
def connected(settings: Settings, timeout_ms: int = 30_000) -> Iterator[happybase.Table]:
    """The books, through the host's gateway."""
    with closing(happybase.Connection("127.0.0.1", settings.standalone.gateway_port, timeout=timeout_ms)) as books:
        yield books.table(f"{settings.metadata.url.rpartition('/')[2]}_metadata")


def put_into_standstill(settings: Settings) -> None:
    """A client writes while the gateway stands still, gives up, and ends."""
    with pytest.raises(TimeoutError), connected(settings, CALL_MS) as books:
        books.put(LATE, {FAMILY + b":q": b"v"})


@pytest.fixture(scope="module")
def settings(hbase: HBaseProcess, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return init_cluster(tmp_path_factory.mktemp("made") / "alone", "alone", metadata_url=url_of(hbase, "alone"))


@contextmanager
def watched(settings: Settings) -> Iterator[tuple[GatewayWatch, list[str]]]:
    """A watch that runs, as the supervisor's does."""
    lines: list[str] = []
    watch, stop = GatewayWatch(Gateway.of_host(settings), SILENCE_MS, lines.append, SystemClock()), threading.Event()
    thread = threading.Thread(target=watch.run, args=(stop,))
    thread.start()
    try:
        assert watch.has_answered.wait(60)
        yield watch, lines
    finally:
        stop.set()
        thread.join()


def late_write(settings: Settings) -> bool:
    """Whether a write of a client that has ended is there, after its gateway stood still and went on or was ended."""
    with watched(settings) as (watch, lines):
        wait_until(watch.gateway.answers, "a gateway that answers")
        stopped = watch.gateway.pid
        assert stopped is not None
        os.kill(stopped, signal.SIGSTOP)
        put_into_standstill(settings)
        silent = threading.Event()
        silent.wait(2 * SILENCE_MS / 1000)  # the fault: it stands still for longer than the limit
        with suppress(ProcessLookupError):  # the watch has ended it
            os.kill(stopped, signal.SIGCONT)
        wait_until(watch.gateway.answers, "a gateway that answers")
        with connected(settings) as books:
            books.put(b"~after", {FAMILY + b":q": b"v"})
            found = bool(books.row(LATE))
            books.delete(LATE)
        assert found or [line for line in lines if "was silent for" in line], lines
    return found


def test_r4_a_gateway_that_stands_still_is_ended_and_what_it_holds_is_never_written(settings: Settings) -> None:
    assert not late_write(settings)


def test_r4_red_a_gateway_that_may_stand_still_writes_for_a_process_that_ended_long_ago(settings: Settings) -> None:
    with fault("gateways-may-stand-still"):
        assert late_write(settings)


def written(client: Client, table: str) -> None:
    """A row is acknowledged."""
    with client.writer(table) as writer:
        writer.add(Mutation(b"a").put(b"f", b"q", b"1"))


def has_ended(pid: int) -> bool:
    """Whether no such process runs."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_a_cluster_goes_on_when_its_gateway_is_killed_and_no_gateway_outlives_the_supervisor(
    hbase: HBaseProcess, tmp_path: Path
) -> None:
    with Cluster(tmp_path / "west", "west", 1, url_of(hbase, "west")) as cluster:
        client = cluster.client
        client.tables.create("t")
        written(client, "t")
        cluster.wait_restarted("gateway", cluster.kill9("gateway"))
        client.tables.create("u")  # the books take writes again
        written(client, "u")
        killed = cluster.pid("gateway")
        cluster.crash()
        wait_until(lambda: has_ended(killed), "the gateway has ended")
        cluster.launch()
        cluster.wait_ready()
        assert [row for page in client.scan("t") for row in page["row"].to_pylist()] == [b"a"]
        last = cluster.pid("gateway")
    assert has_ended(last), "a stop ends it, too"


# ---- bad input


def test_a_port_in_use_and_a_quorum_that_does_not_answer_change_nothing(hbase: HBaseProcess, tmp_path: Path) -> None:
    directory, in_use = tmp_path / "east", {GATEWAY_PORT: hbase.ports.zookeeper}
    with pytest.raises(BookkeeperError, match=r"set standalone\.gateway_port to a free port"):
        init_cluster(directory, "east", metadata_url=url_of(hbase, "east"), overrides=in_use)
    (nobody,) = free_ports(1)
    with pytest.raises(BookkeeperError, match=rf"ZooKeeper at 127\.0\.0\.1:{nobody}"):
        init_cluster(directory, "east", metadata_url=f"hbase+zk://127.0.0.1:{nobody}/east")
    assert not directory.exists()


EXPIRING = {name: {"max_versions": 1, "time_to_live": 3_600} for name in ALL_FAMILIES}
TABLES: dict[str, tuple[dict[str, dict[str, int]] | None, str]] = {
    "strange": ({"cf": {}}, r"a metadata table has one version of .*: choose another prefix"),
    "expiring": (EXPIRING, r"HBase would drop the books: set their TTL to FOREVER"),
    "alone": (None, r"holds the books of instance .*; name another prefix"),
}
"""Tables that are there before ``init``, with their families; ``alone`` is of another instance."""


@pytest.mark.parametrize("name", TABLES)
def test_init_refuses_a_table_that_is_no_free_one_and_makes_nothing(
    hbase: HBaseProcess, settings: Settings, tmp_path: Path, name: str
) -> None:
    assert settings.metadata.url == url_of(hbase, "alone")
    families, said = TABLES[name]
    if families is not None:
        with closing(happybase.Connection(hbase.host, hbase.thrift_port)) as connection:
            connection.create_table(f"{name}_metadata", families)
    copy = TableCopy.of(hbase, f"{name}_metadata")
    with pytest.raises(BookkeeperError, match=said):
        init_cluster(tmp_path / "east", "east", metadata_url=url_of(hbase, name))
    assert not (tmp_path / "east").exists()
    assert TableCopy.of(hbase, copy.table).cells == copy.cells


def test_a_host_without_java_makes_nothing(hbase: HBaseProcess, tmp_path: Path) -> None:
    with replaced(Binding(java, "_java_homes"), lambda: iter(())), pytest.raises(NotFoundError, match="no Java 17"):
        init_cluster(tmp_path / "east", "east", metadata_url=url_of(hbase, "east"))
    assert not (tmp_path / "east").exists()


@contextmanager
def started(settings: Settings, environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """``bookkeeper standalone`` while the block runs, with what it says."""
    command = standalone_command(settings.directory, environment)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def stores(settings: Settings) -> dict[str, bytes]:
    """The files of a cluster that say what it has."""
    paths = (settings.directory / SETTINGS_FILE, *settings.directory.glob("wal/**/*"))
    return {str(path): path.read_bytes() for path in paths if path.is_file()}


def with_settings(settings: Settings, old: str, new: str) -> Settings:
    """The same cluster with another text in its settings file."""
    file = settings.directory / SETTINGS_FILE
    text = file.read_text()
    assert text.count(old) == 1, text
    file.write_text(text.replace(old, new))
    return load_settings(settings.directory)


def test_a_start_without_the_jars_ends_with_the_next_step(settings: Settings, tmp_path: Path) -> None:
    before = stores(settings)
    with started(settings, {HOME_VARIABLE: str(tmp_path)}) as process:
        said, _ = process.communicate()
    assert (process.returncode, "no assembled HBase; run 'make hbase'" in said) == (1, True), said
    assert stores(settings) == before


def test_a_start_with_the_books_of_another_instance_ends_and_changes_nothing(
    hbase: HBaseProcess, settings: Settings, tmp_path: Path
) -> None:
    east = init_cluster(tmp_path / "east", "east", metadata_url=url_of(hbase, "other"))
    wrong = with_settings(east, f'"{url_of(hbase, "other")}"', f'"{settings.metadata.url}"')
    copy = TableCopy.of(hbase, "alone_metadata")
    with started(wrong) as process:
        said, _ = process.communicate()
    assert (process.returncode, "holds the books of instance" in said) == (1, True), said
    assert TableCopy.of(hbase, "alone_metadata").cells == copy.cells


def test_a_start_waits_for_a_port_in_use_and_for_a_quorum_and_says_so(hbase: HBaseProcess, tmp_path: Path) -> None:
    east = init_cluster(tmp_path / "east", "east", metadata_url=url_of(hbase, "waiting"))
    before = stores(east)
    with closing(socket.create_server(("127.0.0.1", east.standalone.gateway_port))), started(east) as process:
        assert_says(process, "set standalone.gateway_port to a free port")
    (nobody,) = free_ports(1)
    assert stores(east) == before
    away = with_settings(east, f":{hbase.ports.zookeeper}/", f":{nobody}/")
    before = stores(away)
    with started(away) as process:
        assert_says(process, f"waiting: the HBase of ZooKeeper at 127.0.0.1:{nobody} can't be used")
    assert stores(away) == before


def assert_says(process: subprocess.Popen[str], words: str) -> None:
    """It says so, and runs on."""
    assert process.stdout is not None
    said: list[str] = []
    for line in process.stdout:
        said.append(line)
        if words in line:
            assert process.poll() is None, said
            return
    raise AssertionError(said)
