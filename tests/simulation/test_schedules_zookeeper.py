"""Schedules between processes and ZooKeeper: stale reads, lost answers, one-way cuts, machines that are paused.

Each is played as the code is, and with a switch that takes away what protects it. The product's own store runs above
simulated servers (``tests.support.simulation.ensemble``). Rules: R6, R14 and R15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from bookkeeper.coordination.config_changes import set_draining
from bookkeeper.coordination.config_tree import draining_path
from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.errors import ConflictError
from bookkeeper.metadata import keys
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.rpc.contract.messages import WriteBatch, WriteResult
from bookkeeper.storage.wal.blocks.block import encode_batch
from tests.simulation.test_schedules_given_up import GIVEN_UP, OWN_LOGS, rest
from tests.support.faults import fault
from tests.support.simulation.cluster import Cluster, Node
from tests.support.simulation.ensemble import Link
from tests.support.simulation.hosted import Hosted, node_of
from tests.support.simulation.kernel import Kernel, Process, Task, Trap
from tests.support.simulation.network import SimPool
from tests.support.simulation.pair import Pair
from tests.support.simulation.users import PLAIN, Write
from tests.support.simulation.world import LawBrokenError, World, simulation, zookeeper_store
from tests.support.simulation.zookeeper import NoLeases, SimZooKeeper
from tests.support.simulation.zookeeper_accidents import link_of

LATE_USES_MS = 80_000
"""A tserver looks within this time for uses of logs that came when others served the tablet."""

COLLECTED_MS = 3_500
"""Lease, margin, and two runs of the collector."""

LOGS_GO_S = 200.0
"""A log without a record goes within this time after the end of its session."""

LEASE_S = 0.9
MARGIN_S = 0.1


@contextmanager
def played(directory: Path) -> Iterator[World]:
    """A world whose clusters have their stores in ZooKeeper."""
    with simulation(directory / "world") as world:
        world.make_store = zookeeper_store
        yield world


def store_of(cluster: Cluster) -> SimZooKeeper:
    """The cluster's store, as most servers have it."""
    assert isinstance(cluster.coordination, SimZooKeeper)
    return cluster.coordination


def way_of(cluster: Cluster, node: Node) -> Link:
    """The way of a process to its server."""
    link = link_of(cluster, node)
    assert link is not None
    return link


def lose_next(kernel: Kernel, cluster: Cluster, arrives: float) -> Callable[[], None]:
    """From now on transactions get no answer; ``arrives``: whether they are committed. Returns how to end that."""
    quorum = store_of(cluster).quorum
    quorum.loses, quorum.arrives = 1.0, arrives
    kernel.note("no transaction gets an answer")

    def end() -> None:
        quorum.loses = 0.0

    return end


# ---- stale reads


def a_reader_behind_a_server_that_lags(world: World) -> None:
    """A process without a session, such as a command, reads from a server that is cut off from the others and shows no
    renewal of a tserver any more, until the process believes that the lease of that tserver is over.
    """
    pair = Pair(world)
    owner, reader = pair.owner(), Process("reader", "west")
    store, found = store_of(pair.west).of(reader), list[SessionInfo]()

    def read() -> None:
        store.sessions("tserver")
        store.link.lag = 1.0
        world.kernel.wait("sleep", lambda: False, int((LEASE_S + 2 * MARGIN_S) * 1e9))
        found.extend(store.sessions("tserver"))

    task = world.kernel.spawn(reader, "read", read)
    commit = world.until_at("commit Remove alive/", process=reader)
    assert owner.part.session.is_valid()
    world.kernel.step(commit)
    world.until(lambda: task.done, "the sessions")
    assert [info.alive for info in found] == [True]
    pair.rest()


def test_r15_a_reader_behind_a_server_that_lags_ends_no_session_that_is_renewed(tmp_path: Path) -> None:
    with played(tmp_path) as world:
        a_reader_behind_a_server_that_lags(world)


