"""A range with a permanent error, on two clusters: it blocks, is held, retried, skipped; nothing goes silently."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from bookkeeper.errors import NotFoundError, PermanentError
from bookkeeper.master.quarantine.quarantined_ranges import scan_rows
from bookkeeper.metadata.owner import ROUND_NAME
from bookkeeper.replay.ranges import Range
from bookkeeper.rpc.contract.messages import QuarantinedRange, WaitCause
from bookkeeper.storage.wal.reading.block_reader import read_headers
from shell.failures import ExitCode
from tests.docs.page import ROOT, same_shape
from tests.docs.stage import Stage
from tests.support.local_pair import Books, LocalCluster, local_pair
from tests.support.local_replay import at_once
from tests.support.shell import quick
from tests.support.tservers import wait_until
from tests.support.wal_files import damage

pytestmark = pytest.mark.integration

Pair = tuple[LocalCluster, LocalCluster]
SMALL: dict[str, object] = {"tserver.value_bytes_max": 1_000}
TRIES: dict[str, object] = {"replication.quarantine_tries": 2}
LONG = b"x" * 2_000
PAGE = ROOT / "docs" / "quarantine.md"
LIMIT_MS = 60_000
RANGE_ID = re.compile(r"\b[0-9a-f]{10}\b")


@pytest.fixture
def manual(tmp_path: Path, books: Books) -> Iterator[Pair]:
    with local_pair(tmp_path, TRIES, SMALL, books) as pair:
        yield pair


@pytest.fixture
def auto(tmp_path: Path, books: Books) -> Iterator[Pair]:
    with local_pair(tmp_path, {**TRIES, "replication.quarantine": "auto"}, SMALL, books) as pair:
        yield pair


def write_poison(west: LocalCluster) -> None:
    """Three rows, of which the peer refuses the second."""
    west.put("t", b"a", b"1")
    west.put("t", b"b", LONG)
    west.put("t", b"c", b"3")


@contextmanager
def nothing_leaves(west: LocalCluster) -> Iterator[None]:
    """Inside the block, shipments wait."""
    gate = threading.Event()

    def wait(_ranges: Sequence[Range]) -> None:
        assert gate.wait(60)

    west.replay.before = wait
    yield
    west.replay.before = at_once
    gate.set()


def listed(west: LocalCluster, state: str) -> QuarantinedRange:
    """The one range there is, once it is in that state."""
    found: list[QuarantinedRange] = []

    def look() -> bool:
        found[:] = west.client.replication.quarantine("t")
        return [one.state for one in found] == [state]

    wait_until(look, f"one range that is {state}")
    return found[0]


def arrived(east: LocalCluster, rows: dict[bytes, bytes]) -> None:
    wait_until(lambda: east.rows("t") == rows, f"{sorted(rows)} on the peer")


def roll(west: LocalCluster) -> None:
    """Seal the log: all of it can go once nobody needs it."""
    west.tserver.parts.writing.path.roll()
    west.client.tables.flush("t")


def check_blocked_until_held(pair: Pair) -> None:
    """The law of the default policy."""
    west, east = pair
    write_poison(west)
    blocking = listed(west, "blocking")
    assert (blocking.error_code, blocking.blocks.first, blocking.blocks.last) == ("invalid_input", 2, 2)
    assert blocking.tries >= 2
    (status,) = [one for one in west.client.replication.status("t") if one.lag_records]
    assert (status.phase, status.finished) == ("failing", 1)
    assert status.last_error is not None
    assert "1000" in status.last_error, "the reason"
    assert re.search(r"replication quarantine hold (\w+)", status.last_error) is not None
    assert east.rows("t") == {b"a": b"1"}
    assert west.client.replication.wait("t", timeout_ms=200)
    held = west.client.replication.hold_range(blocking.range_id)
    assert (held.state, held.blocks) == ("held", blocking.blocks)
    arrived(east, {b"a": b"1", b"c": b"3"})


def test_by_default_it_blocks_its_queue_and_says_why_and_what_releases_it(manual: Pair) -> None:
    check_blocked_until_held(manual)
    west, east = manual

    def left() -> list[tuple[str, int]]:
        return [(one.phase, one.lag_records) for one in west.client.replication.wait("t", timeout_ms=100)]

    wait_until(lambda: left() == [("quarantined", 1)], "nothing but the held range is left")
    held = listed(west, "held")
    assert west.client.replication.hold_range(held.range_id).blocks == held.blocks, "again is fine"
    west.put("t", b"d", b"4")
    arrived(east, {b"a": b"1", b"c": b"3", b"d": b"4"})


def test_a_held_range_is_as_old_as_before(manual: Pair) -> None:
    west, east = manual
    began_ns = time.monotonic_ns()
    write_poison(west)
    blocking = listed(west, "blocking")
    told_ns = time.monotonic_ns()
    wait_until(lambda: time.monotonic_ns() - told_ns > 3_000_000_000, "some age")
    age_s = (time.monotonic_ns() - told_ns) / 1e9
    west.client.replication.hold_range(blocking.range_id)
    arrived(east, {b"a": b"1", b"c": b"3"})
    (held,) = [one for one in west.client.replication.status("t") if one.phase == "quarantined"]
    true_s = (time.monotonic_ns() - began_ns) / 1e9
    assert held.lag_seconds is not None
    # A record counts from when its tserver has told of it.
    assert age_s <= held.lag_seconds <= true_s, "its records did not become younger"


def test_a_quarantined_range_keeps_its_file_until_it_is_skipped(manual: Pair) -> None:
    west, east = manual
    check_blocked_until_held(manual)
    held = listed(west, "held")
    roll(west)
    file = west.path(held.file)
    wait_until(lambda: not west.master.leadership.cycle.books.snapshot.files, "books without the file")
    begun = west.master.coordination.number(ROUND_NAME)
    wait_until(lambda: west.master.coordination.number(ROUND_NAME) > begun + 6, "three looks of the collector")
    assert file.exists()
    west.client.replication.skip_range(held.range_id)
    assert west.client.replication.quarantine() == ()
    assert not west.client.replication.wait("t")
    wait_until(lambda: not file.exists(), "the file to go")
    assert east.rows("t") == {b"a": b"1", b"c": b"3"}


def test_skipping_what_blocks_lets_the_queue_go_on(manual: Pair) -> None:
    west, east = manual
    write_poison(west)
    west.client.replication.skip_range(listed(west, "blocking").range_id)
    assert not west.client.replication.wait("t")
    assert east.rows("t") == {b"a": b"1", b"c": b"3"}
    assert scan_rows(west.metadata) == {}


def test_a_retry_ships_it_behind_what_followed_it(manual: Pair) -> None:
    west, east = manual
    write_poison(west)
    west.put("t", b"b", b"later")
    held = west.client.replication.hold_range(listed(west, "blocking").range_id)
    rows = {b"a": b"1", b"b": b"later", b"c": b"3"}
    arrived(east, rows)
    with pytest.raises(PermanentError, match="failed again and stays in quarantine"):
        west.client.replication.retry_range(held.range_id)
    assert listed(west, "held").blocks == held.blocks
    roll(west)
    east.replace_tserver(value_bytes_max=10_000)
    assert not west.client.replication.retry_range(held.range_id)
    assert logged(east) == [b"b"], "it came again, behind what followed it"
    assert east.rows("t") == rows, "the later put is the newest still"
    assert west.client.replication.quarantine() == ()
    assert not west.client.replication.wait("t")
    wait_until(lambda: not west.path(held.file).exists(), "the file to go")
    ended = [str(running.op.args) for running in east.master.leadership.fate.pending()]
    assert any("quarantine-2" in args for args in ended), "the peer need not remember the run (R20)"


def logged(east: LocalCluster) -> list[bytes]:
    """Rows in the present log of the peer's tserver, in order."""
    blocks = [at.load() for at in read_headers(east.volume, east.tserver.parts.writing.path.wal_name)]
    return [row for block in blocks for row in block.batch().column("row").to_pylist()]


