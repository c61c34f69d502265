"""Accidents: processes that die, stop or are believed dead, slow threads, a bad network, silent stores.

Each takes the stage and random numbers. Whatever lasts, lasts until :func:`relief` or the end of the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tests.support.simulation.cluster import Cluster, Node
from tests.support.simulation.kernel import Trap
from tests.support.simulation.network import REPEATED, Net, once
from tests.support.simulation.stage import Stage
from tests.support.simulation.world import nobody

SLOW_MAX = 3
"""Calls or threads that are held at once."""

LATE_MAX_NS = 2_500_000_000
"""How late a request arrives at most: less than the peer's grace, in which it keeps what tells repeats (R20)."""

THREADS = {
    "t": (
        *("commit", "rpc-replicate", "rpc-apply_replicated") * 2,
        *("books", "rpc-write", "replication-") * 2,
        "flusher",
        "received-index",
        "rpc-load_tablet",
        "rpc-unload_tablet",
        "rpc-forget_streams",
        "rpc-confirm_config",
        "boot",
    ),
    "m": ("cycle", "collector", "recovery", "fate-", "lane-", "rpc-"),
    "r": ("rpc-run",),
}
"""Threads of each kind of process, in whose middle something may happen."""


# ---- processes


def processes(cluster: Cluster) -> list[Node]:
    """All that live."""
    return [*cluster.alive(cluster.tservers), *cluster.alive(cluster.masters), *cluster.alive(cluster.replays)]


def end(cluster: Cluster, node: Node, power: bool = False) -> None:
    """kill -9, or a power failure; its supervisor starts another."""
    if node.process.dead:
        return
    if node.host is not None:
        node.host.kill(power)
        node.host.start()
        return
    cluster.kill(node, power)
    if node in cluster.tservers:
        cluster.start_tserver()
    elif node in cluster.masters:
        cluster.start_master()
    else:
        cluster.start_replay()


def kill_tserver(stage: Stage, rng: Random) -> None:
    """kill -9, or a power failure."""
    node = stage.node(rng, lambda cluster: cluster.alive(cluster.tservers))
    if node is not None:
        end(stage.cluster_of(node), node, power=rng.random() < 0.5)


def kill_master(stage: Stage, rng: Random) -> None:
    """kill -9."""
    node = stage.node(rng, lambda cluster: cluster.alive(cluster.masters))
    if node is not None:
        end(stage.cluster_of(node), node)


def kill_replay(stage: Stage, rng: Random) -> None:
    """kill -9."""
    node = stage.node(rng, lambda cluster: cluster.alive(cluster.replays))
    if node is not None:
        end(stage.cluster_of(node), node)


def depose(stage: Stage, rng: Random) -> None:
    """The master's session ends while it goes on."""
    cluster = stage.cluster(rng)
    leader = cluster.leader()
    if leader is not None and len(cluster.alive(cluster.masters)) < 3:
        cluster.expire(leader)
        cluster.start_master()


def outlive(cluster: Cluster, node: Node, stopped: bool) -> None:
    """A tserver's session ends; it is stopped, or goes on until it notices. Another one takes its place; a host waits
    for the end of its process.
    """
    node.process.suspended = stopped
    cluster.expire(node)
    if node.host is None:
        cluster.start_tserver()


def zombie(stage: Stage, rng: Random) -> None:
    """See :func:`outlive`."""
    cluster = stage.cluster(rng)
    booted = cluster.booted(cluster.tservers)
    if booted and stage.has_room(cluster.alive(cluster.tservers)):
        outlive(cluster, rng.choice(booted), rng.random() < 0.5)


def suspend(stage: Stage, rng: Random) -> None:
    """A process stops for a while, unnoticed."""
    node = stage.node(rng, processes)
    if node is not None:
        node.process.suspended = True


def ambush(stage: Stage, rng: Random) -> None:
    """In the middle of what one thread does some steps from now, its process dies, or stops, or is believed dead."""
    node = stage.node(rng, processes if rng.random() < 0.3 else lambda cluster: cluster.alive(cluster.tservers))
    if node is None:
        return
    chosen, cluster = node, stage.cluster_of(node)
    thread = rng.choice(THREADS[node.kind[0]] + (tuple(stage.threads) if node.kind == "t" else ()))
    what = rng.choice(("die", "die", "lose its power", "stop", "outlive its session", "stop and outlive its session"))

    def spring(_task: object) -> None:
        stage.kernel.note(f"ambush: {chosen.name} is to {what} at {thread}")
        if "session" in what and chosen in cluster.booted(cluster.tservers):
            outlive(cluster, chosen, "stop" in what)
        elif what in ("die", "lose its power"):
            end(cluster, chosen, power=what != "die" and chosen in cluster.tservers)
        else:
            chosen.process.suspended = True

    stage.kernel.traps.append(
        Trap(
            lambda task: task.process is chosen.process and task.name.startswith(thread),
            rng.randint(1, 6),
            rng.random() < 0.5,
            spring,
        )
    )


