"""A real cluster over a real HBase whose table is dropped, emptied or put back: no log goes, and all goes on after."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from bookkeeper.config.file import SETTINGS_FILE
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.metadata import keys
from bookkeeper.metadata.owner import ROUND_NAME
from bookkeeper.standalone.directory import init_cluster
from tests.support.cluster import Cluster, standalone_command
from tests.support.hbase import HBaseInstance
from tests.support.hbase_copies import Cells, TableCopy, tables
from tests.support.log_files import logs_below
from tests.support.metadata_stores import hbase_url
from tests.support.tservers import records, wait_until

pytestmark = [pytest.mark.hbase, pytest.mark.integration]

OFTEN: dict[str, object] = {"master.gc_interval_ms": 200}
RUNS = 4
"""Runs of the collector after which it would have deleted: it marks, and deletes with the next one."""
LIMIT_S = 120
ROWS = 50


def logs(cluster: Cluster) -> set[Path]:
    return logs_below(cluster.settings.wal_dir)


def complaints(cluster: Cluster, said: str) -> int:
    """Runs of the collector that were given up for that reason."""
    lines = (cluster.settings.logs_dir / "master.log").read_text(errors="replace").splitlines()
    return sum("collector failed and runs again" in line and said in line for line in lines)


def check_kept(cluster: Cluster, before: set[Path], said: str) -> None:
    """After several runs of the collector."""
    wait_until(lambda: complaints(cluster, said) >= RUNS, f"the collector says: {said}", LIMIT_S)
    assert before <= logs(cluster)


def round_of(cluster: Cluster) -> int:
    """As the coordination store knows it."""
    with closing(open_coordination(cluster.settings)) as coordination:
        return coordination.number(ROUND_NAME)


def newest(cluster: Cluster, cells: Cells) -> Cells:
    """A copy as the last round left it: nothing but rounds was written since it was made."""
    number = round_of(cluster)
    column = f"{keys.ROUND.family}:".encode() + keys.ROUND.qualifier
    return {**cells, number: {keys.owner_row(): {column: b""}}}


def rows_of(cluster: Cluster) -> int:
    return sum(batch.num_rows for batch in cluster.client.scan("cities"))


def test_no_log_goes_by_a_table_that_was_dropped_emptied_or_put_back(hbase: HBaseInstance, tmp_path: Path) -> None:
    """The tserver is killed: its log is of a dead session then, and a table that names nothing would let it go."""
    url = hbase_url(hbase)
    with Cluster(tmp_path / "west", "west", 1, url, OFTEN) as cluster:
        cluster.client.tables.create("cities")
        with cluster.client.writer("cities") as writer:
            writer.add_batch(records([(b"row-%03d" % number, b"v") for number in range(ROWS)]))
        before = logs(cluster)
        assert before
        copy = TableCopy.of(hbase, url.rpartition("/")[2] + "_metadata")
        copied = round_of(cluster)
        wait_until(lambda: round_of(cluster) > copied, "a round since the copy", LIMIT_S)
        copy.drop()
        cluster.kill9("tserver1")
        check_kept(cluster, before, "does not exist")
        copy.put_back({})
        check_kept(cluster, before, "has no owner row")
        copy.drop()
        copy.put_back()
        check_kept(cluster, before, "is an older copy")
        copy.drop()
        copy.put_back(newest(cluster, copy.cells))
        cluster.wait_ready()
        assert rows_of(cluster) == ROWS, "every row that was acknowledged"


def run(command: list[str]) -> tuple[int, str]:
    """Exit code and output of a process that has to end by itself."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.long
def test_a_mistyped_prefix_starts_nothing_and_makes_nothing(hbase: HBaseInstance, tmp_path: Path) -> None:
    west, east = hbase_url(hbase), hbase_url(hbase)
    settings = init_cluster(tmp_path / "west", "west", metadata_url=west)
    init_cluster(tmp_path / "east", "east", metadata_url=east)
    file, known = settings.directory / SETTINGS_FILE, tables(hbase)
    right = file.read_text()
    wrong = {f"{west}x": "does not exist", east: "holds the books of instance"}
    commands = [
        [sys.executable, "-m", "bookkeeper.master", str(settings.directory)],
        [sys.executable, "-m", "bookkeeper.tserver", str(settings.directory)],
        standalone_command(settings.directory),
    ]
    for url, said in wrong.items():
        file.write_text(right.replace(f'"{west}"', f'"{url}"'))
        for command in commands:
            code, output = run(command)
            assert (code, said in output, "metadata.url" in output) == (1, True, True), output
        code, output = run([sys.executable, "-m", "shell.main", "config", "check", str(settings.directory)])
        assert (code, said in output) == (1, True), output
        del commands[1:]  # each opens the books in the same way
    assert tables(hbase) == known
