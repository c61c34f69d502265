"""A tserver stops in bounded time, even while its books wait, and loses nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bookkeeper.errors import NoSpaceError
from bookkeeper.storage.wal.reading.wal_recovery import recover
from bookkeeper.tserver import process as process_module
from tests.support.compactions import QUIET, fill, parts_of
from tests.support.failing_metadata import FailingMetadata, touching
from tests.support.faults import fault
from tests.support.small_disk import NoMountError, small_disk
from tests.support.tservers import LIMIT_S, Ground, ground, records, wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20, "rpc.threads_max": 16}) as made:
        yield made


def reason_of_the_end(west: Ground) -> str:
    """The exit of a tserver that is told to end while a compaction waits for room in the books; its rows are there."""
    (extent,) = west.create_table("1")
    west.set_properties("1", QUIET)
    metadata = FailingMetadata(west.metadata)
    metadata.error = NoSpaceError
    node = west.local(metadata)
    node.may_die = True
    west.assign(node, extent)
    expected = fill(west, node, extent)
    compactor, tablet = parts_of(node, extent)
    puts: list[str] = []

    def behind_the_flush(name: str, columns: Sequence[bytes]) -> bool:
        if touching(b"tablet:flush")(name, columns):
            puts.append(name)
        return len(puts) > 1

    with ThreadPoolExecutor(1) as pool, metadata.failing(behind_the_flush):
        compactor.request(tablet, 0)
        wait_until(lambda: metadata.failures >= 3, "a few tries of the compaction")
        ending = pool.submit(node.stop)
        wait_until(lambda: bool(node.died), "its end")
        (reason,) = node.died
    ending.result(LIMIT_S)
    for name in west.logs_of(node):
        recover(west.volume, name)
    other = west.local()
    west.assign(other, extent)
    assert west.scan(other, extent) == expected
    other.stop()
    return reason


def test_a_compaction_that_waits_for_room_in_the_books_holds_up_no_end(west: Ground) -> None:
    assert reason_of_the_end(west).startswith("the state of a tablet behind a compaction is not known: ")


def test_without_the_end_of_its_tries_only_the_bound_ends_it(west: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "STOP_MAX_MS", 500)
    with fault("retries-outlive-the-order-to-end"):
        assert reason_of_the_end(west).endswith("did not end in 500 ms; the rest is left to recovery")


def test_a_clean_end_that_is_held_up_becomes_that_of_a_crash(west: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_module, "STOP_MAX_MS", 100)
    (extent,) = west.create_table("1")
    metadata = FailingMetadata(west.metadata)
    node = west.local(metadata)
    node.may_die = True
    west.assign(node, extent)
    west.write(node, extent, records([(b"a", b"1")]))
    with ThreadPoolExecutor(1) as pool:
        with metadata.holding(touching(b"tablet:flush")):
            ending = pool.submit(node.stop)
            wait_until(lambda: bool(node.died), "the end that it would have had")
            assert not ending.done()
            (reason,) = node.died
            assert reason.endswith("did not end in 100 ms; the rest is left to recovery")
        ending.result(LIMIT_S)


def test_a_process_ends_though_its_disk_is_full_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    rows = [(b"%03d" % number, b"v") for number in range(200)]
    try:
        with small_disk(tmp_path / "disk", 64 << 20) as disk:
            overrides = {"tserver.disk_reserve_bytes": 1 << 20}
            with ground(disk.directory / "west", overrides) as west:
                (extent,) = west.create_table("1")
                node = west.process()
                west.assign(node, extent)
                west.write(node, extent, records(rows[:100]))
                west.tserver(node).flush_tablet(extent)
                west.write(node, extent, records(rows[100:]))
                disk.fill()
                assert node.terminate() == 0, node.log_text()
                disk.release()
                west.recover_logs(node)
                other = west.process()
                west.assign(other, extent)
                assert {row for row, _, _ in west.scan(other, extent)} == {row for row, _ in rows}
    except NoMountError as error:
        pytest.skip(str(error))
