"""Each state of a peer has its cause in ``replication why`` within five seconds, and the printed step ends the wait.

West is a cluster of real processes; its peer north is a cluster of this test, with secrets of its own.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from bookkeeper.client import Mutation
from bookkeeper.errors import UnauthorizedError
from bookkeeper.peers.parquet.layout import IDENTITY_FILE
from bookkeeper.replay.journal import read_journal
from bookkeeper.replay.spark.spark_session import SCRATCH
from bookkeeper.storage.volume.opening import open_volume
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.storage.wal.reading.log_formats import BlockAt
from bookkeeper.storage.wal.writing.seal import SEAL_SUFFIX
from bookkeeper.storage.wal.writing.wal_writer import RESERVED_BYTES
from shell.failures import ExitCode
from tests.support.asked_why import (
    NAMED_S,
    Report,
    ask,
    cause_of,
    command_words,
    execute,
    later_steps,
    running,
    until_drained,
)
from tests.support.cluster import Cluster, standalone_command
from tests.support.directory_peer import DirectoryPeer
from tests.support.locked_database import locked_by_another
from tests.support.operated_peer import OperatedPeer
from tests.support.replay_process import all_gone, until_warm
from tests.support.shell import quick
from tests.support.small_disk import NoMountError
from tests.support.standstill import stand_still
from tests.support.time_limit import TimeLimit
from tests.support.tservers import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

HUNG_S = 60.0
"""Limit until a process that hangs is named."""
PAIRS_MAX = 20

ROUND_BYTES, ROUNDS = 8 << 20, 9
"""Of each row in turn, all versions but the last one are room that a compaction makes."""


@pytest.fixture(scope="module")
def peer(west: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatedPeer]:
    made = OperatedPeer(west, tmp_path_factory.mktemp("why"))
    made.make_secret()
    made.define()
    yield made
    for target in west.client.replication.config():
        if target.target.cluster == "north":
            west.client.replication.disable(target.table, "north")
    west.client.replication.delete_cluster("north", made.north.quorum)
    made.stop()


def replicated(peer: OperatedPeer, table: str) -> None:
    """A table of both clusters, with a row that has arrived."""
    for client in (peer.west.client, peer.north.client):
        client.tables.create(table)
    wait_until(lambda: is_enabled(peer, table), "the peer has read its changed secrets")
    put(peer, table, b"first")
    assert not peer.west.client.replication.wait(table)


def is_enabled(peer: OperatedPeer, table: str) -> bool:
    try:
        peer.west.client.replication.enable(table, "north")
    except UnauthorizedError:
        return False
    return True


def put(peer: OperatedPeer, table: str, row: bytes, value: bytes = b"v") -> None:
    write(peer.west, table, row, value)


def write(cluster: Cluster, table: str, row: bytes, value: bytes = b"v") -> None:
    with cluster.client.writer(table) as writer:
        writer.add(Mutation(row).put(b"f", b"q", value))


def rows(peer: OperatedPeer, table: str) -> set[bytes]:
    return {cell.row for cell in peer.north.client.scan(table).cells()}


def test_nothing_waits_and_a_table_without_a_peer_is_not_replicated(peer: OperatedPeer, west: Cluster) -> None:
    replicated(peer, "why-done")
    until_drained(west.directory, "why-done")
    said = quick("shell", str(west.directory), "replication", "why", "why-done")
    assert (said.code, said.out) == (ExitCode.OK, "nothing waits: why-done to north\n")
    waited = quick("shell", str(west.directory), "replication", "wait", "why-done")
    assert (waited.code, waited.out) == (ExitCode.OK, "table why-done is replicated to north\n")
    west.client.replication.disable("why-done", "north")
    waited = quick("shell", str(west.directory), "replication", "wait", "why-done")
    assert waited.code == ExitCode.FAILED
    assert "enablereplication -t why-done --all-loc-groups CLUSTER" in waited.err
    said = quick("shell", str(west.directory), "replication", "why", "why-done")
    assert "nothing of why-done is replicated" in said.out


@pytest.mark.long
def test_books_that_another_process_keeps_locked(peer: OperatedPeer, west: Cluster) -> None:
    replicated(peer, "why-books")
    with locked_by_another(west.directory / "metadata.db", "BEGIN EXCLUSIVE") as holder:
        put(peer, "why-books", b"second")
        cause = cause_of(west.directory, "why-books", "no_books")
        assert f": process {holder} (" in cause["text"]
        (check,) = execute(cause["steps"], peer.places)
        assert (check.code, f"process {holder} " in check.out) == (ExitCode.FAILED, True), check
    (check,) = execute(cause["steps"], peer.places)
    assert check.code == ExitCode.OK
    until_drained(west.directory, "why-books")
    assert rows(peer, "why-books") == {b"first", b"second"}


def spark_of(west: Cluster) -> list[psutil.Process]:
    """The JVM of the replay process, and its Python processes."""
    (jvm,) = (one for one in psutil.Process(west.pid("replay")).children() if one.name() == "java")
    return [jvm, *jvm.children(recursive=True)]


@pytest.mark.long
def test_a_hung_jvm_is_named_before_its_peer(peer: OperatedPeer, west: Cluster) -> None:
    replicated(peer, "why-hung")
    jvm, *workers = spark_of(west)
    hung = [jvm, *workers]  # a task that follows goes on without the JVM
    for one in hung:
        one.suspend()
    try:
        put(peer, "why-hung", b"second")
        cause = cause_of(west.directory, "why-hung", "no_replay", HUNG_S)
        assert f"its JVM (process {jvm.pid}) hangs" in cause["text"]
        assert [answer.code for answer in execute(cause["steps"], peer.places)] == [0]
    finally:
        for one in hung:
            with suppress(psutil.NoSuchProcess):
                one.resume()
    until_drained(west.directory, "why-hung")
    assert b"second" in rows(peer, "why-hung")


def test_a_table_that_the_secret_does_not_open(peer: OperatedPeer, west: Cluster) -> None:
    replicated(peer, "why-shut")
    peer.store.change_rights("west", lambda found: replace(found, tables=("another",), all_tables=False))
    wait_until(lambda: is_refused(peer, "why-shut"), "the peer has read its changed secrets")
    cause = cause_of(west.directory, "why-shut", "table_refused")
    assert cause["needs_person"]
    assert ask(west.directory, "north")[0] == ExitCode.NEEDS_PERSON
    execute(cause["steps"], peer.places)
    until_drained(west.directory, "why-shut")
    peer.make_secret()


def is_refused(peer: OperatedPeer, table: str) -> bool:
    """Write a row; whether the peer refuses the table by now: it reads its secrets once a second."""
    put(peer, table, b"more")
    return any(status.lag_records and status.last_error for status in peer.west.client.replication.status(table))


def test_a_secret_that_is_not_known_any_more(peer: OperatedPeer, west: Cluster) -> None:
    replicated(peer, "why-secret")
    peer.store.renew("west")
    peer.store.forget("west")
    wait_until(lambda: is_refused(peer, "why-secret"), "the peer has read its secrets")
    put(peer, "why-secret", b"second")
    cause = cause_of(west.directory, "why-secret", "secret_refused")
    there, here = cause["steps"]
    execute([there], peer.places)
    peer.hand_over()
    execute([here], peer.places)
    until_drained(west.directory, "why-secret")
    assert rows(peer, "why-secret") == {b"first", b"more", b"second"}


@pytest.mark.parametrize("made_anew", [False, True], ids=["deleted", "made-anew"])
def test_a_table_that_was_deleted_at_the_peer_or_made_anew(peer: OperatedPeer, west: Cluster, made_anew: bool) -> None:
    table = f"why-gone-{int(made_anew)}"
    replicated(peer, table)
    peer.north.client.tables.delete(table)
    if made_anew:
        peer.north.client.tables.create(table)
    put(peer, table, b"second")
    cause = cause_of(west.directory, table, "table_gone")
    assert "needs help" not in cause["text"]
    codes = [answer.code for answer in execute(cause["steps"], peer.places)]
    assert codes == [ExitCode.FAILED if made_anew else ExitCode.OK, ExitCode.OK, ExitCode.OK]
    until_drained(west.directory, table)
    put(peer, table, b"third")
    assert not west.client.replication.wait(table)
    assert rows(peer, table) == {b"third"}


def test_a_record_that_the_peer_refuses_and_then_its_quarantine(peer: OperatedPeer, west: Cluster) -> None:
    replicated(peer, "why-large")
    put(peer, "why-large", b"large", b"x" * 2_000)
    put(peer, "why-large", b"small")
    cause = cause_of(west.directory, "why-large", "refused_record")
    wait_until(lambda: needs_person(west, "why-large"), "the last try")
    execute(cause["steps"], peer.places)
    wait_until(lambda: rows(peer, "why-large") == {b"first", b"small"}, "the queue goes on")
    held = cause_of(west.directory, "why-large", "quarantined")
    code, report = ask(west.directory, held["file"])
    assert code == ExitCode.NEEDS_PERSON
    assert "quarantine" in {reason["kind"] for reason in report["file"]["reasons"]}
    peer.north.replace_tserver(value_bytes_max=10_000)
    execute(held["steps"], peer.places)
    until_drained(west.directory, "why-large")
    assert rows(peer, "why-large") == {b"first", b"small", b"large"}


@pytest.mark.long
def test_a_replay_process_without_its_scratch_directory_starts_anew(peer: OperatedPeer, west: Cluster) -> None:
    replicated(peer, "why-scratch")
    before = west.pid("replay")
    shutil.rmtree((west.directory / SCRATCH).resolve())
    for worker in spark_of(west)[1:]:  # a task that follows goes on without the directory
        worker.kill()
    put(peer, "why-scratch", b"second")
    cause = cause_of(west.directory, "why-scratch", "replay_fails")
    assert cause["steps"] == [], "nothing to do: it starts anew"

    def is_shown() -> bool:
        (shown,) = execute(later_steps(west, cause), peer.places)
        return (shown.code, SCRATCH in shown.out) == (0, True)

    wait_until(is_shown, "the log of the replay process says why")
    until_drained(west.directory, "why-scratch")
    assert west.pid("replay") != before
    assert rows(peer, "why-scratch") == {b"first", b"second"}


def test_a_log_of_a_dead_tablet_server_is_unsealed_until_it_can_be_sealed(peer: OperatedPeer, west: Cluster) -> None:
    replicated(peer, "why-unsealed")
    log = log_of(west, "why-unsealed")
    seal = west.directory / f"{log}{SEAL_SUFFIX}"
    seal.mkdir()  # no file can be made there
    west.kill9(role_of(west, log))
    cause = cause_of(west.directory, log, "unsealed")
    assert (cause["needs_person"], cause["steps"]) == (False, [])
    seal.rmdir()
    until_drained(west.directory, "why-unsealed")


def log_of(west: Cluster, table: str) -> str:
    """The log that has the records of a table."""
    (status,) = west.client.replication.status(table)
    return status.file


def role_of(west: Cluster, log: str) -> str:
    """The tserver of west that writes a log: it has the file open."""
    path = west.directory / log

    def is_it(descriptor: Path) -> bool:
        with suppress(OSError):  # it was closed meanwhile
            return descriptor.samefile(path)
        return False

    return next(
        role
        for role in ("tserver1", "tserver2")
        if any(is_it(each) for each in Path(f"/proc/{west.pid(role)}/fd").iterdir())
    )


@contextmanager
def without_master(west: Cluster) -> Iterator[None]:
    """The master stands still inside the block, and so does its supervisor, which would replace it."""
    master = psutil.Process(west.pid("master"))
    supervisor = master.parent()
    assert supervisor is not None
    supervisor.suspend()
    try:
        stand_still(master.pid, west.settings)
        yield
    finally:
        master.resume()
        supervisor.resume()


def test_a_peer_that_is_busy_and_is_not_any_more(peer: OperatedPeer, west: Cluster) -> None:
    tables = "why-busy-1", "why-busy-2"
    for table in tables:
        replicated(peer, table)
    peer.north.replace_tserver(streams_max=1)
    for table in tables:  # a stream of each table, and north has room for one
        put(peer, table, b"second")
    cause = cause_of(west.directory, "north", "peer_busy")
    assert (cause["needs_person"], cause["steps"]) == (False, [])
    said = quick("shell", str(west.directory), "replication", "why", "north").out
    assert "next: nothing to do; it tries again in " in said
    (shown,) = execute(later_steps(west, cause), peer.places)
    assert (shown.code, "served" in shown.out) == (ExitCode.OK, True), shown
    peer.north.replace_tserver()
    for table in tables:
        until_drained(west.directory, table)
        assert rows(peer, table) == {b"first", b"second"}


@pytest.mark.long
def test_a_directory_peer_whose_identity_is_damaged(west: Cluster, tmp_path: Path) -> None:
    lake, quorum = DirectoryPeer(tmp_path / "lake"), f"parquet://{tmp_path / 'lake'}"
    west.client.tables.create("why-lake")
    west.client.replication.define_cluster("lake", quorum)
    west.client.replication.enable("why-lake", "lake")
    try:
        identity = lake.root / IDENTITY_FILE
        whole = identity.read_bytes()
        identity.write_bytes(whole[:5])
        write(west, "why-lake", b"first")  # its stream begins with a look at the identity
        cause = cause_of(west.directory, "why-lake", "peer_refuses")
        assert IDENTITY_FILE in cause["text"]
        (look,) = execute(cause["steps"], {None: tmp_path})
        assert (look.code, IDENTITY_FILE in look.err) == (ExitCode.FAILED, True), look
        identity.write_bytes(whole)
        (look,) = execute(cause["steps"], {None: tmp_path})
        assert look.code == ExitCode.OK, look
        until_drained(west.directory, "why-lake")
        assert lake.rows == [b"first"]
    finally:
        west.client.replication.disable("why-lake", "lake")
        west.client.replication.delete_cluster("lake", quorum)


@pytest.mark.long
def test_a_peer_whose_master_answers_and_that_has_no_tablet_server(peer: OperatedPeer, west: Cluster) -> None:
    replicated(peer, "why-master")
    peer.north.tserver.stop()
    try:
        put(peer, "why-master", b"second")
        wait_until(lambda: "no tablet server of north is alive" in unreachable(west, "why-master")["text"], "its words")
        (step,) = unreachable(west, "why-master")["steps"]
        assert step["at"] == "north"
        with running(command_words(step["command"]), peer.places["north"]):
            until_drained(west.directory, "why-master")
            assert rows(peer, "why-master") == {b"first", b"second"}
    finally:
        peer.north.start_tserver()


def needs_person(west: Cluster, table: str) -> bool:
    """Whether a person is needed by now."""
    return ask(west.directory, table)[0] == ExitCode.NEEDS_PERSON


def unreachable(west: Cluster, table: str) -> Report:
    """The cause of a table whose peer is unreachable."""
    return cause_of(west.directory, table, "peer_unreachable")


def test_a_damaged_log_is_sealed_beside_the_running_cluster(peer: OperatedPeer, west: Cluster) -> None:
    """Nothing proves that the damaged block was synced: the writes ask for durability ``flush``."""
    for client in (west.client, peer.north.client):
        client.tables.create("why-damaged", properties={"table.durability": "flush"})
    west.client.replication.enable("why-damaged", "north")
    write(west, "why-damaged", b"first")
    assert not west.client.replication.wait("why-damaged")
    peer.north.tserver.stop()  # nothing of what is damaged is finished then
    try:
        log = log_of(west, "why-damaged")
        before, damaged = unproven_block(west, "why-damaged", log)
        with without_master(west):  # it would seal the log at once
            west.kill9(role_of(west, log))
            flip(west.directory / log, damaged.position + 20)
        cause = cause_of(west.directory, log, "damaged")
        assert cause["needs_person"]
        (sealed,) = execute(cause["steps"], peer.places)
        assert (sealed.code, f"{log} ends with record " in sealed.out) == (ExitCode.OK, True), sealed
    finally:
        peer.north.start_tserver()
    until_drained(west.directory, "why-damaged")
    kept = {b"first", *before}
    assert {cell.row for cell in west.client.scan("why-damaged").cells()} == kept
    # A task that had read a block before it was damaged may send it: then the peer has more rows than these.
    assert kept <= rows(peer, "why-damaged")


def unproven_block(west: Cluster, table: str, log: str) -> tuple[list[bytes], BlockAt]:
    """Writes rows; returns all of them but the last two, and the block of the last but one. That block was not synced
    when the last one was written: a log is synced now and then, and the frame of a block says up to where it was.
    """
    before: list[bytes] = []
    for number in range(PAIRS_MAX):
        pair = [b"%d-%s" % (number, half) for half in (b"one", b"other")]
        for row in pair:
            write(west, table, row)
        *_, block, last = read_headers(open_volume(west.settings), log)
        said = last.position + 12
        if int.from_bytes((west.directory / log).read_bytes()[said : said + 8], "little") <= block.position:
            return before, block
        before += pair
    raise AssertionError(f"{log} is synced behind each of {PAIRS_MAX} blocks")


def flip(path: Path, position: int) -> None:
    """Flip a bit of a file."""
    raw = bytearray(path.read_bytes())
    raw[position] ^= 1
    path.write_bytes(raw)


@pytest.mark.long
def test_a_peer_without_room(peer: OperatedPeer, west: Cluster) -> None:
    """Old versions and another program's file fill the peer's disk beyond what its log leaves free."""
    if isinstance(peer.disk, NoMountError):
        pytest.skip(str(peer.disk))
    reserve = peer.north.settings.tserver.disk_reserve_bytes
    replicated(peer, "why-full")
    peer.north.client.tables.change_properties("why-full", {"table.compaction.ratio": "1000"})  # old versions stay
    for _ in range(ROUNDS):
        put_round(west, ROUND_BYTES)
        until_drained(west.directory, "why-full")
        peer.north.client.tables.flush("why-full")
    limit, report = TimeLimit(NAMED_S), ask(west.directory, "why-full")[1]
    while not [one for one in report["causes"] if one["kind"] == "peer_full"]:
        assert not limit.is_over(), report
        peer.disk.fill(leave_bytes=reserve - ROUND_BYTES)  # logs that nobody needs any more may have made room again
        if not report["causes"]:
            put_round(west, 3 * RESERVED_BYTES)  # a part of it finds room that the peer's log has reserved before
        report = ask(west.directory, "why-full")[1]
    cause = cause_of(west.directory, "why-full", "peer_full")
    code, report = ask(west.directory, cause["file"])
    assert code == ExitCode.NEEDS_PERSON
    (lack,) = [one for one in report["file"]["targets"] if one["table"] == "why-full"]
    assert (lack["cluster"], lack["kind"], lack["records"] > 0) == ("north", "peer_full", True)
    assert lack["first"] <= lack["last"]
    assert report["file"]["bytes"] > 0
    answers = execute(cause["steps"], peer.places)
    assert [answer.code for answer in answers] == [ExitCode.OK], answers
    until_drained(west.directory, "why-full")


def put_round(west: Cluster, size: int) -> None:
    """The same rows, each with a new value."""
    with west.client.writer("why-full") as writer:
        for number in range(size // 1_000):
            writer.add(Mutation(b"%06d" % number).put(b"f", b"q", os.urandom(1_000)))


@pytest.mark.long
def test_records_that_a_damaged_log_has_lost(peer: OperatedPeer, west: Cluster) -> None:
    """A bit of a log flips after its tablet server died, and before the peer has all of it."""
    replicated(peer, "why-flipped")
    log = log_of(west, "why-flipped")
    *_, arrived = read_headers(open_volume(west.settings), log)
    peer.north.tserver.stop()
    try:
        put(peer, "why-flipped", b"second")
        role = role_of(west, log)
        west.wait_restarted(role, west.kill9(role))
        west.client.tables.flush("why-flipped")  # no tablet needs the log then
        wait_until(lambda: (west.directory / f"{log}{SEAL_SUFFIX}").is_file(), "the end of the log is known")
        flip(west.directory / log, arrived.end_position + 20)
        below = psutil.Process(west.pid("replay")).children(recursive=True)
        west.wait_restarted("replay", west.kill9("replay"))  # a run under way has the record in its memory,
        assert all_gone(below), "a task of the killed process goes on"  # and its tasks end some time after it
        until_warm(west.settings)
    finally:
        peer.north.start_tserver()
    put(peer, "why-flipped", b"third")
    cause = cause_of(west.directory, "why-flipped", "damaged")
    wait_until(lambda: needs_person(west, "why-flipped"), "the last try")
    execute(cause["steps"], peer.places)
    held = cause_of(west.directory, "why-flipped", "quarantined")
    assert [answer.code for answer in execute(held["steps"], peer.places)] == [ExitCode.OK]
    until_drained(west.directory, "why-flipped")
    assert rows(peer, "why-flipped") == {b"first", b"third"}


@pytest.mark.long
def test_a_peer_from_a_backup_that_is_younger_than_the_last_check_in(peer: OperatedPeer, west: Cluster) -> None:
    """West's master stands still, so the copy of north has the number of the last check-in."""
    replicated(peer, "why-older")
    place, copy = peer.north.directory, peer.here / "copy"
    with west.client.writer("why-older") as writer:

        def write_on(row: bytes) -> None:
            writer.add(Mutation(row).put(b"f", b"q", b"v"))
            writer.flush()
            wait_until(lambda: row in rows(peer, "why-older"), "it arrives")

        write_on(b"before")
        log = log_of(west, "why-older")
        before = acknowledged(west, log)
        with without_master(west):
            peer.end_processes()
            shutil.copytree(place, copy)
            peer.start_again()
            write_on(b"lost")
            wait_until(lambda: acknowledged(west, log) > before, "west has the acknowledgement")
            peer.end_processes()
            for entry in place.iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            shutil.copytree(copy, place, dirs_exist_ok=True)
            peer.start_again()
            write_on(b"after")
    assert rows(peer, "why-older") == {b"first", b"before", b"after"}
    cause = cause_of(west.directory, "why-older", "peer_older")
    assert cause["needs_person"]
    answers = execute(cause["steps"], peer.places)
    assert [answer.code for answer in answers] == [ExitCode.OK] * len(answers), answers
    until_drained(west.directory, "why-older")


