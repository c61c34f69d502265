"""The page of rules is true: it has each cited rule, and code and tests cite each rule."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

from tests.simulation.test_schedules import ELSEWHERE, IN_UNITS, SCHEDULES
from tests.support.faults import FAULTS
from tests.support.named_tests import missing_tests

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "design" / "rules.md"
PARTS = ("Problem", "Rule", "Mechanism", "Cost", "Tests")
"""Of each section, in this order."""

SOURCES = {".py", ".pyi", ".proto", ".thrift", ".md", ".sh", ".toml"}
PRODUCT = ("bookkeeper", "combiners", "shell")

_FROM_TO = re.compile(r"\bR(\d{1,2})(?:-| to )R(\d{1,2})\b")
_CITED = re.compile(r"\b([RL]\d{1,2})\b|(?<=_)(r\d{1,2})(?=_)")
_SECTION = re.compile(r"^\((r\d+)\)=\n## (R\d+): (.+?)\n(.*?)(?=^\([a-z]|\Z)", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^\| \[(R\d+)\]\(#(r\d+)\) \| .+\. \|$", re.MULTILINE)
_MODULE = re.compile(r"`(bookkeeper(?:\.\w+)+)`")
_SWITCH = re.compile(r"`([a-z][a-z'-]+)`")


def files_of(*places: str) -> list[Path]:
    """The sources in these directories, without the page and without this test."""
    found = (path for place in places for path in (ROOT / place).rglob("*") if path.suffix in SOURCES)
    return sorted(path for path in found if path not in (PAGE, Path(__file__)))


def rules_in(text: str) -> set[str]:
    """Rules and laws that a text cites, also by ``R6-R10`` and in the names of tests: ``test_r18_…``."""
    between = {f"R{n}" for first, last in _FROM_TO.findall(text) for n in range(int(first), int(last))}
    return between | {(by_number or by_name).upper() for by_number, by_name in _CITED.findall(text)}


@cache
def cited_in(*places: str) -> set[str]:
    """The rules that some directories cite."""
    return set[str]().union(*(rules_in(path.read_text()) for path in files_of(*places)))


@cache
def sources_of_tests() -> dict[str, set[str]]:
    """All files of tests, each with the rules that it cites."""
    sources = [path.read_text() for path in files_of("tests") if path.name.startswith("test_")]
    return {source: rules_in(source) for source in sources}


def sections_of(page: str) -> dict[str, str]:
    """By rule: the text below its heading. Raises AssertionError where anchor and heading differ."""
    found = {}
    for anchor, rule, _, text in _SECTION.findall(page):
        assert anchor == rule.lower(), f"{rule} has the anchor {anchor}"
        assert rule not in found, f"{rule} is defined twice"
        found[rule] = text
    return found


def parts_of(section: str) -> dict[str, str]:
    """The text of the section by bold word."""
    pieces = re.split(r"^\*\*(\w+)(?:\.\*\*|\*\*)", section, flags=re.MULTILINE)
    return dict(zip(pieces[1::2], pieces[2::2], strict=True))


def switches_in(tests: str) -> set[str]:
    """The switches that a section names behind the word."""
    _, _, named = tests.partition("Switches:")
    return set(_SWITCH.findall(named))


def check_lines(page: str) -> None:
    """The table has each rule once, in order, with a link to its section."""
    lines = _LINE.findall(page)
    assert [rule for rule, _ in lines] == list(sections_of(page)), "the table has other rules than the page"
    assert all(anchor == rule.lower() for rule, anchor in lines), "a line of the table leads to another rule"


def check_parts(page: str) -> None:
    """Each section has its parts in order; a rule is one sentence."""
    for rule, text in sections_of(page).items():
        parts = parts_of(text)
        assert tuple(parts) == PARTS, f"{rule} has the parts {', '.join(parts)}"
        words = parts["Rule"].strip()
        assert words.endswith("."), f"{rule} is no sentence"
        assert ". " not in words.replace("\n", " "), f"{rule} has two sentences"


def source_of(name: str) -> str:
    """A module of the product, or the page of a package."""
    place = ROOT / Path(*name.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    assert path.is_file(), f"there is no {name}"
    return path.read_text()


def check_modules(page: str) -> None:
    """Each mechanism names modules that exist, and that say which rule they keep."""
    for rule, text in sections_of(page).items():
        named = _MODULE.findall(parts_of(text)["Mechanism"])
        assert named, f"{rule} names no module"
        for name in named:
            assert rule in rules_in(source_of(name)), f"{name} keeps {rule} and does not cite it"
    for name in _MODULE.findall(page):
        source_of(name)


def check_tests(page: str) -> None:
    """Each rule names tests, and each test and file that the page names exists."""
    for rule, text in sections_of(page).items():
        tests = parts_of(text)["Tests"]
        assert "::test_" in tests, f"{rule} names no test"
        for name in re.findall(r"`(tests/[\w/]+\.py)::", tests):
            assert rule in rules_in((ROOT / name).read_text()), f"{name} shows {rule} and does not cite it"
    for name in re.findall(r"`(tests/[\w/.]+)(?:::\w+)?`", page):
        assert (ROOT / name).exists(), f"there is no {name}"
    lacking = missing_tests(page)
    assert not lacking, f"there is no {', '.join(lacking)}"


def uses(source: str, switch: str) -> bool:
    """Whether a test turns a switch, alone or with others."""
    return any(f"{begin}{switch}{end}" in source for begin in ('"', "and ") for end in ('"', " and"))


def check_switches(page: str) -> None:
    """Each rule names the switches that break it: all that say so, and no other one that does not exist."""
    for rule, text in sections_of(page).items():
        named = switches_in(parts_of(text)["Tests"])
        assert named, f"{rule} names no switch"
        assert named <= FAULTS.keys(), f"{rule} names {', '.join(named - FAULTS.keys())}, which is no switch"
        breaking = {name for name, fault in FAULTS.items() if rule in rules_in(fault.breaks)}
        assert breaking <= named, f"{rule} lacks the switches {', '.join(breaking - named)}"
        citing = [source for source, rules in sources_of_tests().items() if rule in rules]
        unused = [name for name in sorted(named) if not any(uses(source, name) for source in citing)]
        assert not unused, f"no test that cites {rule} uses {', '.join(unused)}"


CHECKS = (check_lines, check_parts, check_modules, check_tests, check_switches)


@pytest.mark.parametrize("check", CHECKS)
def test_the_page_holds(check: Callable[[str], None]) -> None:
    check(PAGE.read_text())


def test_rules_have_numbers_without_a_gap() -> None:
    defined = sections_of(PAGE.read_text())
    assert list(defined) == [f"R{number}" for number in range(1, len(defined) + 1)]


def laws_of(page: str) -> set[str]:
    """The laws that the page defines."""
    return set(re.findall(r"^\| (L\d) \| .+ \|$", page, re.MULTILINE))


def test_whatever_is_cited_is_defined() -> None:
    page = PAGE.read_text()
    defined = sections_of(page).keys() | laws_of(page)
    for path in [*files_of(*PRODUCT, "docker", "docs", "tests"), *ROOT.glob("*.md")]:
        unknown = rules_in(path.read_text()) - defined
        assert not unknown, f"{path}: docs/design/rules.md defines no {', '.join(sorted(unknown))}"


def missing(defined: Iterable[str], cited: set[str]) -> list[str]:
    """Rules that nobody cites."""
    return [rule for rule in defined if rule not in cited]


def test_every_rule_is_cited_by_code_and_by_a_test() -> None:
    page = PAGE.read_text()
    assert not missing(sections_of(page), cited_in(*PRODUCT)), "no code cites it: nothing keeps it, or nobody says so"
    assert not missing([*sections_of(page), *laws_of(page)], cited_in("tests")), "no test cites it"


def test_every_schedule_is_told() -> None:
    told = re.findall(r"^\| (\d+) \| .+ \| ((?:R\d+ ?)+) \|$", PAGE.read_text(), re.MULTILINE)
    played = {int(number.split()[0]) for number in SCHEDULES} | ELSEWHERE | IN_UNITS.keys()
    assert [int(number) for number, _ in told] == sorted(played)
    for number, rules in told:
        for rule in rules.split():
            problem = parts_of(sections_of(PAGE.read_text())[rule])["Problem"]
            assert re.search(rf"\(schedules? [\d, and]*\b{number}\b", problem), f"{rule}: {number}"


@pytest.mark.parametrize(
    ("check", "before", "after", "says"),
    [
        (check_lines, "| [R7](#r7) |", "| [R7](#r8) |", "leads to another rule"),
        (check_lines, "| [R7](#r7) |", "| R7 |", "the table has other rules"),
        (check_parts, "**Cost.**", "**Price.**", "R1 has the parts Problem, Rule, Mechanism, Price, Tests"),
        (check_parts, "**Rule.** ", "**Rule.** Mind this. ", "R1 has two sentences"),
        (check_modules, "`bookkeeper.metadata.keys`", "`bookkeeper.metadata.locks`", "there is no bookkeeper"),
        (check_modules, "`bookkeeper.metadata.flight`", "`bookkeeper.clock`", "bookkeeper.clock keeps R4 and"),
        (check_tests, "::test_r1_", "::test_no_such_", "there is no .*::test_no_such_"),
        (
            check_switches,
            "`logs-of-the-dead-stay-open`",
            "`nobody-knows`",
            "R10 names nobody-knows, which is no switch",
        ),
        (check_switches, "Switches: `newborns-go`, ", "Switches: ", "R17 lacks the switches newborns-go"),
        (check_lines, "(r9)=", "(r10)=", "R9 has the anchor r10"),
    ],
)
def test_a_page_that_is_wrong_is_noticed(check: Callable[[str], None], before: str, after: str, says: str) -> None:
    page = PAGE.read_text()
    if before not in page:
        pytest.fail(f"the page has no {before!r}")
    with pytest.raises(AssertionError, match=says):
        check(page.replace(before, after, 1))


def test_a_rule_that_nobody_defines_or_cites_is_noticed() -> None:
    assert rules_in("rule R25; def test_r26_r27_x(); XR1, R1x") == {"R25", "R26", "R27"}
    assert rules_in("R6-R8 and L2, R18 to R20") == {"R6", "R7", "R8", "L2", "R18", "R19", "R20"}
    assert missing(["R1", "R25"], {"R1"}) == ["R25"]