def test_r15_if_it_trusted_what_it_has_read_it_would(tmp_path: Path) -> None:
    red = pytest.raises(LawBrokenError, match=r"R15: session .* counts as dead, and west.t.* counts on its lease")
    with fault("zookeeper-death-at-any-version"), played(tmp_path) as world, red:
        a_reader_behind_a_server_that_lags(world)


def a_candidate_behind_a_server_that_lags(world: World) -> None:
    """The leading master dies, and another one leads. A third one reads from a server that does not know the new
    leader, and wants to lead.
    """
    pair = Pair(world)
    west, kernel = pair.west, world.kernel
    first, second, third = west.masters[0], west.start_master(), west.start_master()
    kernel.run_for(1.0)
    waits, late = world.hold("/main", process=second.process), world.hold("/main", process=third.process)
    west.kill(first)
    store_of(west).end_session(first.part.session.session_id, NoLeases.token)
    link = way_of(west, third)
    link.at, link.lag = store_of(west).quorum.zxid, 1.0
    renewals = world.hold("/lease-", process=third.process)  # one of them would show it the new leader
    kernel.release(waits)
    world.until(lambda: west.leader() is second, "the second one leads")
    kernel.release(late)
    kernel.step(world.until_at("/main: commit", "Write leader", process=third.process))
    kernel.release(renewals)
    wrote = world.put(west, "t", b"a")
    world.until(lambda: west.leader() is not None, "a master leads")
    world.command(west, "add_splits", "t", [b"m"], [])
    pair.rest()
    assert west.leader() is second
    assert wrote[0].value in {entry.value for entry in west.entries("1")}


def test_r1_a_candidate_behind_a_server_that_lags_does_not_lead(tmp_path: Path) -> None:
    with played(tmp_path) as world:
        a_candidate_behind_a_server_that_lags(world)


def test_r1_if_it_trusted_what_it_has_read_two_would_lead_in_one_epoch(tmp_path: Path) -> None:
    red = pytest.raises(LawBrokenError, match=r"R1: sessions .* lead in one epoch")
    with fault("zookeeper-leads-by-a-look"), played(tmp_path) as world, red:
        a_candidate_behind_a_server_that_lags(world)


# ---- answers that are lost


def a_change_whose_answer_is_lost(world: World, arrives: float) -> None:
    """A host is to be drained, and the transaction gets no answer; it was committed, or was not."""
    pair = Pair(world)
    operator, told = Process("operator", "west"), list[str]()
    store = store_of(pair.west).of(operator)

    def drain() -> None:
        try:
            set_draining(store, "h1", True)
        except ConflictError as error:
            told.append(error.message)

    task = world.kernel.spawn(operator, "drain", drain)
    commit = world.until_at("drain: commit", process=operator)
    end = lose_next(world.kernel, pair.west, arrives)
    world.kernel.step(commit)
    end()
    world.until(lambda: task.done, "the end of the change")
    if told:
        raise LawBrokenError(f"a change was made, and its caller is told that it was not: {told}")
    assert store_of(pair.west).tree()[1][draining_path("h1")].version == 1
    pair.rest()


@pytest.mark.parametrize(
    "arrives", [1.0, pytest.param(0.0, marks=pytest.mark.long)], ids=["committed", "not committed"]
)
def test_a_change_whose_answer_is_lost_is_made_once(arrives: float, tmp_path: Path) -> None:
    with played(tmp_path) as world:
        a_change_whose_answer_is_lost(world, arrives)


def test_if_a_lost_answer_counted_as_no_its_caller_would_be_told_so(tmp_path: Path) -> None:
    red = pytest.raises(LawBrokenError, match="a change was made, and its caller is told that it was not")
    with fault("zookeeper-lost-answer-is-no"), played(tmp_path) as world, red:
        a_change_whose_answer_is_lost(world, 1.0)


# ---- one-way cuts


