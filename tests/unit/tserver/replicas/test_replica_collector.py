"""A host deletes by what the books name, and nothing because of something that it did not read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bookkeeper.errors import UnavailableError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, RowPut
from bookkeeper.model import Extent
from bookkeeper.replicas.values import Placement, Stage
from bookkeeper.tserver.replicas.offer_checks import ReplicaRow, RowReplica
from bookkeeper.tserver.replicas.replica_books import ReplicaBooks
from bookkeeper.tserver.replicas.replica_collector import ReplicaCollector, Verdict, verdict_on
from tests.support.faults import fault
from tests.support.replica_disks import EXTENT, KEY
from tests.support.replica_world import DIE, ROW, ReplicaWorld, replica_world

FIRST, SECOND = KEY.prefix + "1.parquet", KEY.prefix + "2.parquet"


@dataclass(slots=True)
class Reading:
    """A reader of some files."""

    files: list[str]

    def names_in_use(self) -> list[str]:
        """The files."""
        return self.files


class AwayBooks:
    """Books that can't be read."""

    def rows_of(self, extents: Collection[Extent]) -> Mapping[Extent, ReplicaRow]:
        raise UnavailableError(f"the rows of {len(extents)} tablets are away")

    def rows(self, table_id: str) -> Mapping[str, ReplicaRow]:
        raise UnavailableError(f"the rows of {table_id} are away")

    def held_files(self, table_id: str) -> frozenset[str]:
        raise UnavailableError(f"the holds of {table_id} are away")


@dataclass(slots=True)
class CountedBooks:
    """Counts the reads of rows."""

    books: ReplicaBooks
    reads: list[str] = field(default_factory=list)

    def rows_of(self, extents: Collection[Extent]) -> Mapping[Extent, ReplicaRow]:
        self.reads += [f"row {extent.end_row!r}" for extent in extents]
        return self.books.rows_of(extents)

    def rows(self, table_id: str) -> Mapping[str, ReplicaRow]:
        self.reads.append(f"table {table_id}")
        return self.books.rows(table_id)

    def held_files(self, table_id: str) -> frozenset[str]:
        return self.books.held_files(table_id)


class UnheldBooks(ReplicaBooks):
    """Books whose holds can't be read."""

    def held_files(self, table_id: str) -> frozenset[str]:
        raise UnavailableError(f"the holds of {table_id} are away")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ReplicaWorld]:
    """host1 leads and host2 follows."""
    found = replica_world(tmp_path, "host1", "host2")
    yield found
    found.close()


def collector(world: ReplicaWorld, name: str = "host2") -> ReplicaCollector:
    """The collector of a host."""
    return ReplicaCollector(world.host(name).disk.replicas, ReplicaBooks(world.books), world.clock, DIE)


def names(world: ReplicaWorld, name: str = "host2") -> list[str]:
    """The tablet's files on a host."""
    return world.host(name).disk.store.volume.list_names(KEY.prefix)


def compacted(world: ReplicaWorld) -> tuple[int, int]:
    """Both hosts have a state with the first file, and a later one with the second file alone."""
    old = world.flush("host1", "1.parquet")
    new = world.compact("host1", "2.parquet")
    world.send(world.offer_of("host1", "host2", old - 1))
    world.send(world.offer_of("host1", "host2", old))
    world.send(world.offer_of("host1", "host2", new))
    assert world.host("host2").held.replica.root == new
    return old, new


def a_held_file(world: ReplicaWorld) -> None:
    """An export holds the first file, and a state without it is named."""
    _, new = compacted(world)
    hold = CellKey(keys.hold_row(FIRST), keys.hold_column("0c"))
    world.books.put([RowPut(hold.key, {hold.column: b""})], keys.ONCE_RANK)
    world.name_state(new, [SECOND])
    for name in ("host1", "host2"):
        collector(world, name).collect()
        assert names(world, name) == [FIRST, SECOND], "a file goes that an export reads"
    world.books.purge([hold])
    for name in ("host1", "host2"):
        collector(world, name).collect()
        assert names(world, name) == [SECOND]


def test_r17_a_file_stays_while_an_operation_holds_it(world: ReplicaWorld) -> None:
    a_held_file(world)


def test_r17_red_a_host_deletes_a_file_that_an_export_reads(world: ReplicaWorld) -> None:
    with fault("holds-ignored-on-hosts"), pytest.raises(AssertionError, match="that an export reads"):
        a_held_file(world)


