"""What the monitor shows, as values: one look at a master and its cluster, and the files that its collector keeps.

Arrives: what a :class:`Source` (the master) knows. Leaves: frozen values; whoever shows them needs no lock and asks
nobody. Nothing survives a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bookkeeper.rpc.contract.messages import QuarantinedRange, ReplicationConfig, TargetStatus


@dataclass(frozen=True, slots=True)
class LeaderSeen:
    """Who leads: ``address`` of its calls, and ``monitor`` is the URL of its pages, "" when none is known."""

    address: str
    epoch: int
    monitor: str


@dataclass(frozen=True, slots=True)
class TServerSeen:
    """A live tserver and how many tablets it holds."""

    session: str
    address: str
    tablets: int


@dataclass(frozen=True, slots=True)
class TableSeen:
    """A table. ``unassigned`` tablets are at no tserver now."""

    name: str
    table_id: str
    state: str
    tablets: int
    unassigned: int
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PeerSeen:
    """A cluster that is defined. ``records`` to ``resends`` count this reign's reports; ``failures`` are in a row."""

    cluster: str
    quorum: str
    instance_id: str
    failures: int
    last_error: str | None
    next_try_in_ms: int | None
    records: int
    sent_bytes: int
    resends: int


@dataclass(frozen=True, slots=True)
class Lag:
    """What one table's files lack at one cluster: sums of records and bytes, the greatest of the seconds; and how many
    files are in which phase.
    """

    table: str
    cluster: str
    records: int
    bytes: int
    seconds: float
    phases: Mapping[str, int]

    @property
    def files(self) -> int:
        """Files that are not done with, whatever their phase."""
        return sum(self.phases.values())


@dataclass(frozen=True, slots=True)
class Cycles:
    """How the master's thread fares in this reign; ms are of the last one of a kind."""

    full: int = 0
    quick: int = 0
    failed: int = 0
    failed_in_row: int = 0
    full_ms: float = 0.0
    quick_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Books:
    """What only the leader knows. ``statuses`` are those of the most lag, ``lags`` count all of them; ``age_ms`` since
    the master began the look at the books that they are from.
    """

    tservers: tuple[TServerSeen, ...] = ()
    tables: tuple[TableSeen, ...] = ()
    peers: tuple[PeerSeen, ...] = ()
    targets: tuple[ReplicationConfig, ...] = ()
    statuses: tuple[TargetStatus, ...] = ()
    lags: tuple[Lag, ...] = ()
    quarantined: tuple[QuarantinedRange, ...] = ()
    cycles: Cycles = Cycles()
    age_ms: float = 0.0
    files_outstanding: int = 0
    files_deleted: int = 0
    operations: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Observation:
    """One look. ``books`` is None when this master does not lead, could not read, or leads and has not read the books
    yet; ``problem`` says why then.
    """

    at_ms: int
    cluster: str
    instance_id: str
    session: str
    address: str
    is_alive: bool
    leads: bool
    leader: LeaderSeen | None
    books: Books | None
    problem: str


@dataclass(frozen=True, slots=True, order=True)
class Reason:
    """Why a file is kept. ``kind``: replication, recovery, quarantine, writer or deletion; ``who`` needs it."""

    kind: str
    who: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A log on disk, or a file that is marked for deletion, and everything for which it is kept."""

    file: str
    bytes: int
    is_sealed: bool
    owner: str
    reasons: tuple[Reason, ...]


class Source(Protocol):
    """A master, as the monitor's one thread asks it. Both raise TransientError when the stores can't be read."""

    def observe(self) -> Observation:
        """One look; the leader's books only when this master leads."""

    def kept(self) -> tuple[KeptFile, ...]:
        """What is kept and for whom, the largest first; nothing when this master does not lead."""


@dataclass(slots=True)
class _Sums:
    records: int = 0
    bytes: int = 0
    seconds: float = 0.0
    phases: dict[str, int] = field(default_factory=dict)


class LagSums:
    """Folds statuses, in any order, into one :class:`Lag` a table and cluster; memory grows with those pairs only."""

    def __init__(self, targets: Iterable[tuple[str, str]] = ()) -> None:
        """``targets``: tables and clusters that are shown without a file as well."""
        self._sums = {pair: _Sums() for pair in targets}

    def add(self, table: str, cluster: str, phase: str, records: int, size: int, seconds: float) -> None:
        """One file and target: its lag in records, bytes and seconds."""
        sums = self._sums.setdefault((table, cluster), _Sums())
        sums.records += records
        sums.bytes += size
        sums.seconds = max(sums.seconds, seconds)
        sums.phases[phase] = sums.phases.get(phase, 0) + 1

    def lags(self) -> tuple[Lag, ...]:
        """Sorted by table and cluster."""
        return tuple(
            Lag(table, cluster, sums.records, sums.bytes, sums.seconds, dict(sorted(sums.phases.items())))
            for (table, cluster), sums in sorted(self._sums.items())
        )
