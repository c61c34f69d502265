"""The ship loop over real WAL files: order, contiguity, facts, partial failure, one read for all targets."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.errors import AT_PEER, GapError, RefusedError, UnavailableError
from bookkeeper.model import BlockTarget, TargetKey
from bookkeeper.peers.protocol import Message
from bookkeeper.peers.registry import Registry
from bookkeeper.replay.ranges import Range
from bookkeeper.replay.stream import range_shipping as shipping
from bookkeeper.replay.stream.range_shipping import Sessions, Shipper
from bookkeeper.storage.wal.blocks.block import Block, decode_batch
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from tests.support.memory_peer import MemoryPeer, MemorySystem
from tests.support.ranges import a_range
from tests.support.ship_bench import LONG_MS, Bench, rows, specs_of
from tests.support.volumes import MACHINE
from tests.support.wal_files import EAST, NORTH, TO_EAST, Spec, write_wal

TO_NORTH = TargetKey("north", "n1", "t1", 1)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_every_record_arrives_once_in_order_and_the_whole_range_is_acknowledged(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([3, 4, 5]))
    (result,) = bench.ship([a_range(file, 1, 12)])
    assert bench.east.rows == rows(1, 12)
    assert (result.acked_offset, result.records, result.filtered, result.resent) == (12, 12, 0, 0)
    assert (result.error, result.blocks) == (None, 3)


def test_a_block_that_is_wanted_whole_travels_byte_for_byte(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", [Spec(rows(1, 9), compression="zstd")])
    bench.ship([a_range(file, 1, 9)])
    (block,) = read_blocks(MACHINE, file, 1, 9)
    assert bytes(bench.east.messages[0].blocks[0].records) == bytes(block.payload)


def test_the_sender_decodes_a_block_only_to_divide_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The peer processes the log again; its source does not."""
    decoded: list[int] = []

    def counted(block: Block) -> pa.RecordBatch:
        decoded.append(block.first_offset)
        return decode_batch(block.payload)

    monkeypatch.setattr(Block, "batch", counted)
    mixed = Spec(
        rows(7, 2),
        families=[b"a", b"b"],
        groups=[("ga", [b"a"]), ("gb", [b"b"])],
        block_targets=[BlockTarget(TO_EAST, ("ga",))],
    )
    file = write_wal(bench.directory / "w", [*specs_of([3, 3]), mixed])
    bench.ship([a_range(file, 1, 6)])
    assert (bench.east.rows, decoded) == (rows(1, 6), []), "the source decodes what the peer gets as it is"
    bench.ship([a_range(file, 7, 8, finished=6)])
    assert (bench.east.rows, decoded) == (rows(1, 7), [7])


def test_a_range_in_the_middle_ships_exactly_its_records(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([3, 4, 5]))
    (result,) = bench.ship([a_range(file, 4, 7)])
    assert bench.east.rows == rows(4, 4)
    assert result.acked_offset == 7


@pytest.mark.parametrize(("first", "last"), [(1, 6), (2, 7), (4, 8)])
def test_a_range_across_a_block_is_an_error_and_never_ships_past_its_end(bench: Bench, first: int, last: int) -> None:
    file = write_wal(bench.directory / "w", specs_of([3, 4, 5]))
    (result,) = bench.ship([a_range(file, first, last)])
    assert result.error is not None
    assert result.error.code == "invalid_input"
    assert all(first <= int(row) <= last for row in bench.east.rows)


def test_the_position_of_what_is_acknowledged_is_a_hint_for_the_next_range(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([3, 4, 5]))
    (first,) = bench.ship([a_range(file, 1, 7)])
    assert first.acked_position == list(read_blocks(MACHINE, file, 1, 12))[1].end_position
    (second,) = bench.ship([a_range(file, 8, 12, hint=first.acked_position)])
    assert (second.acked_offset, bench.east.rows) == (12, rows(1, 12))


