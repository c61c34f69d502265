"""The serial of a tablet's holder: taken once its logs can be read, and by one holder alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from bookkeeper.errors import UnavailableError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Row
from bookkeeper.model import Extent
from bookkeeper.tserver.tablets.load_plan import TABLET_FAMILIES
from tests.support.failing_metadata import FailingMetadata
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.tservers import Ground, ground, records

pytestmark = pytest.mark.integration


class Interrupted(FailingMetadata):
    """Does something once, right after the first read of a tablet's row."""

    then: Callable[[], None] | None = None

    def get(self, key: bytes, families: Collection[str] | None = None) -> Row | None:
        found = super().get(key, families)
        then = self.then
        if families == TABLET_FAMILIES and then is not None:
            self.then = None
            then()
        return found


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west") as made:
        yield made


def serial_of(west: Ground, extent: Extent) -> int:
    """The newest serial of a tablet; 0 = none."""
    row = west.metadata.get(keys.tablet_row(extent.table_id, extent.end_row), ("tablet",))
    assert row is not None
    return row.cells[keys.SERIAL].rank if keys.SERIAL in row.cells else 0


def test_a_tablet_that_waits_for_a_log_takes_no_serial(west: Ground) -> None:
    first = west.local()
    (extent,) = west.create_table("1")
    west.assign(first, extent)
    west.write(first, extent, records([(b"a", b"1")]))
    before = serial_of(west, extent)
    first.crash()
    second = west.local()
    for _ in range(3):
        with must_raise(UnavailableError, "R15: a tablet is served from a log without a seal", match="has no seal yet"):
            west.assign(second, extent)
    assert serial_of(west, extent) == before, "a tablet that waits takes a serial"
    west.recover_logs(first)
    west.assign(second, extent)
    assert serial_of(west, extent) == before + 1
    assert west.scan(second, extent) == {(b"a", b"f", b"q"): b"1"}


def check_no_two_holders_take_one_serial(west: Ground) -> None:
    """While a holder checks the logs of a tablet, the tablet goes to another one, which serves it."""
    first = west.local()
    (extent,) = west.create_table("1")
    west.assign(first, extent)
    west.write(first, extent, records([(b"a", b"1")]))
    first.crash()
    west.recover_logs(first)
    other, table = west.local(), Interrupted(west.metadata)
    slow = west.local(table)
    table.then = lambda: west.assign(other, extent)
    with must_raise(UnavailableError, "R1: two holders took one serial", match="changed while its logs were checked"):
        west.assign(slow, extent)


def test_r1_no_two_holders_take_one_serial(west: Ground) -> None:
    check_no_two_holders_take_one_serial(west)


def test_r1_red_two_holders_take_one_serial(west: Ground) -> None:
    with fault("rows-are-checked-once"), pytest.raises(AssertionError, match="R1: two holders took one serial"):
        check_no_two_holders_take_one_serial(west)
