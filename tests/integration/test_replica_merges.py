"""Tablets with replicas on three hosts merge: no byte moves, and no host deletes a part before its files have links."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.errors import BookkeeperError
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import ScanRequest
from bookkeeper.storage.wal.blocks.block import decode_batch
from tests.support.faults import fault
from tests.support.led_hosts import Hosts, hosts
from tests.support.three_hosts import AT, HOSTS, ROWS, rows, sent_bytes, write

pytestmark = pytest.mark.integration


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Hosts]:
    with hosts(tmp_path, *HOSTS) as made:
        yield made


EXPECTED = {row: b"low" if row <= AT else b"high" for row in ROWS}


def two_tablets(world: Hosts, *away: str) -> tuple[Extent, Extent]:
    """Two tablets that share a file and have some of their own, which nobody leads any more; some hosts were away when
    the own files were made.
    """
    whole = world.table(*HOSTS)
    world.lead(whole, "host1")
    write(world, "host1", whole, b"old")
    world.wait_same(whole, *HOSTS)
    world.unload(whole, "host1")
    source = world.key(whole)
    low, high = world.split(whole, AT)
    for name in HOSTS:
        assert world.divide(name, source, low, high) == [low, high]
    for name in away:
        world.stop(name)
    here = [name for name in HOSTS if name not in away]
    for leader, extent, value in (("host1", low, b"low"), ("host2", high, b"high")):
        world.lead(extent, leader)
        write(world, leader, extent, value)
        world.wait_named(extent, leader)
        world.wait_same(extent, leader, *(name for name in here if name != leader))
        world.unload(extent, leader)
    return low, high


def merged(world: Hosts, low: Extent, high: Extent, *names: str) -> Extent:
    """The merged tablet; these hosts have linked the files, and the parts may go."""
    whole = world.merge(low, high)
    for name in names:
        assert world.divide(name, world.key(whole), whole) == [whole], f"{name} lacks files"
    world.linked(whole)
    return whole


def test_no_byte_moves_and_every_host_may_lead_the_merged_tablet(world: Hosts) -> None:
    low, high = two_tablets(world)
    before = sent_bytes(world)
    whole = merged(world, low, high, *HOSTS)
    for leader in HOSTS:
        world.lead(whole, leader)
        assert rows(world, leader, whole) == EXPECTED
        world.wait_same(whole, leader, *(name for name in HOSTS if name != leader))
        world.unload(whole, leader)
    assert sent_bytes(world) == before, "content was sent for a merge"
    world.kill("host1")
    world.lead(whole, "host3")
    write(world, "host3", whole, b"w")
    assert rows(world, "host3", whole) == dict.fromkeys(ROWS, b"w")


def test_the_parts_go_when_the_books_no_longer_name_them(world: Hosts) -> None:
    low, high = two_tablets(world)
    parts = [world.held("host1", extent).key for extent in (low, high)]
    whole = merged(world, low, high, *HOSTS)
    world.lead(whole, "host1")
    for _ in range(2):  # a tablet without a row goes when a second read does not show it either
        for name in HOSTS:
            world.collect(name)
    for name in HOSTS:
        root = world.settings(name).replicas_dir
        assert not [path for part in parts for path in (root / part.prefix).glob("*")], f"{name} has files of a part"
    assert rows(world, "host1", whole) == EXPECTED


def a_host_collects_before_it_links(world: Hosts) -> None:
    low, high = two_tablets(world)
    whole = world.merge(low, high)
    for _ in range(3):
        for name in HOSTS:
            world.collect(name)
    for name in HOSTS:
        world.divide(name, world.key(whole), whole)
    try:
        world.lead(whole, "host1")
    except BookkeeperError as error:
        raise AssertionError(f"the files of a part are gone from all hosts: {error.message}") from error
    assert rows(world, "host1", whole) == EXPECTED


def test_no_host_deletes_a_part_before_it_has_linked_the_files(world: Hosts) -> None:
    a_host_collects_before_it_links(world)


def test_without_the_names_of_the_parts_hosts_delete_the_only_copies(world: Hosts) -> None:
    with fault("merged-parts-go"), pytest.raises(AssertionError, match="are gone from all hosts"):
        a_host_collects_before_it_links(world)


def test_a_host_that_slept_through_the_merge_overwrites_nothing_and_gets_no_byte(world: Hosts) -> None:
    low, high = two_tablets(world)
    before = sent_bytes(world, "host1", "host2")
    world.stop("host3")
    whole = merged(world, low, high, "host1", "host2")
    world.lead(whole, "host1")
    world.start("host3")
    world.wait_same(whole, "host1", "host3")
    assert sent_bytes(world, "host1", "host2") == before, "a host that has the files got them again"
    write(world, "host1", whole, b"w")
    world.wait_same(whole, "host1", "host3")
    world.wait_named(whole, "host1")
    world.kill("host1")
    world.lead(whole, "host3")
    assert rows(world, "host3", whole) == dict.fromkeys(ROWS, b"w")


def test_a_host_that_lacks_files_of_the_parts_gets_those_alone(world: Hosts) -> None:
    low, high = two_tablets(world, "host3")
    before = sent_bytes(world, "host1")
    whole = merged(world, low, high, "host1", "host2")
    world.start("host3")
    assert world.divide("host3", world.key(whole), whole) == [], "a host without all files counts as a copy"
    world.lead(whole, "host1")
    world.wait_same(whole, "host1", "host3")
    files = world.files("host1", whole)
    assert 0 < sent_bytes(world, "host1") - before < sum(map(len, files.values())), "a host got files that it had"
    world.wait_named(whole, "host1")
    world.kill("host1")
    world.lead(whole, "host3")
    assert rows(world, "host3", whole) == EXPECTED


@pytest.mark.parametrize("made", [0, 1, 2])
def test_the_order_may_come_again_and_late(made: int, world: Hosts) -> None:
    low, high = two_tablets(world)
    whole = world.merge(low, high)
    key = world.key(whole)
    for name in (*HOSTS[:made], *HOSTS):
        assert world.divide(name, key, whole) == [whole]
    world.lead(whole, "host1")
    write(world, "host1", whole, b"w")
    world.wait_named(whole, "host1")
    world.wait_same(whole, *HOSTS)
    roots = [world.root(name, whole) for name in HOSTS]
    for name in HOSTS:
        world.divide(name, key, whole)
    assert [world.root(name, whole) for name in HOSTS] == roots, "a late order changed a root"
    assert rows(world, "host1", whole) == dict.fromkeys(ROWS, b"w")


def test_a_leader_that_dies_before_the_merge_loses_nothing(world: Hosts) -> None:
    low, high = two_tablets(world)
    world.kill("host2")
    whole = merged(world, low, high, "host1", "host3")
    world.lead(whole, "host3")
    assert rows(world, "host3", whole) == EXPECTED
    world.start("host2")
    world.wait_same(whole, "host3", "host2")
    world.wait_named(whole, "host3")
    world.kill("host3")
    world.lead(whole, "host2")
    assert rows(world, "host2", whole) == EXPECTED


def test_a_merged_tablet_is_split_and_merged_again(world: Hosts) -> None:
    whole = merged(world, *two_tablets(world), *HOSTS)
    source = world.key(whole)
    first, second = world.split(whole, b"04")
    for name in HOSTS:
        assert world.divide(name, source, first, second) == [first, second]
    whole = merged(world, first, second, *HOSTS)
    world.lead(whole, "host2")
    assert rows(world, "host2", whole) == EXPECTED


def test_tablets_without_a_file_merge(world: Hosts) -> None:
    whole = world.table(*HOSTS)
    source = world.key(whole)
    low, high = world.split(whole, AT)
    for name in HOSTS:
        assert world.divide(name, source, low, high) == [low, high]
    whole = merged(world, low, high, *HOSTS)
    world.lead(whole, "host1")
    write(world, "host1", whole, b"v")
    world.wait_same(whole, *HOSTS)
    assert rows(world, "host1", whole) == dict.fromkeys(ROWS, b"v")


def _the_tablet_before_is_silent(world: Hosts) -> None:
    """Merged, written, and split with the same borders: the hosts still have the replicas of the first halves."""
    low, high = two_tablets(world)
    first = world.key(low)
    whole = merged(world, low, high, *HOSTS)
    world.lead(whole, "host1")
    write(world, "host1", whole, b"newer")
    world.wait_named(whole, "host1")
    world.wait_same(whole, "host1", "host2", "host3")
    world.unload(whole, "host1")
    source = world.key(whole)
    assert world.split(whole, AT) == (low, high)
    assert world.key(low) != first
    for name in HOSTS:
        assert world.divide(name, source, low, high) == [low, high]
    for name in HOSTS:
        request = ScanRequest(low, None, None, (), (), None, 1 << 20, stale_ms=3_600_000)
        page = decode_batch(world.ground.tserver(world.node(name)).scan(request).records)
        assert set(page.column("value").to_pylist()) == {b"newer"}, f"{name} answers with the tablet before"


def test_after_a_merge_and_a_split_with_the_same_borders_no_host_answers_with_the_tablet_before(world: Hosts) -> None:
    _the_tablet_before_is_silent(world)


def test_without_the_books_hosts_answer_with_the_tablet_before(world: Hosts) -> None:
    with (
        fault("any-replica-of-the-rows-answers"),
        pytest.raises(AssertionError, match="answers with the tablet before"),
    ):
        _the_tablet_before_is_silent(world)
