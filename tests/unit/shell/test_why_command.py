"""The text of ``replication why``: a paragraph for each peer and cause, and why a file is kept."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from bookkeeper.rpc.contract.messages import FileWhy, LackingTarget, NextStep, RetentionReason, WaitCause, WhyReport
from shell.why_command import age, paragraphs, report_record

REFUSED = WaitCause(
    cluster="east",
    kind="secret_refused",
    tables=("cities", "towns"),
    text="east refuses the secret of this cluster: it is unknown here",
    steps=(
        NextStep("east", "bookkeeper secret renew . west"),
        NextStep("", "bookkeeper shell /srv/west definecluster east h:1 --secret-file west.secret"),
    ),
    needs_person=True,
    since_seconds=200.0,
    files=3,
    records=120,
    bytes=9_000,
    file="wal/tserver-3/000001.wal",
    next_try_in_ms=1_500,
    tries=4,
)
SHIPPING = replace(
    REFUSED,
    kind="shipping",
    tables=("cities",),
    text="the records are on their way",
    steps=(),
    needs_person=False,
    since_seconds=None,
    files=1,
    next_try_in_ms=None,
    tries=0,
)
FILE = FileWhy(
    "wal/tserver-3/000001.wal",
    4_096,
    (RetentionReason("recovery", "table cities", "1 tablet not flushed beyond it"),),
    (
        LackingTarget("cities", "east", 5, 9, 4, "secret_refused"),
        LackingTarget("towns", "north", 0, 0, 0, "done"),
    ),
)


def test_a_wait_that_needs_a_person_names_each_step_and_where_to_type_it() -> None:
    (said,) = paragraphs(WhyReport((REFUSED,), None, ("cities to east",), 0, ""), "")
    assert said.splitlines() == [
        "east waits for tables cities, towns: secret_refused for 3 min",
        "  east refuses the secret of this cluster: it is unknown here",
        "  120 records in 3 files, wal/tserver-3/000001.wal",
        "  next try in 1.5 s, after 4 failed ones",
        "  next: in the directory of east: bookkeeper secret renew . west",
        "  then: bookkeeper shell /srv/west definecluster east h:1 --secret-file west.secret",
        "  needs you",
    ]


def test_paragraphs_are_apart_and_a_file_comes_first() -> None:
    file, refused, shipping = paragraphs(WhyReport((REFUSED, SHIPPING), FILE, ("cities to east",), 0, ""), "000001.wal")
    assert file.splitlines() == [
        "wal/tserver-3/000001.wal: 4096 bytes",
        "  kept for recovery: table cities, 1 tablet not flushed beyond it",
        "  east lacks offsets 5 to 9, 4 records of cities",
        "  north lacks nothing of towns",
    ]
    assert refused.startswith("\n")
    assert shipping.splitlines()[1:] == [
        "east waits for table cities: shipping",
        "  the records are on their way",
        "  120 records in 1 file, wal/tserver-3/000001.wal",
        "  next: nothing to do",
        "  ends by itself",
    ]


def test_a_wait_that_ends_by_itself_says_when_the_next_try_is() -> None:
    busy = replace(SHIPPING, kind="slots_busy", next_try_in_ms=4_000, tries=2)
    (said,) = paragraphs(WhyReport((busy,), None, ("cities to east",), 0, ""), "")
    assert said.splitlines()[-2:] == ["  next: nothing to do; it tries again in 4.0 s", "  ends by itself"]


def test_nothing_that_waits_is_not_nothing_that_is_replicated() -> None:
    assert paragraphs(WhyReport((), None, ("cities to east", "towns to east"), 0, ""), "") == [
        "nothing waits: cities to east, towns to east"
    ]
    (said,) = paragraphs(WhyReport((), None, (), 0, ""), "cities")
    assert said == "nothing of cities is replicated: enablereplication -t TABLE --all-loc-groups CLUSTER"


def test_the_json_has_the_same_facts() -> None:
    record = report_record(WhyReport((REFUSED, SHIPPING), FILE, ("cities to east",), 7, ""))
    assert json.loads(json.dumps(record)) == record
    assert record["needs_person"] is True
    assert record["file"]["targets"][1]["first"] is None  # type: ignore[index]
    assert report_record(WhyReport((SHIPPING,), None, (), 0, ""))["needs_person"] is False


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0 s"), (119.0, "119 s"), (120.0, "2 min"), (90_000.0, "25 h")])
def test_an_age_has_one_unit(seconds: float, text: str) -> None:
    assert age(seconds) == text
