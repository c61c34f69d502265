"""The shell's text and JSON, its exit codes, and its errors for bad input, against real clusters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from bookkeeper.config.file import load_settings
from bookkeeper.config.table_properties import PROPERTIES
from shell.failures import ExitCode
from tests.support.cluster import Cluster
from tests.support.shell import Shell, bookkeeper, quick

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_TABLES = count(1)


@pytest.fixture
def shell(west: Cluster) -> Shell:
    return Shell(west)


@pytest.fixture
def table(shell: Shell) -> str:
    name = f"shell{next(_TABLES)}"
    shell.good("createtable", name, "--splits", "g,p", "--group", "geo=lat,lon", "--group", "label=name")
    return name


# ---- tables


def test_a_table_is_made_listed_and_deleted(shell: Shell) -> None:
    words = ("createtable", "made", "--splits", r"g,p\x00", "--splits", "x", "--group", "geo=lat,lon")
    made = shell.good(*words, "--property", "table.custom.owner=me", "--json").json
    groups = [{"name": "geo", "families": ["lat", "lon"]}]
    assert {**made, "table_id": "?"} == {
        "name": "made",
        "table_id": "?",
        "state": "online",
        "groups": groups,
        "properties": {"table.custom.owner": "me"},
    }
    listed = {row["name"]: row for row in shell.good("tables", "--json").json}
    assert listed["made"] == made
    header, *rows = shell.good("tables").out.splitlines()
    assert header.split() == ["NAME", "TABLE", "ID", "STATE", "GROUPS", "PROPERTIES"]
    assert ["made", made["table_id"], "online", "geo", "table.custom.owner=me"] in [row.split() for row in rows]
    assert shell.good("deletetable", "made").out == "table made deleted\n"
    assert "made" not in {row["name"] for row in shell.good("tables", "--json").json}


def test_groups_are_set_and_shown(shell: Shell, table: str) -> None:
    assert shell.good("getgroups", table).out.splitlines() == ["NAME   FAMILIES", "geo    lat,lon", "label  name"]
    shell.good("setgroups", table, "geo=lat", r"odd=\x00\x2c")
    assert shell.good("getgroups", table, "--json").json == [
        {"name": "geo", "families": ["lat"]},
        {"name": "odd", "families": [r"\x00,"]},
    ]
    shell.good("setgroups", table)
    assert shell.good("getgroups", table).out == 'no named groups; every family is in "default"\n'


def test_properties_are_listed_set_and_taken_away(shell: Shell, table: str) -> None:
    listed = {row["property"]: row for row in shell.good("config", "-t", table, "--json").json}
    assert listed.keys() == PROPERTIES.keys()
    assert not any(row["set"] for row in listed.values())
    words = ("-s", "table.versions.max=3", "-s", "table.custom.owner=me")
    assert shell.good("config", "-t", table, *words).out == f"table {table}: 2 properties changed\n"
    header, *rows = shell.good("config", "-t", table, "-f", "vers").out.splitlines()
    assert header.split() == ["PROPERTY", "VALUE", "SET", "DEFAULT"]
    assert [row.split() for row in rows] == [["table.versions.max", "3", "yes", "1"]]
    more = ("-s", "table.versions.max=4", "-d", "table.custom.owner", "-d", "table.age_off_ms")
    assert shell.good("config", "-t", table, *more, "--json").json["properties"] == {"table.versions.max": "4"}


def test_a_property_that_is_wrong_is_refused_and_changes_nothing(shell: Shell, table: str) -> None:
    code, said = shell.bad("config", "-t", table, "-s", "table.compression=zstd", "-s", "table.version.max=3")
    assert (code, "did you mean table.versions.max?" in said) == (ExitCode.FAILED, True)
    assert "'0'" in shell.bad("config", "-t", table, "-s", "table.versions.max=0")[1]
    assert "unknown property owner" in shell.bad("createtable", "wrong", "--property", "owner=me")[1]
    assert not any(row["set"] for row in shell.good("config", "-t", table, "--json").json)
    assert shell.bad("config", "-t", "nosuch")[0] == ExitCode.FAILED


# ---- cells


def test_cells_are_written_scanned_and_deleted(shell: Shell, table: str) -> None:
    block_target = ("--timestamp", "7")
    assert shell.good("insert", table, "a", "lat", "deg", "46.9", *block_target).out == "written\n"
    shell.good("insert", table, r"m\x00", "name", "de", r"Bern \xff", *block_target, "--visibility", "public")
    shell.good("insert", table, "z", "other", "q", "1", *block_target)
    shell.good("insert", table, "z", "other", "gone", "1", *block_target)
    assert shell.good("delete", table, "z", "other", "gone", "--timestamp", "8").out == "deleted\n"
    shell.good("setauths", "-s", "public")
    assert shell.good("scan", table).out.splitlines() == [
        "a lat:deg [] 7    46.9",
        r"m\x00 name:de [public] 7    Bern \xff",
        "z other:q [] 7    1",
    ]
    middle = {
        "row": r"m\x00",
        "family": "name",
        "qualifier": "de",
        "visibility": "public",
        "timestamp": 7,
        "value": r"Bern \xff",
    }
    assert shell.good("scan", table, "-b", "b", "-e", r"m\x00", "--json").json_lines == [middle]
    shell.good("flush", table)
    assert shell.good("scan", table, "--json", "-c", "name:de").json_lines == [middle]
    assert len(shell.good("scan", table, "-c", "lat,name:de").out.splitlines()) == 2
    assert len(shell.good("scan", table, "--limit", "2").out.splitlines()) == 2
    assert shell.good("scan", table, "-b", "zz").out == ""
    *cells, age = shell.good("scan", table, "--stale", "60000").out.splitlines()
    assert (len(cells), age) == (3, "as of now: leaders answered")
    assert shell.good("scan", table, "-b", "zz", "--stale", "60000", "--json").json_lines == [{"as_of_ms": None}]
    shell.good("setauths", "--clear")


def test_labelled_cells_are_shown_to_users_that_may_see_them(shell: Shell, table: str) -> None:
    assert shell.good("setauths", "-u", "ann", "--set", "staff,north").out == "user ann has north, staff\n"
    assert shell.good("getauths", "-u", "ann").out == "north,staff\n"
    assert shell.good("getauths", "-u", "bob", "--json").json == {"user": "bob", "authorizations": []}
    for row, label in (("a", ""), ("b", "staff"), ("h", "staff&(north|south)"), ("x", "south")):
        shell.good("insert", table, row, "lat", "deg", "1", "--visibility", label)
    code, said = shell.bad("insert", table, "y", "lat", "deg", "1", "--visibility", "staff&north|south")
    assert (code, "mixed without parentheses" in said) == (ExitCode.FAILED, True)

    def rows(*words: str) -> str:
        return "".join(line["row"] for line in shell.good("scan", table, *words, "--json").json_lines)

    assert rows() == rows("--user", "bob") == rows("--user", "ann", "--auths", "") == "a"
    assert rows("--user", "ann") == "abh"
    assert rows("--user", "ann", "--auths", "staff") == "ab"
    code, said = shell.bad("scan", table, "--user", "ann", "--auths", "staff,south")
    assert (code, "user ann has no authorization south" in said) == (ExitCode.FAILED, True)
    assert shell.good("setauths", "-u", "ann", "-c").out == "user ann has no authorizations\n"
    assert rows("--user", "ann") == "a"
    assert shell.bad("setauths", "-u", "ann")[0] == ExitCode.USAGE


def test_versions_are_kept_as_the_table_says_and_shown_as_one_asks(shell: Shell, table: str) -> None:
    shell.good("config", "-t", table, "-s", "table.versions.max=3")
    for time in ("5", "6", "7", "8"):
        shell.good("insert", table, "a", "lat", "deg", time, "--timestamp", time)
    assert shell.good("scan", table).out.split() == [*line("8"), *line("7"), *line("6")]
    shell.good("flush", table)
    assert shell.good("scan", table, "--versions", "2").out.split() == [*line("8"), *line("7")]
    assert shell.good("scan", table, "--from-ms", "6", "--to-ms", "8").out.split() == [*line("7"), *line("6")]


def test_a_table_is_compacted(shell: Shell, west: Cluster, table: str) -> None:
    for value in ("1", "2", "3"):
        for row in ("a", "h", "x"):
            shell.good("insert", table, row, "lat", "deg", value)
        shell.good("flush", table)
    shell.good("delete", table, "h", "lat", "deg")
    before = shell.good("scan", table).out
    words = ("compact", "-t", table, "-b", "h", "-e", "p")
    assert shell.good(*words, "--wait").out == f"table {table} compacted\n"
    assert shell.good("compact", "-t", table, "--json").json == {"name": table, "done": False}
    assert shell.good("compact", "-t", table, "--wait", "--json").json == {"name": table, "done": True}
    assert shell.good("scan", table).out == before
    directory = west.settings.tables_dir / west.client.tables.get(table).table_id
    (used,) = shell.good("du", "-t", table, "--json").json
    files = [path.stat().st_size for path in directory.rglob("*.parquet")]
    assert {**used, "bytes": 0} == {"table": table, "tablets": 3, "segments": 2, "records": 2, "bytes": 0}
    assert 0 < used["bytes"] <= sum(files)
    assert table in shell.good("du").out
    west.wait_until(lambda: len(list(directory.rglob("*.parquet"))) == 2, "replaced segments are deleted", 120)
    assert shell.good("scan", table).out == before
    assert shell.bad("compact", "-t", "nosuch")[0] == ExitCode.FAILED


def line(time: str) -> list[str]:
    """The words of one version."""
    return ["a", "lat:deg", "[]", time, time]


# ---- replication


@pytest.fixture
def replicated(shell: Shell, east: Cluster, table: str) -> Iterator[str]:
    """A table that replicates to ``east`` under another name."""
    Shell(east).good("createtable", f"copy_of_{table}", "--group", "geo=lat,lon", "--group", "label=name")
    shell.good("definecluster", "east", east.quorum)
    shell.good("enablereplication", "-t", table, "-all-loc-groups", "--remote-table", f"copy_of_{table}", "east")
    yield table
    shell.good("disablereplication", "-t", table, "--all-loc-groups", "east")


def test_what_is_written_arrives_and_the_status_says_so(shell: Shell, east: Cluster, replicated: str) -> None:
    shell.good("insert", replicated, "a", "lat", "deg", "46.9", "--timestamp", "7")
    shell.good("insert", replicated, "z", "name", "de", "Zug", "--timestamp", "7")
    assert shell.good("replication", "wait", replicated).out == f"table {replicated} is replicated to east\n"
    waited = shell.good("replication", "wait", replicated, "--cluster", "east", "--timeout", "60", "--json").json
    assert waited == {"table": replicated, "replicated": True, "peers": ["east"]}
    copy = Shell(east).good("scan", f"copy_of_{replicated}").out.splitlines()
    assert copy == ["a lat:deg [] 7    46.9", "z name:de [] 7    Zug"]
    rows = shell.good("replication", "status", replicated, "--json").json
    assert rows
    for row in rows:
        assert (row["table"], row["cluster"], row["phase"], row["last_error"]) == (replicated, "east", "done", None)
        assert (row["cause"], row["root_cause"]) == (None, None)
        assert row["needed"] == row["finished"] > 0
        assert (row["lag_records"], row["lag_bytes"], row["lag_seconds"]) == (0, 0, 0.0)
        assert row["state"] in ("OPEN", "CLOSED")
    header = shell.good("replication", "status", replicated).out.splitlines()[0]
    assert header.split("  ")[0] == "TABLE"
    assert "LAG RECORDS" in header
    assert "NEXT TRY IN MS" in header


def test_groups_of_a_target_can_be_narrowed(shell: Shell, replicated: str, east: Cluster) -> None:
    (target,) = shell.good("disablereplication", "-t", replicated, "-lg", "geo", "east", "--json").json
    assert (target["table"], target["cluster"], target["groups"]) == (replicated, "east", ["default", "label"])
    shell.good("insert", replicated, "a", "lat", "deg", "1", "--timestamp", "7")
    shell.good("insert", replicated, "a", "name", "de", "Bern", "--timestamp", "7")
    shell.good("replication", "wait", replicated)
    assert Shell(east).good("scan", f"copy_of_{replicated}").out == "a name:de [] 7    Bern\n"
    text = shell.warned(
        "enablereplication", "-t", replicated, "-lg", "geo", "--remote-table", f"copy_of_{replicated}", "east"
    )
    assert "those written from now on" in text.err
    assert text.out.splitlines()[0].split() == ["TABLE", "CLUSTER", "REMOTE", "TABLE", "GROUPS", "INCARNATION"]
    assert len(text.out.splitlines()) == 3


def test_clusters_are_listed_with_who_they_are(shell: Shell, east: Cluster) -> None:
    defined = shell.good("definecluster", "east", east.quorum, "--json").json
    instance = load_settings(east.directory).instance.instance_id
    assert defined == {"name": "east", "quorum": east.quorum, "instance_id": instance}
    assert defined in shell.good("clusters", "--json").json
    assert ["east", east.quorum, instance] in [line.split() for line in shell.good("clusters").out.splitlines()]


def test_a_wait_that_is_over_has_an_exit_code_of_its_own(shell: Shell, tmp_path: Path, table: str) -> None:
    with Cluster(tmp_path / "away", "away", tservers=1) as away:
        Shell(away).good("createtable", table)
        shell.good("definecluster", "away", away.quorum)
        shell.good("enablereplication", "-t", table, "--all-loc-groups", "away")
    shell.good("insert", table, "a", "lat", "deg", "1")
    code, said = shell.bad("replication", "wait", table, "--timeout", "1")
    assert code == ExitCode.TIMED_OUT
    assert f"replication why {table}" in said
    given_up = shell.warned("disablereplication", "-t", table, "--all-loc-groups", "away")
    assert "had not reached away" in given_up.err
    assert shell.good("deletecluster", "away", away.quorum).out == "cluster away deleted\n"
    assert "away" not in {row["name"] for row in shell.good("clusters", "--json").json}


# ---- bad input, exit codes


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("scan", "nosuch"), ExitCode.FAILED, "no table nosuch"),
        (("insert", "nosuch", "r", "f", "q", "v"), ExitCode.FAILED, "no table nosuch"),
        (("deletetable", "nosuch"), ExitCode.FAILED, "no table nosuch"),
        (("enablereplication", "-t", "nosuch", "-all-loc-groups", "x"), ExitCode.FAILED, "nosuch"),
        (("deletecluster", "nosuch", "127.0.0.1:1"), ExitCode.FAILED, "no cluster nosuch"),
        (("definecluster", "a", "127.0.0.1:1"), ExitCode.UNAVAILABLE, "127.0.0.1:1"),
        (("definecluster", "a", "nonsense"), ExitCode.FAILED, "nonsense"),
        (("createtable", "x", "--group", "geo"), ExitCode.USAGE, "NAME=family,family"),
        (("createtable",), ExitCode.USAGE, "shell createtable --help"),
        (("nosuchcommand",), ExitCode.USAGE, "nosuchcommand"),
        (("scan", "t", "--limit", "0"), ExitCode.USAGE, "--limit"),
        (("scan", "t", "--stale", "0"), ExitCode.USAGE, "--stale"),
        (("enablereplication", "-t", "t", "east"), ExitCode.USAGE, "--all-loc-groups"),
        (("enablereplication", "-t", "t", "-lg", "geo", "-all-loc-groups", "east"), ExitCode.USAGE, "either"),
        (("insert", "t", r"\xZZ", "f", "q", "v"), ExitCode.USAGE, "two hexadecimal digits"),
    ],
)
def test_bad_input_is_told_in_one_line(shell: Shell, words: tuple[str, ...], code: ExitCode, said: str) -> None:
    found, line = shell.bad(*words)
    assert found == code
    assert said in line
    assert line.startswith("error: ")


def test_refusals_leave_things_as_they_are(shell: Shell, table: str, west: Cluster) -> None:
    assert shell.bad("createtable", table)[0] == ExitCode.FAILED
    assert shell.bad("setgroups", table, "a=x", "b=x")[0] == ExitCode.FAILED
    assert shell.bad("definecluster", "self", west.quorum)[0] == ExitCode.FAILED
    assert shell.bad("replication", "wait", table, "--cluster", "nosuch")[0] == ExitCode.FAILED
    assert [group["name"] for group in shell.good("getgroups", table, "--json").json] == ["geo", "label"]


def test_errors_for_programs_are_json(shell: Shell) -> None:
    answer = shell("scan", "nosuch", "--json")
    assert (answer.code, answer.out) == (ExitCode.FAILED, "")
    assert json.loads(answer.err)["error"] == "not_found"


def test_the_json_switch_may_stand_anywhere(shell: Shell, west: Cluster) -> None:
    answers = [
        quick("shell", "--json", west.quorum, "clusters"),
        quick("shell", west.quorum, "--json", "clusters"),
        quick("shell", west.quorum, "clusters", "--json"),
    ]
    assert {answer.code for answer in answers} == {ExitCode.OK}
    assert answers[0].json == answers[1].json == answers[2].json == shell.good("clusters", "--json").json


def test_a_cluster_that_does_not_answer_is_told_with_its_address() -> None:
    answer = bookkeeper("shell", "127.0.0.1:1", "tables")
    assert answer.code == ExitCode.UNAVAILABLE
    assert "127.0.0.1:1" in answer.err
    assert answer.err.count("\n") == 1


def test_a_directory_without_a_cluster_is_told(tmp_path: Path) -> None:
    for answer in (bookkeeper("shell", str(tmp_path), "tables"), bookkeeper("standalone", str(tmp_path))):
        assert answer.code == ExitCode.FAILED
        assert "bookkeeper init" in answer.err
        assert answer.err.count("\n") == 1


# ---- ways to run commands


def test_commands_come_from_a_script_until_one_fails(west: Cluster, table: str) -> None:
    script = f"# cells\ninsert {table} 'a b' lat deg 1 --timestamp 7\n\nscan {table}\nscan nosuch\ntables\n"
    answer = bookkeeper("shell", str(west.directory), stdin=script)
    assert answer.code == ExitCode.FAILED
    assert answer.out.splitlines() == ["written", "a b lat:deg [] 7    1"]
    assert answer.err.count("\n") == 1


def test_what_scan_prints_can_be_typed_in_a_script(west: Cluster, table: str) -> None:
    words = r"a\x00#b lat deg -7.45 --timestamp 7"
    answer = bookkeeper("shell", str(west.directory), stdin=f"insert {table} {words}\nscan {table}\n")
    assert answer.out.splitlines() == ["written", r"a\x00#b lat:deg [] 7    -7.45"]


def test_a_script_ends_at_exit_and_json_holds_for_all_of_it(west: Cluster, table: str) -> None:
    answer = bookkeeper("shell", "--json", west.quorum, stdin=f"insert {table} a lat deg 1\nexit\nnonsense\n")
    assert (answer.code, answer.err) == (ExitCode.OK, "")
    assert answer.json == {"table": table, "written": 1}


def test_help_names_every_command(shell: Shell) -> None:
    text = shell.good("help").out
    for name in ("definecluster", "enablereplication", "createtable", "scan", "replication", "flush"):
        assert name in text
    assert "--remote-table" in shell.good("help", "enablereplication").out
    assert "status" in shell.good("help", "replication").out


# ---- init


def test_init_says_what_it_made_and_refuses_a_second_time(tmp_path: Path) -> None:
    made = bookkeeper("init", str(tmp_path / "c"), "--name", "c", "--set", "tserver.wal_roll_bytes=4096", "--json")
    assert (made.code, made.err) == (ExitCode.OK, "")
    settings = load_settings(tmp_path / "c")
    assert made.json["quorum"] == settings.quorum == settings.master.address
    assert settings.tserver.wal_roll_bytes == 4_096
    again = bookkeeper("init", str(tmp_path / "c"), "--name", "c")
    assert again.code == ExitCode.FAILED
    assert again.err.count("\n") == 1
    bad = bookkeeper("init", str(tmp_path / "d"), "--name", "c", "--set", "tserver.wal_roll_byte=1")
    assert bad.code == ExitCode.FAILED
    assert "did you mean tserver.wal_roll_bytes?" in bad.err
    assert not (tmp_path / "d").exists()


def test_init_makes_a_host_of_a_cluster_and_refuses_what_a_host_can_not_have(east: Cluster, tmp_path: Path) -> None:
    """Pages show the hosts of the other cluster."""
    home, cluster = str(tmp_path / "two"), str(east.directory)
    made = bookkeeper("init", home, "--join", cluster, "--set", "tserver.wal_roll_bytes=4096", "--json")
    assert (made.code, made.err) == (ExitCode.OK, "")
    assert (made.json["cluster"], made.json["host"][:4], made.json["name"]) == (cluster, "host", "east")
    assert made.json["metadata"] == east.settings.metadata_url
    assert load_settings(home).tserver.wal_roll_bytes == 4_096
    for words in (("config", "check", home), ("shell", home, "tables"), ("secret", "list", home), ("monitor", home)):
        assert quick(*words).code == ExitCode.OK, words
    assert quick("secret", "list", home).out == quick("secret", "list", cluster).out
    cases: list[tuple[tuple[str, ...], int, str]] = [
        (("--join", cluster, "--name", "w"), ExitCode.USAGE, "--name and --metadata are for a new cluster"),
        (("--join", cluster, "--set", "host.name=x"), ExitCode.FAILED, "name the host with --host NAME"),
        (("--join", cluster, "--host", "host1"), ExitCode.FAILED, "host1 is the host in . of this cluster for ever"),
        (("--join", home), ExitCode.FAILED, "join that directory"),
        ((), ExitCode.USAGE, "a new cluster needs --name NAME, a host of an existing one --join CLUSTER"),
    ]
    for arguments, code, says in cases:
        refused = quick("init", str(tmp_path / "three"), *arguments)
        assert refused.code == code, refused.err
        assert says in refused.err
    assert not (tmp_path / "three").exists()


def test_the_first_host_may_have_another_name_and_a_joined_host_runs_no_further_ones(tmp_path: Path) -> None:
    assert quick("init", str(tmp_path / "c"), "--name", "c", "--host", "alpha").code == ExitCode.OK
    assert load_settings(tmp_path / "c").host.name == "alpha"
    assert quick("init", str(tmp_path / "d"), "--join", str(tmp_path / "c")).code == ExitCode.OK
    refused = bookkeeper("standalone", str(tmp_path / "d"), "--hosts", "2")
    assert refused.code == ExitCode.FAILED
    assert f"bookkeeper standalone {tmp_path / 'c'} --hosts 2" in refused.err
