"""The marks and deletions of the collector. (Newborns and orphans are schedules 17 and 28.)"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from bookkeeper.bulk.import_log import TAKEN_PREFIX
from bookkeeper.errors import CorruptionError, LeaseLostError, LostBooksError
from bookkeeper.master.gc import gc_rules
from bookkeeper.master.gc.file_flags import LISTED, MARKED, REFERENCED, SEALED, FileFlags
from bookkeeper.master.gc.gc_runner import Inventory
from bookkeeper.master.index.log_files import IMPORT_SESSION
from bookkeeper.master.index.snapshot import BrokenChainError
from bookkeeper.master.origins.origin_gc import OriginGc
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import MAX_RANK, Cell, CellKey, Column, Row, RowPut
from bookkeeper.model import TargetKey
from bookkeeper.storage.volume.names import log_directory
from tests.support.faults import fault
from tests.support.master_values import EAST, books_row, name, status_value
from tests.support.master_world import LATE_MS, Master, World
from tests.support.must_raise import must_raise

LAST = b"1<"
W1, W2 = (name(session).decode() for session in ("s1", "s2"))
SEGMENT = "tables/1/t-0/a.parquet"


def flags(file: str, of_it: int) -> FileFlags:
    made = FileFlags()
    made.add(file.encode(), of_it)
    return made


def test_every_kind_of_reference_counts_and_the_finished_side_does_not() -> None:
    cells = {Column(family, b"file-" + family.encode()): Cell(1, b"") for family in ("log", "segment", "repl")}
    tablets = [Row(b"1<", {**cells, keys.PREV_ROW: Cell(1, values.encode_prev_row(None))})]
    books = [books_row(W1.encode(), {EAST: status_value(1)}), books_row(W2.encode(), None, {EAST: 1})]
    assert set(gc_rules.references(tablets, books)) == {b"file-log", b"file-segment", b"file-repl", W1.encode()}


def test_only_the_repl_cells_of_a_remnant_count() -> None:
    cells = {Column(family, b"file-" + family.encode()): Cell(1, b"") for family in ("log", "segment", "repl")}
    remnant = Row(b"1;m", {**cells, keys.SERIAL: Cell(4, keys.SERIAL_VALUE)})
    assert list(gc_rules.references([remnant], [])) == [b"file-repl"]


@pytest.mark.parametrize(
    ("sealed", "on_record", "referenced", "goes"),
    [
        (True, True, False, True),
        (False, False, False, True),
        (True, False, False, True),
        (False, True, False, False),
        (True, True, True, False),
        (False, False, True, False),
    ],
)
def test_a_log_goes_when_nothing_refers_to_it_and_nothing_ever_will(
    sealed: bool, on_record: bool, referenced: bool, goes: bool
) -> None:
    writers = {gc_rules.session_of(W1.encode())} if on_record else set()
    found = LISTED | (SEALED if sealed else 0) | (REFERENCED if referenced else 0)
    assert list(gc_rules.to_mark(flags(W1, found), writers)) == ([W1] if goes else [])
    assert list(gc_rules.to_delete(flags(W1, found | MARKED), writers)) == ([W1] if goes else [])


def test_r17_a_log_of_an_import_needs_no_seal_once_none_is_under_way() -> None:
    file = f"{log_directory(IMPORT_SESSION)}/000001.wal"
    assert list(gc_rules.to_mark(flags(file, LISTED), set())) == [file]
    assert list(gc_rules.to_mark(flags(file, LISTED), {IMPORT_SESSION})) == []


def test_a_collector_that_leads_no_more_deletes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reign ends right before a file goes: the next master may have found who needs it."""
    session = world.tserver()
    file = world.log(session, 3)
    world.sessions[session].close()
    master = world.master()
    master.recovery.run_once(master.recovery.tservers.sessions())
    master.collect(1)
    monkeypatch.setattr(OriginGc, "record_recipients", lambda *_: master.session.close())
    with pytest.raises(LeaseLostError):
        master.collect(1)
    assert world.path(file).exists()


# ---- a collector that leads no more


def _deposed(master: Master) -> Inventory:
    """The inventory of a collector whose reign is over now."""
    seen = master.collector.rounds.read_with_proof(master.collector.observe)
    master.session.close()
    return seen


def test_it_marks_nothing(world: World) -> None:
    world.log(world.tserver(), 3, seal=True)
    master = world.master()
    seen = _deposed(master)
    with must_raise(LeaseLostError, "a deposed collector marks a log that the next master may find needed"):
        master.collector.mark(seen)
    assert _marks(world) == []


def test_it_ends_no_use_and_no_hold(world: World) -> None:
    master, _ = _late_use(world)
    seen = _deposed(master)
    assert seen.late
    with must_raise(LeaseLostError, "a deposed collector ends uses and holds"):
        master.collector.finish(seen, [])
    assert world.table.get(LAST, ("log",)) is not None


