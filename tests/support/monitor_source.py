"""A source for the monitor: what it says is set by the test."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from bookkeeper.errors import BookkeeperError
from bookkeeper.model import BlockRange, TargetKey
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
    TableInfo,
    TServerInfo,
)
from bookkeeper.rpc.contract.messages import QuarantinedRange, ReplicationConfig, TargetStatus
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
        max((found.lag_seconds for found in statuses), default=0.0),
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
        replicas=ReplicaHealth(under_replicated=2, in_danger=1, joining=3, lacking_segments=4, damaged_files=5),
        tablets_split=2,
    )


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
