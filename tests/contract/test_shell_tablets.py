"""``tablets``, ``addsplits``, ``getsplits`` and ``merge`` on a living cluster."""

from __future__ import annotations

from typing import Any

import pytest

from shell.failures import ExitCode
from tests.support.cluster import Cluster
from tests.support.shell import Shell

pytestmark = pytest.mark.integration


def test_tablets_are_split_and_merged(west: Cluster) -> None:
    shell, table = Shell(west), "bordered"
    shell.good("createtable", table, "--splits", "g,p")
    assert shell.good("getsplits", table).out.splitlines() == ["SPLIT", "g", "p"]
    served = ["served"] * 3  # the command returns when each tablet has a tserver, which still loads it
    listed: list[dict[str, Any]] = []

    def are_served() -> bool:
        listed[:] = shell.good("tablets", table, "--json").json
        return [row["state"] for row in listed] == served

    west.wait_until(are_served, "three served tablets")
    assert [(row["after"], row["through"], row["state"], row["problem"]) for row in listed] == [
        (None, "g", "served", None),
        ("g", "p", "served", None),
        ("p", None, "served", None),
    ]
    assert all(row["tserver"] for row in listed)
    header, first, *_ = shell.good("tablets", table).out.splitlines()
    assert header.split() == ["AFTER", "THROUGH", "TSERVER", "STATE", "PROBLEM"]
    assert first.split()[:2] == ["-", "g"]
    shell.good("insert", table, "k", "f", "q", "1")
    assert shell.good("addsplits", "-t", table, r"k\x00", "g").out == f"tablets of table {table} end at g, k\\x00\n"
    assert [row["split"] for row in shell.good("getsplits", table, "--json").json] == ["g", r"k\x00", "p"]
    merged = shell.good("merge", "-t", table, "-b", "g", "-e", "z", "--json").json
    assert merged == {"name": table, "begin": "g", "end": "z"}
    assert shell.good("getsplits", table).out.splitlines() == ["SPLIT", "g"]
    assert shell.good("merge", "-t", table).out == f"tablets of table {table} merged\n"
    assert shell.good("getsplits", table).out == "no splits; the table is one tablet\n"
    assert "k" in shell.good("scan", table).out
    assert shell.bad("merge", "-t", table, "-b", "z", "-e", "a")[0] == ExitCode.FAILED
    assert shell.bad("addsplits", "-t", "nothing", "m")[0] == ExitCode.FAILED