def a_tserver_whose_way_is_cut(world: World, requests: bool, answers: bool) -> None:
    """A tserver can't renew its lease, or can't know whether it has; others serve its tablets."""
    pair = Pair(world, tservers=2)
    owner = pair.owner()
    session, link = owner.part.session, way_of(pair.west, owner)
    first = world.put(pair.west, "t", b"a")
    link.requests, link.answers = requests, answers
    world.until(lambda: store_of(pair.west).is_dead(session.session_id), "the others know that its lease is over")
    assert not session.is_valid()
    world.until(pair.west.is_served, "others serve its tablets")
    second = world.put(pair.west, "t", b"a")
    link.join()
    pair.rest()
    assert {write.value for write in (*first, *second)} <= {entry.value for entry in pair.west.entries("1")}


CUTS = {"requests are lost": (False, True), "answers are lost": (True, False), "both are lost": (False, False)}


ONE_WAY = [pytest.param(cut, marks=[] if cut == "both are lost" else pytest.mark.long) for cut in CUTS]


@pytest.mark.parametrize("cut", ONE_WAY)
def test_r15_a_process_that_is_cut_off_gives_its_lease_up_first(cut: str, tmp_path: Path) -> None:
    with played(tmp_path) as world:
        a_tserver_whose_way_is_cut(world, *CUTS[cut])


def test_r15_if_a_renewal_without_an_answer_counted_it_would_not(tmp_path: Path) -> None:
    red = pytest.raises(LawBrokenError, match=r"R15: session .* counts as dead, and west.t.* counts on its lease")
    with fault("zookeeper-unanswered-renewals-count"), played(tmp_path) as world, red:
        a_tserver_whose_way_is_cut(world, *CUTS["both are lost"])


def an_operation_whose_master_is_cut_off(world: World, step: int, cut: str) -> None:
    """The way of the leading master is cut right behind a step of an operation, until another master leads; that one
    brings the operation to its end.
    """
    pair = Pair(world)
    west, kernel = pair.west, world.kernel
    west.start_master()
    kernel.run_for(0.6)
    master = west.leader()
    assert master is not None
    link = way_of(west, master)

    def sever(_task: Task) -> None:
        link.requests, link.answers = CUTS[cut]
        kernel.note(f"cut: {cut}")

    steps_of_operations = partial(is_of, master, "fate-")
    kernel.traps.append(Trap(steps_of_operations, step, True, sever))
    world.ask(west, "enable_replication", "t", [], "east", "")
    world.until(lambda: not link.is_whole, "the cut")
    world.until(lambda: west.leader() not in (master, None), "another master leads")
    link.join()
    world.until(lambda: bool(west.targets()), "the target is made")
    pair.rest()
    wrote = world.put(west, "t", b"a")
    pair.rest()
    pair.must_be_there(wrote)


def is_of(node: Node, thread: str, task: Task) -> bool:
    """Whether a task is one of the threads of a process."""
    return task.process is node.process and task.name.startswith(thread)


@pytest.mark.long
@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("step", range(1, 16))
def test_r14_an_operation_whose_master_is_cut_off_is_brought_to_its_end(step: int, cut: str, tmp_path: Path) -> None:
    with played(tmp_path) as world:
        an_operation_whose_master_is_cut_off(world, step, cut)


# ---- machines that are paused


def a_paused_machine_appends(world: World, meanwhile: Callable[[World, Pair, Node], None]) -> None:
    """A machine is paused in the middle of a write, and its clock stands still; it goes on when ``meanwhile`` is over,
    and still counts on its lease.
    """
    pair = Pair(world, tservers=2)
    zombie, kernel = pair.owner(), world.kernel
    append = world.hold("/commit-", ": append", process=zombie.process)
    renewals = world.hold("/lease-", process=zombie.process)
    _, wrote = world.write(pair.west, "t", [b"a"], timeout_ms=LOGS_GO_S * 1_000)
    world.until_at("/commit-", ": append", process=zombie.process)
    kernel.pause_machine(zombie.process)
    meanwhile(world, pair, zombie)
    kernel.resume(zombie.process)
    assert zombie.part.session.is_valid(), "its clock went on"
    kernel.release(append)
    world.until(lambda: wrote[0].state != "pending" or zombie.process.dead, "the write has an end")
    kernel.release(renewals)
    pair.rest()


