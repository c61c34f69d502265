"""Tests that share a costly start run in one worker, and those that can't be divided begin first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.sharing import ALONE, SHARED, in_order, shares

ROOT = Path(__file__).parents[3]


def item(nodeid: str, **scopes: str) -> pytest.Item:
    """A test that asks for fixtures of these scopes."""
    definitions = {name: [SimpleNamespace(scope=scope)] for name, scope in scopes.items()}
    made = SimpleNamespace(nodeid=nodeid, _fixtureinfo=SimpleNamespace(name2fixturedefs=definitions))
    return cast("pytest.Item", made)


def test_tests_of_one_file_share_it() -> None:
    assert shares("tests/unit/test_a.py::test_one") == shares("tests/unit/test_a.py::test_two[x]")
    assert shares("tests/unit/test_a.py::test_one") != shares("tests/unit/test_b.py::test_one")


def test_tests_of_hbase_share_it_whatever_their_file() -> None:
    assert shares("tests/contract/test_a.py::test_one[hbase]") == shares("tests/integration/test_hbase_b.py::test_two")
    assert shares("tests/contract/test_a.py::test_one[hbase]") != shares("tests/contract/test_a.py::test_one[sqlite]")


def test_tests_of_an_hbase_cluster_run_beside_those_of_one_hbase() -> None:
    cluster = shares("tests/integration/test_hbase_cluster_a.py::test_one")
    assert cluster == shares("tests/integration/test_hbase_cluster_b.py::test_two")
    assert cluster != shares("tests/integration/test_hbase_b.py::test_two")


def test_seeds_of_random_schedules_share_nothing() -> None:
    assert shares(f"{ALONE}::test_one[1]") != shares(f"{ALONE}::test_one[2]")


@pytest.mark.parametrize("file", [*SHARED, ALONE])
def test_files_that_share_are_there(file: str) -> None:
    assert (ROOT / file).is_file()


def test_what_can_not_be_divided_begins_first() -> None:
    cheap, costly = (
        item("tests/unit/test_a.py::test_one"),
        item("tests/contract/test_hbase.py::test_two", hbase="session"),
    )
    assert in_order([cheap, costly]) == [costly, cheap]


def test_a_cluster_of_its_own_is_no_shared_one() -> None:
    own = item("tests/integration/test_a.py::test_one", west="function")
    assert in_order([own]) == [own]


def test_a_test_that_would_start_a_second_one_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match=r"test_one asks for 'west' and would start another one"):
        in_order([item("tests/integration/test_a.py::test_one", west="session")])
