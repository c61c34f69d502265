"""The values that the monitor shows: an observation of a master and its cluster, and the files that it retains.

A :class:`Source` (the master) makes them. They are frozen, so a reader needs no lock and no call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct, field

from bookkeeper.model import TargetKey
from bookkeeper.rpc.contract.messages import (
    HostInfo,
    QuarantinedRange,
    ReplicationConfig,
    TabletReplicas,
    TargetStatus,
    WaitCause,
)


class LeaderInfo(Struct, frozen=True):
    """The leader: ``address`` takes calls, ``monitor`` is the URL of its pages ("" = unknown)."""

    address: str
    epoch: int
    monitor: str


class TServerInfo(Struct, frozen=True):
    """A live tserver and the number of tablets that it serves."""

    session: str
    address: str
    tablets: int


class ReplayInfo(Struct, frozen=True):
    """A live replay process. ``works``: its Spark session is up, as it told this leader."""

    session: str
    address: str
    works: bool


class TableInfo(Struct, frozen=True):
    """A table. ``unassigned`` counts its tablets without a tserver."""

    name: str
    table_id: str
    state: str
    tablets: int
    unassigned: int
    groups: tuple[str, ...]


class PeerInfo(Struct, frozen=True):
    """A defined cluster. ``records`` to ``resends`` count the reports of this reign; ``failures`` are consecutive ones
    at this peer, or on the way to it.
    """

    cluster: str
    quorum: str
    instance_id: str
    failures: int
    last_error: str | None
    next_try_in_ms: int | None
    records: int
    sent_bytes: int
    resends: int


class Age(Struct, frozen=True):
    """The age of the first missing record of a file or of several, s: ``known`` = None while it is unknown, and no
    missing record is older than ``maximum``.
    """

    known: float | None = 0.0
    maximum: float = 0.0


def greatest_age(seconds: Iterable[float | None]) -> float | None:
    """The greatest of several ages, 0 of none; None: one is unknown."""
    found = list(seconds)
    known = [one for one in found if one is not None]
    return max(known, default=0.0) if len(known) == len(found) else None


class Lag(Struct, frozen=True):
    """The lag of one table at one cluster: sums of records and bytes over its files, the greatest age of a missing
    record (None: unknown), and the number of files in each phase.
    """

    table: str
    cluster: str
    records: int
    bytes: int
    seconds: float | None
    phases: Mapping[str, int]

    @property
    def files(self) -> int:
        """Files in all phases."""
        return sum(self.phases.values())


class Stall(Struct, frozen=True):
    """For how long files of a table wait for a cluster, for a cause of this kind."""

    table: str
    cluster: str
    kind: str
    seconds: float


class Cycles(Struct, frozen=True):
    """The cycles of the master's thread in this reign; ``full_ms`` and ``quick_ms`` are durations of the last ones."""

    full: int = 0
    quick: int = 0
    failed: int = 0
    failed_in_row: int = 0
    full_ms: float = 0.0
    quick_ms: float = 0.0


class ReplicaHealth(Struct, frozen=True):
    """The tablets with several replicas: how many have fewer live copies than ``table.replicas``, how many fewer than
    ``table.copies_min``; the replicas that are being copied; the most segments that a host lacks of a tablet, and the
    bytes that hosts lack of all tablets; the bytes of joining replicas, and of these the part that is there; the files
    that live hosts have found damaged and not got again yet.
    """

    under_replicated: int = 0
    in_danger: int = 0
    joining: int = 0
    lacking_segments: int = 0
    damaged_files: int = 0
    lacking_bytes: int = 0
    joining_bytes: int = 0
    joined_bytes: int = 0