def test_nothing_is_deleted_while_the_holds_can_t_be_read(world: ReplicaWorld) -> None:
    _, new = compacted(world)
    world.name_state(new, [SECOND])

    ReplicaCollector(world.host("host2").disk.replicas, UnheldBooks(world.books), world.clock, DIE).collect()
    assert names(world) == [FIRST, SECOND]


def test_n4_a_file_stays_until_a_higher_state_is_named_without_it(world: ReplicaWorld) -> None:
    old, new = compacted(world)
    for name in ("host1", "host2"):
        collector(world, name).collect()
        assert names(world, name) == [FIRST, SECOND], "a file goes that the books name, or may name"
    world.name_state(old, [FIRST])
    for name in ("host1", "host2"):
        collector(world, name).collect()
        assert names(world, name) == [FIRST, SECOND], "a file goes that the books name, or may name"
    world.name_state(new, [SECOND])
    for name in ("host1", "host2"):
        collector(world, name).collect()
        assert names(world, name) == [SECOND]
        assert list(world.host(name).held.manifest.states) == [new]
    world.restart("host2")
    assert [file.name for file in world.host("host2").held.root_files()] == [SECOND]


def test_n4_red_deleting_by_the_local_root(world: ReplicaWorld) -> None:
    with fault("deletion-by-local-root"), pytest.raises(AssertionError, match="a file goes that the books name"):
        test_n4_a_file_stays_until_a_higher_state_is_named_without_it(world)


def test_p15_a_file_that_a_page_reads_stays(world: ReplicaWorld) -> None:
    _, new = compacted(world)
    world.name_state(new, [SECOND])
    reading = Reading([FIRST])
    held = world.host("host2").held
    held.add_reader(reading.names_in_use)
    collector(world).collect()
    assert names(world) == [FIRST, SECOND], "a file goes that a page reads"
    held.remove_reader(reading.names_in_use)
    collector(world).collect()
    assert names(world) == [SECOND]


def test_nothing_goes_because_of_books_that_can_not_be_read(world: ReplicaWorld) -> None:
    compacted(world)

    broken = ReplicaCollector(world.host("host2").disk.replicas, AwayBooks(), world.clock, DIE)
    for _ in range(3):
        broken.collect()
    assert names(world) == [FIRST, SECOND]
    assert world.host("host2").held.replica.root is not None


def test_a_replica_goes_when_its_row_no_longer_names_this_host(world: ReplicaWorld) -> None:
    compacted(world)
    world.unplace("host2")
    collector(world).collect()
    assert names(world) == []
    assert world.host("host2").disk.replicas.find(KEY) is None
    assert names(world, "host1") == [FIRST, SECOND]


def test_a_replica_goes_when_its_row_names_another_placement(world: ReplicaWorld) -> None:
    compacted(world)
    world.put_row("host2", placement="q")
    collector(world).collect()
    assert world.host("host2").disk.replicas.find(KEY) is None


def test_a_tablet_without_a_row_is_missed_twice_before_its_replica_goes(world: ReplicaWorld) -> None:
    """A read of many rows is not atomic: a tablet whose row moves meanwhile is missed once."""
    compacted(world)
    found = collector(world)
    columns = [keys.PREV_ROW, keys.DIR, keys.replica_column("host2")]
    world.books.delete([CellKey(ROW, column) for column in columns], next(world.ranks))
    found.collect()
    assert names(world) == [FIRST, SECOND]
    world.put_row("host1", "host2")
    found.collect()
    world.books.delete([CellKey(ROW, column) for column in columns], next(world.ranks))
    found.collect()
    assert names(world) == [FIRST, SECOND], "a replica goes after one read without its row"
    found.collect()
    assert names(world) == []


