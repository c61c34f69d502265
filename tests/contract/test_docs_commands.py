"""The documentation shows the real output of commands: every page is run, as text and as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from bookkeeper.client import Mutation
from shell.failures import ExitCode
from tests.docs.page import PAGES, ROOT, same_shape
from tests.docs.stage import ADDRESSES, Performed, Stage
from tests.support.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture(scope="module", params=PAGES, ids=lambda page: page.stem)
def page(request: pytest.FixtureRequest) -> Path:
    found = request.param
    assert isinstance(found, Path)
    return found


@pytest.fixture(scope="module")
def as_text(page: Path, west: Cluster, east: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Sequence[Performed]:
    """The commands of the page, run."""
    place = tmp_path_factory.mktemp("text") / page.stem
    return Stage(place, {"west": west, "east": east}).perform(page.read_text())


def test_a_page_shows_what_its_commands_print(page: Path, as_text: Sequence[Performed]) -> None:
    for done in as_text:
        assert same_shape(done.step.output, done.printed), "\n".join(
            [
                f"{page}, line {done.step.line}: {done.step.command}",
                "prints now",
                *done.printed,
                "and the page says",
                *done.step.output,
                f"If that is right: python -m tests.docs {page}, then look at the difference",
            ]
        )


def test_the_same_commands_print_json_and_end_alike(
    page: Path, as_text: Sequence[Performed], west: Cluster, east: Cluster, tmp_path: Path
) -> None:
    as_json = Stage(tmp_path / "json", {"west": west, "east": east}, as_json=True).perform(page.read_text())
    for before, done in zip(as_text, as_json, strict=True):
        assert done.code == before.code, f"{done.step.command} --json ends with {done.code}: {done.printed}"
        if done.is_json:
            values = [json.loads(line) for line in done.printed]
            if done.code != ExitCode.OK and done.step.words[1] != "config":
                assert [value.keys() for value in values] == [{"error", "message"}], done.step.command


def test_the_copy_that_operations_shows_makes_the_tables_equal(west: Cluster, east: Cluster) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "operations.md").read_text(), re.DOTALL)
    (copy,) = (block for block in blocks if "add_batch" in block)
    for cluster in (west, east):
        cluster.client.tables.create("copied", splits=[b"m"])
    with west.client.writer("copied") as writer:
        writer.add_all(Mutation(row).put(b"f", b"q", row) for row in (b"a", b"n", b"z"))
    copy = copy.replace('"west"', f'"{west.directory}"').replace(ADDRESSES["east"], east.quorum)
    copy = copy.replace("east.secret", str(east.directory / "secrets" / "client.secret"))
    exec(compile(copy.replace('"cities"', '"copied"'), "operations.md", "exec"), {})
    there = list(east.client.scan("copied").cells())
    assert there == list(west.client.scan("copied").cells())
    assert [cell.row for cell in there] == [b"a", b"n", b"z"]
