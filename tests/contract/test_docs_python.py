"""The Python that the documentation shows runs on a real cluster, and prints what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.errors import NotFoundError
from tests.support.cluster import Cluster

pytestmark = [pytest.mark.integration]

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.fixture
def table(west: Cluster) -> Iterator[str]:
    """A name of a table for one example; the table is gone afterwards."""
    yield "shown"
    with contextlib.suppress(NotFoundError):
        west.client.tables.delete("shown")


def perform(code: str, shown: str, table: str, cluster: Cluster) -> str:
    """The output of an example that runs with the test's table, on a running cluster as ``west``."""
    printed = io.StringIO()
    ours = code.replace('"west"', repr(str(cluster.directory))).replace(f'"{shown}"', repr(table))
    with contextlib.redirect_stdout(printed):
        exec(compile(ours, "a page", "exec"), {})
    return printed.getvalue()


def test_the_example_of_the_client_prints_what_the_page_says(west: Cluster, table: str) -> None:
    (code,), (said,) = blocks("api/client.md", "python"), blocks("api/client.md", "text")
    assert perform(code, "stations", table, west) == said


@pytest.fixture
def replicated(west: Cluster, east: Cluster, table: str) -> Iterator[str]:
    """The same table on both clusters, from west to east."""
    west.client.tables.create(table, splits=[b"m"])
    east.client.tables.create(table)
    for peer in west.client.replication.clusters():  # a cluster has one name: that of a test before goes
        if peer.quorum == east.quorum:
            west.client.replication.delete_cluster(peer.name, east.quorum)
    west.client.replication.define_cluster("shown-east", east.quorum)
    west.client.replication.enable(table, "shown-east")
    yield table
    west.client.replication.disable(table, "shown-east")
    west.client.replication.delete_cluster("shown-east", east.quorum)
    east.client.tables.delete(table)


@pytest.mark.spark
def test_the_python_of_the_quick_start_shows_what_it_wrote(west: Cluster, replicated: str) -> None:
    (code,) = blocks("quick-start.md", "python")
    table = replicated
    assert perform(code, "cities", table, west) == "b'bern' b'geo' b'lon' b'7.45'\n"
