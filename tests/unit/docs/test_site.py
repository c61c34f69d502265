"""The pages build without a warning and without another host, and hold all that follows from the sources.

All pages are read here, and each reference in them is resolved. Long tests also write them with the theme of the site.
"""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from docutils import nodes
from sphinx import addnodes

from bookkeeper.config.sections import Sections, StandaloneSettings
from bookkeeper.standalone.supervisor import roles_of
from docs.extension import GENERATORS, books, commands, settings, storage
from tests.support.named_tests import missing_tests

ROOT = Path(__file__).parents[3]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
_LOADED = re.compile(r"""<(?:link|script|img|iframe|source)\b[^>]*?(?:href|src)=["'](?:https?:)?//[^"']+""")
_STYLED = re.compile(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""")


def build(tmp_path_factory: pytest.TempPathFactory, builder: str) -> Path:
    """Build all pages; every warning is an error. Returns the directory of ``pages`` and of the parsed ``tree``."""
    made = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", builder]
    done = subprocess.run(
        [*command, "-d", str(made / "tree"), str(ROOT / "docs"), str(made / "pages")],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, f"make docs fails:\n{done.stderr}"
    return made


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, nodes.document]:
    """Each page with all of its references resolved, and not written: half of the work is the theme's."""
    found = build(tmp_path_factory, "dummy") / "tree"
    return {
        path.relative_to(found).with_suffix("").as_posix(): pickle.loads(path.read_bytes())
        for path in found.rglob("*.doctree")
    }


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of ``make docs``."""
    return build(tmp_path_factory, "html") / "pages"


def raw_html(page: nodes.document) -> str:
    """The HTML in a page that Sphinx does not change."""
    return "\n".join(node.astext() for node in page.findall(nodes.raw))


def test_every_page_is_read_and_in_the_table_of_contents(trees: Mapping[str, nodes.document]) -> None:
    names = {page.relative_to(ROOT / "docs").with_suffix("").as_posix() for page in PAGES}
    assert names - trees.keys() == set(), "pages are excluded"
    reached, ahead = set[str](), ["index"]
    while ahead:
        name = ahead.pop()
        reached.add(name)
        listed = {entry for tree in trees[name].findall(addnodes.toctree) for entry in tree["includefiles"]}
        ahead += listed - reached
    assert names - reached == set(), "put the page into the toctree of docs/index.md"


def test_diagrams_are_in_the_pages(trees: Mapping[str, nodes.document]) -> None:
    assert '<svg class="sequence"' in raw_html(trees["architecture"])
    assert '<svg class="clusters"' in raw_html(trees["index"])


def test_no_page_shows_what_another_host_has(trees: Mapping[str, nodes.document]) -> None:
    for name, page in trees.items():
        assert not _LOADED.search(raw_html(page)), name
        assert [image["uri"] for image in page.findall(nodes.image) if "//" in image["uri"]] == [], name


@pytest.mark.long
def test_every_page_is_built_and_can_be_reached_from_the_index(site: Path) -> None:
    index = (site / "index.html").read_text()
    for page in PAGES:
        built = page.relative_to(ROOT / "docs").with_suffix(".html")
        assert (site / built).is_file(), f"{page} is excluded"
        assert page.name == "index.md" or f'href="{built}"' in index, f"put {page} into the toctree of docs/index.md"


@pytest.mark.long
def test_diagrams_are_drawn(site: Path) -> None:
    assert '<svg class="sequence"' in (site / "architecture.html").read_text()
    assert '<svg class="clusters"' in (site / "index.html").read_text()


@pytest.mark.long
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
