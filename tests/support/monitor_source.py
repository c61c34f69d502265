"""A source for the monitor: what it says is set by the test."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from bookkeeper.errors import BookkeeperError, NotFoundError
from bookkeeper.model import BlockRange, Extent, TargetKey
from bookkeeper.monitor.observation import (
    Books,
    Cycles,
    Lag,
    LeaderInfo,
    Observation,
    PeerInfo,
    Reason,
    ReplicaHealth,
    RetainedFile,
    Stall,
    TableInfo,
    TServerInfo,
    greatest_age,
)
from bookkeeper.rpc.contract.messages import (
    HeldReplicaInfo,
    HostInfo,
    NextStep,
    QuarantinedRange,
    ReplicaLag,
    ReplicaPlacement,
    ReplicaStanding,
    ReplicationConfig,
    SegmentStanding,
    TabletReplicas,
    TargetStatus,
    WaitCause,
    WaitingFiles,
)
from bookkeeper.security.viewers import Viewers

EAST = TargetKey("east", "7", "1", 1)
SHOWN = LeaderInfo("127.0.0.1:9797", 3, "http://127.0.0.1:9100/")
NO_TOKEN = Viewers(None, "west", "i-west")
"""A monitor without authentication."""


def status(file: str, phase: str = "waiting", records: int = 10, table: str = "cities") -> TargetStatus:
    """A file that lacks so many of 100 records; a byte is a record, and ten records a second."""
    return TargetStatus(
        file=file,
        target=EAST,
        state="OPEN",
        needed=100,
        finished=100 - records,
        lag_records=records,
        lag_bytes=records,
        lag_seconds=records / 10,
        phase=phase,
        last_error="no route <to> host" if phase == "backing_off" else None,
        next_try_in_ms=1_200 if phase == "backing_off" else None,
        worker="tserver-2",
        records_shipped=100 - records,
        bytes_shipped=100 - records,
        resends=0,
        table=table,
        groups=(),
    )


def kept(file: str, size: int, *kinds: str) -> RetainedFile:
    """A sealed file."""
    return RetainedFile(file, size, True, "tserver-2", tuple(Reason(kind, "east", "table cities") for kind in kinds))


def books(*statuses: TargetStatus) -> Books:
    """Those of a leader with one table, which replicates to one peer."""
    phases = {found.phase: sum(other.phase == found.phase for other in statuses) for found in statuses}
    lag = Lag(
        "cities",
        "east",
        sum(found.lag_records for found in statuses),
        sum(found.lag_bytes for found in statuses),
        greatest_age(found.lag_seconds for found in statuses),
        phases,
    )
    return Books(
        tservers=(TServerInfo("tserver-2", "127.0.0.1:9001", 4),),
        tables=(TableInfo("cities", "1", "online", 4, 1, ("geo", "default")),),
        peers=(PeerInfo("east", "127.0.0.1:9798", "id-east", 2, "no route", 900, 5_000, 60_000, 40),),
        targets=(ReplicationConfig("cities", EAST, (), "cities"),),
        statuses=statuses,
        lags=(lag,),
        cycles=Cycles(full=3, quick=9, full_ms=12.34),
        files_outstanding=len(statuses),
        tablets_without_logs=1,
        replicas=ReplicaHealth(
            under_replicated=2,
            in_danger=1,
            joining=3,
            lacking_segments=4,
            lacking_bytes=50,
            joining_bytes=200,
            joined_bytes=60,
            damaged_files=5,
        ),
        tablets_split=2,
        causes=(UNREACHABLE,),
        stalls=(Stall("cities", "east", "peer_unreachable", 75.5),),
    )


UNREACHABLE = WaitCause(
    cluster="east",
    kind="peer_unreachable",
    tables=("cities",),
    text="east does not answer at 127.0.0.1:9798: <no route>",
    steps=(NextStep("east", "bookkeeper standalone ."),),
    needs_person=True,
    since_seconds=75.5,
    files=2,
    records=12,
    bytes=1_200,
    file="wal/tserver-2/000001.wal",
    next_try_in_ms=900,
    tries=2,
)


def replica(host: str, *lags: ReplicaLag, role: str = "voter", problem: str = "") -> ReplicaStanding:
    """A replica that leads when it has lags; with a problem, its host says nothing."""
    placed = ReplicaPlacement(host, "p1", f"disk-{host}")
    held = HeldReplicaInfo(
        Extent("1", None, None), "t0", placed, "LIVE", 1, "host1", bool(lags), 9, (7, 9), 2, 90, lags
    )
    waiting = (WaitingFiles("a <page> reads them", tuple(f"tables/1/t0/{n}.parquet" for n in range(30)), 300),)
    return ReplicaStanding(host, "p1", role, bool(lags), None if problem else held, problem, waiting if lags else ())


def tablet(number: int, segments: int = 3) -> TabletReplicas:
    """A tablet with three replicas, of which one joins and one is away."""
    joiner = replica("host2", role="joining")
    lags = ReplicaLag("host2", 2, 50), ReplicaLag("host3", 1, 20)
    return TabletReplicas(
        Extent("1", b"%04d" % number, b"%04d" % (number - 1) if number else None),
        7,
        2,
        (replica("host1", *lags), joiner, replica("host3", problem="the host is <away>")),
        f"t{number}",
        3,
        "",
        tuple(
            SegmentStanding(number, None, True, 1, 10, 0, ("host1",), ("host2",), "to be <named>")
            for number in range(1, segments + 1)
        ),
    )


HOST = HostInfo(
    "host1", "disk-host1", "127.0.0.1:9001", False, 4, 0, 3, 90, zone="rack1", unsent_segments=3, unsent_bytes=70
)
JOINER = HostInfo(
    "host2", "disk-host2", "127.0.0.1:9002", True, 4, 2, 0, 40,
    lacking_segments=2, lacking_bytes=50, joining_bytes=200, joined_bytes=50,
)  # fmt: skip
AWAY = HostInfo(
    "host3", None, None, False, 4, 0, 0, None, "the host is <away>",
    away_since_ms=1_700_000_000_000, lacking_segments=1, lacking_bytes=20,
)  # fmt: skip

QUARANTINED = QuarantinedRange(
    "0123456789", "cities", EAST, "w/1.wal", BlockRange(3, 5, 10, 90), "held", "invalid", "too <large>", 1, 0
)

LEADING = Observation(1_000, "west", "id-west", "master-1", "127.0.0.1:9797", True, True, SHOWN, books(), "")
STANDING_BY = replace(LEADING, leads=False, books=None, address="127.0.0.1:9796", problem="this master stands by")


@dataclass(slots=True)
class SetSource:
    """A source with set values; reading the retained files raises ``error`` if set."""

    observation: Observation = LEADING
    files: tuple[RetainedFile, ...] = ()
    error: BookkeeperError | None = None
    calls: list[str] = field(default_factory=list)
    found_hosts: tuple[HostInfo, ...] = (HOST, JOINER, AWAY)
    found_tablets: tuple[TabletReplicas, ...] = (tablet(0), tablet(1))

    def observe(self) -> Observation:
        """As set."""
        self.calls.append("observe")
        return self.observation

    def retained(self) -> tuple[RetainedFile, ...]:
        """As set."""
        self.calls.append("retained")
        if self.error is not None:
            raise self.error
        return self.files

    def hosts(self) -> tuple[HostInfo, ...]:
        """As set."""
        self._called("hosts")
        return self.found_hosts

    def tablets(self, table: str) -> tuple[TabletReplicas, ...]:
        """As set, of the table ``cities``."""
        self._called(f"tablets {table}")
        if table != "cities":
            raise NotFoundError(f"no table {table}")
        return tuple(replace(one, segments=()) for one in self.found_tablets)

    def tablet(self, table: str, directory: str) -> TabletReplicas:
        """As set."""
        self._called(f"tablet {table} {directory}")
        for one in self.found_tablets:
            if one.directory == directory:
                return one
        raise NotFoundError(f"no tablet {directory}")

    def _called(self, what: str) -> None:
        self.calls.append(what)
        if self.error is not None:
            raise self.error