def test_a_blocking_range_may_be_tried_at_once(tmp_path: Path) -> None:
    """By itself it would be tried in ten minutes; a person has put the file back from a copy meanwhile."""
    rows = {b"%d" % number: b"v" for number in range(3)}
    with local_pair(tmp_path, {"replication.quarantine_tries": 1}, SMALL) as (west, east):
        west.put("t", b"first", b"v")
        arrived(east, {b"first": b"v"})  # pauses are short while two clusters begin, and something may fail in passing
        shipping = west.master.leadership.cycle.dispatcher.shipping
        shipping.backoff_base_ms = shipping.backoff_max_ms = 600_000
        with nothing_leaves(west):
            for row, value in rows.items():
                west.put("t", row, value)
            name = west.tserver.parts.writing.path.wal_name
            whole = west.path(name).read_bytes()
            damage(name, 3, root=west.directory)
        blocking = listed(west, "blocking")
        assert blocking.error_code == "corruption"
        causes: list[WaitCause] = []

        def is_told() -> bool:  # the needed offset may come into the books after the report of the error
            causes[:] = [one for one in west.client.replication.why("t").causes if one.kind == "damaged"]
            return bool(causes)

        wait_until(is_told, "the cause")
        (cause,) = causes
        assert cause.needs_person
        hold = f"bookkeeper shell {west.directory} replication quarantine hold {blocking.range_id}"
        assert [step.command for step in cause.steps] == [hold]
        with west.path(name).open("r+b") as log:
            log.write(whole)
        assert west.client.replication.retry_range(blocking.range_id)
        assert not west.client.replication.wait("t", timeout_ms=LIMIT_MS)
        assert east.rows("t") == {b"first": b"v", **rows}


