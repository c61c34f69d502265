"""The words of each kind of cause: a text, literal commands, and whether a person is needed."""

from __future__ import annotations

import shlex

import pytest
from msgspec.structs import replace

from bookkeeper.errors import OLDER_SIDE, IncompatibleError
from bookkeeper.master.queries import causes
from bookkeeper.master.queries.cause_texts import PATIENCE_S, WORDS, Names, explain, needs_person
from bookkeeper.master.queries.causes import FAULTS, KINDS, LOCAL_KINDS, PEER_KINDS, ROUTINE_KINDS, Cause
from bookkeeper.model import Target, TargetKey
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION
from bookkeeper.rpc.trust.admission import check_caller_version
from bookkeeper.rpc.trust.handshake import check_version
from shell.commands import COMMANDS

S = 1_000_000_000
TARGET = Target(TargetKey("east", "r1", "1", 1), ("geo", "info"), "id-east", "towns")
NAMES = Names(
    "/srv/west",
    "west",
    "id-west",
    "cities",
    ["cities"],
    "127.0.0.1:9",
    TARGET,
    "wal/s1/000001.wal",
    [("cities", TARGET)],
)


def test_each_kind_has_words_and_is_of_one_side() -> None:
    assert set(WORDS) == KINDS
    assert not LOCAL_KINDS & PEER_KINDS
    assert not ROUTINE_KINDS & (LOCAL_KINDS | PEER_KINDS)
    assert set(PATIENCE_S) <= KINDS - ROUTINE_KINDS
    assert set(PATIENCE_S) - {causes.PEER_BUSY} == FAULTS


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_step_is_a_command_with_its_names_filled_in(kind: str) -> None:
    cause = Cause(kind, 1, "it says no", range_id="8c41f0d2ab", host="host2", is_final=True)
    found = explain(cause, NAMES, 100 * S)
    assert found.text
    assert found.steps or not found.needs_person
    for step in found.steps:
        words = shlex.split(step.command)
        assert words[0] in ("bookkeeper", "tail"), words
        if words[:2] == ["bookkeeper", "shell"]:
            assert words[2] == ("." if step.at else "/srv/west")
            assert words[3] in COMMANDS
        assert not {"TABLE", "CLUSTER", "NAME", "DIR", "HOST:PORT"} & set(words)


@pytest.mark.parametrize("kind", sorted(PATIENCE_S))
@pytest.mark.parametrize("is_foreign", [False, True])
def test_a_kind_that_needs_a_person_has_a_step_whatever_is_known_of_it(kind: str, is_foreign: bool) -> None:
    names = replace(NAMES, quorum="parquet:///srv/lake") if is_foreign else NAMES
    found = explain(Cause(kind, 1, is_final=True), names, 10_000 * S)
    assert found.needs_person
    assert found.steps
    if is_foreign:
        assert not [step for step in found.steps if "shell . " in step.command or "standalone ." in step.command]


def test_a_kind_that_mostly_ends_by_itself_has_its_step_once_it_does_not() -> None:
    for kind, patience in ((causes.PEER_BUSY, 600), (causes.REPLAY_FAILS, 60)):
        found = [explain(Cause(kind, 0), NAMES, after * S) for after in (patience - 1, patience)]
        assert [(one.needs_person, len(one.steps)) for one in found] == [(False, 0), (True, 1)]


@pytest.mark.parametrize("error", ["east speaks protocol 9, this side 8: upgrade this side", "it has no such call"])
def test_the_older_side_is_upgraded(error: str) -> None:
    steps = explain(Cause(causes.OTHER_VERSION, 0, error), NAMES, 0).steps
    at, where = ("", "/srv/west") if OLDER_SIDE in error else ("east", ".")
    assert [(step.at, step.command) for step in steps] == [
        (at, f"bookkeeper config check {where}"),
        (at, f"bookkeeper standalone {where}"),
    ]


def test_the_words_about_versions_say_to_their_reader_who_is_older() -> None:
    for check in (check_version, check_caller_version):
        said = []
        for version in (PROTOCOL_VERSION - 1, PROTOCOL_VERSION + 1):
            with pytest.raises(IncompatibleError) as raised:
                check(version, "east")
            said.append(OLDER_SIDE in raised.value.message)
        assert said == ([False, True] if check is check_version else [True, False])


def test_a_log_that_is_damaged_as_a_whole_can_be_given_up() -> None:
    (step,) = explain(Cause(causes.DAMAGED, 0, is_final=True), NAMES, S).steps
    assert step.command == "bookkeeper wal seal /srv/west wal/s1/000001.wal"


def test_a_table_that_is_gone_begins_anew_with_its_groups_and_its_other_name() -> None:
    steps = explain(Cause(causes.TABLE_GONE), NAMES, 0).steps
    assert [(step.at, step.command) for step in steps] == [
        ("east", "bookkeeper shell . createtable towns"),
        ("", "bookkeeper shell /srv/west disablereplication -t cities -lg geo -lg info east"),
        ("", "bookkeeper shell /srv/west enablereplication -t cities -lg geo -lg info --remote-table towns east"),
    ]


def test_a_process_is_given_time_to_start_again_and_a_refusal_is_not() -> None:
    assert needs_person(Cause(causes.SECRET_REFUSED, None), 0)
    assert [needs_person(Cause(causes.NO_TSERVER, 5 * S), after * S) for after in (19, 20)] == [False, True]
    assert not needs_person(Cause(causes.NO_REPLAY, None), 1_000 * S), "nobody knows since when"
    assert not needs_person(Cause(causes.SHIPPING, 0), 1_000 * S)


def test_a_range_that_is_tried_again_needs_nobody_yet() -> None:
    for kind in (causes.REFUSED_RECORD, causes.DAMAGED):
        assert [needs_person(Cause(kind, 0, is_final=final), S) for final in (False, True)] == [False, True]


def test_a_file_behind_others_needs_a_person_when_the_file_at_the_root_does() -> None:
    root = Cause(causes.TABLE_GONE, 0, "no such table")
    behind = Cause(causes.BEHIND, root=b"wal/s1/000001.wal", at_root=root)
    found = explain(behind, NAMES, S)
    assert found.needs_person
    assert found.steps == explain(root, NAMES, S).steps
    assert found.text.startswith("east must have older records first, those of wal/s1/000001.wal: east has no table")
