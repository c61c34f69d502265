"""The HBase that other tests stand on: it takes explicit timestamps, and kill -9 loses nothing acknowledged."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import happybase
import psutil
import pytest

from bookkeeper.errors import NotFoundError, UnavailableError
from bookkeeper.standalone.hbase.hbase_process import HBaseProcess
from bookkeeper.standalone.hbase.java import why_not_runnable
from tests.support.hbase import HBaseInstance, Kind, running_hbase, why_no

pytestmark = [pytest.mark.integration, pytest.mark.hbase]

ROWS = 2_000
THRIFT_TIMEOUT_MS = 60_000


@pytest.fixture(
    params=[pytest.param(kind, marks=[pytest.mark.container] * (kind == "container")) for kind in get_args(Kind)]
)
def own_hbase(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HBaseInstance]:
    kind: Kind = request.param
    if (reason := why_no(kind)) is not None:
        pytest.skip(f"NO REAL HBASE ({kind}): {reason}")
    with running_hbase(tmp_path / "hbase", kind) as instance:
        yield instance


def connect(instance: HBaseInstance) -> happybase.Connection:
    return happybase.Connection(instance.host, instance.thrift_port, timeout=THRIFT_TIMEOUT_MS)


def put_rows(connection: happybase.Connection, value: bytes, rank: int) -> None:
    with connection.table("books").batch(timestamp=rank, batch_size=500) as batch:
        for number in range(ROWS):
            batch.put(b"row%05d" % number, {b"f:q": value})


def values(connection: happybase.Connection) -> set[tuple[bytes, int]]:
    rows = connection.table("books").scan(batch_size=1_000, include_timestamp=True)
    found = [cells[b"f:q"] for _key, cells in rows]
    assert len(found) == ROWS
    return set(found)


@pytest.mark.long
def test_acknowledged_puts_and_their_ranks_survive_kill_9_and_restart(own_hbase: HBaseInstance) -> None:
    connection = connect(own_hbase)
    connection.create_table("books", {"f": {"max_versions": 1}})
    put_rows(connection, b"late", rank=2**62)
    put_rows(connection, b"early", rank=7)
    assert values(connection) == {(b"late", 2**62)}
    connection.close()

    own_hbase.kill9()
    own_hbase.restart()

    connection = connect(own_hbase)
    assert values(connection) == {(b"late", 2**62)}
    put_rows(connection, b"latest", rank=2**62 + 1)
    connection.close()

    own_hbase.restart()

    connection = connect(own_hbase)
    assert values(connection) == {(b"latest", 2**62 + 1)}
    connection.close()


@pytest.mark.long
def test_a_local_hbase_does_not_outlive_its_owner(tmp_path: Path) -> None:
    if (reason := why_not_runnable()) is not None:
        pytest.skip(f"NO REAL HBASE (local): {reason}")
    owner_source = """
import sys
from pathlib import Path
from bookkeeper.standalone.hbase.hbase_process import HBaseProcess
hbase = HBaseProcess(Path(sys.argv[1]))
hbase.start()
print(hbase._process.pid, flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", owner_source, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        hbase = psutil.Process(int(owner.stdout.readline()))
        os.kill(owner.pid, signal.SIGKILL)
    hbase.wait(timeout=60)


def test_a_start_that_fails_shows_the_end_of_the_log(tmp_path: Path) -> None:
    if (reason := why_not_runnable()) is not None:
        pytest.skip(f"NO REAL HBASE (local): {reason}")
    broken = HBaseProcess(tmp_path, settings={"hbase.rootdir": "nosuchscheme:///"})
    with pytest.raises(UnavailableError, match="nosuchscheme"):
        broken.start()
    assert not broken.running


def test_without_jars_the_error_names_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="make hbase"):
        HBaseProcess(tmp_path, home=tmp_path / "nothing").start()
