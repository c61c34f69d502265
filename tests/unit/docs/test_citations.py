"""A reader of a comment can read its sources: no file names a document that the repository does not have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PLACES = ("bookkeeper", "combiners", "shell", "docker", "tests", "tools", "docs")
BINARY = {".gz", ".png", ".pyc", ".so", ".jsa", ".svg", ".json"}

ELSEWHERE = {
    "a section of a design": r"\bdesign (sections? )?\d|\bdesign\.md\b",
    "a part of a plan": r"\bplan,? [\"“]|\bplan section|\bparts? \d of the plan\b|[\"'(]part \d:",
    "an issue": r"\bissues? [\"“#]|\bissues? \d",
    "a section of a document by a number": r"\bdocuments? [12],? (section|\")",
    "a section by a number": r"(?<!RFC \d{4}, )\bsections? \d",
    "a rule by a number of its own": r"\brules? \d|\bstyle rule\b|[\"(]10\.[1-8]: ",
    "notes of somebody": r"\bdata-plane (figures|notes)\b|``reference`` figures|\breference/[\w-]+\.md",
    "a page of another place": r"(?<![\w/(\"'.-])(books|segments|house|style|clusters|segment-protocol)\.md\b",
}
"""Patterns of citations of documents that are not in the repository."""

IN_CODE = {"a document by a number": r"(?<!What )\bdocuments? [12]\b"}
"""The same in sources. Pages may call the two documents so, for one of them says which they are."""

_PATTERNS = {what: re.compile(pattern, re.IGNORECASE) for what, pattern in (ELSEWHERE | IN_CODE).items()}


def texts() -> list[Path]:
    """All sources and pages but this one."""
    found = [path for place in PLACES for path in (ROOT / place).rglob("*") if path.is_file()]
    found += [*ROOT.glob("*.md"), ROOT / "Makefile", ROOT / "pyproject.toml"]
    return sorted(path for path in found if path.suffix not in BINARY and path != Path(__file__))


def citations_in(text: str, is_page: bool = False) -> list[str]:
    """Lines that cite what is not here, each with what it looks like. A citation may go over the end of a line."""
    joined = re.sub(r"\n *(?:#|//|\*|\|)? *", " ", text)
    return [
        f"{what}: …{joined[max(0, found.start() - 60) : found.end() + 30]}…"
        for what, pattern in _PATTERNS.items()
        if not (is_page and what in IN_CODE)
        for found in pattern.finditer(joined)
    ]


def test_nothing_cites_what_the_repository_does_not_have() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {line}"
        for path in texts()
        for line in citations_in(path.read_text(), path.suffix == ".md")
    ]
    assert not found, "cite a rule of docs/design/rules.md, a source by title and section, or say the reason:\n" + (
        "\n".join(found)
    )


@pytest.mark.parametrize(
    "line",
    [
        "Source: design section 4.",
        "design sections 7\n    and 9",
        '"design 6: an offline peer is tried"',
        "see books.md R6",
        "every schedule of books.md",
        'plan, "The commit path"',
        "the plan\nsection",
        'issue "a whole tablet store"',
        '"issue 5: strangers"',
        "# ---- section\n# 10, rule 2",
        "(rule 8 of it)",
        '"10.7: garbage"',
        "Document 1 closes with the flush",
        "segments.md, N4",
        "house.md says so",
        '"part 3: it needs merges"',
    ],
)
def test_a_citation_of_something_else_is_noticed(line: str) -> None:
    assert citations_in(line)


@pytest.mark.parametrize(
    "line",
    [
        "rule R17, and R18 of docs/design/rules.md",
        "ACCUMULO-378, *Data Structure in Value*",
        "plan_round(seed), split_plan, a Spark plan",
        "makes an issue of it",
        "[the books](../formats/books.md#ranks)",
        "RFC 5705, section 4",
        "the design of HBase",
        "rules are kept",
    ],
)
def test_what_can_be_read_here_or_has_a_title_is_no_such_citation(line: str) -> None:
    assert not citations_in(line)


MERGE_MARKER = re.compile(r"^(?:<{7}|>{7}|\|{7}) |^={7}$", re.MULTILINE)


def test_no_file_has_a_mark_of_a_merge_that_was_not_finished() -> None:
    assert MERGE_MARKER.search("a\n<<<<<<< HEAD\nb\n")
    assert [path for path in texts() if MERGE_MARKER.search(path.read_text())] == []