def test_messages_are_cut_at_the_limit_and_leave_no_gap(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([10] * 20))
    bench.message_bytes = 3_000
    bench.ship([a_range(file, 1, 200)])
    spans = [(m.acked_offset, m.after_offset, m.to_offset) for m in bench.east.messages]
    assert len(spans) > 3
    assert [after for _, after, _ in spans] == [0, *(to for _, _, to in spans[:-1])]
    assert all(acked == after for acked, after, _ in spans)
    assert spans[-1][2] == 200
    assert bench.east.rows == rows(1, 200)


def test_what_hundreds_of_small_commits_wrote_is_one_message(bench: Bench) -> None:
    bench.peers["east"] = MemoryPeer(EAST, splits=[b"000100", b"000200"])
    file = write_wal(bench.directory / "w", specs_of([1] * 300))
    (result,) = bench.ship([a_range(file, 1, 300)])
    (message,) = bench.east.messages
    assert (len(message.blocks), message.after_offset, message.to_offset) == (300, 0, 300)
    assert (result.acked_offset, result.sent_records) == (300, 300)
    assert sorted(bench.east.rows) == rows(1, 300), "for three tablets of the peer"


def test_blocks_of_other_provenance_go_in_a_message_of_their_own(bench: Bench) -> None:
    specs = specs_of([2, 2, 2])
    specs[1] = replace(specs[1], provenance=["instance-far"])
    file = write_wal(bench.directory / "w", specs)
    bench.ship([a_range(file, 1, 6)])
    assert [m.provenance for m in bench.east.messages] == [
        ("instance-west",),
        ("instance-far", "instance-west"),
        ("instance-west",),
    ], "R21: the provenance of the messages is not that of their blocks"


