"""A target is replaced in each of its places and nowhere else, and a wrong target fails when its table is imported."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from bookkeeper.client import master_link, retry
from bookkeeper.metadata.sqlite import sqlite_store
from bookkeeper.storage.tablet.scans.scan_position import Resume
from bookkeeper.storage.volume import local_volume
from bookkeeper.storage.volume.file_ops import FileOps
from bookkeeper.storage.wal.writing import wal_writer
from bookkeeper.storage.wal.writing.seal import is_fenced
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.support.faults import fault
from tests.support.replacement import Binding, Fault, Target, replaced
from tests.support.simulation.disk import with_pause

LATE = "bookkeeper.imported_late"


def wrong_pause(attempt: int, rng: random.Random) -> int:
    del rng
    return attempt


@pytest.fixture
def late() -> Iterator[ModuleType]:
    """A module of the product that is not imported yet."""
    yield ModuleType(LATE)
    sys.modules.pop(LATE, None)


def test_a_function_is_replaced_in_each_module_that_binds_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pause = retry.pause_ms
    monkeypatch.setattr(master_link, "other_name", pause, raising=False)
    with replaced(retry.pause_ms, wrong_pause):
        assert vars(retry)["pause_ms"] is vars(master_link)["other_name"] is wrong_pause
    assert vars(retry)["pause_ms"] is vars(master_link)["other_name"] is pause


def test_a_variant_that_a_simulation_made_is_replaced_too(monkeypatch: pytest.MonkeyPatch) -> None:
    paused = with_pause("twice", with_pause("once", is_fenced))
    monkeypatch.setattr(wal_writer, "is_fenced", paused)
    with fault("seal-not-read"):
        assert vars(wal_writer)["is_fenced"] is not paused
    assert vars(wal_writer)["is_fenced"] is paused


def test_a_module_that_is_imported_meanwhile_gets_the_function_back(late: ModuleType) -> None:
    pause = retry.pause_ms
    with replaced(retry.pause_ms, wrong_pause):
        vars(late)["pause_ms"] = retry.pause_ms
        sys.modules[LATE] = late
    assert vars(late)["pause_ms"] is pause, "a module keeps the broken variant"


def test_a_method_is_replaced_in_its_class() -> None:
    sync = WalWriter.sync
    with replaced(WalWriter.sync, print):
        assert vars(WalWriter)["sync"] is print
    assert vars(WalWriter)["sync"] is sync


def test_a_property_stays_a_property() -> None:
    position = Resume(*[None] * len(Resume.__struct_fields__))  # type: ignore[arg-type]
    with replaced(Resume.partial_cell, lambda self: 7):  # noqa: ARG005
        assert vars(Resume)["partial_cell"].__get__(position) == 7


def test_a_binding_is_replaced_in_its_module_only() -> None:
    with replaced(Binding(local_volume, FileOps), print):
        assert vars(local_volume)["FileOps"] is print
        assert vars(sys.modules["bookkeeper.storage.volume.file_ops"])["FileOps"] is not print


def test_all_is_put_back_after_a_failure() -> None:
    sql = vars(sqlite_store)["PUT_SQL"]
    with pytest.raises(OSError, match="full"), replaced(Binding(sqlite_store, "PUT_SQL"), ""):
        raise OSError("full")
    assert vars(sqlite_store)["PUT_SQL"] == sql


def test_a_function_is_not_replaced_twice() -> None:
    pause = retry.pause_ms
    again = pytest.raises(RuntimeError, match="pause_ms is replaced already")
    with replaced(pause, wrong_pause), again, replaced(pause, print):
        pass


@pytest.mark.parametrize(
    "make",
    [
        lambda: Binding(sqlite_store, "PUT_SQUEAL"),
        lambda: Binding(sqlite_store, retry.pause_ms),
        lambda: Binding(sqlite_store, pytest),
    ],
    ids=["a constant", "a function", "a module"],
)
def test_a_name_that_its_module_does_not_bind_is_refused(make: Callable[[], Binding]) -> None:
    with pytest.raises(TypeError, match="does not bind"):
        make()


@pytest.mark.parametrize("target", [lambda: None, ModuleType.__dict__, dict.fromkeys], ids=["lambda", "value", "bound"])
def test_a_target_without_a_place_is_refused(target: Target) -> None:
    with pytest.raises(TypeError, match="is no function"):
        _fault(target)


def _fault(target: Any) -> Fault:
    return Fault(target, lambda: None, "nothing")
