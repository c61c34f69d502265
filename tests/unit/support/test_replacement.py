"""A target is replaced in its place and nowhere else, and a wrong target is refused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from bookkeeper.client import retry
from bookkeeper.metadata.sqlite import sqlite_store
from bookkeeper.storage.volume import local_volume
from bookkeeper.storage.volume.file_ops import FileOps
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from tests.support.replacement import Binding, Target, replaced


def test_a_method_is_replaced_in_its_class() -> None:
    sync = WalWriter.sync
    with replaced(WalWriter.sync, print):
        assert vars(WalWriter)["sync"] is print
    assert vars(WalWriter)["sync"] is sync


def test_a_binding_is_replaced_in_its_module_only() -> None:
    with replaced(Binding(local_volume, FileOps), print):
        assert vars(local_volume)["FileOps"] is print
        assert vars(sys.modules["bookkeeper.storage.volume.file_ops"])["FileOps"] is not print


def test_all_is_put_back_after_a_failure() -> None:
    sql = vars(sqlite_store)["PUT_SQL"]
    with pytest.raises(OSError, match="full"), replaced(Binding(sqlite_store, "PUT_SQL"), ""):
        raise OSError("full")
    assert vars(sqlite_store)["PUT_SQL"] == sql


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


@pytest.mark.parametrize(
    "target",
    [lambda: None, ModuleType.__dict__, dict.fromkeys, retry.pause_ms],
    ids=["lambda", "value", "bound", "function"],
)
def test_a_target_that_no_class_defines_is_refused(target: Target) -> None:
    with pytest.raises(TypeError, match="is no method"), replaced(target, print):
        pass
