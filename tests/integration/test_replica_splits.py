"""Tablets with replicas on three hosts are split in place: no byte moves, no half takes a file from another one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.errors import BookkeeperError
from bookkeeper.model import Extent
from tests.support.faults import fault
from tests.support.led_hosts import Hosts, hosts
from tests.support.three_hosts import AT, HOSTS, ROWS, rows, sent_bytes, write

pytestmark = pytest.mark.integration


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Hosts]:
    with hosts(tmp_path, *HOSTS) as made:
        yield made


def expected(extent: Extent, value: bytes) -> dict[bytes, bytes]:
    return {row: value for row in ROWS if extent.contains(row)}


def led_tablet(world: Hosts, *away: str) -> Extent:
    """A tablet with some segments on all hosts, which host1 led until now; some are away meanwhile."""
    extent = world.table(*HOSTS)
    world.lead(extent, "host1")
    write(world, "host1", extent, b"old")
    world.wait_same(extent, *HOSTS)
    for name in away:
        world.stop(name)
    write(world, "host1", extent, b"v")
    world.wait_named(extent, "host1")
    world.wait_same(extent, "host1", *(name for name in HOSTS[1:] if name not in away))
    world.unload(extent, "host1")
    return extent


def divided(world: Hosts, extent: Extent, *names: str) -> tuple[Extent, Extent]:
    """Both halves of a tablet; these hosts have linked the files."""
    source = world.key(extent)
    low, high = world.split(extent, AT)
    for name in names:
        assert world.divide(name, source, low, high) == [low, high], f"{name} lacks files"
    return low, high


def test_no_byte_moves_and_every_host_may_lead_each_half(world: Hosts) -> None:
    extent = led_tablet(world)
    before = sent_bytes(world)
    low, high = divided(world, extent, *HOSTS)
    world.lead(low, "host2")
    world.lead(high, "host3")
    assert rows(world, "host2", low) == expected(low, b"v")
    assert rows(world, "host3", high) == expected(high, b"v")
    world.wait_same(low, "host2", "host1", "host3")
    world.wait_same(high, "host3", "host1", "host2")
    assert sent_bytes(world) == before, "content was sent for a split in place"
    world.kill("host2")
    world.lead(low, "host1")
    assert rows(world, "host1", low) == expected(low, b"v")


def a_half_compacts_at_once(world: Hosts) -> None:
    extent = led_tablet(world)
    low, high = divided(world, extent, *HOSTS)
    world.lead(high, "host1")
    write(world, "host1", high, b"w")
    world.compact(high, "host1")
    world.wait_named(high, "host1")
    world.wait_same(high, *HOSTS)
    before = {name: world.files(name, high).keys() for name in HOSTS}
    for name in HOSTS:
        world.collect(name)
    assert all(len(world.files(name, high)) < len(before[name]) for name in HOSTS), "nothing was deleted"
    for leader in HOSTS:
        lead_without_loss(world, leader, low)
    assert rows(world, "host1", high) == expected(high, b"w")


def test_a_half_that_compacts_and_deletes_at_once_takes_no_file_from_the_other_one(world: Hosts) -> None:
    a_half_compacts_at_once(world)


def test_without_links_a_half_deletes_files_of_the_other_one(world: Hosts) -> None:
    red = pytest.raises(AssertionError, match="lacks a file that another tablet has deleted")
    with fault("split-shares-files"), red:
        a_half_compacts_at_once(world)


def lead_without_loss(world: Hosts, leader: str, extent: Extent) -> None:
    """A host leads, with each cell, and leaves."""
    try:
        world.lead(extent, leader)
        found = rows(world, leader, extent)
    except BookkeeperError as error:
        raise AssertionError(f"{leader} lacks a file that another tablet has deleted: {error.message}") from error
    assert found == expected(extent, b"v")
    world.unload(extent, leader)


def test_a_host_that_is_away_gets_the_halves_later_without_a_byte(world: Hosts) -> None:
    extent = led_tablet(world)
    before = sent_bytes(world, "host1", "host2")
    world.stop("host3")
    low, high = divided(world, extent, "host1", "host2")
    world.lead(low, "host1")
    world.lead(high, "host1")
    world.start("host3")
    world.wait_same(low, "host1", "host3")
    world.wait_same(high, "host1", "host3")
    assert sent_bytes(world, "host1", "host2") == before, "a host that has the files got them again"
    lead_elsewhere(world, low, high)


def lead_elsewhere(world: Hosts, *halves: Extent) -> None:
    """host1 dies, and host3 leads with every cell."""
    for half in halves:
        world.wait_named(half, "host1")
    world.kill("host1")
    for half in halves:
        world.lead(half, "host3")
        assert rows(world, "host3", half) == expected(half, b"v")


def test_a_host_that_lacks_files_of_the_whole_gets_those_alone(world: Hosts) -> None:
    extent = led_tablet(world, "host3")
    before = sent_bytes(world, "host1")
    low, high = divided(world, extent, "host1", "host2")
    source = world.key(high)
    world.start("host3")
    held = world.files("host3", high).keys()
    assert world.divide("host3", source, low, high) == []
    world.lead(low, "host1")
    world.lead(high, "host1")
    world.wait_same(low, "host1", "host3")
    world.wait_same(high, "host1", "host3")
    (lacking,) = (content for name, content in world.files("host1", high).items() if name not in held)
    sent = sent_bytes(world, "host1") - before
    assert len(lacking) <= sent <= 2 * len(lacking), "a host got files that it had, once for each half"
    lead_elsewhere(world, low, high)


def test_a_host_that_slept_through_the_split_overwrites_nothing(world: Hosts) -> None:
    extent = led_tablet(world, "host3")
    low, high = divided(world, extent, "host1", "host2")
    world.lead(low, "host1")
    world.lead(high, "host2")
    write(world, "host1", low, b"w")
    write(world, "host2", high, b"w")
    world.start("host3")
    world.wait_same(low, "host1", "host3")
    world.wait_same(high, "host2", "host3")
    for name in HOSTS:
        world.collect(name)
    assert rows(world, "host1", low) == expected(low, b"w")
    assert rows(world, "host2", high) == expected(high, b"w")
    world.kill("host2")
    world.lead(high, "host3")
    assert rows(world, "host3", high) == expected(high, b"w")


@pytest.mark.parametrize("made", [0, 1, 2])
def test_the_order_may_come_again_and_late(made: int, world: Hosts) -> None:
    """The master dies after some hosts have linked, and the next one repeats all orders; one comes when leaders are
    there.
    """
    extent = led_tablet(world)
    source = world.key(extent)
    low, high = divided(world, extent, *HOSTS[:made])
    for name in HOSTS:
        assert world.divide(name, source, low, high) == [low, high]
    world.lead(low, "host1")
    world.lead(high, "host2")
    write(world, "host1", low, b"w")
    write(world, "host2", high, b"w")
    world.wait_named(low, "host1")
    world.wait_named(high, "host2")
    world.wait_same(low, *HOSTS)
    world.wait_same(high, "host2", "host1", "host3")
    roots = [(world.root(name, half)) for name in HOSTS for half in (low, high)]
    for name in HOSTS:
        world.divide(name, source, low, high)
    assert [(world.root(name, half)) for name in HOSTS for half in (low, high)] == roots, "a late order changed a root"
    assert rows(world, "host1", low) == expected(low, b"w")
    assert rows(world, "host2", high) == expected(high, b"w")


def test_a_leader_that_dies_before_its_half_is_loaded_loses_nothing(world: Hosts) -> None:
    extent = led_tablet(world)
    world.kill("host1")
    low, high = divided(world, extent, "host2", "host3")
    world.lead(low, "host2")
    write(world, "host2", low, b"w")
    world.wait_named(low, "host2")
    world.kill("host2")
    world.lead(low, "host3")
    world.lead(high, "host3")
    assert rows(world, "host3", low) == expected(low, b"w")
    assert rows(world, "host3", high) == expected(high, b"v")
    world.start("host1")
    world.wait_same(low, "host3", "host1")
    world.wait_same(high, "host3", "host1")


def test_a_half_is_split_again(world: Hosts) -> None:
    extent = led_tablet(world)
    low, _ = divided(world, extent, *HOSTS)
    source = world.key(low)
    first, second = world.split(low, b"04")
    for name in HOSTS:
        assert world.divide(name, source, first, second) == [first, second]
    for part in (first, second):
        world.lead(part, "host2")
        assert rows(world, "host2", part) == expected(part, b"v")


def test_a_tablet_without_a_file_is_split(world: Hosts) -> None:
    extent = world.table(*HOSTS)
    low, high = divided(world, extent, *HOSTS)
    for part in (low, high):
        world.lead(part, "host1")
        write(world, "host1", part, b"v")
        world.wait_same(part, *HOSTS)
        assert rows(world, "host1", part) == expected(part, b"v")
