"""An export and the compactions, collectors and dead masters beside it: R4 and R17."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from bookkeeper.bulk.log_segments import sha256_of
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import RowPut
from tests.support.export_schedules import Exports, check_export, exports_in, run_schedule
from tests.support.faults import fault
from tests.support.master_world import World
from tests.support.scripted_tserver import scripted

SEEDS = range(20)
"""Schedules of the suite."""

FINDING = (*range(5), 43)
"""Seeds that find what is broken."""


@pytest.fixture
def exports(world: World) -> Iterator[Exports]:
    with scripted(world) as tserver, exports_in(world, world.master(), tserver.session) as made:
        yield made


def checksums(exports: Exports) -> list[str]:
    """Of the table's segments."""
    return [sha256_of(exports.world.volume, name) for name in exports.named()]


def until(exports: Exports, is_there: Callable[[], bool]) -> None:
    """Execute steps until something is there."""
    for _ in range(20):
        if is_there():
            return
        exports.step()
    raise AssertionError(f"the export waits: {[run.note for run in exports.master.fate.pending()]}")


def compact_all(exports: Exports) -> None:
    for row in exports.rows():
        exports.compact(row)


def copies_what_is_replaced(exports: Exports, directory: Path) -> None:
    """All segments are replaced and marked between the pin and the copy."""
    wanted, before = checksums(exports), exports.files()
    exports.begin(directory, "a" * 32)
    until(exports, lambda: bool(exports.held()))
    compact_all(exports)
    for _ in range(3):
        exports.collect()
    assert before <= exports.files(), "a file went while an export copied it"
    exports.settle()
    check_export(exports, directory, wanted)


def test_r17_an_export_copies_segments_that_compactions_replace_meanwhile(exports: Exports, tmp_path: Path) -> None:
    copies_what_is_replaced(exports, tmp_path / "e")


def test_r17_red_without_holds_a_compaction_takes_the_files_away(exports: Exports, tmp_path: Path) -> None:
    with (
        fault("holds-keep-nothing"),
        pytest.raises(AssertionError, match="a file went while an export copied it"),
    ):
        copies_what_is_replaced(exports, tmp_path / "e")


def replaced_before_the_hold(exports: Exports, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction replaces the segments between the read of their names and the put of their holds."""
    put, done = exports.world.table.put, list[bool]()

    def put_late(rows: list[RowPut], rank: int) -> None:
        if not done and rows[0].key.startswith(keys.HOLD_PREFIX):
            done.append(True)
            compact_all(exports)
        put(rows, rank)

    monkeypatch.setattr(exports.world.table, "put", put_late)


def holds_what_is_named(exports: Exports, directory: Path) -> None:
    wanted = checksums(exports)
    exports.begin(directory, "b" * 32)
    until(exports, lambda: bool(exports.held()))
    assert exports.named() <= exports.held(), "an export copies a segment that it does not hold"
    exports.settle()
    check_export(exports, directory, wanted)


def test_r17_an_export_reads_the_tablets_again_after_its_holds(
    exports: Exports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_before_the_hold(exports, monkeypatch)
    holds_what_is_named(exports, tmp_path / "e")


def test_r17_red_a_hold_of_a_name_that_was_read_before_holds_another_file(
    exports: Exports, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced_before_the_hold(exports, monkeypatch)
    with (
        fault("holds-of-what-was-named-before"),
        pytest.raises(AssertionError, match="an export copies a segment that it does not hold"),
    ):
        holds_what_is_named(exports, tmp_path / "e")


def late_hold(exports: Exports) -> None:
    """A dead master's put of a hold arrives when no operation of its id runs."""
    (name, *_) = exports.named()
    exports.world.table.put([RowPut(keys.hold_row(name), {keys.hold_column("gone"): values.EMPTY})], keys.ONCE_RANK)
    compact_all(exports)
    exports.settle()
    assert exports.files() == exports.named(), "a file stays for an operation that is over"


def test_r4_a_hold_of_an_operation_that_does_not_run_keeps_nothing(exports: Exports) -> None:
    late_hold(exports)


def test_r4_red_a_late_hold_keeps_its_file_for_ever(exports: Exports) -> None:
    with (
        fault("holds-outlive-their-operation"),
        pytest.raises(AssertionError, match="a file stays for an operation that is over"),
    ):
        late_hold(exports)


def test_an_export_that_fails_leaves_no_hold(exports: Exports, tmp_path: Path) -> None:
    """Its directory becomes a file while it is under way."""
    directory = tmp_path / "e"
    running = exports.begin(directory, "c" * 32)
    until(exports, lambda: bool(exports.held()))
    shutil.rmtree(directory)
    directory.touch()
    compact_all(exports)
    exports.settle()
    assert running.error is not None
    assert not exports.held()
    assert exports.files() == exports.named()


# ---- the search


def search(exports: Exports, directory: Path, seeds: Iterable[int]) -> None:
    """One export after the other, each with accidents of its own."""
    wanted = checksums(exports)
    for seed in seeds:
        run_schedule(exports, seed, directory / str(seed))
        check_export(exports, directory / str(seed), wanted)


@pytest.mark.timeout(300)
def test_r17_no_schedule_of_exports_loses_a_file_or_keeps_one(exports: Exports, tmp_path: Path) -> None:
    search(exports, tmp_path, SEEDS)
    assert exports.deaths, "no master died"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("switch", "law"),
    [
        ("holds-keep-nothing", "a file went while an export copied it"),
        ("holds-of-what-was-named-before", "a file went while an export copied it"),
        ("holds-outlive-their-operation", "files are held for operations that are over"),
    ],
)
def test_r17_red_the_search_finds_each_broken_rule(exports: Exports, tmp_path: Path, switch: str, law: str) -> None:
    with fault(switch), pytest.raises(AssertionError, match=law):
        search(exports, tmp_path, FINDING)