def test_with_the_policy_auto_nobody_has_to_come(auto: Pair) -> None:
    west, east = auto
    write_poison(west)
    arrived(east, {b"a": b"1", b"c": b"3"})
    held = listed(west, "held")
    assert (held.blocks.first, held.blocks.last, held.error_code) == (2, 2, "invalid_input")
    assert held.since_ms > 0


def test_damage_in_a_log_is_passed_and_what_is_whole_behind_it_arrives(auto: Pair) -> None:
    west, east = auto
    with nothing_leaves(west):
        for number in range(5):
            west.put("t", b"%d" % number, b"v")
        damage(west.tserver.parts.writing.path.wal_name, 3, root=west.directory)
    arrived(east, {b"%d" % number: b"v" for number in (0, 1, 3, 4)})
    held = listed(west, "held")
    assert (held.error_code, held.blocks.first, held.blocks.last) == ("corruption", 3, 3)
    cause = next(one for one in west.client.replication.why("t").causes if one.kind == "quarantined")
    assert (cause.records, cause.needs_person) == (1, True)
    assert cause.steps[0].command.endswith(f"replication quarantine skip {held.range_id}"), "a retry would fail again"
    assert west.rows("t").keys() == {b"%d" % number for number in range(5)}


def test_a_disabled_target_leaves_nothing_in_quarantine(manual: Pair) -> None:
    west, _ = manual
    check_blocked_until_held(manual)
    west.client.replication.disable("t", "east")
    wait_until(lambda: not west.client.replication.quarantine(), "the range to go with its target")
    roll(west)
    wait_until(lambda: not (west.settings.wal_dir / west.tserver.session_id / "000001.wal").exists(), "the log to go")


def test_a_range_that_nobody_knows_is_named_with_the_next_step(manual: Pair) -> None:
    west, _ = manual
    replication = west.client.replication
    for act in (replication.hold_range, replication.retry_range, replication.skip_range):
        with pytest.raises(NotFoundError, match="replication quarantine list"):
            act("0123456789")


def test_the_commands_say_what_is_done_and_what_it_means_for_order(manual: Pair) -> None:
    west, east = manual

    def shell(*words: str) -> str:
        answer = quick("shell", west.quorum, "replication", "quarantine", *words)
        assert (answer.code, answer.err) == (ExitCode.OK, ""), answer
        return answer.out

    assert shell("list") == "no range has a permanent error\n"
    write_poison(west)
    range_id = listed(west, "blocking").range_id
    header, row = shell("list", "t").splitlines()
    assert header.split()[:4] == ["RANGE", "ID", "TABLE", "CLUSTER"]
    assert row.split()[:3] == [range_id, "t", "east"]
    assert "invalid_input" in row
    held = shell("hold", range_id)
    assert "records 2 to 2 are held" in held
    assert f"retry {range_id}" in held
    (told,) = json.loads(shell("list", "--json"))
    assert (told["range_id"], told["state"], told["first"], told["last"]) == (range_id, "held", 2, 2)
    arrived(east, {b"a": b"1", b"c": b"3"})
    failed = quick("shell", west.quorum, "replication", "quarantine", "retry", range_id)
    assert (failed.code, failed.out) == (ExitCode.FAILED, "")
    assert "stays in quarantine" in failed.err
    east.replace_tserver(value_bytes_max=10_000)
    retried = shell("retry", range_id)
    assert "reached the peer after later ones" in retried
    assert "newest timestamp still wins" in retried
    west.put("t", b"d", b"x" * 20_000)
    skipped = shell("skip", listed(west, "blocking").range_id)
    assert "never reach the peer" in skipped
    assert quick("shell", west.quorum, "replication", "wait", "t").code == ExitCode.OK
    assert quick("shell", west.quorum, "replication", "quarantine", "skip", range_id).code == ExitCode.FAILED


def test_the_page_shows_what_commands_print(manual: Pair, tmp_path: Path) -> None:
    west, east = manual
    write_poison(west)
    range_id = listed(west, "blocking").range_id
    text = PAGE.read_text()
    recorded = RANGE_ID.search(text)
    assert recorded is not None
    stage = Stage(tmp_path / "page", {"west": west, "east": east})
    for done in stage.perform(text.replace(recorded[0], range_id)):
        assert same_shape(done.step.output, done.printed), f"{done.step.command}: {done.printed}"
