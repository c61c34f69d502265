"""The replay process with a real Spark session, real WALs and receivers behind real sockets."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from bookkeeper.config.file import new_settings, write_settings
from bookkeeper.config.sections import Sections
from bookkeeper.config.setting import explain
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import BookkeeperError, InvalidInputError
from bookkeeper.model import BlockTarget, TargetKey
from bookkeeper.replay.journal import read_journal
from bookkeeper.replay.ranges import RangeResult
from bookkeeper.replay.service import EXIT_BROKEN
from bookkeeper.replay.spark.class_archive import archive_directory, archive_key, find_archive
from bookkeeper.replay.spark.signs_of_life import JVM_ENDED_MS
from bookkeeper.replay.spark.spark_session import SCRATCH
from bookkeeper.rpc.contract.messages import ReplicateRequest
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from tests.support.cluster import Cluster
from tests.support.memory_peer import MemoryPeer
from tests.support.ranges import a_range
from tests.support.replay_process import ReplayProcess, all_gone, wait_until
from tests.support.thrift_peer import ThriftPeer
from tests.support.trust import trust_everybody
from tests.support.wal_files import EAST, NORTH, TO_EAST, WEST, Spec, write_wal

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(900)]

TO_NORTH = TargetKey("north", "n1", "t1", 1)
LIMIT_S = 120.0


def rows(first: int, count: int) -> list[bytes]:
    return [b"%06d" % n for n in range(first, first + count)]


def wal(directory: Path, name: str, blocks: int, size: int, targets: Sequence[TargetKey] = (TO_EAST, TO_NORTH)) -> str:
    block_targets = [BlockTarget(target, None) for target in targets]
    """A log in a directory of logs; its name on the Volume that has them."""
    specs = [Spec(rows(n * size + 1, size), block_targets=block_targets) for n in range(blocks)]
    return write_wal(directory / name, specs, root=directory.parent.parent)


def least_heap_mib() -> int:
    """The least that the settings take: Spark starts with it, or its process would never come up."""
    (least,) = (facts.least for facts in explain(Sections) if facts.name == "replay.heap_mib")
    assert least is not None
    return int(least)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("west")
    base = new_settings(directory, "west", instance_id=WEST)
    # A run waits for a slot, and a message for its answer, for longer than a busy machine takes for others beside them.
    replay = replace(base.replay, message_timeout_ms=int(LIMIT_S * 1000), message_retries=1, heap_mib=least_heap_mib())
    write_settings(replace(base, replay=replay))
    trust_everybody(base)
    return directory


@pytest.fixture
def logs(home: Path, tmp_path: Path) -> Path:
    """A directory for logs of one test, on the Volume of the process."""
    return home / "wal" / tmp_path.name


@pytest.fixture(scope="module")
def process(home: Path) -> Iterator[ReplayProcess]:
    settings = new_settings(home, "west", instance_id=WEST)
    with ReplayProcess(settings, home / "replay.log") as running:
        yield running


@pytest.fixture
def east() -> Iterator[ThriftPeer]:
    with ThriftPeer(MemoryPeer(EAST)) as peer:
        yield peer


@pytest.fixture
def north() -> Iterator[ThriftPeer]:
    with ThriftPeer(MemoryPeer(NORTH)) as peer:
        yield peer


def test_without_a_peer_no_jvm_is_started_and_it_stops_when_told_to(tmp_path: Path) -> None:
    settings = new_settings(tmp_path / "cold", "cold")
    write_settings(settings)
    with ReplayProcess(settings, tmp_path / "log", warm=False) as cold:
        assert cold.status()["state"] == "idle"
        assert cold.family() == []
        cold.process.send_signal(signal.SIGTERM)
        assert cold.process.wait(LIMIT_S) == 0
        coordination = open_coordination(settings)
        assert not any(session.alive for session in coordination.sessions("replay"))
        coordination.close()


def test_a_process_that_was_stopped_beyond_its_lease_ends(tmp_path: Path) -> None:
    base = new_settings(tmp_path / "stopped", "stopped")
    lease = {"session_lease_ms": 6_000, "session_renew_ms": 500, "session_margin_ms": 500}
    settings = replace(base, coordination=replace(base.coordination, **lease))
    write_settings(settings)
    with ReplayProcess(settings, tmp_path / "log", warm=False) as stopped:
        stopped.process.send_signal(signal.SIGSTOP)
        coordination = open_coordination(settings)
        assert wait_until(lambda: not any(s.alive for s in coordination.sessions("replay")), LIMIT_S)
        coordination.close()
        stopped.process.send_signal(signal.SIGCONT)
        assert stopped.process.wait(LIMIT_S) == EXIT_BROKEN


def test_ranges_arrive_exactly_and_are_shipped_by_task_processes(
    process: ReplayProcess, logs: Path, east: ThriftPeer
) -> None:
    one, two = wal(logs, "one", 20, 50), wal(logs, "two", 20, 50)
    results = process.run(
        [
            a_range(one, 101, 600, quorum=east.quorum, range_id=1),
            a_range(two, 1, 300, quorum=east.quorum, range_id=2),
            a_range(two, 301, 1000, quorum=east.quorum, range_id=3, finished=0),
        ]
    )
    assert {n: (r.acked_offset, r.records, r.error) for n, r in results.items()} == {
        1: (600, 500, None),
        2: (300, 300, None),
        3: (1000, 700, None),
    }
    assert sorted(east.memory.rows) == sorted(rows(101, 500) + rows(1, 1000))
    assert results[1].acked_position == next(read_blocks(LocalVolume(logs.parent.parent), one, 600, 600)).end_position
    tasks = {member.pid for member in process.family()} - {process.jvm().pid}
    assert {r.pid for r in results.values()} <= tasks
    assert {r.host for r in results.values()} == {socket.gethostname()}
    assert results[2].pid == results[3].pid
    journal = read_journal(process.settings)
    assert sorted((line.first, line.acked, line.sent_records) for line in journal.shipped) == [
        (1, 300, 300),
        (101, 600, 500),
        (301, 1000, 700),
    ]
    assert [line.ranges for line in journal.began] == [3]


def test_only_its_user_reaches_the_sockets_of_the_python_processes(process: ReplayProcess, home: Path) -> None:
    """pyspark's daemon forks a process for each connection, before it asks for a secret."""
    listening = {
        (one.name(), found.laddr)
        for one in [psutil.Process(process.process.pid), *process.family()]
        if one.name().startswith("python") and one.pid != process.process.pid
        for found in one.net_connections("inet")
        if found.status == psutil.CONN_LISTEN
    }
    assert listening == set()
    own = [found for found in psutil.Process(process.process.pid).net_connections("inet") if found.status == "LISTEN"]
    assert len(own) == 1, "its calls, not accumulators"
    scratch = (home / SCRATCH).resolve()
    assert any(path.is_socket() for path in scratch.iterdir())
    assert scratch.stat().st_mode & 0o077 == 0


