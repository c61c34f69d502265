"""The services of the wire contract as Protocols: a handler implements one, and a client calls it.

``make contract`` writes this module from ``bookkeeper.thrift``. The server itself answers ``hello``. Every method may
raise any :class:`bookkeeper.errors.BookkeeperError`; the caller gets the same class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from bookkeeper.model import Extent, LocalityGroup, RowRange, StreamKey
from bookkeeper.origins import RootLog
from bookkeeper.rpc.contract.messages import (
    AdoptRequest,
    ApplyRequest,
    BulkProgress,
    ClusterInfo,
    CompactionTicket,
    CompactRequest,
    Condition,
    CopyRequest,
    FileMark,
    FileRequest,
    HeldReplicas,
    HostInfo,
    ImportRequest,
    LogPart,
    LogSeal,
    OfferAnswer,
    OperationInfo,
    QuarantinedRange,
    ReplicaContent,
    ReplicateRequest,
    ReplicateResult,
    ReplicationChange,
    ReplicationConfig,
    ReplicationReport,
    RootQuestion,
    RootStanding,
    ScanPage,
    ScanRequest,
    SegmentAck,
    SegmentAnswer,
    SegmentOffer,
    SegmentPart,
    SegmentsOffer,
    SegmentTransit,
    ServedTablets,
    SplitPoint,
    StateConfirmation,
    TableInfo,
    TabletAssignment,
    TabletLocation,
    TabletReplicas,
    TableUsage,
    TargetStatus,
    WhyReport,
    WorkItem,
    WorkReport,
    WriteBatch,
    WriteResult,
)


class Node(Protocol):
    """Every process."""

    def status(self) -> Mapping[str, str]:
        """Status of this process, for people. It contains tables, rows and paths, so peers may not read it."""


class Master(Node, Protocol):
    """The master; a master that does not lead answers ``leader``, and refuses all other methods with not_leader."""

    def leader(self) -> str:
        """``host:port`` of the leading master."""

    def tables(self) -> Sequence[TableInfo]:
        """All tables."""

    def locate(self, table_id: str) -> Sequence[TabletLocation]:
        """The tablets of a table."""

    def locate_tablet(self, table_id: str, row: bytes) -> TabletLocation:
        """The tablet of the row; tservers load it first."""

    def create_table(
        self, name: str, splits: Sequence[bytes], groups: Sequence[LocalityGroup], properties: Mapping[str, str]
    ) -> TableInfo: ...

    def delete_table(self, name: str) -> None: ...

    def set_groups(self, name: str, groups: Sequence[LocalityGroup]) -> None: ...

    def change_properties(self, name: str, changes: Mapping[str, str], removals: Sequence[str]) -> TableInfo: ...

    def set_read_only(self, read_only: bool) -> None:
        """For all tables; a single table has the property table.read_only."""

    def is_read_only(self) -> bool: ...

    def flush_table(self, name: str) -> None: ...

    def compact_table(self, request: CompactRequest) -> Sequence[CompactionTicket]:
        """The tablets to wait for; empty = done."""

    def import_directory(self, request: ImportRequest) -> BulkProgress: ...

    def export_table(self, request: CopyRequest) -> BulkProgress:
        """The directory must be empty or missing."""

    def import_table(self, request: CopyRequest) -> BulkProgress:
        """Creates the table."""

    def hosts(self) -> Sequence[HostInfo]: ...

    def drain_host(self, name: str, draining: bool) -> None:
        """``draining``: the host gives its replicas away."""

    def forget_host(self, name: str) -> None:
        """The logs on its lost disk are lost for ever."""

    def table_replicas(self, table_id: str, with_segments: bool) -> Sequence[TabletReplicas]: ...

    def disk_usage(self, tables: Sequence[str]) -> Sequence[TableUsage]:
        """``tables`` empty = every table."""

    def set_authorizations(self, user: str, authorizations: Sequence[str]) -> None:
        """Replaces the previous authorizations."""

    def authorizations(self, user: str) -> Sequence[str]: ...

    def add_splits(self, name: str, rows: Sequence[bytes], onto: Sequence[str]) -> None:
        """Adds tablet borders at these rows. The tablets that end there begin to move to the hosts of ``onto``;
        empty = they stay.
        """

    def merge_tablets(self, name: str, rows: RowRange) -> None:
        """Merges all tablets with rows in the range into one."""

    def operations(self) -> Sequence[OperationInfo]:
        """The operations that run, or failed recently."""

    def clusters(self) -> Sequence[ClusterInfo]: ...

    def define_cluster(self, name: str, quorum: str) -> ClusterInfo: ...

    def delete_cluster(self, name: str, quorum: str) -> None: ...

    def enable_replication(
        self, table: str, groups: Sequence[str], cluster: str, remote_table: str
    ) -> ReplicationChange:
        """``groups`` empty = all."""

    def disable_replication(self, table: str, groups: Sequence[str], cluster: str) -> ReplicationChange: ...

    def replication_config(self) -> Sequence[ReplicationConfig]: ...

    def replication_status(self, table: str) -> ReplicationReport:
        """``table`` empty = all tables; not_ready until the master has read its data."""

    def replication_why(self, about: str) -> WhyReport:
        """``about``: a table, a peer, a log file or the end of its name; empty = everything."""

    def quarantine(self, table: str) -> Sequence[QuarantinedRange]:
        """``table`` empty = all tables; not_ready until the master has read its data."""

    def hold_range(self, range_id: str) -> QuarantinedRange:
        """Quarantines a blocking range, so that the queue continues."""

    def retry_range(self, range_id: str) -> None:
        """Ships the range; returns once the peer has it."""

    def skip_range(self, range_id: str) -> None:
        """Discards the range."""

    def replication_mark(self, table: str) -> Sequence[FileMark]:
        """The position of every WAL of the table now, fsynced."""

    def replication_pending(self, marks: Sequence[FileMark], table: str, cluster: str) -> Sequence[TargetStatus]:
        """Empty = the marks are replicated."""

    def resolve_table(self, name: str) -> str:
        """The id of the table; not_found otherwise."""

    def pick_tserver(self, table_id: str) -> str:
        """``host:port`` of a tserver."""

    def stream_done(self, streams: Sequence[StreamKey]) -> None:
        """The source never sends these again."""

    def root_standings(self, route: Sequence[str], questions: Sequence[RootQuestion]) -> Sequence[RootStanding]:
        """Answered at the end of the route of instances; empty route = here. A relay asks about logs of other
        clusters: the master checks whether it sent records of them.
        """

    def roots_over(self, route: Sequence[str], logs: Sequence[RootLog]) -> None:
        """No record of these logs is in transit anywhere. The master checks the caller as in root_standings."""

    def check_in(self, known: int, number: int) -> int:
        """The number that the calling cluster left here last, 0 at first. If it is at least ``known``, this cluster
        remembers ``number`` from now on; a lower one shows that this cluster came back from a backup.
        """

    def nudge(self, session_id: str) -> None:
        """There are new records to replicate."""

    def report_work(self, session_id: str, reports: Sequence[WorkReport]) -> None: ...

    def report_replay(self, session_id: str, problem: str) -> None:
        """A replay process works (``problem`` is empty), or says what keeps it from its work before it ends."""


class TServer(Node, Protocol):
    """A tserver."""

    def write(self, batches: Sequence[WriteBatch], durability: str, writer: str, attempt: int) -> WriteResult:
        """A writer counts its calls in ``attempt``: once a tablet has seen an attempt, it refuses lower ones. Empty
        writer: no check. Together with ``placed`` this also holds after the tablet, or a part of it, moved.
        """

    def write_if(self, extent: Extent, conditions: Sequence[Condition], records: bytes, durability: str) -> bool:
        """Writes to one row; false = a condition does not hold and no record was written."""

    def scan(self, request: ScanRequest) -> ScanPage: ...

    def load_tablet(self, assignment: TabletAssignment) -> None:
        """Idempotent."""

    def unload_tablet(self, extent: Extent, epoch: int, discard: bool) -> None: ...

    def tablets(self) -> ServedTablets: ...

    def flush_tablet(self, extent: Extent) -> None: ...

    def compact_tablet(self, extent: Extent, ticket: int) -> int:
        """``ticket`` 0 = a new request; returns 0 when it is done, else the ticket for the next call."""

    def split_point(self, extent: Extent, row_bytes_max: int) -> SplitPoint:
        """From the indexes of the tablet's segments; ``row_bytes_max``: the longest row at which it may be split."""

    def adopt_segments(self, request: AdoptRequest) -> None:
        """Idempotent until its stream is forgotten."""

    def confirm_config(self, generation: int) -> int:
        """Returns once every later block has the targets of that generation."""

    def wal_positions(self, table_id: str) -> Sequence[FileMark]:
        """The synced position of every own WAL with records of the table."""

    def assign_work(self, items: Sequence[WorkItem]) -> None:
        """Idempotent; overloaded when the queue is full."""

    def follow(self, cluster: str, run: str, results: bytes, wait_ms: int) -> bytes:
        """By a task of a replay process that follows the logs of this tserver for a peer. Arrow IPC streams: the
        result rows of the ranges that the task got last in, the next ranges out, as soon as there are some and at
        most after ``wait_ms``. No bytes at all: the task is over.
        """

    def work_reports(self) -> Sequence[WorkReport]:
        """The latest per (txid, target)."""

    def forget_streams(self, streams: Sequence[StreamKey]) -> None: ...

    def forget_roots(self, logs: Sequence[RootLog]) -> None: ...

    def confirm_states(self, leader: str, confirmations: Sequence[StateConfirmation]) -> Sequence[bool]:
        """By the leader on a host; false: offer the segment instead."""

    def replicas(self, table_id: str, with_segments: bool) -> HeldReplicas:
        """The replicas on this host; ``table_id`` empty = of all tables."""

    def tablet_replica(self, table_id: str, directory: str) -> HeldReplicas:
        """At most one, with its segments."""

    def divide_replica(self, source: str, children: Sequence[Extent]) -> Sequence[Extent]:
        """After a split of the tablet in the directory ``source``; returns the children that this host has
        completely.
        """

    def read_replica(self, table_id: str, directory: str, file: str, start: int) -> ReplicaContent:
        """Content of a file on this host."""

    def take_replica(self, extent: Extent, files: Mapping[str, str]) -> bool:
        """From the Volume; ``files``: name on the host to name there. Returns whether the host has the named state."""

    def publish_replica(self, extent: Extent) -> bool:
        """To the Volume; false = the host lacks a file of the named state."""

    def read_log(self, incarnation: str, name: str, position: int, length: int) -> LogPart:
        """A part of a log, or of a file beside a log; length 0 asks for the size."""

    def list_logs(self, incarnation: str, prefix: str, after: str) -> Sequence[str]:
        """Names that begin with the prefix, in order, behind the name ``after``; empty = no more. At most
        LOG_NAMES_MAX.
        """

    def seal_log(self, incarnation: str, name: str, is_used: bool, durable_offset: int) -> LogSeal:
        """Fences and seals the log of a dead session; refused for the session that runs there; idempotent."""

    def drop_logs(self, incarnation: str, names: Sequence[str]) -> None:
        """At most LOG_DROPS_MAX; refused unless the books have a ~del_ row for each log; idempotent."""

    def open_stream(self, stream: StreamKey) -> str:
        """A session token, which expires when idle."""

    def replicate(self, request: ReplicateRequest) -> ReplicateResult: ...

    def offer_segments(self, offer: SegmentsOffer) -> OfferAnswer: ...

    def put_segment(self, part: SegmentPart) -> None:
        """In order; bytes that are here already are skipped."""

    def take_segments(self, stream_session: str, stream: StreamKey) -> OfferAnswer:
        """After all files were put; answers taken or declined."""

    def segment_offer(self, offer: SegmentOffer) -> SegmentAnswer: ...

    def segment_transit(self, transit: SegmentTransit) -> SegmentAck:
        """In order; bytes that are here already are skipped."""

    def replica_content(self, request: FileRequest) -> bytes:
        """At most CONTENT_BYTES_MAX of a file that this host holds sound."""

    def apply_replicated(self, request: ApplyRequest) -> ReplicateResult: ...


class Replay(Node, Protocol):
    """The replay process."""

    def warm(self) -> None: ...

    def run(self, ranges: bytes) -> bytes:
        """Arrow IPC streams: range descriptors in, one result row per range out."""

    def follow(self, tserver: str, cluster: str, run: str) -> None:
        """Begins a task that follows the logs of a tserver for a peer, and returns when it is over. No other task
        has the same ``run``.
        """

    def note(self, ranges: bytes, results: bytes) -> None:
        """By a tserver: ranges that tasks followed, and their result rows, as in ``run``, for the journal."""
