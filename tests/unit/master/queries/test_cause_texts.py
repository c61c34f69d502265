"""The words of each kind of cause: a text, literal commands, and whether a person is needed."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from msgspec.structs import replace

from bookkeeper.errors import NO_JAVA, OLDER_SIDE, IncompatibleError, NoTServerError
from bookkeeper.master.queries import causes
from bookkeeper.master.queries.cause_texts import PATIENCE_S, WORDS, Names, explain, needs_person
from bookkeeper.master.queries.causes import FAULTS, KINDS, LOCAL_KINDS, PEER_KINDS, ROUTINE_KINDS, Cause
from bookkeeper.model import Target, TargetKey
from bookkeeper.replay.spark.signs_of_life import SignsOfLife
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION
from bookkeeper.rpc.trust.admission import check_caller_version
from bookkeeper.rpc.trust.handshake import check_version
from shell.commands import COMMANDS, commands
from shell.main import bookkeeper
from tests.support.jumping_clock import StandingClock

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


def parsed(words: Sequence[str]) -> None:
    """The words are a command line of ``bookkeeper``: raises UsageError for a wrong option or a missing argument."""
    command: click.Command = bookkeeper
    while isinstance(command, click.Group):
        _, found, words = command.resolve_command(click.Context(command), list(words))
        assert found is not None
        command = found
    if command.name == "shell":
        command, words = commands, words[1:]
        while isinstance(command, click.Group):
            _, found, words = command.resolve_command(click.Context(command), list(words))
            assert found is not None
            command = found
    command.make_context(command.name, list(words))


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
        if words[0] == "bookkeeper":
            parsed(words[1:])
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


def commands_of(cause: Cause, names: Names = NAMES) -> list[tuple[str, str]]:
    """The steps of a cause: where, and what to type."""
    return [(step.at, step.command) for step in explain(cause, names, S).steps]


SUPERVISED = replace(NAMES, supervised=["/srv/west", "/srv/west/hosts/host2"], hosts={"host2": "/srv/west/hosts/host2"})
NO_JAVA_WORDS = f"the Spark session did not start: {NO_JAVA} at JAVA_HOME or on the PATH; install Java 17"


def test_a_process_whose_supervisor_runs_is_not_started_a_second_time() -> None:
    for kind, log in ((causes.NO_TSERVER, "tserver1"), (causes.NO_REPLAY, "replay")):
        assert commands_of(Cause(kind, 0)) == [("", "bookkeeper standalone /srv/west")]
        assert commands_of(Cause(kind, 0), SUPERVISED) == [("", f"tail -n 20 /srv/west/logs/{log}.log")]
        assert "its supervisor starts one again by itself" in explain(Cause(kind, 0), SUPERVISED, S).text


def test_a_process_that_standalone_does_not_start_is_started_by_itself() -> None:
    apart = [("/srv/west", "replay"), ("/srv/west/hosts/host2", "tserver")]
    for names in (replace(NAMES, apart=apart), replace(SUPERVISED, apart=apart)):
        replay = ("", "python -m bookkeeper.replay /srv/west")
        assert commands_of(Cause(causes.NO_REPLAY, 0), names) == [replay]
        install = ("", "apt-get install -y openjdk-17-jre-headless")
        assert commands_of(Cause(causes.NO_REPLAY, 0, NO_JAVA_WORDS), names) == [install, replay]
        assert "supervisor" not in explain(Cause(causes.NO_REPLAY, 0), names, S).text
    away = Cause(causes.LOG_AWAY, 0, host="host2")
    assert commands_of(away, replace(SUPERVISED, apart=apart)) == [
        ("", "python -m bookkeeper.tserver /srv/west/hosts/host2")
    ]
    assert commands_of(Cause(causes.NO_TSERVER, 0), replace(NAMES, apart=apart)) == [
        ("", "bookkeeper standalone /srv/west")
    ]


def test_where_java_is_missing_it_is_installed_and_the_supervisor_goes_on() -> None:
    missing = Cause(causes.NO_REPLAY, 0, NO_JAVA_WORDS)
    install = ("", "apt-get install -y openjdk-17-jre-headless")
    assert commands_of(missing, SUPERVISED) == [install]
    assert commands_of(missing) == [install, ("", "bookkeeper standalone /srv/west")]


def test_a_jvm_that_hangs_is_ended_and_the_supervisor_starts_another(tmp_path: Path) -> None:
    clock = StandingClock()
    signs = SignsOfLife(tmp_path, 471, lambda: None, clock)
    said = ""
    while not said:
        clock.now_ns += S
        said = signs.look()
    assert commands_of(Cause(causes.NO_REPLAY, 0, said), SUPERVISED) == [("", "kill -KILL 471")], said


def test_a_host_that_is_away_is_started_in_its_own_directory() -> None:
    away = Cause(causes.LOG_AWAY, 0, host="host2")
    hosts = {"host1": "/srv/west", "host2": "/mnt/disk2/west"}
    assert commands_of(away, replace(NAMES, hosts=hosts)) == [("", "bookkeeper standalone /mnt/disk2/west")]
    assert "bring its directory /mnt/disk2/west back" in explain(away, replace(NAMES, hosts=hosts), S).text
    assert commands_of(away, SUPERVISED) == [("", "tail -n 20 /srv/west/hosts/host2/logs/tserver1.log")]


def test_a_peer_whose_master_answers_without_a_tablet_server_gets_one() -> None:
    words = "the master of east answers at h:9, and no tablet server of east is alive"
    found = explain(Cause(causes.PEER_UNREACHABLE, 0, words, NoTServerError.code), NAMES, S)
    assert found.text.startswith(f"{words}; start one")
    assert [(step.at, step.command) for step in found.steps] == [("east", "python -m bookkeeper.tserver .")]


def test_a_log_that_is_damaged_as_a_whole_can_be_given_up() -> None:
    (step,) = explain(Cause(causes.DAMAGED, 0, is_final=True), NAMES, S).steps
    assert step.command == "bookkeeper wal seal /srv/west wal/s1/000001.wal"
    on_host = Cause(causes.DAMAGED, 0, is_final=True, host="host2")
    assert commands_of(on_host, SUPERVISED) == [("", "bookkeeper wal seal /srv/west/hosts/host2 wal/s1/000001.wal")]


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
