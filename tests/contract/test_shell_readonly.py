"""``readonly``, on and off on living clusters: users are refused, records of other clusters still arrive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shell.failures import ExitCode
from tests.support.cluster import Cluster
from tests.support.shell import Shell

pytestmark = [pytest.mark.integration, pytest.mark.spark]

TABLE = "guarded"
COPY = "guarded_copy"


@pytest.fixture(scope="module")
def west_shell(west: Cluster) -> Shell:
    return Shell(west)


@pytest.fixture(scope="module")
def east_shell(west_shell: Shell, east: Cluster) -> Iterator[Shell]:
    """The peer, with a copy of a table of ``west``."""
    shell = Shell(east)
    west_shell.good("createtable", TABLE)
    shell.good("createtable", COPY)
    west_shell.good("definecluster", "east", east.quorum)
    west_shell.good("enablereplication", "-t", TABLE, "--all-loc-groups", "--remote-table", COPY, "east")
    yield shell
    shell.good("readonly", "--cluster", "off")
    west_shell.good("disablereplication", "-t", TABLE, "--all-loc-groups", "east")


@pytest.mark.parametrize("which", [("-t", COPY), ("--cluster",)], ids=["a table", "a cluster"])
def test_a_read_only_peer_takes_what_is_replicated_and_nothing_else(
    west_shell: Shell, east_shell: Shell, which: tuple[str, ...]
) -> None:
    east_shell.good("readonly", *which, "on")
    assert "read-only" in east_shell.good("readonly", *which).out
    for words in (("insert", COPY, "a", "f", "q", "mine"), ("delete", COPY, "a", "f", "q"), ("deletetable", COPY)):
        code, said = east_shell.bad(*words)
        assert code == ExitCode.FAILED
        assert f"readonly {' '.join(which)} off" in said
    assert east_shell("insert", COPY, "a", "f", "q", "mine", "--json").err.startswith('{"error": "read_only"')
    row = f"by {which[0]}".replace("-", "")
    west_shell.good("insert", TABLE, row, "f", "q", "theirs", "--timestamp", "7")
    west_shell.good("replication", "wait", TABLE)
    assert east_shell.good("scan", COPY, "-b", row, "-e", row).out == f"{row} f:q [] 7    theirs\n"
    off = east_shell.good("readonly", *which, "off", "--json").json
    assert off == {"table": None if which == ("--cluster",) else COPY, "read_only": False}
    east_shell.good("insert", COPY, "a", "f", "q", "mine")


def test_one_of_table_and_cluster_has_to_be_named(west_shell: Shell) -> None:
    for words in (("readonly", "on"), ("readonly", "-t", TABLE, "--cluster", "on"), ("readonly", "--cluster", "maybe")):
        assert west_shell.bad(*words)[0] == ExitCode.USAGE
    assert west_shell.bad("readonly", "-t", "nosuch", "on")[0] == ExitCode.FAILED
    assert "takes writes" in west_shell.good("readonly", "--cluster").out
