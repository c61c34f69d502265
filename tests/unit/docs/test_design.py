"""Architecture in one sitting, the design pages behind it, and how every page opens: each name in them exists."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

from bookkeeper.config.sections import Sections
from bookkeeper.config.setting import fields_of
from docs.extension import sequence

ROOT = Path(__file__).parents[3]
ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DESIGN = sorted((ROOT / "docs" / "design").glob("*.md"))
TOPICS = [page for page in DESIGN if page.stem not in ("index", "rules", "differences")]
HEADINGS = ["The problem", "The rule", "The mechanism", "Cost", "Tests"]
SIZE_MAX_BYTES = 10_240

DOTTED = re.compile(r"(?<![\w./-])(?:bookkeeper|combiners|shell|docs)(?:\.\w+)+")
ELSEWHERE = re.compile(r"bookkeeper\.(?:thrift|toml|proto|replica_systems)")
PATH = re.compile(r"`(?:master|tserver|storage|replay|rpc|client|monitor)/[\w/]+(?:\.py)?`")
SETTING = re.compile(rf"`((?:{'|'.join(Sections.__struct_fields__)})\.\w+)`")
TO_THE_READER = re.compile(r"\b(?:you|[Uu]se th|[Rr]ead th|[Ww]ith th)\w*\b|^tablet-bookkeeper replicates")
NO_SETTING = re.compile(r"\w+\.secret")


@cache
def names_of(module: Path) -> frozenset[str]:
    """Every function, class, field and variable that a module defines."""
    nodes = list(ast.walk(ast.parse(module.read_text())))
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return frozenset(defined | assigned)


def exists(dotted: str) -> bool:
    """Whether a package, a module, or something that a module defines has this name."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:count])
        if place.with_suffix(".py").is_file():
            return set(parts[count:]) <= names_of(place.with_suffix(".py"))
        if (place / "__init__.py").is_file():
            return set(parts[count:]) <= names_of(place / "__init__.py")
    return False


def missing_names(text: str) -> list[str]:
    """Modules, and things in them, that a page names and that are not there."""
    return [name for name in DOTTED.findall(text) if not ELSEWHERE.fullmatch(name) and not exists(name)]


def diagrams_of(text: str) -> list[str]:
    """The text of each diagram of a page."""
    return re.findall(r"^```mermaid\n(.+?)^```$", text, re.MULTILINE | re.DOTALL)


def first_paragraph(text: str) -> str:
    """The text between the title and the first empty line behind it; empty when that is no prose."""
    title, empty, *rest = text.splitlines()
    prose = bool(rest) and re.match(r"(?!```)[\w`*\[]", rest[0])
    return "\n".join(rest).split("\n\n")[0] if title.startswith("# ") and not empty and prose else ""


def test_the_architecture_is_read_in_one_sitting() -> None:
    assert len(ARCHITECTURE.read_bytes()) <= SIZE_MAX_BYTES, "move the argument to a page of docs/design"


def test_it_shows_the_way_of_a_mutation_from_one_cluster_to_the_other() -> None:
    (text,) = diagrams_of(ARCHITECTURE.read_text())
    diagram = sequence.parse(text)
    labels = [" ".join(label) for label in diagram.participants]
    assert "BatchWriter" in labels[0]
    assert "east" in labels[-1]
    commit = next(step for step in diagram.steps if step.first == step.last == len(labels) - 1)
    assert "commit" in " ".join(commit.lines)
    drawn = sequence.draw(diagram)
    assert all(line in drawn for step in diagram.steps for line in step.lines)
    assert drawn.count("<svg") == 1


def test_its_floors_are_those_that_lint_holds() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = (contract["layers"] for contract in contracts if contract["name"] == "Rooms import downwards only")
    floors = re.findall(r"^\| \d+ \| (.+?[^\\]) \|", ARCHITECTURE.read_text(), re.MULTILINE)
    named = [set(re.findall(r"`([\w.]+)`", floor)) for floor in floors]
    assert named == [set(re.findall(r"[\w.]+", layer)) for layer in layers]


@pytest.mark.parametrize("page", [ARCHITECTURE, *DESIGN], ids=lambda page: page.stem)
def test_what_a_page_names_is_there(page: Path) -> None:
    text = page.read_text()
    assert not missing_names(text)
    assert not PATH.findall(text), "name modules with dots and in full"
    for name in SETTING.findall(text):
        section, field = name.split(".")
        known = fields_of(Sections)[section].__struct_fields__
        assert NO_SETTING.fullmatch(name) or field in known, f"there is no setting {name}"


@pytest.mark.parametrize("page", TOPICS, ids=lambda page: page.stem)
def test_a_design_page_goes_from_the_problem_to_the_tests(page: Path) -> None:
    text = page.read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    assert re.search(r"^- `tests/", text.split("## Tests")[1], re.MULTILINE), f"{page} names no test"


@pytest.mark.parametrize("page", DESIGN, ids=lambda page: page.stem)
def test_the_index_of_the_design_leads_to_every_page(page: Path) -> None:
    index = (ROOT / "docs" / "design" / "index.md").read_text()
    assert page.stem == "index" or f"({page.name})" in index


@pytest.mark.parametrize("page", [ARCHITECTURE, *PAGES], ids=lambda page: page.stem)
def test_a_page_opens_with_words_for_its_reader(page: Path) -> None:
    text = page.read_text()
    assert text.startswith("```{include}") or TO_THE_READER.search(first_paragraph(text)), (
        f"{page} does not begin with what its reader can do with it"
    )


def test_what_is_wrong_is_noticed() -> None:
    assert missing_names("`bookkeeper.master.barn`, `bookkeeper.master.cycle.cycle`") == ["bookkeeper.master.barn"]
    assert PATH.findall("`master/cycle.py`")
    assert missing_names(
        "`bookkeeper.master.index.file_entry.FileEntry.safe`, `bookkeeper.master.index.file_entry.FileEntry.unsaid`"
    ) == ["bookkeeper.master.index.file_entry.FileEntry.unsaid"]
    assert not first_paragraph("# Title\n\n## Heading\n")
    assert not first_paragraph("# Title\n\n```console\n$ ls\n```\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("graph LR", "begins with sequenceDiagram"),
        ("sequenceDiagram\nloop forever", "no line 'loop forever'"),
        ("sequenceDiagram\nparticipant A as a", "two participants at least"),
        ("sequenceDiagram\nparticipant A as a\nA->>B: hello", "no participant 'B'"),
    ],
)
def test_a_diagram_that_can_t_be_drawn_is_refused(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        sequence.parse(text)


def test_nothing_of_a_diagram_lies_beside_it() -> None:
    drawn = sequence.draw(
        sequence.parse(
            "sequenceDiagram\nparticipant A as a\nparticipant B as b\nB->>B: a long text\nA->>A: another one"
        )
    )
    width = int(re.findall(r'viewBox="0 0 (\d+)', drawn)[0])
    for centre, text in re.findall(r'<tspan x="(-?\d+)"[^>]*>([^<]+)', drawn):
        half = sequence.CHARACTER_PX * len(text) / 2
        assert 0 <= int(centre) - half <= int(centre) + half <= width


def test_a_diagram_escapes_what_it_shows_and_keeps_texts_apart() -> None:
    drawn = sequence.draw(
        sequence.parse("sequenceDiagram\nparticipant A as a<br/>b\nparticipant B as b\nA->>B: " + "wide " * 40 + "<x>")
    )
    assert "&lt;x&gt;" in drawn
    assert re.search(r'viewBox="0 0 1[0-9]{3}', drawn), "the participants stand further apart than the text is wide"
