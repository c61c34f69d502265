"""Automatic splits while their leader dies: whoever leads, the table comes to rest, and all laws hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.master.index.snapshot import tablet_view
from bookkeeper.metadata import keys
from tests.support.faults import fault
from tests.support.simulation.cluster import Cluster
from tests.support.simulation.pair import Pair
from tests.support.simulation.world import LawBrokenError, World, simulation

ROWS = [b"%02d" % number for number in range(16)]
LIMIT = 6
"""In records: a record of a simulated segment has one byte."""


def changes_now(cluster: Cluster) -> bool:
    """Whether an operation has parked a tablet of table 1."""
    rows = cluster.table.scan(*keys.table_section("1"), ("tablet", "location"))
    return any(tablet_view(row).parked_at for row in rows if keys.is_tablet(row))


def an_automatic_split_outlives_its_leader(world: World) -> None:
    """A table of 16 records becomes four tablets; its leader dies in the middle of the first split."""
    pair = Pair(world)
    pair.enable()
    wrote = world.put(pair.west, "t", *ROWS)
    world.command(pair.west, "flush_table", "t")
    world.command(pair.west, "change_properties", "t", {"table.split.bytes": f"{LIMIT}"}, [])
    world.until(lambda: changes_now(pair.west), "an automatic split", look_every=1)
    leader = pair.west.leader()
    assert leader is not None
    pair.west.kill(leader)
    pair.west.start_master()
    world.until(lambda: len(pair.west.extents("1")) >= 4 and pair.west.is_served(), "four tablets")
    later = [write for row in ROWS[::4] for write in world.put(pair.west, "t", row)]
    pair.rest()
    pair.must_be_there([*wrote, *later])
    if len(pair.west.extents("1")) > 4:
        raise LawBrokenError(f"a small tablet is split again: {pair.west.extents('1')}")


@pytest.mark.parametrize("seed", range(4))
def test_an_automatic_split_outlives_its_leader(tmp_path: Path, seed: int) -> None:
    with simulation(tmp_path / "world", seed) as world:
        an_automatic_split_outlives_its_leader(world)


def test_when_shared_files_count_completely_small_tablets_are_split_again(tmp_path: Path) -> None:
    red = pytest.raises(LawBrokenError, match="a small tablet is split again")
    with fault("shared-files-count-completely"), simulation(tmp_path / "world") as world, red:
        an_automatic_split_outlives_its_leader(world)
