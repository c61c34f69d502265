"""``insert --if-value`` and ``--if-absent`` against a real cluster."""

from __future__ import annotations

import pytest

from shell.failures import ExitCode
from tests.support.cluster import Cluster
from tests.support.shell import Shell

pytestmark = pytest.mark.integration


def test_a_condition_on_the_cell_decides_whether_it_is_written(west: Cluster) -> None:
    shell = Shell(west)
    shell.good("createtable", "judged")
    cell = ("insert", "judged", "r", "f", "q")
    shell.good(*cell, "1", "--if-absent")
    for switches, reason in ((("--if-absent",), "the cell exists"), (("--if-value", "2"), "does not have the value")):
        code, said = shell.bad(*cell, "3", *switches)
        assert code == ExitCode.FAILED
        assert "nothing was written to table judged" in said
        assert reason in said
    shell.good(*cell, r"\x32", "--if-value", "1")
    assert shell.good("scan", "judged").out.endswith("    2\n")
    assert shell(*cell, "3", "--if-absent", "--json").err.startswith('{"error": "rejected"')
    assert shell.bad(*cell, "3", "--if-absent", "--if-value", "2")[0] == ExitCode.USAGE
    assert shell.bad("insert", "nosuch", "r", "f", "q", "1", "--if-absent")[0] == ExitCode.FAILED