def test_it_purges_no_books_of_missing_files(world: World) -> None:
    world.enable("1")
    world.log(world.tserver(), 1)
    dead = world.tserver()
    gone = name(dead).decode()
    world.kill(dead)
    world.closed(LAST, gone, 3)
    master = world.master()
    master.collect(1)
    world.clock.jump(LATE_MS)
    seen = _deposed(master)
    assert gone in seen.absent
    with must_raise(LeaseLostError, "a deposed collector purges the books of a file"):
        master.collector.void(seen)
    assert world.repl(gone)


def test_a_marked_file_is_not_marked_again() -> None:
    assert list(gc_rules.to_mark(flags(W1, LISTED | SEALED | MARKED), set())) == []


def test_a_segment_goes_when_it_was_marked_and_no_tablet_names_it() -> None:
    assert list(gc_rules.to_delete(flags(SEGMENT, MARKED), set())) == [SEGMENT]
    assert list(gc_rules.to_delete(flags(SEGMENT, MARKED | REFERENCED), set())) == []
    assert list(gc_rules.to_delete(flags(SEGMENT, REFERENCED), set())) == []


def test_a_row_that_is_no_mark_is_corruption() -> None:
    assert list(gc_rules.parse_marks([Row(keys.del_row(W1), {keys.DEL: Cell(1, b"")})])) == [W1]
    with pytest.raises(CorruptionError):
        list(gc_rules.parse_marks([Row(keys.del_row(W1), {Column("del", b"x"): Cell(1, b"")})]))


# ---- on the real stores


def _done_with(world: World) -> tuple[str, TargetKey]:
    target = world.enable("1")
    file = world.log(world.tserver(), 3, seal=True)
    world.closed(b"1<", file, 3)
    world.ship(file, target, 3)
    return file, target


def test_a_file_goes_only_after_its_books_and_its_finished_side_only_after_the_file(world: World) -> None:
    file, target = _done_with(world)
    master = world.master()
    assert master.collect() == []
    master.cycle()
    master.cycle()
    assert master.collect(1) == []
    assert world.exists(file)
    assert world.done(file) == {target: 3}
    assert master.collect(1) == [file]
    assert not world.exists(file)
    assert world.done(file) == {target: 3}, "until the peer was told"
    assert [running.op.type for running in master.fate.pending()] == ["stream_done"]


def test_a_peer_that_does_not_answer_keeps_one_operation_not_one_a_run(world: World) -> None:
    file, target = _done_with(world)
    master = world.master()
    master.cycle()
    master.cycle()
    assert master.collect() == [file]
    witness = world.tserver()
    world.log(witness, 1)
    for _ in range(3):
        master.run_fate(3)
        world.clock.jump(10_000_000)
        master.collect(1)
    kinds = [running.op.type for running in master.fate.pending()]
    assert kinds.count("stream_done") == 1
    assert kinds.count("end_roots") <= 1, "asks whether it is over elsewhere (R22), again and again"
    assert world.done(file) == {target: 3}


def test_a_crash_behind_the_deletion_is_made_good_by_the_next_leader(world: World) -> None:
    file, target = _done_with(world)
    master = world.master()
    master.cycle()
    master.cycle()
    master.collect(1)
    assert master.collector.delete(master.collector.observe()) == [file]
    successor = world.depose(master)
    assert successor.collect(1) == [file], "the mark is still there: nothing was told yet"
    assert [running.op.type for running in successor.fate.pending()] == ["stream_done", "end_roots"]
    world.disable("1")
    for _ in range(2):
        successor.run_fate()
    assert target in world.done(file), "the peer is defined and does not answer"


def _marks(world: World) -> list[str]:
    return list(gc_rules.parse_marks(world.table.scan(*keys.section(keys.DEL_PREFIX))))


def _late_use(world: World) -> tuple[Master, str]:
    """A tserver is stopped in the middle of its first use of a log; the log is collected; then the put lands."""
    witness, stopped = world.tserver(), world.tserver()
    world.log(witness, 1)
    file = world.log(stopped, 0, seal=True)
    world.kill(stopped)
    master = world.master()
    assert master.collect() == [file]
    world.use(LAST, file, 0)
    return master, file


def test_r4_a_mark_outlives_its_file_and_proves_that_a_late_use_is_about_nothing(world: World) -> None:
    _, file = _late_use(world)
    assert _marks(world) == [file]


def test_r4_late_uses_go_and_then_the_mark(world: World) -> None:
    master, file = _late_use(world)
    assert master.collect(1) == []
    assert world.table.get(LAST, ("log",)) is None
    assert _marks(world) == [file], "another one may be in flight"
    for _ in range(2):
        world.clock.jump(LATE_MS)
        master.collect(1)
    assert (_marks(world), world.repl(file)) == ([], {})


def test_r4_red_marks_that_go_with_their_file_prove_nothing(world: World) -> None:
    with fault("marks-go-with-their-file"):
        _, file = _late_use(world)
    assert _marks(world) == []
    assert world.table.get(LAST, ("log",)) is not None, f"{LAST!r} can't be loaded any more: {file} is gone"


