"""Two clusters that write one key, timestamp included, and send it to each other. ACCUMULO-378, *Common Questions*."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.model import Extent
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.tablet_data import TabletData
from tests.support.tablet_model import Record, scan_all, to_batch
from tests.support.volumes import MACHINE, name_at

HERE = Record(b"r", b"f", b"q", b"", 7, False, b"here")
THERE = HERE._replace(value=b"there")


@pytest.mark.parametrize("flushed", [False, True])
def test_of_two_masters_each_shows_what_came_to_it_last(tmp_path: Path, flushed: bool) -> None:
    """ACCUMULO-378 calls it non-deterministic. Whole it is, on each side: one of both values, the same ever after."""
    for first, then in ((HERE, THERE), (THERE, HERE)):
        tablet = TabletData(
            Extent("t", None, None), GroupMap({}), MACHINE, name_at(tmp_path / first.value.decode()), []
        )
        for number, record in enumerate((first, then), 1):
            tablet.apply(to_batch([record]), number)
            if flushed and (frozen := tablet.begin_flush()) is not None:
                tablet.finish_flush(frozen, tablet.write_segments(frozen, number))
        assert scan_all(tablet) == [then]
