"""Completions by Tab: commands, options, and names of tables and peers."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.shell_completion import ShellComplete

from shell.commands import commands
from shell.completion import Candidate, candidates
from shell.interactive import table_defaults
from shell.main import bookkeeper
from shell.names import ClusterNames, NameCache
from shell.parameters import CLUSTER, TABLE
from shell.shell_session import Session


@pytest.fixture
def session() -> Session:
    session = Session("nowhere:1", as_json=False)
    session.names = NameCache(lambda: ClusterNames("west", ("cities", "countries", "it's"), ("east", "elsewhere")))
    return session


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ena", ["enablereplication"]),
        ("replication ", ["quarantine", "status", "wait", "why"]),
        ("scan c", ["cities", "countries"]),
        ("  scan c", ["cities", "countries"]),
        ("scan i", ["'it'\"'\"'s'"]),
        ("scan cities --li", ["--limit"]),
        ("scan cities --limit 3 -c geo -", ["-b", "--begin"]),
        ("deletetable co", ["countries"]),
        ("deletecluster ", ["east", "elsewhere"]),
        ("enablereplication -t ci", ["cities"]),
        ("enablereplication -t cities -lg geo ea", ["east"]),
        ("replication wait --cluster=el", ["elsewhere"]),
        ("replication status co", ["countries"]),
        ("table ci", ["cities"]),
        ("help enab", ["enablereplication"]),
        ("help replication w", ["wait", "why"]),
        ("exi", ["exit"]),
        ("scan 'ci", []),
        ("nonsense ", []),
        ("help nonsense ", []),
        ("createtable ", []),
        ("insert cities ", []),
    ],
)
def test_the_words_that_may_follow_are_offered(session: Session, line: str, words: list[str]) -> None:
    found = [candidate.word for candidate in candidates(commands, line, session)]
    assert found[: len(words)] == words
    assert line.endswith("-") or len(found) == len(words)


@pytest.mark.parametrize(
    ("before", "incomplete", "found"),
    [
        ([], "sh", ["shell"]),
        (["shell", "nowhere:1"], "rep", ["replication"]),
        (["shell", "nowhere:1", "replication"], "w", ["wait", "why"]),
        (["shell", "nowhere:1", "hosts"], "--w", ["--wait", "--watch"]),
        (["shell", "--secret-file", "f", "nowhere:1", "scan", "cities"], "--li", ["--limit"]),
        (["shell"], "--tls-ce", ["--tls-certificate"]),
        (["shell", "nowhere:1", "scan"], "c", ["cities", "countries"]),
        (["shell", "nowhere:1", "enablereplication", "-t", "cities"], "ea", ["east"]),
    ],
    ids=str,
)
def test_other_shells_complete_the_words_of_a_command(
    session: Session, monkeypatch: pytest.MonkeyPatch, before: list[str], incomplete: str, found: list[str]
) -> None:
    monkeypatch.setattr("shell.shell_session.read_names", lambda *_arguments: session.names.get())
    complete = ShellComplete(bookkeeper, {}, "bookkeeper", "")
    assert [item.value for item in complete.get_completions(before, incomplete)] == found


def test_other_shells_complete_a_directory_where_a_cluster_is_named() -> None:
    (found,) = ShellComplete(bookkeeper, {}, "bookkeeper", "").get_completions(["shell"], "we")
    assert (found.value, found.type) == ("we", "dir")


def test_a_candidate_replaces_the_typed_prefix_and_has_its_help(session: Session) -> None:
    (found,) = candidates(commands, "help clus", session)
    assert found == Candidate("clusters", 4, "")
    (found,) = candidates(commands, "clus", session)
    assert found == Candidate("clusters", 4, "List the clusters that are defined.")
    (found,) = candidates(commands, "replication wait --cluster=el", session)
    assert (found.word, found.replaced) == ("elsewhere", 2)


def test_every_command_is_offered_at_the_start(session: Session) -> None:
    assert {found.word for found in candidates(commands, "", session)} == {*commands.commands, "exit", "quit"}


def test_without_a_cluster_no_names_are_offered() -> None:
    assert candidates(commands, "scan ", None) == []


def _parameters(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Parameter]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _parameters(command, f"{path}{name} ")
        else:
            yield from ((path + name, parameter) for parameter in command.params)


def test_every_parameter_that_names_a_table_or_a_peer_can_be_completed() -> None:
    types = {"table": TABLE, "cluster": CLUSTER}
    for command, parameter in _parameters(commands):
        wanted = types.get(parameter.name or "")
        flag = isinstance(parameter, click.Option) and parameter.is_flag
        assert wanted is None or flag or parameter.type is wanted, (
            f"{command}: give its parameter {parameter.name} the type parameters.TABLE or parameters.CLUSTER, so that "
            "the shell completes it"
        )


def test_the_current_table_is_for_commands_that_must_have_one() -> None:
    defaults = table_defaults(commands, "cities")
    assert defaults["scan"] == defaults["compact"] == {"table": "cities"}
    assert "config" not in defaults, "config is for the site, too, so it chooses its table itself"
    assert defaults["replication"] == {"wait": {"table": "cities"}, "quarantine": {}}
    assert {"tables", "deletetable", "createtable", "table"}.isdisjoint(defaults)
