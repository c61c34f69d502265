"""A peer that comes back from a backup lacks records that it acknowledged: its source says so, and what is missing."""

from __future__ import annotations

import re
import shutil
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from bookkeeper.client import Mutation
from bookkeeper.client.batch_writer import BatchWriter
from bookkeeper.coordination.older_peers import CONFIRMED
from bookkeeper.master.cycle.check_ins import LEFT
from bookkeeper.master.queries.why import utc_text
from bookkeeper.master.status_report import problems
from bookkeeper.metadata import keys, values
from shell.failures import ExitCode
from tests.support.asked_why import execute_one
from tests.support.faults import fault
from tests.support.local_pair import LocalCluster, local_cluster
from tests.support.masters import LocalMaster
from tests.support.tservers import wait_until

pytestmark = pytest.mark.integration

ROWS, LATER_ROWS = 5, 50


def put_and_ship(west: LocalCluster, first: int, count: int) -> None:
    """Rows that the peer acknowledges."""
    for number in range(first, first + count):
        west.put("t", b"%04d" % number, b"v")
    assert not west.client.replication.wait("t", timeout_ms=60_000)


def said(master: LocalMaster) -> str:
    """The words of west's master about its peer."""
    if master.process.leadership is None:
        return ""
    return problems(master.leadership).get("peer east (peer_older)", "")


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
            confirmed = CONFIRMED + east.settings.instance.instance_id
            wait_until(lambda: west.coordination.number(confirmed) > 0, "a first check-in")
        saved = time.time_ns() // 1_000_000  # east is down: each check-in that the copy has is older
        shutil.copytree(place, copy)
        with local_cluster(place) as east:
            put_and_ship(west, ROWS, LATER_ROWS)
            wait_until(lambda: east.coordination.number(left) > saved, "a check-in that the copy does not have")
        shutil.rmtree(place)
        shutil.copytree(copy, place)
        with local_cluster(place) as east:
            put_and_ship(west, ROWS + LATER_ROWS, 1)
            assert len(east.rows("t")) == ROWS + 1, "acknowledged rows are missing, and nothing waits"
            assert not [one for one in west.client.replication.status("t") if one.lag_records]
            wait_until(lambda: said(west.master) != "", "words about the older state", noticed_s)
            log = west.tserver.parts.writing.path.wal_name
            first = rf"acknowledged after (\S+) \(the next record of {log} was (\d+) then\)"

            def place_before(time_ms: int) -> bool:
                found = re.search(first, said(west.master))
                return found is not None and found[1] <= utc_text(time_ms) and 1 <= int(found[2]) <= ROWS + 1

            wait_until(lambda: place_before(saved), "a time and a place in the log before the rows that are missing")
            (cause,) = west.client.replication.why("t").causes
            assert (cause.kind, cause.needs_person, cause.file) == ("peer_older", True, log)
            answers = [execute_one(step.command, west.directory) for step in cause.steps]
            assert [answer.code for answer in answers] == [ExitCode.OK, ExitCode.OK], answers
            wait_until(lambda: said(west.master) == "", "the end with its target")
            put_and_ship(west, ROWS + LATER_ROWS + 1, 1)
            assert said(west.master) == ""


def check_younger_backup_is_named(directory: Path, noticed_s: float = 30.0) -> None:
    """The copy of east has the number of the last check-in, because no master of west lives for a while; the log in
    which east acknowledged more rows has ended when east comes back.
    """
    place, copy = directory / "east", directory / "copy"
    with ExitStack() as stack:
        west = stack.enter_context(local_cluster(directory / "west"))
        left = LEFT + west.settings.instance.instance_id
        west.client.tables.create("t")
        with local_cluster(place) as east:
            east.client.tables.create("t")
            west.client.replication.define_cluster("east", east.quorum)
            west.client.replication.enable("t", "east")
            writer = stack.enter_context(west.client.writer("t"))
            for number in range(ROWS):
                write(writer, b"%04d" % number)
            log = west.tserver.parts.writing.path.wal_name
            wait_until(lambda: finished_offset(west, log) == ROWS, "the first rows")
            confirmed = CONFIRMED + east.settings.instance.instance_id
            wait_until(lambda: west.coordination.number(confirmed) > 0, "a first check-in")
            west.master.stop()
            saved = west.coordination.number(confirmed)
            copied = east.coordination.number(left)  # a little more, if the last check-in was not confirmed any more
            assert copied >= saved
        shutil.copytree(place, copy)
        with local_cluster(place):
            for number in range(ROWS, ROWS + LATER_ROWS):
                write(writer, b"%04d" % number)
            wait_until(lambda: finished_offset(west, log) == ROWS + LATER_ROWS, "the later rows")
            west.tserver.parts.writing.path.roll()
        shutil.rmtree(place)
        shutil.copytree(copy, place)
        with local_cluster(place) as east:
            assert east.coordination.number(left) == copied
            write(writer, b"the next")
            wait_until(lambda: b"the next" in east.rows("t"), "the next row")
            assert len(east.rows("t")) == ROWS + 1, "acknowledged rows are missing, and nothing waits"
            with LocalMaster(west.settings) as master:
                wait_until(lambda: said(master) != "", "words about the older state", noticed_s)
                (since,) = re.findall(r"acknowledged after ([^\s,]+)", said(master))
                assert since <= utc_text(saved), "acknowledged rows are older than that time"


def write(writer: BatchWriter, row: bytes) -> None:
    """A row, in a block of its own."""
    writer.add(Mutation(row).put(b"f", b"q", b"v"))
    writer.flush()


def finished_offset(west: LocalCluster, log: str) -> int:
    """Of a log, by the books."""
    row = west.metadata.get(keys.repl_row(log), ("done",))
    cells = () if row is None else row.cells.values()
    return max((values.decode_status(cell.value).replication_finished_offset for cell in cells), default=0)


def test_a_peer_from_a_backup_that_is_younger_than_the_last_check_in_is_named(tmp_path: Path) -> None:
    check_younger_backup_is_named(tmp_path)


@pytest.mark.long
def test_without_the_question_for_the_last_block_nobody_names_it(tmp_path: Path) -> None:
    with (
        fault("acknowledged-blocks-are-believed"),
        pytest.raises(AssertionError, match="words about the older state"),
    ):
        check_younger_backup_is_named(tmp_path, noticed_s=5.0)


def test_a_peer_that_came_back_from_a_backup_is_named(tmp_path: Path) -> None:
    check_restored_peer_is_named(tmp_path)


@pytest.mark.long
def test_if_an_older_peer_is_believed_nobody_says_anything(tmp_path: Path) -> None:
    with (
        fault("older-peers-are-believed"),
        fault("acknowledged-blocks-are-believed"),
        pytest.raises(AssertionError, match="words about the older state"),
    ):
        check_restored_peer_is_named(tmp_path, noticed_s=5.0)
