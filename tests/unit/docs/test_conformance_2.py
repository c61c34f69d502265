"""The list of the requirements of EventQL's segment replication is whole, and each entry leads somewhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.support.named_tests import functions_of

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "conformance-2.md"
MACHINE = ROOT / "docs" / "design" / "segment-machine.md"

REQUIREMENTS = 77
"""How many the document has: counted once, by hand."""

VERDICTS = {
    "stands": "stand",
    "in part": "stand in part",
    "differs": "differ",
    "not yet": "are not there yet",
}
"""Each with the words of the page's line of sums."""

_ENTRY = re.compile(rf"^- E-(\d+) · (.+?) · \*\*({'|'.join(VERDICTS)})\*\*(?: · (.+))?$")
_TEST = re.compile(r"^   - `(tests/[\w/]+\.py)::(test_\w+)`$")
_OF_MACHINE = re.compile(r"^\| E-(\d+) \| (.+?) \|", re.MULTILINE)


@dataclass
class Entry:
    """One requirement."""

    number: int
    words: str
    verdict: str
    note: str
    tests: list[tuple[str, str]] = field(default_factory=list)


def entries_of(text: str) -> list[Entry]:
    """The page taken apart; a line below the first heading that is none of its forms is an error."""
    found: list[Entry] = []
    is_below = False
    for line in text.splitlines():
        if line.startswith("## "):
            is_below = True
        elif is_below and (test := _TEST.match(line)):
            found[-1].tests.append((test[1], test[2]))
        elif is_below and line:
            entry = _ENTRY.match(line)
            assert entry, f"{PAGE.name}: not an entry: {line}"
            found.append(Entry(int(entry[1]), entry[2], entry[3], entry[4] or ""))
    return found


def check_sums(text: str) -> None:
    """The second paragraph below the title is the number of entries of each verdict."""
    entries = entries_of(text)
    counts = Counter(entry.verdict for entry in entries)
    *first, last = [f"**{counts[verdict]}** {words}" for verdict, words in VERDICTS.items()]
    sums = text.split("\n\n")[2]
    assert sums == f"Of {len(entries)} requirements {', '.join(first)}, and {last}.", (
        "the page begins with other sums than its entries have"
    )


def check_complete(text: str) -> None:
    """Every requirement has an entry, in order, in the words that the page of the machine has."""
    entries = entries_of(text)
    assert [entry.number for entry in entries] == list(range(1, REQUIREMENTS + 1)), "a requirement has no entry, or two"
    words = {entry.number: entry.words for entry in entries}
    for number, said in _OF_MACHINE.findall(MACHINE.read_text()):
        assert words[int(number)] == said, f"E-{number} has other words than the page of the machine"


def check_shown(text: str) -> None:
    """An entry that stands, stands in part or differs names tests; every named test exists. All but the first say in
    words what is missing or other.
    """
    for entry in entries_of(text):
        assert entry.tests or entry.verdict == "not yet", f"E-{entry.number}: {entry.verdict}, without a test"
        assert entry.note or entry.verdict == "stands", f"E-{entry.number}: not a word about it"
        for path, name in entry.tests:
            assert name in functions_of(path), f"E-{entry.number}: there is no {path}::{name}"


CHECKS = (check_sums, check_complete, check_shown)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_the_page_is_true_to_its_entries(check: Callable[[str], None]) -> None:
    check(PAGE.read_text())


@pytest.mark.parametrize(
    ("check", "before", "after", "says"),
    [
        (check_sums, "· **stands**", "· **not yet**", "begins with other sums"),
        (check_sums, "are not there yet", "are there", "begins with other sums"),
        (check_complete, "\n- E-2 ·", "\n- E-3 ·", "a requirement has no entry, or two"),
        (check_complete, "· INFLIGHT ·", "· INFLITE ·", "E-43 has other words"),
        (check_shown, "::test_", "::test_no_such_", "there is no .*::test_no_such_"),
        (check_shown, "· **differs** · ", "· **differs**, ", "not an entry"),
        (check_shown, "\n   - `tests/integration/test_tserver_replicas.py::test_a_flush", "\n\n\n", "not an entry"),
    ],
)
def test_a_page_that_is_wrong_is_noticed(check: Callable[[str], None], before: str, after: str, says: str) -> None:
    text = PAGE.read_text()
    wrong = text.replace(before, after, 1)
    assert wrong != text
    with pytest.raises(AssertionError, match=says):
        check(wrong)


def test_an_entry_without_test_or_note_is_noticed() -> None:
    head = "# Title\n\nWords.\n\n## Part\n\n"
    with pytest.raises(AssertionError, match="E-1: stands, without a test"):
        check_shown(f"{head}- E-1 · words · **stands**\n")
    with pytest.raises(AssertionError, match="E-1: not a word about it"):
        check_shown(f"{head}- E-1 · words · **not yet**\n")
