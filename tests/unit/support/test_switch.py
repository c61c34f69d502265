"""A switch changes the code of one function for a while, and fails at import when its text is gone."""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterator
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bookkeeper.client import retry
from tests.support.faults import FAULTS, fault
from tests.support.faults.switch import MUTANT_VARIABLE, Edit, Switch, TextGoneError, source_of, turned

EXAMPLE = "example_of_switches"

SOURCE = '''\
"""Functions of all kinds."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property

from msgspec import Struct

FACTOR = 3


def scaled(value: NotImported) -> int:
    if value < 0:
        return 0
    if value > 100:
        return 100
    return value * FACTOR


scaled_by_another_name = scaled


def scaled_twice(value: int) -> int:
    return scaled(value) * FACTOR


@cache
def remembered(value: int) -> int:
    return value + 1


@contextmanager
def entered():
    yield "inside"


def counted(most: int):
    for number in range(most):
        yield number


class Base:
    def name(self) -> str:
        return "base"


class Derived(Base):
    def __init__(self) -> None:
        self.__secret = 5

    def name(self) -> str:
        return super().name() + " and more"

    def plain(self) -> str:
        return "plain"

    @property
    def secret(self) -> int:
        return self.__secret

    @cached_property
    def kept(self) -> int:
        return 1

    @classmethod
    def made(cls) -> str:
        return cls.__name__

    @staticmethod
    def static(
        value: int,
    ) -> int:
        return value

    class Inner:
        def name(self) -> str:
            return "inner"


@dataclass(frozen=True, slots=True)
class Slotted:
    size: int

    def doubled(self) -> int:
        return 2 * self.size

    def own_class(self) -> type:
        return __class__


class Packed(Struct, frozen=True):
    size: int

    def doubled(self) -> int:
        return 2 * self.size
'''


@pytest.fixture(autouse=True)
def outside_of_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of a mutant run these, too, and switches check nothing at import then."""
    monkeypatch.delenv(MUTANT_VARIABLE, raising=False)


@pytest.fixture
def example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module with functions of all kinds."""
    (tmp_path / f"{EXAMPLE}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    source_of.cache_clear()
    yield importlib.import_module(EXAMPLE)
    sys.modules.pop(EXAMPLE, None)
    source_of.cache_clear()


def switch(function: str, old: str, new: str, *also: Edit) -> Switch:
    """A switch of the example."""
    return Switch(EXAMPLE, function, old=old, new=new, breaks="nothing", also=also)


# ---- at import


@pytest.mark.usefixtures("example")
def test_a_text_that_is_gone_fails_when_the_table_is_imported() -> None:
    with pytest.raises(TextGoneError, match=rf"{EXAMPLE}, scaled: the text .* is there 0 times: if value == 0"):
        switch("scaled", "if value == 0", "if False")


@pytest.mark.usefixtures("example")
def test_a_text_of_another_function_is_not_meant() -> None:
    with pytest.raises(TextGoneError, match="there 0 times"):
        switch("scaled_twice", "if value < 0", "if False")


@pytest.mark.usefixtures("example")
def test_a_text_that_is_there_twice_is_refused() -> None:
    with pytest.raises(TextGoneError, match="there 2 times: if value"):
        switch("scaled", "if value", "if not value")


@pytest.mark.usefixtures("example")
@pytest.mark.parametrize("function", ["scale", "Base.plain", "Missing.name", "FACTOR"])
def test_a_function_that_is_gone_fails_when_the_table_is_imported(function: str) -> None:
    with pytest.raises(TextGoneError, match=f"{EXAMPLE} has no {function}"):
        switch(function, "return", "yield")


@pytest.mark.usefixtures("example")
def test_each_change_of_a_switch_is_looked_up() -> None:
    with pytest.raises(TextGoneError, match=r"Derived\.plain: .* 0 times"):
        switch("scaled", "value < 0", "False", Edit(EXAMPLE, "Derived.plain", "'plain'", "''"))


def test_a_package_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ModuleNotFoundError, match="there is no package bookkeper"):
        Switch("bookkeper.client.retry", "pause_ms", old="a", new="b", breaks="nothing")