def test_a_marked_file_that_is_referred_to_stays(world: World) -> None:
    world.enable("1")
    file = world.log(world.tserver(), 3, seal=True)
    master = world.master()
    master.collect(1)
    world.closed(b"1<", file, 3)
    assert master.collect(3) == []
    assert world.exists(file)


def test_references_are_read_again_when_tablets_do_not_join_up(world: World) -> None:
    file = world.log(world.tserver(), 3, seal=True)
    prev = CellKey(b"1<", keys.PREV_ROW)
    world.table.put([RowPut(prev.key, {prev.column: b"\x01m"})], 2)
    with pytest.raises(BrokenChainError):
        world.master().collect(2)
    assert world.exists(file)


def check_emptied(world: World) -> None:
    """The rows of an online table are gone: they name nothing, and that proves nothing."""
    file = world.log(world.tserver(), 3, seal=True)
    world.use(LAST, file, 3)
    master = world.master()
    world.table.purge([CellKey(row.key, column) for row in world.table.scan() for column in row.cells])
    with must_raise(
        BrokenChainError,
        "R16: an online table without rows lets its files go",
        match="no tablets were found of tables 1",
    ):
        master.collect(2)
    assert world.exists(file)


def test_r16_a_table_without_rows_lets_nothing_go(world: World) -> None:
    check_emptied(world)


def test_r16_red_of_a_table_without_rows_everything_goes(world: World) -> None:
    with (
        fault("tables-without-rows-are-complete"),
        pytest.raises(AssertionError, match="an online table without rows lets its files go"),
    ):
        check_emptied(world)


def replace_while_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tablets were read; then the table is replaced by one that has the same tablets and nothing else."""
    file = world.log(world.tserver(), 3, seal=True)
    world.table.put([RowPut(keys.quar_row(file), {keys.quar_column(EAST, 1): b"{}"})], 1)
    master = world.master()
    scan = world.table.scan

    def replaced(start: bytes = b"", stop: bytes | None = None, families: Collection[str] | None = None) -> Any:
        if start == keys.REPL_PREFIX:
            world.table.purge([CellKey(keys.quar_row(file), keys.quar_column(EAST, 1))])
            world.table.delete([CellKey(keys.owner_row(), keys.ROUND)], MAX_RANK)
        return scan(start, stop, families)

    monkeypatch.setattr(world.table, "scan", replaced)
    for _ in range(2):
        with must_raise(
            LostBooksError,
            "what was read of replaced books lets a file go",
            match="its round is 0, and this master began round 1|its round is 0, and the latest round is 1",
        ):
            master.collect(1)
    assert world.exists(file)


def test_a_read_of_books_that_were_replaced_meanwhile_counts_for_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_while_read(world, monkeypatch)


def test_red_without_the_proof_a_file_in_quarantine_goes(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        fault("books-are-read-without-proof and older-books-are-believed"),
        pytest.raises(AssertionError, match="what was read of replaced books lets a file go"),
    ):
        replace_while_read(world, monkeypatch)


def test_nothing_is_called_missing_while_the_directory_of_logs_may_not_be_mounted(world: World) -> None:
    world.enable("1")
    dead = world.tserver()
    file = world.name(dead)
    world.use(b"1<", file, 3)
    world.kill(dead)
    witness = world.tserver()
    master = world.master()
    for _ in range(3):
        master.collect(1)
        world.clock.jump(10_000_000)
    assert world.repl(file), "no log of a live tserver is there either"
    world.log(witness, 1)
    for _ in range(2):
        master.collect(1)
        world.clock.jump(10_000_000)
    assert not world.repl(file)


def _named_late(world: World) -> None:
    """A tserver takes files of another cluster, is stopped in the put that names their log, and the put lands late."""
    witness, stopped = world.tserver(), world.tserver()
    world.log(witness, 1)
    log = world.log(stopped, 3, seal=True, prefix=TAKEN_PREFIX)
    world.kill(stopped)
    master = world.master()
    assert master.collect(3) == [], "R4: a log goes that a late put may name"
    world.closed(b"1<", log, 3)
    world.clock.jump(LATE_MS)
    assert master.collect(3) == []
    assert world.exists(log), "the put has come, and peers get the files by this log"


def test_r4_a_log_that_stands_for_files_stays_while_a_put_may_name_it(world: World) -> None:
    _named_late(world)


def test_r4_without_the_rule_its_files_go_nowhere(world: World) -> None:
    with fault("relay-logs-go-at-once"), pytest.raises(AssertionError, match="a log goes that a late put may name"):
        _named_late(world)


def test_r4_a_relay_log_is_deleted_when_no_late_put_can_name_it(world: World) -> None:
    witness, stopped = world.tserver(), world.tserver()
    world.log(witness, 1)
    log = world.log(stopped, 3, seal=True, prefix=TAKEN_PREFIX)
    world.kill(stopped)
    master = world.master()
    assert master.collect() == []
    world.clock.jump(LATE_MS)
    assert master.collect() == [log]