def test_only_the_rows_of_replicas_here_are_read_unless_one_is_not_where_it_was(world: ReplicaWorld) -> None:
    compacted(world)
    others = {keys.PREV_ROW: values.encode_prev_row(None), keys.DIR: values.encode_dir("t-other")}
    world.books.put([RowPut(keys.tablet_row(EXTENT.table_id, b"other"), others)], next(world.ranks))
    books = CountedBooks(ReplicaBooks(world.books))
    found = ReplicaCollector(world.host("host2").disk.replicas, books, world.clock, DIE)
    found.collect()
    assert books.reads == [f"row {EXTENT.end_row!r}"], "a host reads rows of tablets that it does not hold"
    world.books.put([RowPut(ROW, {keys.DIR: values.encode_dir("t-left")})], next(world.ranks))
    moved = {**others, keys.DIR: values.encode_dir(KEY.directory)}
    cell = world.books.get(ROW, ("replica",))
    assert cell is not None
    moved |= {column: one.value for column, one in cell.cells.items()}
    world.books.put([RowPut(keys.tablet_row(EXTENT.table_id, b"other"), moved)], next(world.ranks))
    found.collect()
    assert books.reads[1:] == [f"row {EXTENT.end_row!r}", f"table {EXTENT.table_id}"]
    found.collect()
    assert books.reads[3:] == ["row b'other'"], "the tablet's new rows are not noted"
    assert names(world) == [FIRST, SECOND]


def test_leftovers_go_and_a_leader_keeps_what_it_is_writing(world: ReplicaWorld) -> None:
    _, new = compacted(world)
    world.name_state(new, [SECOND])
    for name in ("host1", "host2"):
        world.host(name).disk.file("leftover.parquet")
        world.host(name).disk.store.volume.create("tables/3a/t-gone/1.parquet", [b"x"]).close()
        collector(world, name).collect()
        assert not world.host(name).disk.store.volume.exists("tables/3a/t-gone/1.parquet")
    assert names(world) == [SECOND]
    assert names(world, "host1") == [SECOND, KEY.prefix + "leftover.parquet"]


def test_a_new_role_and_new_targets_are_noted(world: ReplicaWorld) -> None:
    compacted(world)
    world.put_row("host2", role="joining")
    world.unplace("host1")
    collector(world).collect()
    replica = world.host("host2").held.replica
    assert (replica.stage, replica.targets) == (Stage.JOINING, ())


def test_a_damaged_replica_goes_only_when_the_books_take_it_away(world: ReplicaWorld) -> None:
    compacted(world)
    path = world.host("host2").disk.directory / "manifests" / KEY.table_id / KEY.directory
    path.write_bytes(b"damaged")
    world.restart("host2")
    collector(world).collect()
    assert names(world) == [FIRST, SECOND]
    world.unplace("host2")
    collector(world).collect()
    assert (names(world), world.host("host2").disk.replicas.damaged) == ([], {})


@pytest.mark.parametrize("content", [b"damaged", None])
def test_a_host_joins_again_although_its_disk_has_a_manifest_of_before(
    world: ReplicaWorld, content: bytes | None
) -> None:
    """A manifest of the disk before, or a damaged one, lies where the host gets the tablet again."""
    compacted(world)
    directory = world.host("host2").disk.directory
    if content is None:
        (directory / "incarnation").write_bytes(b"anotherdisk")
    else:
        (directory / "manifests" / KEY.table_id / KEY.directory).write_bytes(content)
    world.restart("host2")
    assert list(world.host("host2").disk.replicas.damaged) == [KEY]
    world.put_row("host1")
    world.put_row("host2", role="joining", placement="again")
    collector(world).collect()
    assert world.host("host2").disk.replicas.damaged == {}, "a host joins for ever, because of a manifest of before"
    world.lead("host1", "host2", term=2)
    world.put_row("host1", term=2)
    assert world.replicate("host1", "host2")[-1] == "acked"
    held = world.host("host2").held
    assert (held.placement.id, held.replica.root) == ("again-host2", world.host("host1").held.replica.root)


@pytest.mark.parametrize(
    ("hosts", "placement", "missed", "verdict"),
    [
        ({"h": "p"}, "p", False, Verdict.COLLECT),
        ({"h": "p"}, "q", False, Verdict.REMOVE),
        ({"h": "p"}, None, True, Verdict.WAIT),
        ({"g": "p"}, "p", False, Verdict.REMOVE),
        ({"g": "p"}, None, False, Verdict.REMOVE),
        (None, "p", False, Verdict.WAIT),
        (None, "p", True, Verdict.REMOVE),
    ],
)
def test_the_verdict_on_a_replica(
    hosts: dict[str, str] | None, placement: str | None, missed: bool, verdict: Verdict
) -> None:
    named = {host: RowReplica(Placement(found, "i"), Stage.LIVE) for host, found in (hosts or {}).items()}
    row = None if hosts is None else ReplicaRow(EXTENT, KEY.directory, 1, named, None, ())
    assert verdict_on(row, "h", None if placement is None else Placement(placement, "i"), missed) is verdict
