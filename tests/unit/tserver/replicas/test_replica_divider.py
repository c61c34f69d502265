"""A host links the files of a tablet that was split for the new ones: beliefs, crashes, files that it lacks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.errors import InvalidInputError, UnavailableError
from bookkeeper.master.operations.table_lifecycle import SPLITS_MAX
from bookkeeper.metadata import keys
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import Extent
from bookkeeper.replicas.events import Flushed, LeaderNamed
from bookkeeper.replicas.values import Placement, Stage, state_id
from bookkeeper.storage.replicas.file_checks import held_file
from bookkeeper.storage.replicas.manifest import ReplicaKey
from bookkeeper.tserver.replicas.offer_checks import ReplicaRow, RowReplica
from bookkeeper.tserver.replicas.replica_books import NamedState
from bookkeeper.tserver.replicas.replica_divider import CHILDREN_MAX, ReplicaDivider
from tests.support.must_raise import must_raise
from tests.support.replica_disks import EXTENT, KEY, Disk, PowerLostError, disk

LOW, HIGH = replace(EXTENT, end_row=b"m"), replace(EXTENT, prev_row=b"m")
CHILD = ReplicaKey(EXTENT.table_id, "s-9-0")
NAMES = ("1.parquet", "2.parquet")
STATE = keys.first_flush_id(4)


@dataclass
class Books:
    """The rows of both halves as the books have them."""

    incarnation: str
    serial: int = 4
    rows: dict[Extent, tuple[ReplicaKey, str]] = field(
        default_factory=lambda: {LOW: (CHILD, "s-9-0-host1"), HIGH: (KEY, "p-host1")}
    )

    def named(self, extent: Extent) -> NamedState | None:
        """See ``ReplicaBooks.named``."""
        if extent not in self.rows:
            return None
        key, placement = self.rows[extent]
        names = tuple(key.prefix + name for name in NAMES)
        own = RowReplica(Placement(placement, self.incarnation), Stage.LIVE)
        row = ReplicaRow(extent, key.directory, self.serial, {"host1": own}, STATE, names)
        flush = FlushState(STATE, {}, 7, 0, {}, (), names)
        return NamedState(row, flush, flush.encode(), dict.fromkeys(names, b'{"half":1}'))


def host(directory: Path, files: int = 2) -> Disk:
    """A host with so many files of the tablet."""
    found = disk(directory, "host1")
    held = found.held()
    held.apply(LeaderNamed("host1", 1))
    for number, name in enumerate(NAMES[:files], 1):
        file = found.file(name, name.encode())
        held.apply(Flushed((file.name,), segment_id=state_id(1, number)), [file], {state_id(1, number): b"state"})
    held.apply(LeaderNamed(None, 1))
    return found


def divide(found: Disk, books: Books) -> list[Extent]:
    return ReplicaDivider(found.replicas, books.named).divide(KEY.directory, [LOW, HIGH])


def files(found: Disk, key: ReplicaKey) -> Mapping[str, bytes]:
    paths = (found.directory / key.prefix).glob("*.parquet")
    return {path.name: path.read_bytes() for path in paths}


WHOLE = {name: name.encode() for name in NAMES}


def test_both_halves_have_all_files_under_their_own_names_and_the_cells_of_their_rows(tmp_path: Path) -> None:
    found = host(tmp_path)
    assert divide(found, Books(found.store.identity.incarnation)) == [LOW, HIGH]
    child, kept = found.replicas.find(CHILD), found.replicas.find(KEY)
    assert child is not None
    assert kept is not None
    assert (child.replica.root, kept.replica.root) == (STATE, STATE)
    assert files(found, CHILD) == files(found, KEY) == WHOLE
    assert {file.entry for file in child.root_files()} == {b'{"half":1}'}
    assert (child.extent, kept.extent) == (LOW, HIGH)
    found.store.volume.delete([KEY.prefix + name for name in NAMES])
    assert files(found, CHILD) == WHOLE, "the files of one half are those of the other one"


@pytest.mark.parametrize("is_behind", [False, True], ids=["before it", "behind it"])
def test_an_order_that_was_cut_is_repeated_after_a_restart(is_behind: bool, tmp_path: Path) -> None:
    for cut in itertools.count():
        found = host(tmp_path / str(cut))
        books = Books(found.store.identity.incarnation)
        found.ops.cut_at, found.ops.is_behind = len(found.ops.calls) + cut, is_behind
        try:
            divide(found, books)
        except PowerLostError:
            found.reopen()
            found.replicas.delete_orphans()
            assert divide(found, books) == [LOW, HIGH]
            assert files(found, CHILD) == files(found, KEY) == WHOLE
            continue
        assert cut > 6
        return


MERGED = ReplicaKey(EXTENT.table_id, "m-9")


@dataclass
class MergedBooks:
    """The row of a tablet that was merged from the one of :func:`host` and another one."""

    incarnation: str
    names: tuple[str, ...]

    def named(self, extent: Extent) -> NamedState:
        """See ``ReplicaBooks.named``."""
        files = tuple(MERGED.prefix + name for name in self.names)
        own = RowReplica(Placement("p-host1", self.incarnation), Stage.LIVE)
        parts = (KEY.directory, OTHER.directory)
        row = ReplicaRow(extent, MERGED.directory, 4, {"host1": own}, STATE, files, parts)
        flush = FlushState(STATE, {}, 7, 0, {}, (), files)
        return NamedState(row, flush, flush.encode(), dict.fromkeys(files, b'{"merged":1}'))


OTHER = ReplicaKey(EXTENT.table_id, "t-9")


def two_tablets(directory: Path) -> Disk:
    """A host with a tablet of two files, and another tablet of one."""
    found = host(directory)
    other = found.replicas.open(OTHER, replace(EXTENT, prev_row=b"z"), "p-host1", Stage.LIVE, ())
    other.apply(LeaderNamed("host1", 1))
    name = OTHER.prefix + "3.parquet"
    found.store.volume.create(name, [b"3"]).close()
    file = held_file(found.store.volume, name, b"entry")
    other.apply(Flushed((file.name,), segment_id=state_id(1, 1)), [file], {state_id(1, 1): b"state"})
    other.apply(LeaderNamed(None, 1))
    return found


def merge(found: Disk, *names: str) -> list[Extent]:
    books = MergedBooks(found.store.identity.incarnation, names)
    return ReplicaDivider(found.replicas, books.named).divide(MERGED.directory, [EXTENT])


def test_a_merged_tablet_has_the_files_of_all_parts_that_its_row_names(tmp_path: Path) -> None:
    found = two_tablets(tmp_path)
    assert merge(found, *NAMES, "3.parquet") == [EXTENT]
    merged = found.replicas.find(MERGED)
    assert merged is not None
    assert (merged.replica.root, merged.replica.term) == (STATE, 4)
    assert files(found, MERGED) == {**WHOLE, "3.parquet": b"3"}
    assert {file.entry for file in merged.root_files()} == {b'{"merged":1}'}


def test_a_merged_tablet_without_a_file_of_one_part_is_no_copy(tmp_path: Path) -> None:
    found = two_tablets(tmp_path)
    assert merge(found, *NAMES, "3.parquet", "4.parquet") == []
    merged = found.replicas.find(MERGED)
    assert merged is not None
    assert merged.replica.root is None


def test_a_file_that_is_not_here_stays_lacking(tmp_path: Path) -> None:
    found = host(tmp_path, files=1)
    assert divide(found, Books(found.store.identity.incarnation)) == []
    child = found.replicas.find(CHILD)
    assert child is not None
    assert child.replica.root is None, "a host without a file takes the named state for its own"
    assert files(found, CHILD).keys() == {NAMES[0]}


def test_a_file_that_goes_meanwhile_is_no_link(tmp_path: Path) -> None:
    found = host(tmp_path)
    found.store.volume.delete([KEY.prefix + NAMES[0]])
    with pytest.raises(UnavailableError, match="can't get their names"):
        divide(found, Books(found.store.identity.incarnation))
    child = found.replicas.find(CHILD)
    assert child is not None
    assert not child.replica.files


def without_row(books: Books) -> None:
    del books.rows[LOW]


def on_another_disk(books: Books) -> None:
    books.incarnation = "wiped"


@pytest.mark.parametrize("change", [without_row, on_another_disk])
def test_only_what_the_books_name_on_this_disk_is_made(change: Callable[[Books], None], tmp_path: Path) -> None:
    found = host(tmp_path)
    books = Books(found.store.identity.incarnation)
    change(books)
    assert LOW not in divide(found, books)
    assert found.replicas.find(CHILD) is None


def test_an_order_has_as_many_tablets_as_one_split_makes_at_most(tmp_path: Path) -> None:
    assert CHILDREN_MAX == SPLITS_MAX + 1
    found = host(tmp_path)
    divider = ReplicaDivider(found.replicas, Books(found.store.identity.incarnation, rows={}).named)
    many = [LOW] * CHILDREN_MAX
    assert divider.divide(KEY.directory, many) == []
    with must_raise(InvalidInputError, "an order of any length is read", match="at most 10001 in one call"):
        divider.divide(KEY.directory, [*many, HIGH])
