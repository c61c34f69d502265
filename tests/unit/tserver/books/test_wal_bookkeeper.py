"""The books thread of a tserver: it repeats failed writes."""

from __future__ import annotations

import errno
import random
import threading
from collections.abc import Iterable

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.errors import UnavailableError
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, RowPut
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.wal.writing.seal import Seal
from bookkeeper.tserver.books import wal_bookkeeper
from bookkeeper.tserver.books.wal_bookkeeper import WalBookkeeper
from bookkeeper.tserver.shipping.own_log import OwnLogs
from tests.support.master_world import StoppedSession
from tests.support.metadata_model import MetadataModel
from tests.support.volumes import MACHINE, ROOT
from tests.unit.tserver.books.test_wal_cells import WAL, block

LIMIT_S = 30.0


class FailingOnce(MetadataModel):
    """The first update of a needed offset fails."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = threading.Event()

    def put(self, rows: Iterable[RowPut], rank: int) -> None:
        if rank == keys.needed_rank(1) and not self.failed.is_set():
            self.failed.set()
            raise UnavailableError("no answer")
        super().put(rows, rank)


def keeper_of(
    volume: LocalVolume, table: MetadataModel, clock: SystemClock, told: threading.Event, died: list[str]
) -> WalBookkeeper:
    """The books of session s-1; the master sets ``told``, and a reason to end the process comes to ``died``."""
    persistence = SessionRetries(StoppedSession("s-1"), clock, random.Random(1))
    return WalBookkeeper(volume, table, persistence, clock, 0.0, told.set, died.append, OwnLogs("s-1"))  # type: ignore[arg-type]


def test_a_needed_offset_that_could_not_be_written_is_written_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_bookkeeper, "RETRY_WAIT_MS", 1)
    table, clock, told, died = FailingOnce(), SystemClock(), threading.Event(), list[str]()
    keeper = keeper_of(MACHINE, table, clock, told, died)
    keeper.opened(WAL, 77)
    keeper.before_append(WAL, [block(1)])
    keeper.start()
    keeper.synced(WAL, 1, 100)
    keeper.answered()
    assert told.wait(LIMIT_S), "the master hears of it"
    keeper.close(LIMIT_S * 1000)
    assert table.failed.is_set()
    assert died == []
    cell = table.visible()[CellKey(keys.tablet_row("1", None), keys.repl_column(WAL))]
    assert values.decode_status(cell.value).replication_needed_offset == 1


class DiskFailsOnce(LocalVolume):
    """The first look for a file fails."""

    failed = False

    def exists(self, name: str) -> bool:
        if not self.failed:
            self.failed = True
            raise OSError(errno.EIO, "the disk does not answer")
        return super().exists(name)


def test_a_look_for_a_sealed_log_that_the_disk_refuses_ends_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_bookkeeper, "RETRY_WAIT_MS", 1)
    table, clock, died, volume = MetadataModel(), SystemClock(), list[str](), DiskFailsOnce(ROOT)
    told = threading.Event()
    keeper = keeper_of(volume, table, clock, told, died)
    keeper.opened(WAL, 77)
    keeper.before_append(WAL, [block(1)])
    keeper.synced(WAL, 1, 100)
    keeper.answered()
    keeper.rolled(WAL, Seal(1, 100))
    later = "wal/s/2.wal"
    keeper.opened(later, 78)
    keeper.before_append(later, [block(1)])
    keeper.start()
    keeper.synced(later, 1, 100)
    keeper.answered()
    assert told.wait(LIMIT_S), "the books thread goes on with the next log"
    keeper.close(LIMIT_S * 1000)
    assert volume.failed
    assert died == []


class Silent(MetadataModel):
    """No update of a needed offset is answered while ``away`` is set; ``asked`` is set at the first one."""

    def __init__(self) -> None:
        super().__init__()
        self.away, self.asked = threading.Event(), threading.Event()
        self.away.set()

    def put(self, rows: Iterable[RowPut], rank: int) -> None:
        if rank == keys.needed_rank(1) and self.away.is_set():
            self.asked.set()
            raise UnavailableError("no answer")
        super().put(rows, rank)


def test_no_log_begins_while_the_books_do_not_answer_the_last_put(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_bookkeeper, "RETRY_WAIT_MS", 1)
    monkeypatch.setattr(wal_bookkeeper, "SILENCE_MS", 0)
    table, clock, told, died = Silent(), SystemClock(), threading.Event(), list[str]()
    keeper = keeper_of(MACHINE, table, clock, told, died)
    keeper.opened(WAL, 77)
    keeper.before_append(WAL, [block(1)])
    assert keeper.may_begin_log(), "nothing was asked yet"
    keeper.start()
    keeper.synced(WAL, 1, 100)
    keeper.answered()
    assert table.asked.wait(LIMIT_S)
    assert not keeper.may_begin_log()
    table.away.clear()
    assert told.wait(LIMIT_S)
    assert keeper.may_begin_log()
    keeper.close(LIMIT_S * 1000)
    assert died == []


def test_a_sync_tells_which_tables_have_more_durable_records() -> None:
    keeper = keeper_of(MACHINE, MetadataModel(), SystemClock(), threading.Event(), [])
    logs = keeper._own_logs
    keeper.opened(WAL, 77)
    keeper.before_append(WAL, [block(1), block(2, table="2"), block(3, stamped=False, table="3")])
    number = 0
    for appended, synced, tables in (
        ([], 1, {"1"}),
        ([], 3, {"2", "3"}),
        ([block(4), block(5, table="2")], 4, {"1"}),
        ([block(6, table="2")], 6, {"2"}),
        ([], 6, set[str]()),
    ):
        if appended:
            keeper.before_append(WAL, appended)
        number, _ = logs.news_since(number)
        keeper.synced(WAL, synced, 100 * synced)
        keeper.answered()
        _, found = logs.news_since(number)
        assert {news.table for news in found} == tables, f"records up to {synced} became durable"


def test_those_who_ship_a_log_hear_of_a_record_when_its_writer_is_answered() -> None:
    keeper = keeper_of(MACHINE, MetadataModel(), SystemClock(), threading.Event(), [])
    heard = list[int]()
    keeper._own_logs.listen(lambda: heard.append(1))
    keeper.opened(WAL, 77)
    keeper.before_append(WAL, [block(1), block(2)])
    keeper.synced(WAL, 1, 100)
    assert not heard, "the writer waits for those who ship its record"
    keeper.answered()
    keeper.answered()
    assert heard == [1]
    keeper.synced(WAL, 2, 200)
    keeper.rolled(WAL, Seal(2, 200))
    found = keeper._own_logs.find(WAL)
    assert found is not None
    assert (found.end, found.is_sealed) == (2, True), "a record at the end of a log is not told"