def test_a_table_imports_no_module() -> None:
    name = "bookkeeper.master.process"
    known = sys.modules.pop(name, None)
    try:
        Switch(name, "MasterProcess.run", old="def run(", new="def run(", breaks="nothing")
        assert name not in sys.modules
    finally:
        if known is not None:
            sys.modules[name] = known


@pytest.mark.usefixtures("example")
def test_a_mutant_that_takes_a_text_fails_no_import(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MUTANT_VARIABLE, "1")
    mutated = switch("scaled", "value == 0", "False")
    with pytest.raises(TextGoneError, match="there 0 times"), turned(mutated):
        pass


@pytest.mark.usefixtures("example")
def test_the_red_twin_of_a_switch_that_a_mutant_took_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MUTANT_VARIABLE, "1")
    monkeypatch.setitem(FAULTS, "gone", switch("scaled", "value == 0", "False"))
    with pytest.raises(pytest.skip.Exception, match="the mutant has the text of the switch gone"), fault("gone"):
        pass


# ---- while it is turned


def test_all_names_of_a_function_run_the_change_and_then_the_function_again(example: Any) -> None:
    by_name = example.scaled
    with turned(switch("scaled", "value * FACTOR", "-value")):
        assert (example.scaled(2), by_name(2), example.scaled_by_another_name(2)) == (-2, -2, -2)
        assert example.scaled_twice(2) == -6
    assert (example.scaled(2), by_name(2)) == (6, 6)


def test_after_a_failure_the_function_is_as_before(example: Any) -> None:
    with pytest.raises(ZeroDivisionError), turned(switch("scaled", "value < 0", "True")):
        1 // example.scaled(5)
    assert example.scaled(5) == 15


def test_lines_keep_their_indentation(example: Any) -> None:
    several = switch(
        "scaled",
        """
        if value > 100:
            return 100
        """,
        """
        if value > 50:
            if value > 60:
                return 60
            return 50
        """,
    )
    with turned(several):
        assert [example.scaled(value) for value in (10, 55, 99)] == [30, 50, 60]


def test_a_change_may_import_what_the_module_lacks(example: Any) -> None:
    with turned(switch("scaled", "return value * FACTOR", "import math\nreturn math.isqrt(value)")):
        assert example.scaled(49) == 7


@pytest.mark.parametrize(
    ("function", "old", "new", "call", "result"),
    [
        ("remembered", "value + 1", "value + 2", "m.remembered(1)", 3),
        ("entered", '"inside"', '"elsewhere"', "m.entered().__enter__()", "elsewhere"),
        ("counted", "range(most)", "range(most + 1)", "list(m.counted(1))", [0, 1]),
        ("Base.name", '"base"', '"else"', "m.Derived().name()", "else and more"),
        ("Derived.name", '" and more"', '" and less"', "m.Derived().name()", "base and less"),
        ("Derived.name", 'super().name() + " and more"', '"none"', "m.Derived().name()", "none"),
        ("Derived.secret", "self.__secret", "-self.__secret", "m.Derived().secret", -5),
        ("Derived.kept", "1", "2", "m.Derived().kept", 2),
        ("Derived.made", "cls.__name__", "cls.__name__[:2]", "m.Derived.made()", "De"),
        ("Derived.static", "return value", "return value + 1", "m.Derived.static(1)", 2),
        ("Derived.Inner.name", '"inner"', '"outer"', "m.Derived.Inner().name()", "outer"),
        ("Slotted.doubled", "2 * self.size", "3 * self.size", "m.Slotted(2).doubled()", 6),
        ("Packed.doubled", "2 * self.size", "3 * self.size", "m.Packed(2).doubled()", 6),
        ("Slotted.own_class", "__class__", "int", "m.Slotted(2).own_class()", int),
    ],
)
def test_functions_of_each_kind_change_and_change_back(
    example: Any, function: str, old: str, new: str, call: str, result: object
) -> None:
    before = eval(call, {"m": example})
    with turned(switch(function, old, new)):
        assert eval(call, {"m": example}) == result
    assert eval(call, {"m": example}) == before != result