def test_a_wholly_filtered_range_is_finished_without_a_message(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", [Spec(rows(1, 5), block_targets=()), Spec(rows(6, 5), provenance=[EAST])])
    (result,) = bench.ship([a_range(file, 1, 10)])
    assert (result.acked_offset, result.filtered, result.records, result.error) == (10, 10, 0, None), (
        "R21: a range without a wanted block is not finished"
    )
    assert bench.east.messages == []
    assert bench.east.opened == 0


def test_what_is_filtered_between_counts_as_covered(bench: Bench) -> None:
    specs = specs_of([2, 2, 2, 2])
    specs[1], specs[3] = replace(specs[1], block_targets=()), replace(specs[3], block_targets=())
    file = write_wal(bench.directory / "w", specs)
    (result,) = bench.ship([a_range(file, 1, 8)])
    assert bench.east.rows == [*rows(1, 2), *rows(5, 2)], "R13: a block without the stamp of the target travels"
    assert (result.acked_offset, result.filtered, result.records) == (8, 4, 4)


def test_each_block_travels_with_what_the_source_knows_of_it_and_where_its_records_lay(bench: Bench) -> None:
    mixed = Spec(
        rows(1, 4),
        families=[b"b", b"a", b"b", b"a"],
        groups=[("ga", [b"a"]), ("gb", [b"b"])],
        block_targets=[BlockTarget(TO_EAST, ("ga",))],
        write_time_ms=77,
        first_seq=501,
    )
    file = write_wal(bench.directory / "w", [mixed, Spec(rows(5, 2), write_time_ms=78, first_seq=9)])
    bench.ship([a_range(file, 1, 6)])
    facts = [fact for message in bench.east.messages for fact in message.facts]
    assert [(fact.write_time_ms, fact.first_seq) for fact in facts] == [(77, 501), (78, 9)]
    assert [fact.positions and fact.positions.to_pylist() for fact in facts] == [[1, 3], None]
    assert [len(message.facts) for message in bench.east.messages] == [len(m.blocks) for m in bench.east.messages]


def test_of_a_mixed_block_only_the_groups_of_the_target_are_shipped(bench: Bench) -> None:
    spec = Spec(
        rows(1, 4),
        families=[b"a", b"b", b"a", b"b"],
        groups=[("ga", [b"a"]), ("gb", [b"b"])],
        block_targets=[BlockTarget(TO_EAST, ("ga",))],
        compression="lz4",
    )
    file = write_wal(bench.directory / "w", [spec])
    (result,) = bench.ship([a_range(file, 1, 4)])
    (sent,) = bench.east.messages[0].blocks
    assert bench.east.rows == [b"000001", b"000003"], "a group travels that the stamp does not name"
    assert (sent.record_count, sent.min_row, sent.max_row) == (2, b"000001", b"000003")
    assert decode_batch(sent.records).num_rows == 2
    assert (result.records, result.filtered, result.acked_offset) == (2, 2, 4)


def test_one_read_serves_all_targets_of_a_file(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    second = TargetKey("east", "r2", "t2", 1)
    both = [BlockTarget(TO_EAST, None), BlockTarget(second, None)]
    file = write_wal(bench.directory / "w", [replace(spec, block_targets=both) for spec in specs_of([3, 3])])
    reads = []

    def counted(*args: object) -> object:
        reads.append(args)
        return read_blocks(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(shipping, "read_blocks", counted)
    results = bench.ship([a_range(file, 4, 6), a_range(file, 1, 6, target=second, range_id=2)])
    assert len(reads) == 1
    assert {(r.range_id, r.acked_offset) for r in results} == {(1, 6), (2, 6)}
    assert sorted(bench.east.rows) == sorted(rows(4, 3) + rows(1, 6))


def test_a_failed_message_leaves_the_fact_where_it_was_and_stops_the_stream(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([10] * 4))
    bench.message_bytes = 1

    def third_fails(message: Message) -> frozenset[int]:
        if message.after_offset == 20:
            raise UnavailableError("away")
        return frozenset()

    bench.east.trouble = third_fails
    one, two = bench.ship([a_range(file, 1, 30), a_range(file, 31, 40, finished=0, range_id=2)])
    assert (one.acked_offset, one.records, one.error and one.error.code) == (20, 20, "unavailable")
    assert one.acked_position == list(read_blocks(MACHINE, file, 1, 40))[1].end_position
    assert (two.acked_offset, two.records, two.error and two.error.transient) == (20, 0, True)
    assert bench.east.rows == rows(1, 20)


def test_a_message_half_of_the_tablets_took_is_no_fact_and_is_completed_by_a_resend(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([10, 10]))
    bench.peers["east"] = MemoryPeer(EAST, splits=[b"000005"], trouble=lambda _: frozenset({1}))
    (failed,) = bench.ship([a_range(file, 1, 20)])
    assert (failed.acked_offset, failed.error and failed.error.transient) == (0, True)
    assert bench.east.rows == rows(1, 5)
    bench.east.trouble = lambda _: frozenset()
    (done,) = bench.ship([a_range(file, 1, 20)])
    assert (done.acked_offset, done.resent, done.records) == (20, 5, 20)
    assert (failed.sent_records, done.sent_records, failed.records) == (20, 20, 0)
    assert failed.sent_bytes == done.sent_bytes == done.bytes > failed.bytes
    assert sorted(bench.east.rows) == rows(1, 20)


def test_a_resend_changes_nothing_at_the_peer(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([10, 10]))
    bench.ship([a_range(file, 1, 20)])
    (again,) = bench.ship([a_range(file, 1, 20)])
    assert (again.acked_offset, again.resent) == (20, 20)
    assert bench.east.rows == rows(1, 20)


def test_a_range_that_leaves_a_hole_behind_the_fact_is_never_sent(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([10, 10, 10]))
    (result,) = bench.ship([a_range(file, 21, 30, finished=10)])
    assert (result.acked_offset, result.error and result.error.code) == (10, "invalid_input"), (
        "R19: a range is sent that leaves a hole behind the fact"
    )
    assert bench.east.messages == []


def test_ranges_of_a_stream_with_a_hole_between_stop_at_the_hole(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([10, 10, 10]))
    one, two = bench.ship([a_range(file, 1, 10), a_range(file, 21, 30, finished=0, range_id=2)])
    assert (one.acked_offset, one.error) == (10, None)
    assert (two.acked_offset, two.error and two.error.code) == (10, "invalid_input")
    assert bench.east.rows == rows(1, 10)


def test_a_gap_comes_back_with_the_peers_high_water(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([10, 10]))

    def lost(_message: Message) -> frozenset[int]:
        raise GapError("restored from an older copy", {"high_water": "4"})

    bench.east.trouble = lost
    (result,) = bench.ship([a_range(file, 11, 20)])
    assert (result.acked_offset, result.high_water, result.error and result.error.code) == (10, 4, "gap")


@pytest.mark.parametrize("said", [{}, {"high_water": "x"}, {"high_water": "-1"}, {"high_water": str(1 << 63)}])
def test_a_gap_without_an_offset_is_an_error_of_its_own_range(bench: Bench, said: dict[str, str]) -> None:
    """The peer makes it up. The other ranges of the task go on."""
    both = [BlockTarget(TO_EAST, None), BlockTarget(TO_NORTH, None)]
    file = write_wal(bench.directory / "w", [replace(spec, block_targets=both) for spec in specs_of([5, 5])])

    def lie(_message: Message) -> frozenset[int]:
        raise GapError("nothing fits", {"away_host": "host2", **said})

    bench.east.trouble = lie
    to_north = a_range(file, 1, 10, target=TO_NORTH, quorum="memory://north", instance=NORTH, range_id=2)
    lied, other = bench.ship([a_range(file, 1, 10), to_north])
    assert (lied.acked_offset, lied.high_water) == (0, None)
    assert lied.error is not None
    assert (lied.error.code, lied.error.failed_at) == ("incompatible", AT_PEER)
    assert (other.acked_offset, other.error) == (10, None)


@pytest.mark.parametrize("dropped", [-1, 11, 1 << 62])
def test_a_peer_that_had_more_records_than_it_got_is_not_believed(
    bench: Bench, dropped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write_wal(bench.directory / "w", specs_of([5, 5]))
    right = MemoryPeer.apply
    monkeypatch.setattr(MemoryPeer, "apply", lambda *call: replace(right(*call), dropped=dropped))
    (result,) = bench.ship([a_range(file, 1, 10)])
    assert (result.acked_offset, result.resent, result.records) == (0, 0, 0)
    assert result.error is not None
    assert (result.error.code, result.error.failed_at) == ("incompatible", AT_PEER)


def test_a_dead_peer_stops_its_own_ranges_only(bench: Bench) -> None:
    both = [BlockTarget(TO_EAST, None), BlockTarget(TO_NORTH, None)]
    file = write_wal(bench.directory / "w", [replace(spec, block_targets=both) for spec in specs_of([5, 5])])

    def dead(_message: Message) -> frozenset[int]:
        raise UnavailableError("no route")

    bench.east.trouble = dead
    results = bench.ship(
        [
            a_range(file, 1, 10),
            a_range(file, 1, 10, target=TO_NORTH, quorum="memory://north", instance=NORTH, range_id=2),
        ]
    )
    by_id = {r.range_id: r for r in results}
    assert (by_id[1].acked_offset, by_id[1].error and by_id[1].error.transient) == (0, True)
    assert (by_id[2].acked_offset, by_id[2].error) == (10, None)
    assert bench.peers["north"].rows == rows(1, 10)


def test_another_cluster_at_the_address_is_refused_for_good(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([5]))
    (result,) = bench.ship([a_range(file, 1, 5, instance=NORTH)])
    assert result.error is not None
    assert (result.error.code, result.error.transient) == (RefusedError.code, False)
    assert bench.east.rows == []


def test_damage_in_the_file_lets_what_lies_before_it_through(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([5, 5, 5]))
    second = list(read_blocks(MACHINE, file, 1, 15))[1]
    raw = bytearray((bench.directory / "w").read_bytes())
    raw[second.end_position - 20] ^= 0xFF
    (bench.directory / "w").write_bytes(raw)
    (result,) = bench.ship([a_range(file, 1, 15)])
    assert (result.acked_offset, result.error and result.error.code) == (5, "corruption")
    assert bench.east.rows == rows(1, 5)


@pytest.mark.parametrize("quorum", ["nowhere://x", "memory://", "://x"])
def test_a_quorum_that_names_no_system_is_an_error_row(bench: Bench, quorum: str) -> None:
    file = write_wal(bench.directory / "w", specs_of([5]))
    (result,) = bench.ship([a_range(file, 1, 5, quorum=quorum)])
    assert result.error is not None
    assert not result.error.transient


def test_a_missing_file_is_an_error_row_beside_a_good_one(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([5]))
    results = bench.ship([a_range(file, 1, 5), a_range("nowhere/w", 1, 5, range_id=2)])
    by_id = {r.range_id: r for r in results}
    assert (by_id[1].error, by_id[1].acked_offset) == (None, 5)
    assert by_id[2].error is not None
    assert by_id[2].error.code == "not_found"


def test_what_the_file_does_not_hold_yet_may_come(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([5]))
    (result,) = bench.ship([a_range(file, 1, 9)])
    assert (result.acked_offset, result.error and result.error.transient) == (5, True)


def test_a_defect_in_handling_one_stream_is_the_error_of_that_stream(bench: Bench) -> None:
    both = [BlockTarget(TO_EAST, None), BlockTarget(TO_NORTH, None)]
    file = write_wal(bench.directory / "w", [replace(spec, block_targets=both) for spec in specs_of([5])])

    def defect(_message: Message) -> frozenset[int]:
        raise ZeroDivisionError("unforeseen")

    bench.east.trouble = defect
    second = TargetKey("east", "r2", "t1", 2)
    results = bench.ship([a_range(file, 1, 5), a_range(file, 1, 5, target=second, range_id=2)])
    by_id = {r.range_id: r for r in results}
    assert "ZeroDivisionError" in str(by_id[1].error)
    assert (by_id[2].error, by_id[2].filtered) == (None, 5)


class Ticking(SystemClock):
    """Every look at the clock takes a millisecond."""

    def __init__(self) -> None:
        self.now_ms = 0

    def boot_ns(self) -> int:
        self.now_ms += 1
        return self.now_ms * 1_000_000

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        self.now_ms += int(timeout_ms)
        return event.is_set()


def test_a_task_whose_time_is_up_comes_back_short_without_an_error_and_can_go_on(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([10] * 30))
    system = MemorySystem(bench.peers)
    sessions = Sessions(Registry({"memory": lambda: system}), bench.settings)
    (short,) = Shipper(sessions, MACHINE, bench.settings, Ticking()).ship([a_range(file, 1, 300)], budget_ms=10)
    assert 0 < short.acked_offset < 300
    assert short.error is None
    (rest,) = bench.ship([a_range(file, short.acked_offset + 1, 300, hint=short.acked_position)])
    assert rest.acked_offset == 300
    assert bench.east.rows == rows(1, 300)


class Recorded:
    """The steps of a task; a wait is its limit."""

    def __init__(self) -> None:
        self.taken: list[object] = []

    def begin(self, r: Range) -> None:
        self.taken.append(r.file)

    def step(self, wait_ms: float = 0) -> None:
        self.taken.append(wait_ms)


def test_each_block_is_a_step_and_each_call_to_the_peer_is_a_wait_that_ends(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([10] * 30))
    system, steps = MemorySystem(bench.peers), Recorded()
    sessions = Sessions(Registry({"memory": lambda: system}), bench.settings, steps=steps)
    (result,) = Shipper(sessions, MACHINE, bench.settings).ship([a_range(file, 281, 300, finished=280)], LONG_MS)
    assert result.acked_offset == 300
    assert steps.taken[0] == file
    waits = [at for at, taken in enumerate(steps.taken) if isinstance(taken, float | int) and taken > 0]
    assert waits, "a slow peer makes the task look as if it hung"
    assert all(steps.taken[at + 1] == 0 for at in waits), "a wait goes on after the answer"
    assert len(steps.taken) - len(waits) > 30, "a task that passes blocks before its range looks as if it hung"


def test_sessions_are_kept_between_runs_forgotten_after_an_error_and_bounded(bench: Bench) -> None:
    file = write_wal(bench.directory / "w", specs_of([2, 2]))
    system = MemorySystem(bench.peers)
    sessions = Sessions(Registry({"memory": lambda: system}), bench.settings, sessions_max=2)
    shipper = Shipper(sessions, MACHINE, bench.settings)
    list(shipper.ship([a_range(file, 1, 2)], LONG_MS))
    list(shipper.ship([a_range(file, 3, 4)], LONG_MS))
    assert bench.east.opened == 1
    bench.east.trouble = lambda _: frozenset({0})
    list(shipper.ship([a_range(file, 1, 2)], LONG_MS))
    bench.east.trouble = lambda _: frozenset()
    list(shipper.ship([a_range(file, 1, 2)], LONG_MS))
    assert bench.east.opened == 2
    for n in range(3):
        other = TargetKey("east", f"x{n}", "t1", 1)
        stamped = write_wal(bench.directory / f"x{n}", [Spec(rows(1, 1), block_targets=[BlockTarget(other, None)])])
        list(shipper.ship([a_range(stamped, 1, 1, target=other)], LONG_MS))
    list(shipper.ship([a_range(file, 1, 2)], LONG_MS))
    assert bench.east.opened == 6


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    unwanted=st.sets(st.integers(0, 11)),
    message_bytes=st.sampled_from([1, 1500, 4000, 1 << 20]),
    failures=st.lists(st.sampled_from(["ok", "lost", "half", "unanswered"]), max_size=12),
    cuts=st.sets(st.integers(0, 11)),
)
def test_whatever_fails_the_peer_gets_each_wanted_record_once_and_in_order(
    tmp_path: Path, sizes: list[int], unwanted: set[int], message_bytes: int, failures: list[str], cuts: set[int]
) -> None:
    specs = [replace(s, block_targets=()) if n in unwanted else s for n, s in enumerate(specs_of(sizes))]
    path = tmp_path / "w"
    for leftover in tmp_path.iterdir():
        leftover.unlink()
    file = write_wal(path, specs)
    bench = Bench(tmp_path, message_bytes)
    peer = bench.peers["east"] = MemoryPeer(EAST, splits=[b"000003", b"000011"])
    script = iter(failures)

    def scripted(_message: Message) -> frozenset[int]:
        step = next(script, "ok")
        if step == "lost":
            raise UnavailableError("never came")
        return frozenset({1}) if step == "half" else frozenset()

    peer.trouble = scripted
    finished, total = 0, sum(sizes)
    ends = [sum(sizes[: n + 1]) for n in range(len(sizes))]
    for attempt in range(len(failures) + len(cuts) + 2):
        last = next((e for n, e in enumerate(ends) if n in cuts and e > finished), total) if attempt % 2 else total
        (result,) = bench.ship([a_range(file, finished + 1, last)])
        assert finished <= result.acked_offset <= last
        finished = result.acked_offset
        if finished == total:
            break
    assert finished == total
    wanted = [row for n, spec in enumerate(specs) if n not in unwanted for row in spec.rows]
    for low, high in ((b"", b"000003"), (b"000003", b"000011"), (b"000011", b"9")):
        assert [r for r in peer.rows if low < r <= high] == [r for r in wanted if low < r <= high]
