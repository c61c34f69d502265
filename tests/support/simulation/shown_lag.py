"""The lag that a leader shows, beside that of the ledger: the age of the first record that a target lacks.

Arrives: a world between two steps. Leaves: broken laws, in words. The truth is the write time of the first block behind
the finished offset that has a record of the target. A leader knows of it since a tserver's put; so the shown age lies
between the two, but for an interval of cycles or a tenth, or is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator

from bookkeeper.master.cycle.work_dispatch import LOOKS_SLACK_MS
from bookkeeper.master.index.write_times import AGE_PARTS, APART_NS
from bookkeeper.master.leadership import Leadership
from bookkeeper.master.queries.causes import Now
from bookkeeper.master.queries.target_states import all_states
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CLOSED_RANK, Column
from bookkeeper.model import TargetKey
from tests.support.simulation.cluster import Cluster
from tests.support.simulation.kernel import Process
from tests.support.simulation.ledger import Ledger, LoggedBlock

MS = 1_000_000


class ToldOffsets:
    """When the books of a table said first that a log has records up to an offset."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str], list[tuple[int, int]]] = {}
        self._puts = 0
        self._judged: dict[str, tuple[object, ...]] = {}

    def put(self, key: bytes, column: Column, rank: int, now_ns: int) -> None:
        """A cell was written. A first use says nothing of the records before it that were not durable then."""
        if rank < CLOSED_RANK and rank % 2:
            return
        if column.family == "repl" and key < keys.TABLETS_STOP:
            table_id, _ = keys.parse_tablet_row(key)
            log = column.qualifier.decode()
            self._puts += 1
            self._told.setdefault((log, table_id), []).append((rank, now_ns))

    def is_judged(self, cluster: Cluster, leader: Process) -> bool:
        """Whether the leader was judged before, and neither it nor the books went on since. Time alone makes what it
        shows older by as much as the truth.
        """
        moment = leader, leader.steps, self._puts
        was, self._judged[cluster.name] = self._judged.get(cluster.name), moment
        return was == moment

    def since_ns(self, block: LoggedBlock) -> int | None:
        """When a cell first reached the block's end; None: none does."""
        found = self._told.get((block.file, block.tablet[0]), ())
        return min((at_ns for rank, at_ns in found if rank >= keys.needed_rank(block.last)), default=None)


def wrong_lags(cluster: Cluster, ledger: Ledger, told: ToldOffsets, now_ns: int) -> Iterator[str]:
    """Every lag that the leader of a cluster shows and that is not so."""
    node = cluster.leader()
    lead = None if node is None or node.process.suspended else node.part.leadership
    if node is None or lead is None or not lead.reign.is_valid() or lead.cycle.health.known_ns is None:
        return
    if told.is_judged(cluster, node.process):
        return
    for file, target, first, age_s in shown_ages(lead):
        block = first_missing(ledger, cluster, file, target, first)
        since_ns = None if block is None else told.since_ns(block)
        if block is None or since_ns is None:
            continue
        true_ns = now_ns - block.write_ms * MS
        scan_ns = (lead.settings.master.scan_interval_ms + LOOKS_SLACK_MS) * MS
        stood_ns = node.process.behind_ns  # a machine that was paused does not know how long
        least_ns = now_ns - since_ns - max(scan_ns, true_ns // AGE_PARTS) - stood_ns
        most_ns = true_ns + max(APART_NS, true_ns // AGE_PARTS) + MS
        if not least_ns <= age_s * 1e9 <= most_ns:
            yield f"lag: {file} at {target} is shown as {age_s:.3f} s, and it is {true_ns / 1e9:.3f} s"


def shown_ages(lead: Leadership) -> Iterator[tuple[str, TargetKey, int, float]]:
    """Log, target, first missing offset and shown age: of files that lack records, and of ranges in quarantine."""
    # The age needs the leader's clocks. A look at its processes would also bring news of ZooKeeper to the leader.
    dispatcher, now = lead.cycle.dispatcher, Now(lead.clock.boot_ns(), lead.clock.wall_ms())
    states = all_states(lead.cycle.books.snapshot.files, dispatcher.shipping, now, lambda _target: True, 1)
    for state in states:
        if state.lag_records and state.lag_seconds is not None:
            yield state.file, state.target.key, state.finished + 1, state.lag_seconds
    for (file, target, first), written_ns in dispatcher.shipping.times.ranges.items():
        yield file.decode(), target, first, (now.boot_ns - written_ns) / 1e9


def first_missing(ledger: Ledger, cluster: Cluster, log: str, target: TargetKey, first: int) -> LoggedBlock | None:
    """The first block from an offset on that has a record of the target."""
    file = ledger.files.get(log)
    peer = cluster.targets().get(target)
    for block in () if file is None else file.blocks:
        if block.last >= first and peer not in block.provenance and block.meant_for(lambda other: other == target):
            return block
    return None
