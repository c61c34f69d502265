"""Supervisors of one cluster share its stores, and only the first one may repair them."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from bookkeeper.errors import UnavailableError
from bookkeeper.standalone.stores_lock import StoresLock


def test_only_the_first_is_alone_and_the_next_one_waits_for_the_end_of_the_repair(tmp_path: Path) -> None:
    first, second = StoresLock(tmp_path), StoresLock(tmp_path)
    assert first.enter()
    with pytest.raises(UnavailableError, match="another process repairs the stores"):
        second.enter()
    first.share()
    assert not second.enter(), "the stores are repaired while another supervisor runs the cluster"
    first.release()
    assert second.enter(), "nobody else uses the stores now"
    second.release()
    second.release()


def test_sharing_waits_for_a_repair_that_began_in_between(tmp_path: Path) -> None:
    first, second = StoresLock(tmp_path), StoresLock(tmp_path)
    assert first.enter()
    shared = threading.Event()

    def share() -> None:
        second.share()
        shared.set()

    thread = threading.Thread(target=share)
    thread.start()
    first.release()
    thread.join()
    assert shared.is_set()
    second.release()


def test_a_directory_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("no directory")
    with pytest.raises(UnavailableError, match=r"run can't be written"):
        StoresLock(tmp_path).enter()