def others_serve(world: World, pair: Pair, zombie: Node) -> None:
    """Return when another tserver serves the tablet."""
    extent = pair.west.extents("1")[0]
    world.until(lambda: pair.west.holder(extent) not in (None, zombie), "another tserver serves it")


def its_log_goes(world: World, pair: Pair, zombie: Node) -> None:
    """Return when the collector has deleted its log, of which no record is needed, with its fence and its seal."""
    logs, volume = f"wal/{zombie.part.session.session_id}/", pair.west.volume
    assert volume.list_names(logs)
    world.until(lambda: not volume.list_names(logs), "its log is deleted", limit_s=LOGS_GO_S)


def test_r15_a_machine_that_was_paused_acknowledges_nothing(tmp_path: Path) -> None:
    with played(tmp_path) as world:
        a_paused_machine_appends(world, others_serve)


def test_r15_without_the_fence_it_would(tmp_path: Path) -> None:
    red = pytest.raises(LawBrokenError, match="lost: Write")
    with fault("no-fence"), played(tmp_path) as world, red:
        a_paused_machine_appends(world, others_serve)


def test_r15_a_machine_that_was_paused_acknowledges_nothing_in_a_log_that_is_gone(tmp_path: Path) -> None:
    with played(tmp_path) as world:
        a_paused_machine_appends(world, its_log_goes)


def test_r15_if_only_fences_and_seals_counted_it_would(tmp_path: Path) -> None:
    red = pytest.raises(LawBrokenError, match="lost: Write")
    with fault("deleted-logs-are-written"), played(tmp_path) as world, red:
        a_paused_machine_appends(world, its_log_goes)


def a_paused_machine_begins_to_use_a_log(world: World) -> None:
    """A machine is paused right before its first use of a log, and its clock stands still. Its session is over, but its
    log, which nothing names yet, is not recovered, when it goes on.
    """
    pair = Pair(world, tservers=2)
    zombie, kernel = pair.owner(), world.kernel
    use = world.hold("/commit-", " log:", process=zombie.process)
    renewals = world.hold("/lease-", process=zombie.process)
    recovery = world.hold("/recovery")
    _, wrote = world.write(pair.west, "t", [b"a"])
    world.until_at("/commit-", " log:", process=zombie.process)
    kernel.pause_machine(zombie.process)
    collected_ns = kernel.now_ns + COLLECTED_MS * 1_000_000
    world.until(lambda: bool(pair.west.marks()) or kernel.now_ns > collected_ns, "the collector has seen it")
    kernel.resume(zombie.process)
    assert zombie.part.session.is_valid(), "its clock went on"
    kernel.release(use)
    world.until(lambda: wrote[0].state != "pending" or zombie.process.dead, "the write has an end")
    world.let_pass(COLLECTED_MS)
    for held in (recovery, renewals):
        kernel.release(held)
    pair.rest()


def test_r17_a_log_of_a_dead_session_goes_when_it_is_recovered(tmp_path: Path) -> None:
    with played(tmp_path) as world:
        a_paused_machine_begins_to_use_a_log(world)


def test_r17_if_it_went_unsealed_an_acknowledged_write_would_be_lost(tmp_path: Path) -> None:
    red = pytest.raises(LawBrokenError, match="lost: Write")
    with fault("logs-of-the-dead-go-unsealed"), played(tmp_path) as world, red:
        a_paused_machine_begins_to_use_a_log(world)


