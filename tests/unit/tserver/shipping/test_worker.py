"""The worker over real books, a real coordination store and the real ship loop (without Spark)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import new_settings
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.coordination_protocol import Coordination, SessionInfo
from bookkeeper.errors import OverloadedError, UnavailableError
from bookkeeper.master.cycle.assigner import PeerQueue, plan_peer, queue_key
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import CellKey, MetadataTable, RowPut
from bookkeeper.metadata.values import Quarantined
from bookkeeper.model import BlockRange, BlockTarget, HostIdentity, TargetKey
from bookkeeper.peers.protocol import Message
from bookkeeper.peers.registry import Registry
from bookkeeper.replay.ranges import Range
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello, WorkItem, WorkReport
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.standalone.books import make_books
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.volume.opening import open_volume
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from bookkeeper.tserver.shipping import worker_books, worker_lane_tools
from bookkeeper.tserver.shipping.open_streams import Destination
from bookkeeper.tserver.shipping.own_log import OwnLogs
from bookkeeper.tserver.shipping.worker import ReplicationWorker
from bookkeeper.tserver.shipping.worker_lane_tools import pick_replay
from bookkeeper.tserver.shipping.worker_plan import StreamProgress
from tests.support.books import books_of
from tests.support.faults import fault
from tests.support.local_replay import LocalReplay
from tests.support.master_values import EAST as MASTERS_EAST
from tests.support.master_values import by_name, entry, name, plan_world
from tests.support.memory_peer import MemoryPeer, MemorySystem
from tests.support.tservers import wait_until
from tests.support.wal_files import EAST, NORTH, TO_EAST, WEST, Spec, damage, write_wal

TO_NORTH = TargetKey("north", "n1", "t1", 1)
LIMIT_S = 60.0
NO_DESTINATIONS: dict[TargetKey, Destination] = {}
NO_OWN_LOGS = (OwnLogs("s-1"), lambda: NO_DESTINATIONS, SystemClock())


@dataclass(slots=True)
class Reports:
    """The reports to the master, and a wait for them."""

    got: list[WorkReport] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def __call__(self, reports: Sequence[WorkReport]) -> None:
        with self.changed:
            self.got += reports
            self.changed.notify_all()

    def wait(self, wanted: Callable[[list[WorkReport]], bool]) -> list[WorkReport]:
        with self.changed:
            assert self.changed.wait_for(lambda: wanted(self.got), LIMIT_S), self.got
            return list(self.got)

    def finished(self, target: TargetKey, offset: int) -> WorkReport:
        reports = self.wait(lambda got: any(r.target == target and r.finished_offset >= offset for r in got))
        return next(r for r in reports if r.target == target and r.finished_offset >= offset)


@dataclass(slots=True)
class World:
    """A worker and all it touches."""

    directory: Path
    settings: Settings
    metadata: MetadataTable
    coordination: Coordination
    peers: dict[str, MemoryPeer]
    replay: LocalReplay
    reports: Reports
    worker: ReplicationWorker

    def item(self, file: str, first: int, last: int, target: TargetKey = TO_EAST, txid: str = "tx") -> WorkItem:
        instance = self.peers[target.cluster].instance_id
        return WorkItem(txid, file, target, first, last, f"memory://{target.cluster}", instance, 1)

    def finished(self, file: str, target: TargetKey = TO_EAST) -> tuple[int, int, int]:
        """Offset, position and rank of the finished cell."""
        row = self.metadata.get(keys.repl_row(file), ("done",))
        assert row is not None
        cell = row.cells[keys.done_column(target)]
        status = values.decode_status(cell.value)
        return status.replication_finished_offset, status.finished_bytes, cell.rank

    def wal(self, name: str, sizes: Sequence[int], targets: Sequence[TargetKey] = (TO_EAST, TO_NORTH)) -> str:
        first, specs = 1, []
        for size in sizes:
            block_targets = [BlockTarget(target, None) for target in targets]
            specs.append(Spec([b"%06d" % n for n in range(first, first + size)], block_targets=block_targets))
            first += size
        return write_wal(self.directory / name, specs, root=self.directory)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    settings = new_settings(tmp_path, "west", instance_id=WEST, overrides={"security.authentication": "none"})
    make_books(settings)
    metadata = books_of(settings)
    coordination = open_coordination(settings)
    peers = {"east": MemoryPeer(EAST), "north": MemoryPeer(NORTH)}
    system = MemorySystem(peers)
    replay = LocalReplay(settings, coordination, lambda: Registry({"memory": lambda: system}))
    pool = RpcPool(Hello(PROTOCOL_VERSION, WEST, "west", "tserver"), settings.rpc)
    reports = Reports()
    worker = ReplicationWorker(
        settings, open_volume(settings), metadata, coordination, pool, reports, "127.0.0.1:1", *NO_OWN_LOGS
    )
    with replay:
        yield World(tmp_path, settings, metadata, coordination, peers, replay, reports, worker)
        worker.stop()
    pool.close()
    coordination.close()
    metadata.close()


def test_a_range_is_shipped_booked_and_reported(world: World) -> None:
    file = world.wal("w", [5, 5])
    world.worker.assign([world.item(file, 1, 10)])
    report = world.reports.finished(TO_EAST, 10)
    assert world.peers["east"].rows == [b"%06d" % n for n in range(1, 11)]
    assert world.finished(file) == (
        10,
        list(read_blocks(LocalVolume(world.directory), file, 1, 10))[1].end_position,
        11,
    )
    assert (report.txid, report.records, report.error) == ("tx", 10, None)
    assert world.worker.reports() == [report]


def test_what_is_in_quarantine_counts_as_finished_when_its_turn_comes(world: World) -> None:
    file = world.wal("w", [2, 3, 2])
    first, bad, last = read_blocks(LocalVolume(world.directory), file, 1, 7)
    held = BlockRange(3, 5, first.end_position, bad.end_position)
    damage(file, 3, root=world.directory)
    world.worker.assign([world.item(file, 1, 7)])
    (report,) = world.reports.wait(lambda got: any(r.failed for r in got))
    assert (report.finished_offset, report.failed, report.error_code) == (2, held, "corruption")
    world.worker.assign([replace(world.item(file, 3, 7), passed=(held,))])
    world.reports.finished(TO_EAST, 7)
    assert world.peers["east"].rows == [b"%06d" % n for n in (1, 2, 6, 7)]
    assert world.finished(file)[:2] == (7, last.end_position)


def test_a_quarantine_at_the_end_needs_no_run(world: World) -> None:
    file = world.wal("w", [2, 3])
    world.worker.assign([replace(world.item(file, 1, 5), passed=(BlockRange(1, 5, 0, 0),))])
    world.reports.finished(TO_EAST, 5)
    assert (world.replay.runs, world.finished(file)[0]) == ([], 5)


def test_a_run_of_its_own_ships_again_and_leaves_the_books_alone(world: World) -> None:
    file = world.wal("w", [2, 3, 2])
    first, *_ = read_blocks(LocalVolume(world.directory), file, 1, 7)
    world.worker.assign([world.item(file, 1, 7)])
    world.reports.finished(TO_EAST, 7)
    before = world.finished(file)
    run = replace(
        world.item(file, 3, 5, txid="retry"), run_id="again", passed=(BlockRange(1, 2, 0, first.end_position),)
    )
    world.worker.assign([run])
    report = world.reports.wait(lambda got: any(r.run_id for r in got))[-1]
    assert (report.txid, report.run_id, report.finished_offset, report.records) == ("retry", "again", 5, 3)
    assert world.peers["east"].rows == [b"%06d" % n for n in (*range(1, 8), 3, 4, 5)]
    assert world.finished(file) == before


def test_a_run_of_its_own_that_failed_is_shipped_the_next_time(world: World) -> None:
    """The books have the offsets of the stream that went past the range, not those of the run."""
    file = world.wal("w", [2, 3, 2])
    first, *_ = read_blocks(LocalVolume(world.directory), file, 1, 7)
    world.worker.assign([world.item(file, 1, 7)])
    world.reports.finished(TO_EAST, 7)

    passed = (BlockRange(1, 2, 0, first.end_position),)
    run = replace(world.item(file, 3, 5, txid="retry"), run_id="again", passed=passed)
    world.replay.session.close()
    world.worker.assign([run])
    world.reports.wait(lambda got: any(r.run_id and r.error for r in got))
    world.replay.session = world.coordination.open_session("replay", world.replay.server.address)
    world.worker.assign([run])
    report = world.reports.wait(lambda got: any(r.run_id and not r.error for r in got))[-1]
    assert (report.finished_offset, report.records) == (5, 3), "the run counts as shipped, and nothing of it was"
    assert world.peers["east"].rows == [b"%06d" % n for n in (*range(1, 8), 3, 4, 5)]


def test_a_range_of_an_import_goes_to_its_place_when_only_its_own_row_has_it(world: World) -> None:
    """All other records of the import have arrived, and the cells of its log are gone."""
    file = world.wal("import-1", [2, 3])
    first, _ = read_blocks(LocalVolume(world.directory), file, 1, 5)
    held = Quarantined(BlockRange(3, 5, first.end_position, 0), "invalid_input", "too long", 7, first_seq=41)
    cell = {keys.quar_column(TO_EAST, 3): held.encode()}
    world.metadata.put([RowPut(keys.quar_row(file), cell)], keys.master_rank(1, 1))
    passed = (BlockRange(1, 2, 0, first.end_position),)
    world.worker.assign([replace(world.item(file, 3, 5), run_id="quarantine-3", passed=passed)])
    world.reports.wait(lambda got: any(r.finished_offset == 5 for r in got))
    (facts,) = world.peers["east"].messages[-1].facts
    assert facts.first_seq == 40, "the numbers in the file (0 in this one) and 40 that the tablet added"


def test_the_finished_cell_of_the_needed_side_is_not_touched(world: World) -> None:
    file = world.wal("w", [5])
    world.worker.assign([world.item(file, 1, 5)])
    world.reports.finished(TO_EAST, 5)
    (row,) = list(world.metadata.scan(*keys.section(keys.REPL_PREFIX)))
    assert [column.family for column in row.cells] == ["done"]


def test_an_extension_goes_on_with_the_position_and_fact_it_knows(world: World) -> None:
    file = world.wal("w", [5, 5])
    world.worker.assign([world.item(file, 1, 5)])
    world.reports.finished(TO_EAST, 5)
    world.worker.assign([world.item(file, 6, 10)])
    world.reports.finished(TO_EAST, 10)
    (second,) = world.replay.runs[1]
    assert (second.first, second.finished) == (6, 5)
    assert second.position_hint == next(read_blocks(LocalVolume(world.directory), file, 1, 5)).end_position


def test_a_worker_that_knows_nothing_asks_the_books(world: World) -> None:
    file = world.wal("w", [5, 5])
    worker_books.write_finished(world.metadata, [(world.item(file, 1, 5), StreamProgress(5, 5, 123))])
    world.worker.assign([world.item(file, 1, 10)])
    world.reports.finished(TO_EAST, 10)
    assert [(r.first, r.finished, r.position_hint) for r in world.replay.runs[0]] == [(6, 5, 123)]
    assert world.peers["east"].rows == [b"%06d" % n for n in range(6, 11)]


def test_a_range_finished_by_somebody_else_is_reported_and_not_shipped(world: World) -> None:
    file = world.wal("w", [5])
    worker_books.write_finished(world.metadata, [(world.item(file, 1, 5), StreamProgress(5, 5, 1))])
    world.worker.assign([world.item(file, 1, 5)])
    world.reports.finished(TO_EAST, 5)
    assert world.replay.runs == []


def test_a_late_or_repeated_write_does_not_turn_the_finished_offset_back(world: World) -> None:
    item = world.item("w", 1, 5)
    for offset in (3, 9, 9, 5):
        worker_books.write_finished(world.metadata, [(item, StreamProgress(offset, offset, 10 * offset))])
    assert world.finished("w") == (9, 90, 10), "a late write turned the finished offset back"
    assert worker_books.read_progress(world.metadata, item) == StreamProgress(9, 9, 90)


def test_streams_that_share_an_offset_share_a_call(world: World) -> None:
    class Counting:
        def __init__(self, inner: MetadataTable) -> None:
            self.inner = inner
            self.calls: list[tuple[int, int]] = []

        def put(self, rows: Sequence[object], rank: int) -> None:
            self.calls.append((len(rows), rank))

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    table = Counting(world.metadata)
    advanced = [(world.item(f"{n}", 1, 9), StreamProgress(offset, offset)) for n, offset in enumerate((5, 9, 5, 5))]
    worker_books.write_finished(table, advanced)  # type: ignore[arg-type]
    assert table.calls == [(3, 6), (1, 10)]


def test_a_stream_has_its_cell_before_anything_of_it_leaves(world: World) -> None:
    """R20: the answer may never come; the end of the stream must still find that the peer has to be told."""
    file = world.wal("w", [5])
    cells: list[tuple[int, int, int]] = []

    def look(_message: Message) -> frozenset[int]:
        cells.append(world.finished(file))
        raise UnavailableError("no answer")

    world.peers["east"].trouble = look
    world.worker.assign([world.item(file, 1, 5)])
    assert world.reports.finished(TO_EAST, 0).error is not None
    assert cells[0] == (0, 0, 1)


def test_purged_books_are_a_fresh_start(world: World) -> None:
    item = world.item("w", 1, 5)
    worker_books.write_finished(world.metadata, [(item, StreamProgress(5, 5))])
    world.metadata.purge([CellKey(keys.repl_row("w"), keys.done_column(TO_EAST))])
    assert worker_books.read_progress(world.metadata, item) == StreamProgress(0, 0)


def test_an_error_of_the_peer_is_reported_with_what_got_through(world: World) -> None:
    file = world.wal("w", [5, 5])

    def away(_message: Message) -> frozenset[int]:
        raise UnavailableError("no route to east")

    world.peers["east"].trouble = away
    world.worker.assign([world.item(file, 1, 10)])
    (report,) = world.reports.wait(lambda got: bool(got))
    assert (report.finished_offset, report.error, report.error_transient) == (0, "no route to east", True)
    world.peers["east"].trouble = lambda _: frozenset()
    world.worker.assign([world.item(file, 1, 10)])
    world.reports.finished(TO_EAST, 10)


def test_a_short_run_goes_on_by_itself_and_reports_as_it_goes(world: World) -> None:
    file = world.wal("w", [5] * 40)
    world.replay.budget_ms = 0
    runs = threading.Event()

    def third_run_has_time(_ranges: Sequence[Range]) -> None:
        if len(world.replay.runs) >= 3:
            world.replay.budget_ms = 3_600_000
            runs.set()

    world.replay.before = third_run_has_time
    world.worker.assign([world.item(file, 1, 200)])
    world.reports.finished(TO_EAST, 200)
    assert runs.is_set()
    assert world.peers["east"].rows == [b"%06d" % n for n in range(1, 201)]


def test_a_dead_peer_does_not_delay_another(world: World) -> None:
    file = world.wal("w", [5])
    release = threading.Event()

    def hang(_message: Message) -> frozenset[int]:
        release.wait(LIMIT_S)
        raise UnavailableError("timed out")

    world.peers["east"].trouble = hang
    world.worker.assign([world.item(file, 1, 5), world.item(file, 1, 5, TO_NORTH)])
    assert world.reports.finished(TO_NORTH, 5).error is None
    assert all(r.target == TO_NORTH for r in world.reports.got)
    release.set()
    world.reports.wait(lambda got: any(r.target == TO_EAST and r.error for r in got))


def test_without_a_replay_process_the_report_says_so_and_may_be_tried_again(world: World) -> None:
    file = world.wal("w", [5])
    world.replay.session.close()
    world.worker.assign([world.item(file, 1, 5)])
    (report,) = world.reports.wait(lambda got: bool(got))
    assert report.error is not None
    assert "no replay process" in report.error
    assert report.error_transient
    world.replay.session = world.coordination.open_session("replay", world.replay.server.address)
    world.worker.assign([world.item(file, 1, 5)])
    world.reports.finished(TO_EAST, 5)


def test_a_replay_process_that_vanished_is_a_transient_error_that_names_it(world: World) -> None:
    file = world.wal("w", [5])
    world.replay.server.stop(grace_ms=0)
    world.worker.assign([world.item(file, 1, 5)])
    (report,) = world.reports.wait(lambda got: bool(got))
    assert report.error is not None
    assert world.replay.server.address in report.error
    assert report.error_transient


def test_books_that_can_not_be_written_finish_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    file = world.wal("w", [5])

    def refused(*_: object) -> None:
        raise UnavailableError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(worker_books, "write_finished", refused)
        world.worker.assign([world.item(file, 1, 5)])
        (report,) = world.reports.wait(lambda got: bool(got))
    assert (report.finished_offset, report.error, report.error_transient) == (0, "the store is away", True)
    world.worker.assign([world.item(file, 1, 5)])
    world.reports.finished(TO_EAST, 5)
    assert world.finished(file)[0] == 5
    assert world.peers["east"].rows == [b"%06d" % n for n in range(1, 6)]


def test_a_full_lane_and_a_stopped_worker_say_so(world: World) -> None:
    release, entered = threading.Event(), threading.Event()

    def wait(_ranges: Sequence[Range]) -> None:
        entered.set()
        release.wait(LIMIT_S)

    world.replay.before = wait
    file = world.wal("w", [5])
    world.worker.assign([world.item(file, 1, 5)])
    assert entered.wait(LIMIT_S)
    many = [world.item(f"{n}", 1, 5) for n in range(world.settings.tserver.lane_ranges_max)]
    with pytest.raises(OverloadedError):
        world.worker.assign(many)
    release.set()
    world.worker.stop()
    with pytest.raises(UnavailableError):
        world.worker.assign([world.item(file, 1, 5)])


def has_reported(worker: ReplicationWorker, last: int) -> bool:
    return [report.finished_offset for report in worker.reports()] == [last]


def test_a_report_that_does_not_reach_the_master_is_kept_for_asking(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def lost(_reports: Sequence[WorkReport]) -> None:
        raise UnavailableError("no leader")

    tools = world.worker._tools
    worker = ReplicationWorker(
        tools.settings, tools.volume, tools.metadata, tools.coordination, tools.pool, lost, "", *NO_OWN_LOGS
    )
    file = world.wal("w", [5, 5])
    for last in (5, 10):
        worker.assign([world.item(file, 1, last)])
        wait_until(partial(has_reported, worker, last), "a report")
    worker.stop()
    assert len([line for line in caplog.messages if "do not reach the master" in line]) == 1, "a line for each range"


def near_one_is_asked() -> None:
    """By the names of the hosts, which may announce one address."""
    here = SessionInfo("replay-2", "replay", "gate:1", alive=True, host=HostIdentity("hostb", ""))
    there = SessionInfo("replay-1", "replay", "gate:2", alive=True, host=HostIdentity("hosta", ""))
    older = SessionInfo("replay-3", "replay", "gate:3", alive=True)
    dead = SessionInfo("replay-0", "replay", "gate:4", alive=False, host=HostIdentity("hostb", ""))
    assert worker_lane_tools.pick_replay([dead, there, older, here], "hostb") == "gate:1", (
        "the process of another host reads the log"
    )
    assert pick_replay([dead, there], "hostb") == "gate:2"
    assert pick_replay([older], "hostb") == "gate:3"
    with pytest.raises(UnavailableError):
        pick_replay([dead], "hostb")


def test_a_replay_process_of_the_same_host_is_preferred_and_a_dead_one_never_asked() -> None:
    near_one_is_asked()


def test_without_the_name_of_the_host_any_replay_process_is_asked() -> None:
    with fault("any-replay-process-is-near"), pytest.raises(AssertionError, match="of another host reads the log"):
        near_one_is_asked()


def test_a_file_is_read_on_the_host_that_wrote_it_while_its_tserver_lives() -> None:
    hosts = ("hosta", "hostb", "hostc")
    files = {host: entry(name(f"tserver-{host}"), 5) for host in hosts}
    replays = [
        SessionInfo(f"replay-{number}", "replay", f"{host}:2", alive=True, host=HostIdentity(host, ""))
        for number, host in enumerate(hosts)
    ]
    plan = plan_world(by_name(*files.values()), [f"tserver-{host}" for host in hosts])
    world = replace(plan, live={f"tserver-{host}": f"{host}:1" for host in hosts})
    read_by = {}
    for host, file in files.items():
        queue = PeerQueue(10)
        queue.add(queue_key(file, MASTERS_EAST, True))
        (work,) = plan_peer(world, "east", queue)
        read_by[host] = pick_replay(replays, work.session.removeprefix("tserver-"))
    assert read_by == {host: f"{host}:2" for host in hosts}


def test_without_ranks_by_offset_a_late_write_turns_the_finished_offset_back(world: World) -> None:
    with fault("finished-without-rank"), pytest.raises(AssertionError, match="turned the finished offset back"):
        test_a_late_or_repeated_write_does_not_turn_the_finished_offset_back(world)
