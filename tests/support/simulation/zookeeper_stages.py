"""Clusters whose coordination stores are in ZooKeeper: those without hosts, and those whose hosts stand in elections.

Arrives: a world without clusters. Leaves: the same clusters as :class:`Stage` and :class:`ElectedStage` found, each
process with a server of its own, and a supervisor that starts again what ended with its session.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.support.simulation.hosted import ElectedStage, HostLogsStage
from tests.support.simulation.stage import Stage
from tests.support.simulation.zookeeper import SUPERVISED
from tests.support.simulation.zookeeper_accidents import ACCIDENTS

LEAST: Mapping[str, int] = {"ambush_link": 5, "cut": 3, "lag": 3, "lose_transactions": 2, "pause_machine": 2}


class ZooKeeperStage(Stage):
    """West and east, each with its store in ZooKeeper. Time passes with the events, and sessions end by it; so it
    does not jump.
    """

    in_zookeeper = True
    more: Sequence[str] = tuple(ACCIDENTS)
    frequent: Mapping[str, int] = LEAST
    without: Sequence[str] = ("pass_time",)

    def supervise(self) -> None:
        """Start again what ended because its session had, and what is missing."""
        for cluster in self.clusters:
            cluster.coordination.end_overdue()
            for host in cluster.hosts:
                if host.node is not None and not host.is_up and host.process.reason not in SUPERVISED:
                    host.start()
            cluster.start_missing(cluster.alive)


class ElectedInZooKeeperStage(ZooKeeperStage, ElectedStage):
    """Four hosts in west, whose leaders are elected through ZooKeeper, and east without hosts."""

    more: Sequence[str] = (*ElectedStage.more, *ACCIDENTS)
    frequent: Mapping[str, int] = {**ElectedStage.frequent, **LEAST}
    without: Sequence[str] = (*ElectedStage.without, "pass_time")


class HostLogsInZooKeeperStage(ZooKeeperStage, HostLogsStage):
    """The same hosts without elections; their logs are on their own disks."""

    more: Sequence[str] = (*HostLogsStage.more, *ACCIDENTS)
    frequent: Mapping[str, int] = {**HostLogsStage.frequent, **LEAST}
    without: Sequence[str] = (*HostLogsStage.without, "pass_time")
