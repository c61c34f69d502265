"""Bad input through the real shell: one clear line, an exit code, and nothing changed in books and configuration."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from bookkeeper.config.sections import Settings
from bookkeeper.metadata import keys
from bookkeeper.standalone.directory import init_cluster
from shell.failures import ExitCode
from tests.support.local_pair import HASTE, LocalCluster, local_cluster
from tests.support.masters import LocalMaster
from tests.support.shell import Answer, quick

pytestmark = pytest.mark.integration

LIMITS: Mapping[str, object] = {**HASTE, "tserver.row_bytes_max": 40, "tserver.value_bytes_max": 60}
DEAD = "127.0.0.1:1"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster ``here`` with the tables ``t`` (replicated to ``lake``), ``shut`` (read-only), ``plain``."""
    home = tmp_path_factory.mktemp("bad")
    with local_cluster(home / "here", LIMITS) as found:
        run = Runs(found, home)
        run.good("createtable", "t", "--group", "geo=lat,lon")
        run.good("createtable", "shut")
        run.good("createtable", "plain", "--splits", "m")
        run.good("insert", "shut", "r", "f", "q", "v")
        run.good("insert", "plain", "r", "f", "q", "v")
        run.good("definecluster", "lake", f"parquet://{home / 'lake'}")
        run.good("enablereplication", "-t", "t", "-all-loc-groups", "lake")
        run.good("readonly", "-t", "shut", "on")
        yield found


@pytest.fixture(scope="module")
def namesake(tmp_path_factory: pytest.TempPathFactory, cluster: LocalCluster) -> Iterator[Settings]:
    """Another cluster with the first one's name."""
    name = cluster.settings.instance.name
    with LocalMaster(init_cluster(tmp_path_factory.mktemp("other") / "c", name, overrides=HASTE)) as master:
        yield master.settings


class Runs:
    """The shell of a cluster."""

    def __init__(self, cluster: LocalCluster, home: Path) -> None:
        self.cluster, self.home = cluster, home

    def __call__(self, *words: str) -> Answer:
        return quick("shell", self.cluster.quorum, *words)

    def good(self, *words: str) -> Answer:
        answer = self(*words)
        assert (answer.code, answer.err) == (ExitCode.OK, ""), answer
        return answer

    def state(self) -> object:
        """All that is configured, and all that the books hold but for operations, which are kept when they failed."""
        fate = keys.section(keys.FATE_PREFIX)[0]
        books = {
            row.key: {column: cell.value for column, cell in row.cells.items()}
            for row in self.cluster.metadata.scan()
            if not row.key.startswith(fate)
        }
        tree = {path: found.value for path, found in self.cluster.coordination.children("/").items()}
        return books, {path: value for path, value in tree.items() if not path.startswith("/counters/")}


@pytest.fixture
def shell(cluster: LocalCluster) -> Runs:
    return Runs(cluster, cluster.directory.parent)


FAILED, USAGE, AWAY = ExitCode.FAILED, ExitCode.USAGE, ExitCode.UNAVAILABLE

