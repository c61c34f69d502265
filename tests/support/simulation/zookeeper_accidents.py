"""Accidents between processes and ZooKeeper: one-way cuts, servers that lag, answers that are lost, paused machines.

Each takes the stage and random numbers. A cut and a pause end by themselves, all of them with relief.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.support.simulation.accidents import THREADS, processes
from tests.support.simulation.cluster import Cluster, Node
from tests.support.simulation.ensemble import Link
from tests.support.simulation.kernel import Kernel, Process, Trap
from tests.support.simulation.stage import Stage
from tests.support.simulation.zookeeper import SimZooKeeper

CUT_MAX_MS = 3_000
"""How long a cut lasts at most: some lease times."""

PAUSE_MAX_MS = 6_000
"""How long a machine is paused at most: some lease times, and far less than a write may be in flight (R4)."""

LAGS = (0.5, 0.9, 1.0)
LOSES = (0.02, 0.1, 0.3)


def link_of(cluster: Cluster, node: Node) -> Link | None:
    """The way of a process to its server; None before it has one."""
    store = cluster.coordination
    assert isinstance(store, SimZooKeeper), "this cluster is not in ZooKeeper"
    return store.seen.links.get(node.process)


def later(kernel: Kernel, milliseconds: int, act: Callable[[], None]) -> None:
    """Something happens after a while."""

    def wait() -> None:
        kernel.wait("sleep", lambda: False, milliseconds * 1_000_000)
        act()

    kernel.spawn(Process("clock", ""), "timer", wait)


def sever(cluster: Cluster, node: Node, rng: Random) -> None:
    """Requests of a process do not arrive for a while, or the answers to them, or both."""
    link, kernel = link_of(cluster, node), cluster.world.kernel
    if link is None:
        return
    lost = rng.choice(("requests", "answers", "requests and answers"))
    link.requests, link.answers = link.requests and "requests" not in lost, link.answers and "answers" not in lost
    kernel.note(f"{node.name} is cut from ZooKeeper: no {lost}")

    def join() -> None:
        link.requests = link.answers = True
        kernel.note(f"{node.name} reaches ZooKeeper again")

    later(kernel, rng.randrange(100, CUT_MAX_MS), join)


def pause(cluster: Cluster, node: Node, rng: Random) -> None:
    """The machine of a process is paused with its clock."""
    kernel = cluster.world.kernel
    kernel.pause_machine(node.process)
    later(kernel, rng.randrange(100, PAUSE_MAX_MS), lambda: kernel.resume(node.process))


def cut(stage: Stage, rng: Random) -> None:
    """See :func:`sever`."""
    node = stage.node(rng, processes)
    if node is not None:
        sever(stage.cluster_of(node), node, rng)


def pause_machine(stage: Stage, rng: Random) -> None:
    """See :func:`pause`."""
    node = stage.node(rng, processes)
    if node is not None:
        pause(stage.cluster_of(node), node, rng)


def ambush_link(stage: Stage, rng: Random) -> None:
    """In the middle of what one thread does some steps from now, its process is cut off or its machine is paused."""
    node = stage.node(rng, processes if rng.random() < 0.4 else lambda cluster: cluster.alive(cluster.masters))
    if node is None:
        return
    chosen, act = node, rng.choice((sever, sever, pause))
    thread = rng.choice((*THREADS[node.kind[0]], *(stage.threads if node.kind == "t" else ()), "main", "lease"))

    def spring(_task: object) -> None:
        stage.kernel.note(f"ambush of the link of {chosen.name} at {thread}")
        act(stage.cluster_of(chosen), chosen, rng)

    stage.kernel.traps.append(
        Trap(
            lambda task: task.process is chosen.process and task.name.startswith(thread),
            rng.randint(1, 12),
            rng.random() < 0.5,
            spring,
        )
    )


def lag(stage: Stage, rng: Random) -> None:
    """The server of a process lags behind the others until relief, or those of all new processes do."""
    node = stage.node(rng, processes)
    if node is None:
        return
    cluster, lags = stage.cluster_of(node), rng.choice(LAGS)
    link, store = link_of(cluster, node), cluster.coordination
    if link is not None:
        link.lag = lags
    if isinstance(store, SimZooKeeper) and rng.random() < 0.3:
        store.quorum.new_lag = lags


def lose_transactions(stage: Stage, rng: Random) -> None:
    """Some transactions of a cluster get no answer until relief: they are committed, or not, or later."""
    store = stage.cluster(rng).coordination
    assert isinstance(store, SimZooKeeper), "this cluster is not in ZooKeeper"
    store.quorum.loses, store.quorum.late = rng.choice(LOSES), rng.choice((0.0, 0.5))


ACCIDENTS: dict[str, Callable[[Stage, Random], None]] = {
    "ambush_link": ambush_link,
    "cut": cut,
    "lag": lag,
    "lose_transactions": lose_transactions,
    "pause_machine": pause_machine,
}
