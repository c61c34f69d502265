"""A peer that comes back from a backup lacks records that it acknowledged: its source says so, and what is missing."""

from __future__ import annotations

import re
import shutil
import time
from pathlib import Path

import pytest

from bookkeeper.master.cycle.check_ins import LEFT
from bookkeeper.master.queries.why import utc_text
from bookkeeper.master.status_report import problems
from shell.failures import ExitCode
from tests.support.asked_why import execute_one
from tests.support.faults import fault
from tests.support.local_pair import LocalCluster, local_cluster
from tests.support.tservers import wait_until

pytestmark = pytest.mark.integration

ROWS, LATER_ROWS = 5, 50


def put_and_ship(west: LocalCluster, first: int, count: int) -> None:
    """Rows that the peer acknowledges."""
    for number in range(first, first + count):
        west.put("t", b"%04d" % number, b"v")
    assert not west.client.replication.wait("t", timeout_ms=60_000)


def said(west: LocalCluster) -> str:
    """The words of west's master about its peer."""
    return problems(west.master.leadership).get("peer east (peer_older)", "")


def check_restored_peer_is_named(directory: Path, noticed_s: float = 30.0) -> None:
    """East is restored from a copy, after it acknowledged more rows of a log that goes on."""
    place, copy = directory / "east", directory / "copy"
    with local_cluster(directory / "west") as west:
        left = LEFT + west.settings.instance.instance_id
        west.client.tables.create("t")
        with local_cluster(place) as east:
            east.client.tables.create("t")
            west.client.replication.define_cluster("east", east.quorum)
            west.client.replication.enable("t", "east")
            put_and_ship(west, 0, ROWS)
            wait_until(lambda: east.coordination.number(left) > 0, "a first check-in")
            saved = east.coordination.number(left)
        shutil.copytree(place, copy)
        with local_cluster(place) as east:
            put_and_ship(west, ROWS, LATER_ROWS)
            wait_until(lambda: east.coordination.number(left) > saved, "a check-in behind these rows")
        shutil.rmtree(place)
        shutil.copytree(copy, place)
        with local_cluster(place) as east:
            put_and_ship(west, ROWS + LATER_ROWS, 1)
            assert len(east.rows("t")) == ROWS + 1, "acknowledged rows are missing, and nothing waits"
            assert not [one for one in west.client.replication.status("t") if one.lag_records]
            wait_until(lambda: said(west) != "", "words about the older state", noticed_s)
            log = west.tserver.parts.writing.path.wal_name
            first = rf"acknowledged after {utc_text(saved)} \(the next record of {log} was (\d+) then\)"
            wait_until(lambda: re.search(first, said(west)) is not None, "the place in the log")
            (found,) = re.findall(first, said(west))
            assert 1 <= int(found) <= ROWS + 1, "acknowledged rows lie before that place"
            (cause,) = west.client.replication.why("t").causes
            assert (cause.kind, cause.needs_person, cause.file) == ("peer_older", True, log)
            assert saved < time.time_ns() // 1_000_000
            answers = [execute_one(step.command, west.directory) for step in cause.steps]
            assert [answer.code for answer in answers] == [ExitCode.OK, ExitCode.OK], answers
            wait_until(lambda: said(west) == "", "the end with its target")
            put_and_ship(west, ROWS + LATER_ROWS + 1, 1)
            assert said(west) == ""


def test_a_peer_that_came_back_from_a_backup_is_named(tmp_path: Path) -> None:
    check_restored_peer_is_named(tmp_path)


def test_if_an_older_peer_is_believed_nobody_says_anything(tmp_path: Path) -> None:
    with fault("older-peers-are-believed"), pytest.raises(AssertionError, match="words about the older state"):
        check_restored_peer_is_named(tmp_path, noticed_s=5.0)