CASES: list[tuple[str, ExitCode, str]] = [
    # what there is not
    ("scan nosuch", FAILED, "no table nosuch"),
    ("insert nosuch r f q v", FAILED, "no table nosuch"),
    ("deletetable nosuch", FAILED, "no table nosuch"),
    ("enablereplication -t nosuch -all-loc-groups lake", FAILED, "no table nosuch"),
    ("enablereplication -t t -lg nogroup lake", FAILED, "no locality group nogroup; it has geo"),
    ("disablereplication -t t -lg nogroup lake", FAILED, "no locality group nogroup; it has geo"),
    ("enablereplication -t t -all-loc-groups nowhere", FAILED, "no cluster nowhere; define it first"),
    ("disablereplication -t t -all-loc-groups nowhere", FAILED, "no cluster nowhere"),
    ("deletecluster nowhere host:1", FAILED, "no cluster nowhere"),
    ("replication wait nosuch", FAILED, "no table nosuch"),
    ("replication wait t --cluster nowhere", FAILED, "nowhere"),
    ("replication quarantine skip nosuch", FAILED, "nosuch"),
    # quorums
    ("definecluster a nonsense", FAILED, "'nonsense' is not an address; write HOST:PORT"),
    ("definecluster a host:0", FAILED, "a number from 1 to 65535"),
    ("definecluster a host:65536", FAILED, "a number from 1 to 65535"),
    ("definecluster a host:1,", FAILED, "is not an address"),
    ("definecluster a ,", FAILED, "is not an address"),
    ("definecluster a ''", FAILED, "is not an address"),
    ("definecluster a ::1:9797", FAILED, "an IPv6 host in brackets"),
    ("definecluster a 'host :1'", FAILED, "is not an address"),
    ("definecluster a nosystem:///x", FAILED, "nosystem"),
    ("definecluster a parquet://", FAILED, "parquet"),
    ("definecluster a s4://bucket", FAILED, "s4"),
    ("definecluster 'a b' host:1", FAILED, "can't be a cluster's name"),
    (f"definecluster a {DEAD}", AWAY, "nothing was changed"),
    ("definecluster me OWN", FAILED, "this cluster itself"),
    ("definecluster other NAMESAKE", FAILED, "has the name here, as this one has: give one of them another"),
    ("deletecluster lake host:1", FAILED, "not host:1; name its own quorum"),
    ("deletecluster lake LAKE", FAILED, "first: disablereplication -t t --all-loc-groups lake"),
    # what is closed
    ("insert shut r f q v", FAILED, "table shut is read-only: only replicated data is taken"),
    ("delete shut r f q", FAILED, "readonly -t shut off"),
    ("deletetable shut", FAILED, "readonly -t shut off"),
    ("importdirectory shut INPUT", FAILED, "readonly -t shut off"),
    ("insert t r f q v --if-absent", FAILED, "a replicated table takes no conditional writes"),
    ("createtable metadata", FAILED, "metadata"),
    # too large, too odd
    (f"insert plain {'r' * 41} f q v", FAILED, "40"),
    (f"insert plain r f q {'v' * 61}", FAILED, "60"),
    (f"insert plain r {'f' * 41} q v", FAILED, "40"),
    (f"insert plain r f {'q' * 41} v", FAILED, "40"),
    ("insert plain '' f q v", FAILED, "row"),
    ("insert plain r f q v --timestamp 9223372036854775808", USAGE, "--timestamp"),
    ("insert plain r f q v --timestamp soon", USAGE, "--timestamp"),
    ("delete plain r f q --timestamp -9223372036854775809", USAGE, "--timestamp"),
    ("insert plain r f q v --visibility 'a&'", FAILED, "a&"),
    (r"insert plain \xZZ f q v", USAGE, "two hexadecimal digits"),
    ("insert plain r f q", USAGE, "--help"),
    ("insert plain r f q v w", USAGE, "--help"),
    ("addsplits -t plain ''", USAGE, "a row is empty"),
    (f"addsplits -t plain {'r' * 16385}", FAILED, "a split of 16385 bytes is too long"),
    ("createtable plain", FAILED, "there is a table plain already"),
    ("createtable ''", FAILED, "can't be a table's name"),
    ("createtable a..b", FAILED, "without '..' and '/'"),
    ("createtable ../x", FAILED, "without '..' and '/'"),
    (f"createtable x --group {'g' * 256}=f", FAILED, "can't be a locality group's name"),
    (f"createtable long --splits {'r' * 16385}", FAILED, "a split of 16385 bytes is too long"),
    ("createtable x --splits a,,b", USAGE, "an empty part"),
    ("createtable x --group geo", USAGE, "NAME=family,family"),
    ("createtable x --group default=a", FAILED, "default"),
    ("createtable x --group a=f --group b=f", FAILED, "one group only"),
    ("createtable x --property table.versions.max=0", FAILED, "'0'"),
    ("config -t plain -s table.version.max=1", FAILED, "did you mean table.versions.max?"),
    ("config -t plain -s table.versions.max", USAGE, "KEY=VALUE"),
    ("config -s table.versions.max=1", USAGE, "give -t TABLE"),
    ("config -t plain -s instance.cluster.x.zookeepers=h:1", USAGE, "is of the site; omit -t"),
    ("config -s instance.replication.name=other", FAILED, "is the setting instance.name"),
    ("config -s instance.cluster.zookeepers=h:1", FAILED, "unknown property instance.cluster.zookeepers"),
    ("config -d instance.cluster.nosuch.zookeepers", FAILED, "no cluster nosuch"),
    ("config -d instance.cluster.t.zookeepers -s table.versions.max=1", FAILED, "use two commands"),
    ("config -t plain -s table.replication.nosuch=lake", FAILED, "no locality group nosuch"),
    ("config -t plain -s table.replication.default=nosuch -s table.versions.max=7", FAILED, "no cluster nosuch"),
    ("config -t plain -s table.replication.default=,", FAILED, "write CLUSTER,CLUSTER"),
    ("config -t plain -s table.replication.default= -d table.replication.default", FAILED, "comes twice"),
    ("importdirectory plain NOTHING", FAILED, "nothing-there"),
    ("importtable copy NOTHING", FAILED, "nothing-there"),
    ("exporttable plain LAKE_DIR", FAILED, "lake"),
    ("merge -t plain -b z -e a", FAILED, "no row lies after b'z'"),
    ("scan plain --limit 0", USAGE, "--limit"),
    ("scan plain --limit 9223372036854775808", USAGE, "--limit"),
    ("replication wait t --timeout nan", USAGE, "nan is not in the range"),
    ("replication wait t --timeout inf", USAGE, "--timeout"),
    ("replication wait t --timeout 1e400", USAGE, "--timeout"),
    ("scan plain --user ghost --auths secret", FAILED, "ghost"),
    ("replication wait t --timeout -1", USAGE, "--timeout"),
    ("readonly on", USAGE, "readonly"),
]


