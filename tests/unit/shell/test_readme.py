"""The README leads to the documentation, and everything in it exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from docs.extension.commands import leaves

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
LINKS = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", README)


@pytest.mark.parametrize("link", LINKS)
def test_every_link_leads_to_a_file(link: str) -> None:
    assert (ROOT / link).is_file()


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.stem)
def test_every_page_can_be_reached(page: Path) -> None:
    included = page.name in ("architecture.md", "changes.md", "contributing.md")
    assert included or f"docs/{page.name}" in LINKS, f"README.md does not lead to docs/{page.name}"


@pytest.mark.parametrize("line", re.findall(r"^\$ (bookkeeper .+)$", README, re.MULTILINE))
def test_every_command_of_the_quick_start_exists(line: str) -> None:
    for part in line.removesuffix(" &").split(" && "):
        words = [word for word in shlex.split(part)[1:] if word not in ("west", "east")]
        assert any(words[: len(path.split())] == path.split() for path in leaves()), part


def test_it_is_short() -> None:
    assert len(README.splitlines()) < 130
