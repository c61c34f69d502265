"""The pages build without a warning and without another host, and hold all that follows from the sources."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bookkeeper.config.sections import Sections, StandaloneSettings
from bookkeeper.standalone.supervisor import roles_of
from docs.extension import GENERATORS, books, commands, settings, storage
from tests.support.named_tests import missing_tests

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
_LOADED = re.compile(r"""<(?:link|script|img|iframe|source)\b[^>]*?(?:href|src)=["'](?:https?:)?//[^"']+""")
_STYLED = re.compile(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; every warning is an error."""
    made = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", str(made / "tree"), str(ROOT / "docs"), str(made / "html")],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, f"make docs fails:\n{done.stderr}"
    return made / "html"


def test_every_page_is_built_and_can_be_reached_from_the_index(site: Path) -> None:
    index = (site / "index.html").read_text()
    for page in PAGES:
        built = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / built).is_file(), f"{page} is excluded"
        assert page.name == "index.md" or f'href="{built}"' in index, f"put {page} into the toctree of docs/index.md"


def test_diagrams_are_drawn(site: Path) -> None:
    assert '<svg class="sequence"' in (site / "architecture.html").read_text()
    assert '<svg class="clusters"' in (site / "index.html").read_text()


def test_nothing_is_loaded_from_another_host(site: Path) -> None:
    for page in site.rglob("*.html"):
        assert not _LOADED.search(page.read_text()), page
    for style in site.rglob("*.css"):
        assert not _STYLED.search(style.read_text()), style


def _generated(name: str) -> list[str]:
    """The arguments with which a generator is used in the pages."""
    found = (re.findall(r"```\{generated\} " + name + r"(?: (.+))?\n", page.read_text()) for page in PAGES)
    return [argument for page in found for argument in page]


@pytest.mark.parametrize("name", [name for name in GENERATORS if name != "command"])
def test_every_generator_is_used(name: str) -> None:
    assert _generated(name), f"no page has ```{{generated}} {name}"


def test_every_section_of_the_settings_is_in_the_reference() -> None:
    assert _generated("settings") == list(Sections.__struct_fields__), (
        "add a heading and the section to docs/settings.md"
    )


def test_settings_are_shown_with_default_range_and_reason() -> None:
    shown = settings.section("replay")
    assert "| `message_bytes` | `4194304` bytes | 1 to 1,099,511,627,776 |" in shown
    assert "*Why: a backlog drains a sixth faster than with 2 MiB; more costs memory.*" in shown
    with pytest.raises(ValueError, match="no section nosuch"):
        settings.section("nosuch")


def test_the_books_are_shown_by_the_code_that_writes_them() -> None:
    shown = "\n".join(make("") for make in (books.tablet_columns, books.section_rows, books.ranks, books.values_shown))
    for said in ("`tablet:flush`", "`~recv_", "`done:east:4:1:2`", "`closed_rank`", '{"done":true,"offset":7}'):
        assert said in shown


def test_what_a_generator_does_not_know_is_refused() -> None:
    for make in (commands.command, storage.schema, storage.docstring):
        with pytest.raises(ValueError, match="nosuch"):
            make("nosuch")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    assert [name for name in re.findall(r"`(tests/[\w/]+\.py)(?:::\w+)?`", text) if not (ROOT / name).is_file()] == []
    assert missing_tests(text) == []


def test_every_kind_of_process_is_among_the_failures() -> None:
    failures = (ROOT / "docs" / "failures.md").read_text()
    for kind in {re.sub(r"\d", "", role.name) for role in roles_of(StandaloneSettings(), Path())}:
        assert re.search(rf"^## .*\b{kind}\b", failures, re.MULTILINE), f"docs/failures.md: what if {kind} dies?"