def words_of(line: str, shell: Runs, namesake: Settings) -> list[str]:
    places = {
        "OWN": shell.cluster.quorum,
        "NAMESAKE": namesake.master.address,
        "LAKE": f"parquet://{shell.home / 'lake'}",
        "LAKE_DIR": str(shell.home / "lake"),
        "INPUT": str(shell.home),
        "NOTHING": str(shell.home / "nothing-there"),
    }
    return [places.get(word, word) for word in shlex.split(line.replace("\\x", "\\\\x"))]


def test_bad_input_is_one_line_and_an_exit_code_and_changes_nothing(shell: Runs, namesake: Settings) -> None:
    before, wrong = shell.state(), []
    for line, code, said in CASES:
        answer = shell(*words_of(line, shell, namesake))
        told = answer.err.startswith("error: ") and answer.err.count("\n") == 1 and said in answer.err
        if (answer.code, answer.out) != (code, "") or not told:
            wrong.append(f"{line}: {answer}")
        if shell.state() != before:
            wrong.append(f"{line}: books or configuration changed")
            before = shell.state()
    assert not wrong, "\n".join(wrong)


LONG_WORD = "w" * 10_000

LONG_CASES = [
    f"scan {LONG_WORD}",
    f"scan plain --limit {'9' * 10_000}",
    f"scan plain --visibility {LONG_WORD}",
    f"{LONG_WORD} plain",
    f"createtable {LONG_WORD}",
    f"createtable x --group {LONG_WORD}",
    f"createtable x --splits a,{2 * LONG_WORD}",
    f"createtable x --property table.{LONG_WORD}=1",
    f"config -t plain -s table.versions.max={LONG_WORD}",
    f"insert plain r {LONG_WORD} q v",
    f"insert plain r f q v --visibility '{'a ' * 5_000}&'",
    f"insert plain {chr(92)}xZZ{LONG_WORD} f q v",
    f"insert plain '{chr(92)}x00{'é ' * 5_000}' f q v",
    f"definecluster {LONG_WORD} host:1",
    f"definecluster a {LONG_WORD}",
    f"definecluster a {LONG_WORD}://x",
    f"deletecluster {LONG_WORD} host:1",
    f"enablereplication -t t -lg {LONG_WORD} lake",
    f"disablereplication -t t -all-loc-groups {LONG_WORD}",
    f"replication wait t --cluster {LONG_WORD}",
    f"replication quarantine skip {LONG_WORD}",
    f"importdirectory plain /{LONG_WORD}",
    f"merge -t plain -b z{LONG_WORD} -e a",
]


def test_an_error_repeats_little_of_what_was_typed(shell: Runs) -> None:
    wrong = []
    for line in LONG_CASES:
        answer = shell(*shlex.split(line.replace("\\x", "\\\\x")))
        if answer.code not in (FAILED, USAGE) or not answer.err.startswith("error: ") or len(answer.err) > 1_000:
            wrong.append(f"{line[:40]}: {answer.code} {len(answer.err)} {answer.err[:300]}")
    assert not wrong, "\n".join(wrong)


def test_the_greatest_numbers_are_taken(shell: Runs) -> None:
    shell.good("scan", "plain", "--limit", "9223372036854775807", "--versions", "2147483647")
    shell.good("replication", "wait", "t", "--timeout", "31536000")
    assert shell("replication", "wait", "t", "--timeout", "0").code in (ExitCode.OK, ExitCode.TIMED_OUT)


