"""Changes of the configuration: each is one step and safe to repeat, and no concurrent change is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination import config_changes as changes
from bookkeeper.coordination.config_tree import Instance, PeerCluster, TableConfig, counter_path, read_config
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.errors import CorruptionError, ExistsError, InvalidInputError, NotFoundError, RefusedError
from bookkeeper.model import LocalityGroup

EAST = PeerCluster("east", "h:1", "i-east", "east")
GROUPS = (LocalityGroup("g", (b"f",)), LocalityGroup("h", (b"k", b"l")))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedCoordination]:
    coordination = EmbeddedCoordination(tmp_path, CoordinationSettings())
    yield coordination
    coordination.close()


def _table(store: EmbeddedCoordination, name: str = "t") -> str:
    table_id = changes.new_table_id(store)
    changes.create_table_record(store, table_id, name, GROUPS, {"p": "1"})
    return table_id


def test_authorizations_of_a_user_are_set_changed_and_removed(store: EmbeddedCoordination) -> None:
    changes.set_authorizations(store, "ann/é", ["B", "A", "A"])
    changes.set_authorizations(store, "root", ["C"])
    assert read_config(store).users == {"ann/é": ("A", "B"), "root": ("C",)}
    generation = store.generation()
    changes.set_authorizations(store, "root", ["C"])
    assert store.generation() == generation
    changes.set_authorizations(store, "root", ["D"])
    changes.set_authorizations(store, "ann/é", [])
    changes.set_authorizations(store, "nobody", [])
    assert read_config(store).users == {"root": ("D",)}


def test_an_instance_keeps_its_identity_and_may_change_its_name(store: EmbeddedCoordination) -> None:
    changes.register_instance(store, Instance("i", "west"))
    generation = store.generation()
    changes.register_instance(store, Instance("i", "west"))
    assert store.generation() == generation
    changes.register_instance(store, Instance("i", "far west"))
    assert read_config(store).instance == Instance("i", "far west")
    with pytest.raises(RefusedError, match="belongs to instance i"):
        changes.register_instance(store, Instance("j", "west"))


def test_table_ids_are_numbers_in_base_36_and_never_repeat(store: EmbeddedCoordination) -> None:
    ids = [changes.new_table_id(store) for _ in range(40)]
    assert ids[0] == "1"
    assert ids[9:11] == ["a", "b"]
    assert ids[34:37] == ["z", "10", "11"]
    assert len(set(ids)) == 40


def test_a_counter_that_is_no_number_is_an_error(store: EmbeddedCoordination) -> None:
    store.put(counter_path("table"), b"many")
    with pytest.raises(CorruptionError, match="/counters/table"):
        changes.new_table_id(store)


def test_creating_a_table_again_with_its_id_changes_nothing_and_its_name_is_taken(store: EmbeddedCoordination) -> None:
    table_id = _table(store, "odd / name")
    table = changes.set_table_state(store, table_id, "online")
    generation = store.generation()
    assert changes.create_table_record(store, table_id, "odd / name", (), {}) == table
    assert store.generation() == generation
    with pytest.raises(ExistsError):
        changes.create_table_record(store, changes.new_table_id(store), "odd / name", (), {})
    assert set(read_config(store).tables) == {table_id}


def test_removing_a_table_releases_its_name_also_after_a_crash(store: EmbeddedCoordination) -> None:
    table_id = _table(store)
    store.delete(f"/tables/{table_id}")  # a crash after this step
    with pytest.raises(ExistsError):
        _table(store)
    changes.remove_table_record(store, table_id)
    changes.remove_table_record(store, table_id)
    assert _table(store) != table_id


@pytest.mark.parametrize(
    "groups",
    [
        [LocalityGroup("default", (b"f",))],
        [LocalityGroup("", (b"f",))],
        [LocalityGroup("g", ())],
        [LocalityGroup("g", (b"f",)), LocalityGroup("g", (b"h",))],
        [LocalityGroup("g", (b"f",)), LocalityGroup("h", (b"f",))],
    ],
)
def test_groups_that_overlap_or_take_a_reserved_name_are_refused(
    store: EmbeddedCoordination, groups: list[LocalityGroup]
) -> None:
    table_id = _table(store)
    with pytest.raises(InvalidInputError):
        changes.set_table_groups(store, table_id, groups)
    with pytest.raises(InvalidInputError):
        changes.create_table_record(store, "x", "x", groups, {})
    assert set(read_config(store).tables) == {table_id}


@pytest.mark.parametrize("name", ["", "a\nb", "\x00"])
def test_a_table_needs_a_printable_name(store: EmbeddedCoordination, name: str) -> None:
    with pytest.raises(InvalidInputError):
        changes.create_table_record(store, "x", name, (), {})


def test_changes_of_a_table_that_is_not_there_are_errors(store: EmbeddedCoordination) -> None:
    with pytest.raises(NotFoundError):
        changes.set_table_state(store, "none", "online")


def test_r5_each_enabling_is_a_new_incarnation_and_adding_it_again_changes_nothing(store: EmbeddedCoordination) -> None:
    table_id = _table(store)
    changes.define_cluster(store, EAST)
    first, second = changes.next_incarnation(store), changes.next_incarnation(store)
    for _ in range(2):
        changes.add_target(store, table_id, EAST, "7", "there", ["g"], first)
    changes.narrow_targets(store, table_id, "east", None)
    assert read_config(store).targets_of(table_id) == ()
    changes.add_target(store, table_id, EAST, "7", "there", None, second)
    (target,) = read_config(store).targets_of(table_id)
    assert (target.key.incarnation, target.groups, target.peer_instance_id) == (second, None, "i-east")
    assert second > first


def test_disabling_a_group_narrows_the_incarnation_and_the_last_one_removes_it(store: EmbeddedCoordination) -> None:
    table_id = _table(store)
    west = PeerCluster("west", "h:2", "i-west", "west")
    changes.add_target(store, table_id, EAST, "7", "there", None, 1)
    changes.add_target(store, table_id, west, "7", "there", None, 2)
    for off, left in ((["x"], None), (["g"], ("default", "h")), (["g", "h"], ("default",))):
        changes.narrow_targets(store, table_id, "east", off)
        assert [t.groups for t in read_config(store).targets_of(table_id)] == [left, None]
    changes.narrow_targets(store, table_id, "east", ["default"])
    (target,) = read_config(store).targets_of(table_id)
    assert target.key.cluster == "west"


def test_only_groups_without_a_target_are_enabled(store: EmbeddedCoordination) -> None:
    table_id = _table(store)

    def wanted(groups: list[str] | None, remote: str = "7") -> tuple[str, ...] | None:
        return changes.uncovered_groups(read_config(store).table(table_id), "east", remote, groups)

    assert wanted(None) is None
    assert wanted(["g"]) == ("g",)
    changes.add_target(store, table_id, EAST, "7", "there", ["g"], 1)
    assert wanted(["g"]) == ()
    assert wanted(["g", "h"]) == ("h",)
    assert wanted(None) == ("default", "h")
    assert wanted(None, "8") is None
    changes.add_target(store, table_id, EAST, "7", "there", None, 2)
    assert wanted(None) == wanted(["h"]) == ()


def test_r23_a_cluster_may_move_but_not_become_another(store: EmbeddedCoordination) -> None:
    changes.define_cluster(store, EAST)
    changes.define_cluster(store, PeerCluster("east", "h:9", "i-east", "east"))
    assert read_config(store).cluster("east").quorum == "h:9"
    with pytest.raises(ExistsError):
        changes.define_cluster(store, PeerCluster("east", "h:9", "i-other", "east"))
    with pytest.raises(NotFoundError):
        changes.delete_cluster(store, "none")
    table_id = _table(store)
    changes.add_target(store, table_id, EAST, "7", "there", None, 1)
    with pytest.raises(RefusedError, match="disablereplication -t t"):
        changes.delete_cluster(store, "east")
    changes.narrow_targets(store, table_id, "east", None)
    changes.delete_cluster(store, "east")
    assert not read_config(store).clusters


def test_concurrent_changes_of_one_table_all_hold(store: EmbeddedCoordination) -> None:
    table_id = _table(store)

    def add(first: int) -> None:
        for incarnation in range(first, first + 5):
            changes.add_target(store, table_id, EAST, "7", "there", ["g"], incarnation)

    threads = [threading.Thread(target=add, args=(10 * n + 1,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    targets = read_config(store).targets_of(table_id)
    assert sorted(t.key.incarnation for t in targets) == sorted(10 * n + k for n in range(4) for k in range(1, 6))


def test_an_equal_result_writes_nothing(store: EmbeddedCoordination) -> None:
    table_id = _table(store)
    generation = store.generation()

    def same(table: TableConfig) -> TableConfig:
        return table

    changes.change_table(store, table_id, same)
    assert store.generation() == generation