def test_a_function_below_a_wrapper_changes(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    function = example.scaled

    @wraps(function)
    def wrapped(value: int) -> object:
        return "wrapped", function(value)

    monkeypatch.setattr(example, "scaled", wrapped)
    with turned(switch("scaled", "value * FACTOR", "-value")):
        assert example.scaled(2) == ("wrapped", -2)


def test_a_method_of_a_class_that_a_subclass_stands_for_changes(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(example, "Derived", type("Simulated", (example.Derived,), {}))
    with turned(switch("Derived.plain", '"plain"', '"changed"')):
        assert example.Derived().plain() == "changed"


def test_a_replacement_that_does_not_lead_to_the_function_is_refused(
    example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(example, "scaled", lambda value: value)
    refused = pytest.raises(RuntimeError, match=f"{EXAMPLE}.scaled stands for something that does not lead to")
    with refused, turned(switch("scaled", "value < 0", "True")):
        pass


def test_a_traceback_shows_the_file_and_the_line(example: Any) -> None:
    with turned(switch("scaled_twice", "scaled(value)", "1 // 0")), pytest.raises(ZeroDivisionError) as raised:
        example.scaled_twice(1)
    last = traceback.extract_tb(raised.value.__traceback__)[-1]
    line = 1 + SOURCE.splitlines().index("    return scaled(value) * FACTOR")
    assert (last.filename, last.lineno, last.name) == (example.__file__, line, "scaled_twice")


def test_a_change_does_not_add_a_call_of_super(example: ModuleType) -> None:
    refused = pytest.raises(RuntimeError, match=r"Derived\.plain: a switch can't add super\(\)")
    with refused, turned(switch("Derived.plain", '"plain"', "super().name()")):
        pass
    assert vars(example)["Derived"]().plain() == "plain"


# ---- several switches


def test_changes_of_one_function_are_made_together(example: Any) -> None:
    below, above = switch("scaled", "value < 0", "value < 10"), switch("scaled", "value > 100", "value > 20")
    with turned(below, above):
        assert [example.scaled(value) for value in (5, 15, 25)] == [0, 45, 100]


@pytest.mark.usefixtures("example")
def test_a_change_that_takes_the_text_of_another_away_is_refused() -> None:
    first, second = switch("scaled", "value < 0", "False"), switch("scaled", "if value < 0", "if True")
    with pytest.raises(TextGoneError, match="there 0 times"), turned(first, second):
        pass


def test_a_function_is_not_changed_twice(example: Any) -> None:
    below = switch("scaled", "value < 0", "True")
    refused = pytest.raises(RuntimeError, match=f"{EXAMPLE}, scaled is changed by a switch already")
    with turned(below):
        with refused, turned(below):
            pass
        assert example.scaled(5) == 0
    assert example.scaled(5) == 15


def test_a_switch_with_several_changes_makes_them_all(example: Any) -> None:
    also = Edit(EXAMPLE, "Derived.plain", '"plain"', '"changed"')
    with turned(switch("scaled", "value < 0", "True", also)):
        assert (example.scaled(5), example.Derived().plain()) == (0, "changed")
    assert (example.scaled(5), example.Derived().plain()) == (15, "plain")


def test_a_switch_runs_in_the_modules_that_bound_the_function() -> None:
    pause = retry.pause_ms
    with turned(
        Switch("bookkeeper.client.retry", "pause_ms", old="return ", new="return -1 if rng else ", breaks="nothing")
    ):
        assert pause(1, Any) == -1  # type: ignore[arg-type]