def test_what_the_document_types_is_understood(shell: Runs) -> None:
    """Every command line of ACCUMULO-378 in its own spelling, with another name for the peer."""
    lake = f"parquet://{shell.home / 'lake2'}"
    before = shell.state()
    for line in (
        "createtable foo --group cf1=a",
        f"definecluster slave1 {lake}",
        "enablereplication -t foo -lg cf1 slave1",
        "enablereplication -t foo -all-loc-groups slave1",
        "disablereplication -t foo -lg cf1 slave1",
        "disablereplication -t foo -all-loc-groups slave1",
        "enablereplication -t foo --all-loc-groups slave1",
        "disablereplication -t foo --all-loc-groups slave1",
        f"deletecluster slave1 {lake}",
        "deletetable foo",
    ):
        shell.good(*shlex.split(line))
    assert shell.state() == before
    quorum = "slaveZK1:2181,slaveZK2:2181,slaveZK3:2181"
    for words in (("definecluster", "slave", quorum), ("config", "-s", f"instance.cluster.slave.zookeepers={quorum}")):
        away = shell(*words)
        assert (away.code, away.err.count("\n")) == (ExitCode.UNAVAILABLE, 1)
        assert all(host in away.err for host in quorum.split(",")), "all three are asked"


def _targets(shell: Runs) -> set[tuple[str, tuple[str, ...]]]:
    return {(one.target.cluster, one.groups) for one in shell.cluster.client.replication.config() if one.table == "foo"}


def test_the_documents_variables_do_what_its_commands_do(shell: Runs) -> None:
    """Every line of its "Configuration", set, shown and taken away, as a user of Accumulo does it."""
    lakes = {name: f"parquet://{shell.home / name}" for name in ("cluster1", "cluster2")}
    before = shell.state()
    own = shell.cluster.settings.instance.name
    shell.good("createtable", "foo", "--group", "cf1=a", "--group", "cf2=b")
    for name, lake in lakes.items():
        shell.good("config", "-s", f"instance.cluster.{name}.zookeepers={lake}")
    listed = {row["property"]: row["value"] for row in shell.good("config", "--json").json}
    assert listed["instance.replication.name"] == own
    assert {name: listed[f"instance.cluster.{name}.zookeepers"] for name in lakes} == lakes
    assert {one.name for one in shell.cluster.client.replication.clusters()} >= lakes.keys()
    done = shell.good(
        "config", "-t", "foo", "-s", "table.replication.cf1=cluster1,cluster2", "-s", "table.versions.max=3"
    )
    assert done.out == "table foo: 2 properties changed\n"
    assert _targets(shell) == {("cluster1", ("cf1",)), ("cluster2", ("cf1",))}
    shell.good(
        "config", "-t", "foo", "-s", "table.replication.cf1=cluster2", "-s", "table.replication.default=cluster2"
    )
    _, *rows = shell.good("config", "-t", "foo", "-f", "table.replication").out.splitlines()
    assert [row.split()[:2] for row in rows] == [
        ["table.replication.cf1", "cluster2"],
        ["table.replication.default", "cluster2"],
    ]
    assert {cluster for cluster, _ in _targets(shell)} == {"cluster2"}
    again = _targets(shell)
    shell.good("config", "-t", "foo", "-s", "table.replication.cf1=cluster2")
    assert _targets(shell) == again, "the same again changes nothing"
    shell.good("config", "-t", "foo", "-d", "table.replication.cf1", "-d", "table.replication.default")
    assert not _targets(shell)
    shell.good("enablereplication", "-t", "foo", "--all-loc-groups", "cluster1")
    shown = {row["property"] for row in shell.good("config", "-t", "foo", "-f", "replication", "--json").json}
    assert shown == {"table.replication.cf1", "table.replication.cf2", "table.replication.default"}
    refused = shell("config", "-d", "instance.cluster.cluster1.zookeepers")
    assert (refused.code, "disablereplication -t foo" in refused.err) == (ExitCode.FAILED, True)
    shell.good("disablereplication", "-t", "foo", "--all-loc-groups", "cluster1")
    shell.good("config", "-d", "instance.cluster.cluster1.zookeepers", "-d", "instance.cluster.cluster2.zookeepers")
    shell.good("deletetable", "foo")
    assert shell.state() == before
