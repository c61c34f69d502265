"""A red twin names the law that breaks: another failure in it, a typo or a time-out, is no proof of a law."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, compress
from pathlib import Path
from typing import TypeGuard

import pytest

from bookkeeper.errors import NotFoundError, RefusedError
from tests.support.faults import FAULTS
from tests.support.must_raise import must_raise

ROOT = Path(__file__).parents[3]

LAWS = frozenset({"AssertionError", "LawBrokenError", "StuckError"})
"""The errors of a broken law."""

NO_LAW = frozenset({"Failed", "fail.Exception", "BaseException"})
"""Of pytest itself; :func:`must_raise` says in words what is wrong when nothing is raised."""

GENERIC = (
    "assert 1 == 2",
    "assert not True",
    "assert None is not None",
    "DID NOT RAISE RefusedError",
    "not within 20 s: ",
    "Regex pattern did not match.",
)
"""Texts that name no law; a pattern that fits one of them fits too much."""

WORTH_A_LOOK = re.compile(r"\bfault\(|AssertionError|LawBrokenError|StuckError")
"""Files without any of these hold no twin; most tests are not parsed."""

Bound = Mapping[str, list[ast.expr]]


def bound_in(nodes: Iterable[ast.AST]) -> Bound:
    """The expressions that each name may stand for: all plain assignments to it, anywhere in the module."""
    found: dict[str, list[ast.expr]] = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
    return found


def meant(expr: ast.expr, bound: Bound) -> list[ast.expr]:
    """An expression, or the expressions that its name may stand for."""
    return bound.get(expr.id, [expr]) if isinstance(expr, ast.Name) else [expr]


def parts_of(expr: ast.expr) -> list[ast.expr]:
    """The elements of a tuple or a list; another expression itself."""
    return expr.elts if isinstance(expr, ast.Tuple | ast.List) else [expr]


def calls_of(statement: ast.With, bound: Bound) -> list[ast.Call]:
    """The calls whose contexts a ``with`` enters, also by a name."""
    found = chain.from_iterable(meant(item.context_expr, bound) for item in statement.items)
    return [call for call in found if isinstance(call, ast.Call)]


def called(node: ast.AST, name: str) -> bool:
    """Whether it is a call of this name, of any module."""
    match node:
        case ast.Call(func=ast.Name(id=found) | ast.Attribute(attr=found)):
            return found == name
    return False


is_switch = partial(called, name="fault")
is_raises = partial(called, name="raises")


def errors_of(call: ast.Call, bound: Bound) -> list[str]:
    """The names of the errors that a ``pytest.raises`` takes."""
    found = chain.from_iterable(meant(error, bound) for error in call.args[:1])
    return [ast.unparse(part).removeprefix("pytest.") for part in chain.from_iterable(map(parts_of, found))]


def raised_without_rule(nodes: Iterable[ast.AST], bound: Bound) -> Iterator[ast.Call]:
    """Each ``pytest.raises`` that is entered with a switch, within one or around one."""
    outers = [node for node in nodes if isinstance(node, ast.With)]
    for outer in outers:
        inners = [calls_of(node, bound) for node in ast.walk(outer) if isinstance(node, ast.With)]
        if any(map(is_switch, calls_of(outer, bound))):
            yield from filter(is_raises, chain.from_iterable(inners))
        elif any(map(is_switch, chain.from_iterable(inners))):
            yield from filter(is_raises, calls_of(outer, bound))


def match_of(call: ast.Call) -> ast.expr | None:
    """The text that a ``pytest.raises`` looks for."""
    return next((keyword.value for keyword in call.keywords if keyword.arg == "match"), None)


def is_generic(text: ast.expr) -> TypeGuard[ast.Constant]:
    """Whether a text fits what names no law."""
    return isinstance(text, ast.Constant) and any(re.search(str(text.value), generic) for generic in GENERIC)


def generic_parameters(nodes: Iterable[ast.AST], raises: Iterable[ast.Call], bound: Bound) -> Iterator[tuple[int, str]]:
    """The texts of parametrised twins that name no law."""
    given = {ast.unparse(text) for text in map(match_of, raises) if isinstance(text, ast.Name)}
    for node in nodes:
        if not isinstance(node, ast.Call) or not called(node, "parametrize"):
            continue
        names, rows = (chain.from_iterable(map(parts_of, meant(part, bound))) for part in node.args[:2])
        said = [isinstance(name, ast.Constant) and name.value in given for name in names]
        for row in rows:
            for text in compress(parts_of(row), said):
                if is_generic(text):
                    yield text.lineno, f"says {text.value!r}, which names no law"


def trouble_with(call: ast.Call, bound: Bound) -> str | None:
    """Why a ``pytest.raises`` does not tell which law broke."""
    errors = errors_of(call, bound)
    match = match_of(call)
    if NO_LAW & set(errors):
        return "expects a failure of pytest: let the law use must_raise, and expect its text"
    if "Exception" in errors or ("AssertionError" in errors and len(errors) > 1):
        return "takes other errors for the law: let the law's own assertion fail"
    if match is None:
        return "has no match: name the law that breaks"
    return f"matches {match.value!r}, which names no law" if is_generic(match) else None


def unnamed(tree: ast.AST) -> dict[int, str]:
    """Tests that do not say which law broke, by line: each twin, and each ``raises`` that waits for a broken law."""
    nodes = list(ast.walk(tree))
    bound = bound_in(nodes)
    raises = [node for node in nodes if isinstance(node, ast.Call) and is_raises(node)]
    judged = chain(raised_without_rule(nodes, bound), (call for call in raises if LAWS & set(errors_of(call, bound))))
    found = [*generic_parameters(nodes, raises, bound), *((call.lineno, trouble_with(call, bound)) for call in judged)]
    return {line: trouble for line, trouble in sorted(set(found)) if trouble is not None}


def test_every_red_twin_names_the_law_that_breaks() -> None:
    sources = {path: path.read_text() for path in sorted((ROOT / "tests").rglob("*.py"))}
    found = [
        f"{path.relative_to(ROOT)}:{line} {trouble}"
        for path, source in sources.items()
        if WORTH_A_LOOK.search(source)
        for line, trouble in unnamed(ast.parse(source, str(path))).items()
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "trouble"),
    [
        ("with fault('x'), pytest.raises(AssertionError): law()", "has no match"),
        ("with fault('x'), pytest.raises(CorruptionError): law()", "has no match"),
        ("with fault('x'):\n with pytest.raises(LawBrokenError): law()", "has no match"),
        ("with pytest.raises(StuckError):\n with world(), faults.fault('x'): law()", "has no match"),
        ("red = pytest.raises(LawBrokenError)\nboth = fault('x')\nwith both, red: law()", "has no match"),
        ("with pytest.raises(AssertionError): law()", "has no match"),
        ("with fault('x'), pytest.raises((AssertionError, KeyError), match='twice'): law()", "takes other errors"),
        ("with fault('x'), pytest.raises(Exception, match='twice'): law()", "takes other errors"),
        ("RED = (AssertionError, OSError)\nwith pytest.raises(RED, match='twice'): law()", "takes other errors"),
        ("with fault('x'), pytest.raises(pytest.fail.Exception, match='twice'): law()", "expects a failure of pytest"),
        ("with fault('x'), pytest.raises(AssertionError, match='assert'): law()", "matches 'assert'"),
        ("with fault('x'), pytest.raises(AssertionError, match='not within'): law()", "matches 'not within'"),
        ("with fault('x'), pytest.raises(AssertionError, match=''): law()", "matches ''"),
        ("mark.parametrize(('x', 'law'), [('a', '')])\npytest.raises(AssertionError, match=law)", "says ''"),
    ],
)
def test_a_twin_that_names_no_law_is_found(source: str, trouble: str) -> None:
    (found,) = unnamed(ast.parse(source)).values()
    assert found.startswith(trouble)


@pytest.mark.parametrize(
    "source",
    [
        "with fault('x'), pytest.raises(AssertionError, match='arrived twice'): law()",
        "with fault(name), pytest.raises(AssertionError, match=says): law()",
        "with fault('x'), pytest.raises((LawBrokenError, StuckError), match='arrived twice'): law()",
        "with pytest.raises(RefusedError): law()\nwith fault('x'): law()",
    ],
)
def test_a_twin_that_names_its_law_is_left_alone(source: str) -> None:
    assert unnamed(ast.parse(source)) == {}


# ---- a law that is a refusal


def refuse() -> None:
    raise RefusedError("it is closed")


def test_a_refusal_that_comes_is_handed_on() -> None:
    with must_raise(RefusedError, "it is open", match="closed") as refused:
        refuse()
    assert refused.value.message == "it is closed"


def test_without_a_refusal_the_law_says_what_is_wrong() -> None:
    with pytest.raises(AssertionError, match=r"^it is open$"), must_raise(RefusedError, "it is open"):
        pass


def test_another_error_is_not_taken_for_the_refusal() -> None:
    with pytest.raises(RefusedError, match="it is closed"), must_raise(NotFoundError, "it is open"):
        refuse()
    with pytest.raises(AssertionError, match="'it is closed'"), must_raise(RefusedError, "it is open", match="locked"):
        refuse()


# ---- switches


def unused(switches: Iterable[str], source: str) -> list[str]:
    """The switches that a source does not name, alone or joined with another by ``and``."""
    forms = ('"{}"', '"{} and ', ' and {}"', " and {} ")
    return [switch for switch in switches if not any(form.format(switch) in source for form in forms)]


def test_every_switch_turns_some_test_red() -> None:
    tests = (path.read_text() for path in (ROOT / "tests").rglob("*.py") if "support" not in path.parent.parts[-2:])
    assert unused(FAULTS, "\n".join(tests)) == [], "write the red twins of these switches, or take them away"


def test_a_switch_that_no_test_names_is_found() -> None:
    source = 'fault("no-fences"), fault("one and no-lease-margin")'
    assert unused(["no-fence", "no-lease-margin"], source) == ["no-fence"]
