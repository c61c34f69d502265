"""Rounds on clusters of three hosts: faults under load, healing, and then a check of every law.

After each round both clusters hold, cell by cell, the acknowledged batches; each replica has the state that the books
name, with the same bytes on each host; and no operator is asked for anything. Rows, logs and files that nothing needs
may stay for :data:`OVERDUE_S`, and then a round fails by them. At the end of some rounds nothing may be left at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field

import psutil

from bookkeeper.config.sections import Settings
from bookkeeper.errors import BookkeeperError
from bookkeeper.metadata.metadata_table import Row
from tests.soak.faults import InvariantError
from tests.soak.hosts.host_faults import HostFaults
from tests.soak.hosts.host_files import HostFiles, compare, lost_files, named_tablets
from tests.soak.hosts.host_plan import HostStep, plan_host_round
from tests.soak.trace import Trace
from tests.soak.watch import watching
from tests.support.books import books_of
from tests.support.hosted_cluster import HostedCluster
from tests.support.workloads_books import leftovers
from tests.support.workloads_hosts import Trios

AFTERWARDS = 3
"""Batches that must be written when all faults are healed."""
OVERDUE_S = 360.0
"""Longer than a write may be in flight, and than the collectors of hosts and books wait."""
QUIET_S = 120.0
SETTLED_S = 900.0
"""Replicas even out in steps: one leaves 74 s after it is demoted, when no call of before is under way, and the host's
collector comes once a minute. Five steps in a row took 380 s.
"""


@dataclass(slots=True)
class Patience:
    """Lines that are right for a while only. A leading master that takes over waits anew, because it does not know
    since when.
    """

    _since_ns: dict[tuple[str, int], int] = field(default_factory=dict)

    def overdue(self, lines: Iterable[tuple[str, int]], now_ns: int) -> list[str]:
        """Lines that were there in each call for longer than :data:`OVERDUE_S`, in the same reign."""
        self._since_ns = {line: self._since_ns.get(line, now_ns) for line in lines}
        return [line for (line, _), since_ns in self._since_ns.items() if now_ns - since_ns > OVERDUE_S * 1e9]


@dataclass(slots=True)
class HostRounds:
    """The rounds of one pair of clusters."""

    trios: Trios
    trace: Trace
    _patience: Patience = field(default_factory=Patience)
    """Of the looks since nothing was left behind."""

    def run(self, seed: int, rounds: range) -> None:
        """Run them in order; afterwards nothing is left behind. Raises InvariantError, with its cause, when one goes
        wrong.
        """
        for number in rounds:
            self.trace.say(f"round {number}")
            try:
                self.play(plan_host_round(seed, number))
                if number == rounds[-1]:
                    self.wait_settled()
            except (BookkeeperError, AssertionError, psutil.Error) as error:
                raise InvariantError(f"round {number}: {type(error).__name__}: {error}") from error

    def play(self, steps: Sequence[HostStep]) -> None:
        """One round. Raises InvariantError, AssertionError, BookkeeperError."""
        settings = {name: cluster.settings for name, cluster in self.trios.clusters.items()}
        watch = watching(settings, self.trios.clock, self._broken, self._exists)
        with watch as watches, self.trios.load(), ThreadPoolExecutor(4, "host-faults") as pool:
            faults = HostFaults(self.trios, self.trace, pool)
            for step in steps:
                faults.do(step)
            faults.finish()
            self.trios.wait_written(AFTERWARDS)
        lines = [line for watch in watches for line in watch.lines]
        if lines:
            raise InvariantError("\n".join(lines))
        self.trace.say(f"{self.trios.written()}  healed; books seen {[watch.looks for watch in watches]} times")
        self.check()

    def check(self) -> None:
        """Cells, replicas and files are as they should be. Raises AssertionError."""
        self.trios.flush()  # a peer gets records of a log on a host's disk when segments have them
        self.trios.wait_replicated()
        self.trace.say("everything is replicated")
        self.trios.wait_equal()
        self.trace.say("all replicas are equal")
        self.trios.check()
        self.trios.wait_none(self._unequal_files, "unequal files", QUIET_S)
        self.trios.wait_none(self._asked, "asked of an operator", QUIET_S)
        lines = [
            (line, hosted.reign()) for name, hosted in self.trios.hosted.items() for line in self._surplus_of(name)
        ]
        overdue = self._patience.overdue(lines, self.trios.clock.boot_ns())
        assert not overdue, f"left for more than {OVERDUE_S:.0f} s:\n" + "\n".join(overdue)
        self.trace.say(f"{self.trios.written()}  both clusters and all their hosts hold what was written")

    def wait_settled(self) -> None:
        """Return when nothing is left behind on any disk or in the books; raises AssertionError naming what is."""
        self.trios.wait_none(self._settled_lines, "left behind", SETTLED_S)
        self._patience = Patience()
        self.trace.say("nothing is left behind")

    def _settled_lines(self) -> list[str]:
        self.trios.flush()
        return self._surplus()

    def _broken(self, name: str, rows: Sequence[Row]) -> list[str]:
        """Named files that are lost."""
        return lost_files(named_tablets(rows), self.trios.hosted[name].roots())

    def _exists(self, settings: Settings, log: str) -> bool:
        return self.trios.hosted[settings.instance.name].has(log)

    def _files(self) -> dict[str, HostFiles]:
        return {name: _look(hosted) for name, hosted in self.trios.hosted.items()}

    def _unequal_files(self) -> list[str]:
        return [f"{name}: {line}" for name, looked in self._files().items() for line in looked.problems]

    def _surplus(self) -> list[str]:
        return [line for name in self.trios.hosted for line in self._surplus_of(name)]

    def _surplus_of(self, name: str) -> list[str]:
        hosted = self.trios.hosted[name]
        return [f"{name}: {line}" for line in _look(hosted).surplus] + leftovers(hosted.look())

    def _asked(self) -> list[str]:
        return [f"{name}: {line}" for name, hosted in self.trios.hosted.items() for line in hosted.asked_of_people()]


def _look(hosted: HostedCluster) -> HostFiles:
    with closing(books_of(hosted.cluster.settings)) as table:
        return compare(named_tablets(table.scan()), hosted.homes())