# ---- threads and calls


def delay(stage: Stage, rng: Random) -> None:
    """One call, or one thread, is slow."""
    waiting = stage.kernel.runnable()
    if waiting and len(stage.slow) < SLOW_MAX:
        held = rng.choice(waiting)
        stage.slow.append(stage.kernel.hold(lambda task: task is held))


def run_some(stage: Stage, rng: Random) -> None:
    """One task goes on for some steps while all others wait."""
    waiting = stage.kernel.runnable()
    if not waiting:
        return
    task = rng.choice(waiting)
    for _ in range(rng.randint(1, 12)):
        if not stage.kernel.can_run(task):
            return
        stage.kernel.step(task)


def pass_time(stage: Stage, rng: Random) -> None:
    """All tasks stop for a while."""
    stage.kernel.advance(stage.kernel.now_ns + rng.randrange(4_000) * 1_000_000)


def relief(stage: Stage, _rng: Random) -> None:
    """Stopped tasks go on, hosts come back, and the network and the stores work again."""
    for cluster in stage.clusters:
        for node in [*cluster.masters, *cluster.tservers, *cluster.replays]:
            stage.kernel.resume(node.process)
        cluster.coordination.calm()
        cluster.table.refuse = nobody
        for host in cluster.hosts:
            host.make_room()
            if not host.is_up:
                host.start()
    for hold in stage.slow:
        stage.kernel.release(hold)
    stage.slow.clear()
    Net.now.calm()


# ---- network and stores


def lose(stage: Stage, rng: Random) -> None:
    """Requests or answers are lost, one in some."""
    odds, dice = rng.choice((0.1, 0.3)), stage.rng
    if rng.random() < 0.6:
        Net.now.lose_answer = lambda _caller, _method: dice.random() < odds
    else:
        Net.now.arrivals = lambda _caller, _method: () if dice.random() < odds else (0,)


def repeat(stage: Stage, rng: Random) -> None:
    """Calls between processes arrive late, or again, or both; the others as they should."""
    odds, dice = rng.choice((0.1, 0.4)), stage.rng
    late_max_ns = rng.choice((50_000_000, LATE_MAX_NS))
    repeated = (*REPEATED, *stage.repeated)
    some = rng.sample(repeated, rng.randint(1, len(repeated)))

    def arrivals(caller: str, method: str) -> Sequence[int]:
        if method not in some or dice.random() >= odds:
            return once(caller, method)
        first = dice.choice((0, 0, dice.randrange(late_max_ns)))
        return (first, *(dice.randrange(late_max_ns) for _ in range(dice.choice((0, 1, 1, 2)))))

    Net.now.arrivals = arrivals


def unreadable(stage: Stage, rng: Random) -> None:
    """The configuration can't be read for a while, or can again."""
    stage.cluster(rng).coordination.unreadable = rng.random() < 0.5


def silent_books(stage: Stage, rng: Random) -> None:
    """The books do not answer for a while, or do again."""
    odds, dice = rng.choice((0.0, 0.1, 0.2)), stage.rng
    stage.cluster(rng).table.refuse = lambda _process: dice.random() < odds


def compact_books(stage: Stage, rng: Random) -> None:
    """The store drops invisible versions and old tombstones."""
    stage.cluster(rng).table.compact_now()


ACCIDENTS: dict[str, Callable[[Stage, Random], None]] = {
    "ambush": ambush,
    "compact_books": compact_books,
    "delay": delay,
    "depose": depose,
    "kill_master": kill_master,
    "kill_replay": kill_replay,
    "kill_tserver": kill_tserver,
    "lose": lose,
    "pass_time": pass_time,
    "relief": relief,
    "repeat": repeat,
    "run_some": run_some,
    "silent_books": silent_books,
    "suspend": suspend,
    "unreadable": unreadable,
    "zombie": zombie,
}
