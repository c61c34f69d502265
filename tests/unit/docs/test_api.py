"""The reference of the Python API has every public name, and each says what it does and which errors there are."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import io
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import bookkeeper.client
import combiners
from bookkeeper import errors
from bookkeeper.peers import protocol

API = Path(__file__).parents[3] / "docs" / "api"
OWN = tuple(
    name for name, thing in vars(protocol).items() if inspect.isclass(thing) and thing.__module__ == protocol.__name__
)
ROOMS = [
    (bookkeeper.client, tuple(bookkeeper.client.__all__), "client.md"),
    (protocol, OWN, "replica-systems.md"),
    (combiners, tuple(combiners.__all__), "combiners.md"),
]
GENERATED = ("Barrier", "CLOSED", "OPEN", "ReplicationStatus", "Share", "State")
"""Made by protoc: the page shows their source."""

SAID_MIN = 10
"""Characters."""

_DIRECTIVE = re.compile(r"^\.\. (?:auto|py:)\w+:: (\w+)", re.MULTILINE)
_ERROR = re.compile(r"\b[A-Z]\w*Error\b")


def trouble_with(said: str) -> str:
    """The error in a docstring; "" = none."""
    if len(said) < SAID_MIN:
        return "says nothing"
    known = {*vars(errors), *vars(combiners), *vars(builtins)}
    unknown = sorted(set(_ERROR.findall(said)) - known)
    return f"names {', '.join(unknown)}" if unknown else ""


def described(module: ModuleType, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The docstring of each public name, and of each public method and property of it."""
    for name in names:
        thing = getattr(module, name)
        if name in GENERATED:
            continue
        yield name, thing.__doc__ or ""
        if inspect.isclass(thing):
            for part, member in vars(thing).items():
                raw = getattr(member, "__func__", member)
                if not part.startswith("_") and (inspect.isfunction(raw) or isinstance(raw, property)):
                    yield f"{name}.{part}", raw.__doc__ or ""


@pytest.mark.parametrize(("module", "names", "page"), ROOMS, ids=[page for _, _, page in ROOMS])
def test_every_public_name_has_its_place(module: ModuleType, names: tuple[str, ...], page: str) -> None:
    assert set(names) <= set(_DIRECTIVE.findall((API / page).read_text())), f"a name of {module} is not in {page}"


@pytest.mark.parametrize(("module", "names", "page"), ROOMS, ids=[page for _, _, page in ROOMS])
def test_everything_says_what_it_does_and_names_errors_that_there_are(
    module: ModuleType, names: tuple[str, ...], page: str
) -> None:
    assert [
        f"{page}: {name} {trouble}" for name, said in described(module, names) if (trouble := trouble_with(said))
    ] == []


@pytest.mark.parametrize(
    ("said", "trouble"),
    [
        ("", "says nothing"),
        ("See it.", "says nothing"),
        ("One table. Raises NoSuchError.", "names NoSuchError"),
        ("One table. Raises NotFoundError.", ""),
        ("The status after a change. Raises StatusError.", ""),
    ],
)
def test_a_name_that_says_too_little_is_noticed(said: str, trouble: str) -> None:
    assert trouble_with(said) == trouble


def test_a_page_begins_with_what_the_reader_can_do() -> None:
    for _, _, page in ROOMS:
        title, _, first = (API / page).read_text().splitlines()[:3]
        assert title.startswith("# ")
        assert first.startswith("With "), f"{page} begins with {first!r}"


def test_the_example_of_the_combiners_prints_what_the_page_says() -> None:
    code, said = re.findall(r"```(?:python|text)\n(.*?)```", (API / "combiners.md").read_text(), re.DOTALL)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "combiners.md", "exec"), {})
    assert printed.getvalue() == said
