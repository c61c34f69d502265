"""The services of the wire contract as Protocols: what a handler implements and what a client calls.

``bookkeeper.thrift`` says what each method does. ``hello`` is answered by the server itself. Every method may raise any
:class:`bookkeeper.errors.BookkeeperError`; the caller gets the same class. A test compares these with the contract.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from bookkeeper.model import Extent, LocalityGroup, StreamKey
from bookkeeper.rpc.messages import (
    ApplyRequest,
    ClusterInfo,
    FileMark,
    ReplicateRequest,
    ReplicateResult,
    ReplicationConfig,
    ScanPage,
    ScanRequest,
    TableInfo,
    TabletAssignment,
    TabletLocation,
    TargetStatus,
    WorkItem,
    WorkReport,
    WriteBatch,
    WriteResult,
)


class Node(Protocol):
    """Every process."""

    def status(self) -> Mapping[str, str]:
        """Facts about this process for people."""


class Master(Node, Protocol):
    """The master; all but :meth:`leader` raise NotLeaderError elsewhere than at the leader."""

    def leader(self) -> str: ...

    def tables(self) -> Sequence[TableInfo]: ...

    def locate(self, table_id: str) -> Sequence[TabletLocation]: ...

    def create_table(
        self, name: str, splits: Sequence[bytes], groups: Sequence[LocalityGroup], properties: Mapping[str, str]
    ) -> TableInfo: ...

    def delete_table(self, name: str) -> None: ...

    def set_groups(self, name: str, groups: Sequence[LocalityGroup]) -> None: ...

    def change_properties(self, name: str, changes: Mapping[str, str], removals: Sequence[str]) -> TableInfo: ...

    def flush_table(self, name: str) -> None: ...

    def clusters(self) -> Sequence[ClusterInfo]: ...

    def define_cluster(self, name: str, quorum: str) -> ClusterInfo: ...

    def delete_cluster(self, name: str, quorum: str) -> None: ...

    def enable_replication(
        self, table: str, groups: Sequence[str], cluster: str, remote_table: str
    ) -> Sequence[ReplicationConfig]: ...

    def disable_replication(self, table: str, groups: Sequence[str], cluster: str) -> Sequence[ReplicationConfig]: ...

    def replication_config(self) -> Sequence[ReplicationConfig]: ...

    def replication_status(self, table: str) -> Sequence[TargetStatus]: ...

    def replication_mark(self, table: str) -> Sequence[FileMark]: ...

    def replication_pending(self, marks: Sequence[FileMark], table: str, cluster: str) -> Sequence[TargetStatus]: ...

    def resolve_table(self, name: str) -> str: ...

    def pick_tserver(self, table_id: str) -> str: ...

    def stream_done(self, streams: Sequence[StreamKey]) -> None: ...

    def nudge(self, session_id: str) -> None: ...

    def report_work(self, session_id: str, reports: Sequence[WorkReport]) -> None: ...


class TServer(Node, Protocol):
    """A tserver."""

    def write(self, batches: Sequence[WriteBatch], durability: str, writer: str, attempt: int) -> WriteResult: ...

    def scan(self, request: ScanRequest) -> ScanPage: ...

    def load_tablet(self, assignment: TabletAssignment) -> None: ...

    def unload_tablet(self, extent: Extent, epoch: int, discard: bool) -> None: ...

    def tablets(self) -> Sequence[Extent]: ...

    def flush_tablet(self, extent: Extent) -> None: ...

    def confirm_config(self, generation: int) -> int: ...

    def wal_positions(self, table_id: str) -> Sequence[FileMark]: ...

    def assign_work(self, items: Sequence[WorkItem]) -> None: ...

    def work_reports(self) -> Sequence[WorkReport]: ...

    def forget_streams(self, streams: Sequence[StreamKey]) -> None: ...

    def open_stream(self, stream: StreamKey) -> str: ...

    def replicate(self, request: ReplicateRequest) -> ReplicateResult: ...

    def apply_replicated(self, request: ApplyRequest) -> ReplicateResult: ...


class Replay(Node, Protocol):
    """The replay process."""

    def warm(self) -> None: ...

    def run(self, ranges: bytes) -> bytes: ...
