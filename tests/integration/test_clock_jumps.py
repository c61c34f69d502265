"""The wall clock of running processes jumps by hours, ahead and back: no process ends, nothing is lost or late.

The processes are real. They read a wall clock that the test sets (``tests/support/set_clock``), because other programs
use the machine's own.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bookkeeper.client import Mutation
from bookkeeper.clock import SystemClock
from tests.support.cluster import Cluster
from tests.support.log_files import logs_below
from tests.support.set_clock import SET_CLOCK

pytestmark = [pytest.mark.integration]

LIMIT_S = 90.0
HOUR_MS = 3_600_000
LEASE: dict[str, object] = {
    "coordination.session_lease_ms": 6_000,
    "coordination.session_renew_ms": 500,
    "coordination.session_margin_ms": 500,
}


def put(cluster: Cluster, table: str, value: bytes, *rows: bytes) -> None:
    with cluster.client.writer(table) as writer:
        writer.add_all(Mutation(row).put(b"f", b"q", value) for row in rows)


def shown(cluster: Cluster, table: str) -> dict[bytes, bytes]:
    return {cell.row: cell.value for cell in cluster.client.scan(table).cells()}


def times(cluster: Cluster, table: str) -> list[int]:
    return [cell.timestamp for cell in cluster.client.scan(table).cells()]


@pytest.mark.long
def test_processes_whose_clock_jumps_beyond_their_leases_go_on_and_later_writes_win(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_by, clock = tmp_path / "set-by", SystemClock()
    monkeypatch.setenv("SET_CLOCK_FILE", str(set_by))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(SET_CLOCK), *filter(None, [os.environ.get("PYTHONPATH")])]))
    with Cluster(tmp_path / "own", "own", overrides=LEASE) as cluster:
        roles = ("master", "tserver1", "tserver2")
        pids = [cluster.pid(role) for role in roles]
        cluster.client.tables.create("t", [b"m"])
        put(cluster, "t", b"before", b"a", b"z")
        for name, hours in (("ahead", 5), ("back", -5), ("right", 0)):
            set_by.write_text(str(hours * HOUR_MS))
            last = times(cluster, "t")
            put(cluster, "t", name.encode(), b"a", b"z")
            assert shown(cluster, "t") == {b"a": name.encode(), b"z": name.encode()}
            assert all(before <= now for before, now in zip(last, times(cluster, "t"), strict=True))
            cluster.client.tables.create(name)
            put(cluster, name, b"1", b"new")
            (at_ms,) = times(cluster, name)
            assert abs(at_ms - clock.wall_ms() - hours * HOUR_MS) < HOUR_MS, "the clock that was set is read"
        assert [cluster.pid(role) for role in roles] == pids, "leases go by another clock"
        for role in roles[1:]:
            cluster.kill9(role)
        for role, pid in zip(roles[1:], pids[1:], strict=True):
            cluster.wait_restarted(role, pid)
        put(cluster, "t", b"last", b"a")
        assert shown(cluster, "t") == {b"a": b"last", b"z": b"right"}
        for table in ("t", "ahead", "back", "right"):
            cluster.client.tables.delete(table)
        logs = cluster.settings.wal_dir
        cluster.wait_until(lambda: len(logs_below(logs)) <= 2, "the end of logs that nobody needs", LIMIT_S)
