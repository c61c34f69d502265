"""Waits are summed up by table, peer and kind, and described with those that need a person first."""

from __future__ import annotations

import pytest

from bookkeeper.master.cycle.check_ins import OlderState
from bookkeeper.master.index.target_progress import NO_AMOUNT, Amount
from bookkeeper.master.quarantine.quarantined_ranges import RangeKey
from bookkeeper.master.queries import causes
from bookkeeper.master.queries.causes import Cause, Lack, LocalFacts, Now
from bookkeeper.master.queries.waits import RecentWaits, Waits, waits_at
from bookkeeper.master.queries.why import (
    Directory,
    described,
    older_waits,
    problem_of,
    quarantined_waits,
    unread,
    unread_waits,
)
from bookkeeper.metadata.values import Quarantined
from bookkeeper.model import BlockRange, Target, TargetKey
from tests.support.master_values import EAST, by_name, entry, name, shipping, target

S = 1_000_000_000
NOW = Now(boot_ns=100 * S, wall_ms=61_000)
OTHER = Target(TargetKey("east", "r2", "2", 1), None, "id-east", "other")
TARGETS = [("cities", target()), ("other", OTHER)]
DIRECTORY = Directory("/srv/west", "west", "id-west", {"1": "cities", "2": "other"}, {"east": "h:1"}, TARGETS)


def test_files_of_one_table_with_one_cause_are_one_wait_and_the_oldest_is_shown() -> None:
    waits = Waits()
    for number, since in ((1, 90), (2, 70), (3, None)):
        cause = Cause(causes.SECRET_REFUSED, None if since is None else since * S, f"no {number}")
        waits.add(target(), f"f{number}", cause, 10, 1_000)
    waits.add(target(), "f4", causes.NO_WAIT, 0, 0)
    (found,) = described(waits.all(), DIRECTORY, NOW)
    assert (found.kind, found.files, found.records, found.bytes) == (causes.SECRET_REFUSED, 3, 30, 3_000)
    assert (found.since_seconds, found.file) == (30.0, "f2")
    assert "no 2" in found.text


def test_tables_that_wait_for_one_peer_for_one_reason_are_described_once() -> None:
    waits = Waits()
    for one in (target(), OTHER):
        waits.add(one, "f", Cause(causes.PEER_UNREACHABLE, 90 * S), 1, 1)
        waits.add(one, "f", Cause(causes.TABLE_GONE, 95 * S), 1, 1)
    found = described(waits.all(), DIRECTORY, NOW)
    assert [(cause.kind, cause.tables, cause.needs_person) for cause in found] == [
        (causes.TABLE_GONE, ("cities",), True),
        (causes.TABLE_GONE, ("other",), True),
        (causes.PEER_UNREACHABLE, ("cities", "other"), False),
    ]
    assert problem_of(found[2]).startswith("tables cities, other: east does not answer at h:1")
    assert problem_of(found[2]).endswith("; next: at east: bookkeeper standalone .")


def test_while_the_books_do_not_answer_each_target_waits_also_without_a_file() -> None:
    assert unread_waits(TARGETS, NOW) == []
    silent = Now(NOW.boot_ns, NOW.wall_ms, local=LocalFacts(no_books=Lack(97 * S, "process 7 keeps them locked")))
    waits = Waits()
    waits.add(target(), "f1", Cause(causes.NO_BOOKS, 97 * S, "process 7 keeps them locked"), 2, 20)
    (found,) = described(waits.all() + unread_waits(TARGETS, silent), DIRECTORY, silent)
    assert (found.kind, found.tables, found.since_seconds) == (causes.NO_BOOKS, ("cities", "other"), 3.0)
    assert (found.files, found.records, found.file) == (1, 2, "f1")


def test_waits_are_those_of_files_with_records_that_a_target_lacks() -> None:
    files = by_name(entry(name("s1"), 9, done={EAST: 4}), entry(name("s2"), 5, amount=Amount(2, 20), done={EAST: 5}))
    files.add(entry(name("s3"), 7, amount=NO_AMOUNT))
    (wait,) = waits_at(files, shipping(), NOW, 5).all()
    assert (wait.cause.kind, wait.files, wait.records) == (causes.WAITING, 1, 5)


def test_ranges_in_quarantine_wait_for_a_person() -> None:
    key = RangeKey("wal/s1/000001.wal", EAST, 3)
    row = Quarantined(BlockRange(3, 4, 0, 0), "invalid_input", "too long", 31_000)
    (wait,) = quarantined_waits({key: row}, DIRECTORY.targets, NOW)
    (found,) = described([wait], DIRECTORY, NOW)
    assert (found.kind, found.records, found.since_seconds, found.needs_person) == (causes.QUARANTINED, 2, 30.0, True)
    assert found.steps[0].command == f"bookkeeper shell /srv/west replication quarantine retry {key.range_id}"
    assert quarantined_waits({key: row}, [("other", OTHER)], NOW) == [], "its target is not configured any more"


def test_what_an_older_peer_lacks_is_told_as_time_log_and_record() -> None:
    logs = (("wal/s1/1.wal", 8), ("wal/s2/1.wal", 0), ("wal/s3/1.wal", None))
    (wait,) = older_waits([OlderState("east", 31_000, logs, 1)], TARGETS[:1], NOW)
    (found,) = described([wait], DIRECTORY, NOW)
    assert (found.kind, found.file, found.needs_person) == (causes.PEER_OLDER, "wal/s1/1.wal", True)
    assert (
        "it acknowledged after 1970-01-01T00:00:31.000Z (the next record of wal/s1/1.wal was 8 then, "
        "wal/s2/1.wal had all its records then, wal/s3/1.wal was open then)"
    ) in found.text


def test_before_the_first_read_each_target_is_not_read() -> None:
    (found,) = described(unread(DIRECTORY.targets).all(), DIRECTORY, NOW)
    assert (found.kind, found.tables, found.needs_person) == (causes.NOT_READ, ("cities", "other"), False)


@pytest.mark.parametrize(("took_s", "lasts_s"), [(0, 0.5), (2, 20)])
def test_recent_waits_last_longer_where_a_look_takes_long(took_s: int, lasts_s: float) -> None:
    recent, found = RecentWaits(), Waits()
    assert recent.get(0) is None
    recent.note(found, 10 * S, (10 + took_s) * S)
    end_ns = int((10 + took_s + lasts_s) * S)
    assert recent.get(end_ns - 1) is found
    assert recent.get(end_ns) is None