def a_paused_host_begins_to_use_its_own_log(world: World) -> None:
    """The log lies on the disk of the machine that is paused, so nobody can fence it. All of it is named, and another
    host leads. A client that knows the old place writes when the machine goes on: the next leader has read the row, and
    knows of no use of that log.
    """
    hosted = Hosted(world, properties=GIVEN_UP, settings=OWN_LOGS)
    hosted.replicate_to("east")
    values = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    first, kernel = hosted.leader, world.kernel
    address, session, extent = node_of(first).part.address, node_of(first).part.session_id.encode(), hosted.extent

    def is_used() -> bool:
        row = hosted.west.table.row(keys.tablet_row(extent.table_id, extent.end_row), ("log",))
        return row is not None and any(session in name for name in row.family("log"))

    world.until(lambda: not is_used(), "the row names the log no more")
    # Each of these threads would find out that the lease is over, before the write comes.
    asks = [world.hold(thread, process=first.process) for thread in ("/lease-", "/server times", "/namer")]
    kernel.pause_machine(first.process)
    hosted.until_led_by_another(first)
    values += hosted.put(b"b", b"c")
    kernel.resume(first.process)
    late, told = Write("west", "t", b"b", PLAIN, b"q", b"late", False, "sync", extent.table_id), list[WriteResult]()
    world.writes.append(late)
    batch = encode_batch(pa.RecordBatch.from_pylist([late.mutation(None)], schema=MUTATION_SCHEMA)).to_pybytes()

    def write(pool: SimPool) -> None:
        told.append(pool.tserver(address, 3_000).write([WriteBatch(extent, batch)], "sync", "", 0))

    task = world.client(hosted.west, "late write", write)
    world.until(lambda: task.done, "the write has an end")
    late.state = "acked" if told else "unknown"
    for held in asks:
        kernel.release(held)
    world.until(lambda: not first.is_up, "it knows that its lease is over")
    first.start()
    kernel.run_for(2.0)
    world.let_pass(LATE_USES_MS)
    kernel.run_for(2.0)
    if not told and is_used():
        raise LawBrokenError("R4: the late use of a log that was given up stays")
    rest(hosted, [*values, *([late.value] if told else [])])


def a_paused_host_lets_its_own_log_go(world: World) -> None:
    """A leader is about to name a state, and its machine is paused. Another host leads without the log of the leader,
    whose records come later. The machine goes on: its state counts no more, and the log is needed.
    """
    hosted = Hosted(world, properties=GIVEN_UP, settings=OWN_LOGS)
    hosted.replicate_to("east")
    values = hosted.put(b"a")
    hosted.flush()
    hosted.until_same()
    values += hosted.put(b"b")
    first, kernel = hosted.leader, world.kernel
    naming = world.hold("/namer: put", process=first.process)
    hosted.begin_flush()
    world.until_at("/namer: put", process=first.process)
    renewals = world.hold("/lease-", process=first.process)
    kernel.pause_machine(first.process)
    hosted.until_led_by_another(first)
    second = hosted.leader
    kernel.resume(first.process)
    kernel.release(naming)
    kernel.run_for(0.5)
    second.kill(power=True)
    kernel.release(renewals)
    world.until(lambda: not first.is_up, "it knows that its lease is over")
    hosted.until_led_by_another(second)
    first.start()
    second.start()
    rest(hosted, values)


PAUSED = {
    a_paused_host_begins_to_use_its_own_log: "paused-hosts-begin-to-use-logs",
    a_paused_host_lets_its_own_log_go: "paused-hosts-let-logs-go",
}


@pytest.mark.parametrize("play", PAUSED, ids=lambda play: play.__name__)
def test_r15_a_paused_host_with_its_own_log_loses_nothing(play: Callable[[World], None], tmp_path: Path) -> None:
    with played(tmp_path) as world:
        play(world)


@pytest.mark.parametrize(("play", "switch"), PAUSED.items(), ids=PAUSED.values())
def test_r15_if_it_asked_nobody_it_would(play: Callable[[World], None], switch: str, tmp_path: Path) -> None:
    red = pytest.raises(LawBrokenError, match=r"N6: \[\] are applied twice, \[b'.*'\] are lost")
    with fault(switch), played(tmp_path) as world, red:
        play(world)


@pytest.mark.long
def test_r4_if_late_uses_of_given_up_logs_were_left_alone_one_would_stay(tmp_path: Path) -> None:
    red = pytest.raises(LawBrokenError, match="R4: the late use of a log that was given up stays")
    with fault("late-uses-of-given-up-logs-stay"), played(tmp_path) as world, red:
        a_paused_host_begins_to_use_its_own_log(world)