class Books(Struct, frozen=True):
    """The replication state that only the leader has. ``statuses`` are those with the most lag, ``lags`` sum up all of
    them; ``age_ms`` is the time since the master began to read the books for them.
    """

    tservers: tuple[TServerInfo, ...] = ()
    tables: tuple[TableInfo, ...] = ()
    peers: tuple[PeerInfo, ...] = ()
    targets: tuple[ReplicationConfig, ...] = ()
    statuses: tuple[TargetStatus, ...] = ()
    lags: tuple[Lag, ...] = ()
    quarantined: tuple[QuarantinedRange, ...] = ()
    cycles: Cycles = Cycles()
    age_ms: float = 0.0
    files_outstanding: int = 0
    files_deleted: int = 0
    tablets_split: int = 0
    operations: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    causes: tuple[WaitCause, ...] = ()
    stalls: tuple[Stall, ...] = ()
    replicas: ReplicaHealth = ReplicaHealth()
    tablets_without_logs: int = 0
    replays: tuple[ReplayInfo, ...] = ()
    replay_problem: str = ""
    """The last words of a replay process whose successor does not work yet."""
    under_way: Mapping[tuple[str, TargetKey], int] = field(default_factory=dict)
    """The last offset that a worker ships now, of each file and target of ``statuses``."""


class Observation(Struct, frozen=True):
    """One observation of a master. ``books`` is None when this master does not lead, could not read the books, or has
    not read them yet; then ``problem`` is the reason.
    """

    at_ms: int
    cluster: str
    instance_id: str
    session: str
    address: str
    is_alive: bool
    leads: bool
    leader: LeaderInfo | None
    books: Books | None
    problem: str


class Reason(Struct, frozen=True, order=True):
    """Why a file is retained. ``kind``: replication, books, recovery, quarantine, receiver, operation, writer or
    deletion; ``who`` needs it.
    """

    kind: str
    who: str
    detail: str = ""


class RetainedFile(Struct, frozen=True):
    """A log on disk, or a file that is marked for deletion, and all reasons to retain it."""

    file: str
    bytes: int
    is_sealed: bool
    owner: str
    reasons: tuple[Reason, ...]


class Source(Protocol):
    """A master, read by two threads of the monitor: one for hosts and replicas, which waits for hosts, and one for all
    else. The methods raise TransientError when the stores can't be read.
    """

    def observe(self) -> Observation:
        """Observe this master now; with books only when it leads."""

    def retained(self) -> tuple[RetainedFile, ...]:
        """Retained files with their reasons, the largest first; none when this master does not lead."""

    def hosts(self) -> tuple[HostInfo, ...]:
        """Each host, by name. Raises TransientError also when this master does not lead."""

    def tablets(self, table: str) -> tuple[TabletReplicas, ...]:
        """The tablets of a table, without their segments. Raises as :meth:`hosts`, and NotFoundError."""

    def tablet(self, table: str, directory: str) -> TabletReplicas:
        """The tablet in a directory, with its segments. Raises as :meth:`tablets`."""


class _Sums(Struct):
    records: int = 0
    bytes: int = 0
    known: float = 0.0
    unknown: float = 0.0
    phases: dict[str, int] = field(default_factory=dict)

    def add(self, phase: str, records: int, size: int, age: Age) -> None:
        self.records += records
        self.bytes += size
        if age.known is None:
            self.unknown = max(self.unknown, age.maximum)
        else:
            self.known = max(self.known, age.known)
        self.phases[phase] = self.phases.get(phase, 0) + 1

    def seconds(self) -> float | None:
        """The greatest age; None while an unknown one may be greater than those that are known."""
        return None if self.unknown > self.known else self.known


class LagSums:
    """Sums statuses, in any order, into one :class:`Lag` for each table and cluster; memory grows with those pairs."""

    def __init__(self, targets: Iterable[tuple[str, str]] = ()) -> None:
        """``targets``: pairs of table and cluster that get a :class:`Lag` without a file, too."""
        self._sums = {pair: _Sums() for pair in targets}

    def add(self, table: str, cluster: str, phase: str, records: int, size: int, age: Age) -> None:
        """One file and target: its lag in records and bytes, and the age of the first missing record."""
        self._sums.setdefault((table, cluster), _Sums()).add(phase, records, size, age)

    def lags(self) -> tuple[Lag, ...]:
        """All sums, sorted by table and cluster."""
        return tuple(
            Lag(table, cluster, sums.records, sums.bytes, sums.seconds(), dict(sorted(sums.phases.items())))
            for (table, cluster), sums in sorted(self._sums.items())
        )