def acknowledged(west: Cluster, log: str) -> int:
    """The last record of a log that north has acknowledged, by the journal of west's replay process."""
    return max(line.acked for line in read_journal(west.settings).shipped if line.file == log)


@pytest.mark.long
def test_another_cluster_at_the_address_and_then_nobody(peer: OperatedPeer, west: Cluster) -> None:
    """The last test of this file: north is another cluster afterwards."""
    for target in west.client.replication.config():
        if target.target.cluster == "north":
            west.client.replication.disable(target.table, "north")
    replicated(peer, "why-other")
    peer.replace_by_another()
    put(peer, "why-other", b"second")
    cause = cause_of(west.directory, "why-other", "other_instance")
    peer.make_secret()
    peer.north.client.tables.create("why-other")
    answers = execute(cause["steps"], peer.places)
    assert [answer.code for answer in answers] == [ExitCode.OK] * 4, answers
    until_drained(west.directory, "why-other")
    peer.stop()
    put(peer, "why-other", b"third")
    cause = cause_of(west.directory, "why-other", "peer_unreachable")
    (step,) = cause["steps"]
    with running(command_words(step["command"]), peer.north.directory):
        until_drained(west.directory, "why-other")
    with running(older_version(peer), peer.north.directory):
        wait_until(lambda: answers_at(peer.north.quorum), "the older version runs")
        put(peer, "why-other", b"fourth")
        cause = cause_of(west.directory, "why-other", "other_version")
        assert "speaks protocol" in cause["text"]
    check, start = cause["steps"]
    assert [answer.code for answer in execute([check], peer.places)] == [ExitCode.OK]
    with running(command_words(start["command"]), peer.north.directory):
        until_drained(west.directory, "why-other")


def answers_at(quorum: str) -> bool:
    """Whether a process listens at an address."""
    host, _, port = quorum.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True


def older_version(peer: OperatedPeer) -> list[str]:
    """The command that runs north with processes of the protocol before this one."""
    place = peer.here / "older"
    place.mkdir()
    (place / "sitecustomize.py").write_text(
        "from bookkeeper.rpc.contract import messages\nmessages.PROTOCOL_VERSION -= 1\n"
    )
    return standalone_command(peer.north.directory, {"PYTHONPATH": str(place)})