def test_the_process_that_forks_the_tasks_has_one_thread(process: ReplayProcess) -> None:
    daemons = [child for child in process.jvm().children() if child.status() != psutil.STATUS_ZOMBIE]
    assert [daemon.num_threads() for daemon in daemons] == [1]


def test_the_jvm_maps_the_classes_that_were_prepared(process: ReplayProcess) -> None:
    archive = find_archive(archive_directory(), archive_key())
    if archive is None:
        pytest.skip("NO CLASS ARCHIVE: run `make venv` with a Java installed")
    assert str(archive) in Path(f"/proc/{process.jvm().pid}/maps").read_text()


def test_a_stream_is_never_cut_between_tasks(process: ReplayProcess, logs: Path, east: ThriftPeer) -> None:
    files = [wal(logs, f"w{n}", 10, 10) for n in range(4)]
    ranges = [
        a_range(file, first, first + 9, quorum=east.quorum, range_id=100 * n + first, finished=0, order_key=n)
        for n, file in enumerate(files)
        for first in range(1, 100, 10)
    ]
    results = process.run(ranges)
    assert all(r.error is None for r in results.values())
    for n in range(len(files)):
        assert len({r.pid for range_id, r in results.items() if range_id // 100 == n}) == 1
    assert sorted(east.memory.rows) == sorted(rows(1, 100) * len(files))


def test_a_bad_range_is_a_row_and_the_good_ones_count(process: ReplayProcess, logs: Path, east: ThriftPeer) -> None:
    good, bad = wal(logs, "good", 4, 10), wal(logs, "bad", 4, 10)
    second = list(read_blocks(LocalVolume(logs.parent.parent), bad, 1, 40))[1]
    raw = bytearray((logs / "bad").read_bytes())
    raw[second.end_position - 20] ^= 0xFF
    (logs / "bad").write_bytes(raw)
    results = process.run(
        [
            a_range(good, 1, 40, quorum=east.quorum, range_id=1),
            a_range(bad, 1, 40, quorum=east.quorum, range_id=2),
            a_range("nowhere/w", 1, 40, quorum=east.quorum, range_id=3),
        ]
    )
    assert (results[1].acked_offset, results[1].error) == (40, None)
    assert (results[2].acked_offset, results[2].error and results[2].error.code) == (10, "corruption")
    assert results[3].error is not None
    assert (results[3].error.code, results[3].error.transient) == ("not_found", False)


def test_bytes_that_are_no_ranges_are_refused_and_hurt_nobody(
    process: ReplayProcess, logs: Path, east: ThriftPeer
) -> None:
    with pytest.raises(InvalidInputError):
        process.run_raw(b"garbage")
    file = wal(logs, "w", 1, 10)
    assert process.run([a_range(file, 1, 10, quorum=east.quorum)])[1].error is None


def test_a_hung_peer_and_a_dead_one_delay_no_other(
    process: ReplayProcess, logs: Path, east: ThriftPeer, north: ThriftPeer
) -> None:
    file = wal(logs, "w", 4, 10)
    release, hanging = threading.Event(), threading.Event()

    def hang(_request: ReplicateRequest) -> None:
        hanging.set()
        release.wait(LIMIT_S)

    north.before = hang
    with socket.create_server(("127.0.0.1", 0)) as closed:
        dead_quorum = f"127.0.0.1:{closed.getsockname()[1]}"
    with ThreadPoolExecutor(4) as threads:
        slow = [
            threads.submit(
                process.run, [a_range(file, 1, 40, target=TO_NORTH, instance=NORTH, quorum=north.quorum)], LIMIT_S
            )
            for _ in range(3)
        ]
        assert hanging.wait(LIMIT_S)
        dead = threads.submit(process.run, [a_range(file, 1, 40, quorum=dead_quorum, instance="gone")], LIMIT_S)
        live = process.run([a_range(file, 1, 40, quorum=east.quorum)])
        assert not any(future.done() for future in slow)
        assert live[1].acked_offset == 40
        refused = dead.result(LIMIT_S)[1]
        assert refused.error is not None
        assert refused.error.transient
        release.set()
        assert all(outcome_is_known(future) for future in slow)


def outcome_is_known(future: Future[dict[int, RangeResult]]) -> bool:
    """Finished, or declined because the slots of that peer were all in use."""
    try:
        return bool(future.result(LIMIT_S))
    except BookkeeperError:
        return True


def test_a_task_process_that_is_killed_takes_no_good_range_along(
    process: ReplayProcess, logs: Path, east: ThriftPeer
) -> None:
    files = [wal(logs, f"w{n}", 4, 10) for n in range(2)]
    hanging, release = threading.Event(), threading.Event()

    def hang_once(request: ReplicateRequest) -> None:
        if request.stream.file == files[1] and not hanging.is_set():
            hanging.set()
            release.wait(LIMIT_S)

    east.before = hang_once
    ranges = [a_range(file, 1, 40, quorum=east.quorum, range_id=n) for n, file in enumerate(files)]
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(process.run, ranges)
        assert hanging.wait(LIMIT_S)
        for pid in pids_connected_to(process, east.tservers[0].address):
            os.kill(pid, signal.SIGKILL)
        release.set()
        results = run.result(LIMIT_S)
    assert all(r.acked_offset == 40 or (r.error is not None and r.error.transient) for r in results.values())
    again = process.run([a_range(file, 1, 40, quorum=east.quorum, range_id=n) for n, file in enumerate(files)])
    assert all((r.acked_offset, r.error) == (40, None) for r in again.values())
    assert sorted(east.memory.rows) == sorted(rows(1, 40) * 2)


def pids_connected_to(process: ReplayProcess, address: str) -> list[int]:
    """Task processes with a connection to the address."""
    port = int(address.rpartition(":")[2])
    return [
        member.pid
        for member in process.family()
        if any(tuple(c.raddr)[1:] == (port,) for c in member.net_connections("tcp"))
    ]


@pytest.mark.long
def test_a_real_cluster_takes_each_record_once_though_a_tserver_dies_and_everything_is_sent_again(
    process: ReplayProcess, tmp_path: Path, logs: Path
) -> None:
    with Cluster(tmp_path / "east", "east", tservers=2) as east:
        table = east.client.tables.create("t", splits=[b"000200", b"000300"])
        target = TargetKey("east", table.table_id, "t1", 1)
        file = wal(logs, "w", 40, 10, [target])

        def shipped(first: int, last: int) -> bool:
            instance = east.settings.instance.instance_id
            wanted = a_range(file, first, last, quorum=east.quorum, target=target, instance=instance)
            result = process.run([wanted])[1]
            assert result.error is None or result.error.transient, result.error
            return result.acked_offset == last

        east.wait_until(lambda: shipped(1, 100), "the first range arrives")
        old_pid = east.kill9("tserver1")
        east.wait_until(lambda: shipped(101, 400), "the second range arrives")
        east.wait_restarted("tserver1", old_pid)
        east.wait_until(lambda: shipped(1, 400), "everything is sent again")

        found = [row for batch in east.client.scan("t") for row in batch.column("row").to_pylist()]
        assert found == rows(1, 400)
        values = [value for batch in east.client.scan("t") for value in batch.column("value").to_pylist()]
        assert values == rows(1, 400)


@pytest.mark.long
def test_told_to_stop_with_a_task_under_way_it_says_nothing_and_leaves_no_orphan(
    tmp_path: Path, east: ThriftPeer
) -> None:
    settings = new_settings(tmp_path / "west", "west", instance_id=WEST)
    write_settings(settings)
    log = tmp_path / "log"
    with ReplayProcess(settings, log) as process:
        family, lost = hang_in_a_task(process, wal(tmp_path / "west" / "wal" / "s", "w", 4, 10), east)
        said = log.read_text()
        process.process.send_signal(signal.SIGTERM)
        assert process.process.wait(LIMIT_S) == 0
        assert all_gone(family)
        assert has_failed(lost)
    more = log.read_text().removeprefix(said).splitlines()
    assert [line for line in more if " INFO bookkeeper." not in line] == []


def is_said(process: ReplayProcess, words: str, limit_s: float = LIMIT_S) -> bool:
    """Whether the process says in time what hangs; "" = nothing."""
    return wait_until(lambda: process.status().get("problem", "") == words, limit_s)


def test_a_jvm_that_hangs_is_named_until_it_answers_again(process: ReplayProcess) -> None:
    jvm = process.jvm()
    assert is_said(process, "")
    jvm.suspend()
    try:
        assert is_said(process, f"its JVM (process {jvm.pid}) hangs: it does not answer"), "a hung JVM is silent"
    finally:
        jvm.resume()
    assert is_said(process, "")


def test_a_worker_that_hangs_is_ended_and_not_the_one_that_waits_for_its_peer(
    process: ReplayProcess, logs: Path, east: ThriftPeer, north: ThriftPeer
) -> None:
    files, release = [wal(logs, f"w{n}", 4, 10) for n in range(2)], threading.Event()
    begun = [threading.Event() for _ in files]

    def hang(has_begun: threading.Event, _request: ReplicateRequest) -> None:
        has_begun.set()
        release.wait(LIMIT_S)

    east.before, north.before = partial(hang, begun[0]), partial(hang, begun[1])
    to_east = a_range(files[0], 1, 40, quorum=east.quorum)
    to_north = a_range(files[1], 1, 40, quorum=north.quorum, target=TO_NORTH, instance=NORTH)
    with ThreadPoolExecutor(2) as threads:
        waits = threads.submit(process.run, [to_north])
        hangs = threads.submit(process.run, [to_east])
        try:
            assert all(event.wait(LIMIT_S) for event in begun)
            (stopped,) = pids_connected_to(process, east.tservers[0].address)
            os.kill(stopped, signal.SIGSTOP)
            error = hangs.result(LIMIT_S)[1].error
            assert error is not None
            assert (error.failed_at, error.transient) == ("replay", True)
            assert f"process {stopped}, which ships {files[0]} to east, hung" in error.message
            assert process.status()["problem"] == "", "one worker that hangs keeps nobody else from work"
            assert not waits.done(), "a worker that waits for its peer is ended"
        finally:
            release.set()
        assert waits.result(LIMIT_S)[1].acked_offset == 40
    again = process.run([to_east])[1]
    assert (again.acked_offset, again.error) == (40, None)
    assert (sorted(east.memory.rows), sorted(north.memory.rows)) == (rows(1, 40), rows(1, 40)), "applied twice"


@pytest.mark.long
def test_a_worker_that_is_blocked_is_ended_although_its_other_threads_run(
    process: ReplayProcess, logs: Path, east: ThriftPeer
) -> None:
    """Opening a pipe that nobody writes blocks a thread outside of Python, as a lost disk does."""
    good, blocking = wal(logs, "good", 4, 10), wal(logs, "blocking", 4, 10)
    (logs / "blocking").unlink()
    os.mkfifo(logs / "blocking")
    ranges = [a_range(file, 1, 40, quorum=east.quorum, range_id=n) for n, file in enumerate((good, blocking))]
    found = process.run(ranges)
    error = found[1].error
    assert (found[0].acked_offset, found[0].error) == (40, None)
    assert error is not None
    assert (error.failed_at, error.transient) == ("replay", True)
    assert f"which ships {blocking} to east, hung" in error.message
    assert east.memory.rows == rows(1, 40), "what another worker of the run had shipped is applied twice"


@pytest.mark.long
def test_a_jvm_that_hangs_for_long_ends_with_the_process_and_leaves_no_orphan(tmp_path: Path) -> None:
    settings = new_settings(tmp_path / "west", "west", instance_id=WEST)
    write_settings(settings)
    log = tmp_path / "log"
    with ReplayProcess(settings, log) as process:
        family, jvm = process.family(), process.jvm()
        jvm.suspend()
        assert process.process.wait(JVM_ENDED_MS / 1000 + LIMIT_S) == EXIT_BROKEN
        assert all_gone(family)
    assert f"its JVM (process {jvm.pid}) hangs: it does not answer, and was ended" in log.read_text()


@pytest.mark.long
def test_workers_that_are_stopped_between_tasks_and_their_parent_are_replaced(
    process: ReplayProcess, logs: Path, east: ThriftPeer
) -> None:
    wanted = a_range(wal(logs, "w", 4, 10), 1, 40, quorum=east.quorum)
    python = [one for one in process.family() if one.name().startswith("python")]
    for stopped in python:
        stopped.suspend()
    with ThreadPoolExecutor(1) as threads:
        run = threads.submit(process.run, [wanted])
        assert all_gone(python), "a worker without a task, or the parent of the workers, stays stopped"
        result = run.result(LIMIT_S)[1]
    assert (result.acked_offset, result.error) == (40, None)
    assert east.memory.rows == rows(1, 40)


@pytest.mark.long
def test_killed_with_a_task_under_way_it_leaves_no_orphan_and_the_next_one_goes_on(
    process: ReplayProcess, home: Path, logs: Path, east: ThriftPeer
) -> None:
    file = wal(logs, "w", 4, 10)
    family, lost = hang_in_a_task(process, file, east)
    assert len(family) >= 3
    process.process.send_signal(signal.SIGKILL)
    assert process.process.wait(LIMIT_S) == -signal.SIGKILL
    assert all_gone(family)
    assert has_failed(lost)

    east.before = lambda request: None  # noqa: ARG005 - takes it as it comes
    settings = new_settings(home, "west", instance_id=WEST)
    with ReplayProcess(settings, home / "replay.log") as second:
        assert second.address != process.address
        result = second.run([a_range(file, 1, 40, quorum=east.quorum)])[1]
        assert (result.acked_offset, result.error) == (40, None)
        assert east.memory.rows == rows(1, 40)

        other = wal(logs, "v", 4, 10)  # of the first log it remembers that all of it arrived
        family, lost = hang_in_a_task(second, other, east)
        os.kill(second.jvm().pid, signal.SIGKILL)
        assert second.process.wait(LIMIT_S) == EXIT_BROKEN
        assert all_gone(family)
        assert has_failed(lost)
    assert (home / SCRATCH).exists()


def hang_in_a_task(
    process: ReplayProcess, file: str, peer: ThriftPeer
) -> tuple[list[psutil.Process], Future[RangeResult]]:
    """Let a task wait for an answer that does not come; returns all processes of the replay process, and the future
    outcome of the run.
    """
    hanging = threading.Event()

    def hang(_request: ReplicateRequest) -> None:
        hanging.set()
        threading.Event().wait(5.0)

    peer.before = hang
    caller = ThreadPoolExecutor(1)
    run = caller.submit(lambda: process.run([a_range(file, 1, 40, quorum=peer.quorum)])[1])
    caller.shutdown(wait=False)
    assert hanging.wait(LIMIT_S)
    return process.family(), run


def has_failed(run: Future[RangeResult]) -> bool:
    """The run of a process that was killed: nobody answers, or a process that lost its JVM says so while it ends."""
    error = run.exception(LIMIT_S)
    return isinstance(error, BookkeeperError) if error is not None else run.result().error is not None
