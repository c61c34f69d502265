"""The list of the sentences of ACCUMULO-378 is whole, and each entry leads somewhere."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.named_tests import functions_of

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "conformance.md"
DIFFERENCES = (ROOT / "docs" / "design" / "differences.md").read_text()

SENTENCES = {
    "Abstract and justification": 7,
    "Background": 11,
    "Implementation": 5,
    "Replication Framework": 19,
    "Replication Strategy Implementation": 3,
    "Make the master aware of file to replicate": 8,
    "Choose local TabletServer to perform replication": 12,
    "Recurse": 2,
    "Master cluster replication bookkeeping": 5,
    "Data Structure in Value": 57,
    "Configuration": 22,
    "Common Questions": 22,
    "Goals": 14,
    "Non-Goals": 5,
    "References": 12,
}
"""How many the document has in each section: counted once, by hand."""

VERDICTS = {
    "works": "work",
    "in part": "work in part",
    "differs": "differ",
    "non-goal": "are non-goals of the document",
    "background": "are background",
}
"""Each with the words of the page's line of sums."""

_ENTRY = re.compile(rf"^(\d+)\. “([^”]+)” · \*\*({'|'.join(VERDICTS)})\*\*(?:: \*(.+?)\*)?(?: · (.+))?$")
_TEST = re.compile(r"^   - `(tests/[\w/]+\.py)::(test_\w+)`$")


@dataclass
class Entry:
    """One sentence."""

    number: int
    section: str
    words: str
    verdict: str
    place: str
    note: str
    tests: list[tuple[str, str]] = field(default_factory=list)


def entries_of(text: str) -> list[Entry]:
    """The page taken apart; a line below the first heading that is none of its forms is an error."""
    found: list[Entry] = []
    section = ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:]
        elif section and (test := _TEST.match(line)):
            found[-1].tests.append((test[1], test[2]))
        elif section and line:
            entry = _ENTRY.match(line)
            assert entry, f"{PAGE.name}: not an entry: {line}"
            found.append(Entry(int(entry[1]), section, entry[2], entry[3], entry[4] or "", entry[5] or ""))
    return found


ENTRIES = entries_of(PAGE.read_text())


def part_of_differences(heading: str) -> str:
    """The text below one of the headings."""
    return re.split(r"^## ", DIFFERENCES.split(f"\n## {heading}\n", 1)[1], flags=re.MULTILINE)[0]


def sums_of(entries: list[Entry]) -> str:
    """The first sentence of the page: the number of entries of each verdict."""
    counts = Counter(entry.verdict for entry in entries)
    *first, last = [f"**{counts[verdict]}** {words}" for verdict, words in VERDICTS.items()]
    return f"Of {len(entries)} sentences {', '.join(first)}, and {last}."


def check_sums(text: str) -> None:
    """The second paragraph below the title is the sums, in one line."""
    title, _, sums, *_ = text.split("\n\n")
    assert title.startswith("# ")
    assert sums == sums_of(entries_of(text)), "the page begins with other sums than its entries have"


def check_complete(entries: list[Entry]) -> None:
    """Every sentence has an entry, in the document's order."""
    assert [entry.number for entry in entries] == list(range(1, sum(SENTENCES.values()) + 1)), (
        "a sentence has no entry, or two"
    )
    assert Counter(entry.section for entry in entries) == SENTENCES, "a section has another number of sentences"


def check_shown(entries: list[Entry]) -> None:
    """An entry that works, works in part or differs names tests that exist; no other entry names one."""
    for entry in entries:
        assert bool(entry.tests) == (entry.verdict in ("works", "in part", "differs")), (
            f"{entry.number}: {entry.verdict}, with {len(entry.tests)} tests"
        )
        for path, name in entry.tests:
            assert name in functions_of(path), f"{entry.number}: there is no {path}::{name}"


def check_said(entries: list[Entry]) -> None:
    """An entry that differs, lacks something or is left out stands in docs/design/differences.md, under that name; the
    first two say here in a few words why, or what is lacking.
    """
    differs, left_out, lacking = (
        part_of_differences(heading)
        for heading in (
            "Where this differs from the documents",
            "What document 1 leaves out, and so does this",
            "Not there yet",
        )
    )
    for entry in entries:
        said = {"differs": differs, "in part": differs + lacking, "non-goal": left_out}.get(entry.verdict)
        assert entry.note or entry.verdict not in ("differs", "in part"), f"{entry.number}: not a word about it"
        assert bool(entry.place) == (said is not None), entry
        assert said is None or f"- **{entry.place}" in said, f"{entry.number}: differences.md lacks {entry.place!r}"


def test_the_page_begins_with_its_sums() -> None:
    check_sums(PAGE.read_text())


@pytest.mark.parametrize("verdict", ["works", "in part", "differs"])
def test_sums_that_are_wrong_are_noticed(verdict: str) -> None:
    text = PAGE.read_text()
    for wrong in (
        text.replace(f"· **{verdict}**", "· **background**", 1),
        re.sub(r"\*\*\d+\*\*", "**7**", text, count=1),
    ):
        assert wrong != text
        with pytest.raises(AssertionError, match="begins with other sums than its entries have"):
            check_sums(wrong)


def test_every_sentence_has_an_entry() -> None:
    check_complete(ENTRIES)


def test_every_entry_names_tests_that_exist() -> None:
    check_shown(ENTRIES)


def test_what_differs_or_is_left_out_is_among_the_differences() -> None:
    check_said(ENTRIES)


def test_quotes_are_short() -> None:
    assert all(len(entry.words.split()) <= 12 for entry in ENTRIES)


@pytest.mark.parametrize(
    ("check", "before", "after", "says"),
    [
        (check_complete, "\n2. “", "\n3. “", "a sentence has no entry, or two"),
        (check_complete, "## Recurse", "## Goals", "a section has another number of sentences"),
        (check_shown, "::test_", "::test_no_such_", "there is no .*::test_no_such_"),
        (check_shown, " · **works**", " · **background**", "background, with 1 tests"),
        (check_said, "*No combiner in the store*", "*No combiner in the barn*", "lacks 'No combiner in the b"),
        (check_said, "*A quorum is*", "*A forum is*", "lacks 'A forum is"),
        (check_said, ": *A quorum is* · The command, ", ": *A quorum is*, ", "not a word about it|not an entry"),
        (
            check_said,
            "*Provenance is in the blocks* · ",
            "*Provenance is in the blocks*, ",
            "not a word about it|not an entry",
        ),
    ],
)
def test_a_page_that_is_wrong_is_noticed(check: object, before: str, after: str, says: str) -> None:
    assert callable(check)
    with pytest.raises(AssertionError, match=says):
        check(entries_of(PAGE.read_text().replace(before, after, 1)))
