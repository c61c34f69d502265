"""The structs of the wire contract as frozen typed values; ``bookkeeper.thrift`` describes each field.

``BlockRange``, ``Extent``, ``RowRange``, ``TargetKey``, ``StreamKey`` and ``LocalityGroup`` are those of
:mod:`bookkeeper.model`; ``structs`` lists all of them. Lists arrive as tuples. Record batches (``records``) are Arrow
IPC record batch messages without a schema message. A test compares every class with the contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bookkeeper.model import BlockRange, Extent, LocalityGroup, StreamKey, TargetKey

PROTOCOL_VERSION = 5


@dataclass(frozen=True, slots=True)
class Fault:
    """An encoded error; only :mod:`bookkeeper.rpc.contract.faults` uses it."""

    transient_: bool
    code: str
    message: str
    details: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Hello:
    """The identity of a process. ``instance_id`` is empty for a plain client; ``role`` is client, master, tserver or
    replay.
    """

    protocol_version: int
    instance_id: str
    cluster_name: str
    role: str


@dataclass(frozen=True, slots=True)
class TabletLocation:
    """The location of a tablet: ``address`` is ``host:port``, None while no tserver has it. ``placed`` rises when the
    tablet moves to another tserver, splits or merges; None = it was never assigned. ``problem`` says why no tserver can
    serve it until an operator acts, ``warning`` what fails while a tserver serves it, or which host it waits for; both
    are usually None. ``loaded``: whether its tserver serves it, by that tserver's last report; None = unknown.
    ``replicas`` are the addresses of the live hosts that hold a replica, for reads with ``stale_ms``; empty for a table
    with one replica.
    """

    extent: Extent
    address: str | None
    placed: int | None = None
    problem: str | None = None
    warning: str | None = None
    loaded: bool | None = None
    replicas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TabletProblem:
    """A repeated failure of a tablet that is served, and its reason."""

    extent: Extent
    reason: str


@dataclass(frozen=True, slots=True)
class ServedTablets:
    """The tablets that a tserver serves, and the problems of some of them. ``without_room``: tablets with several
    replicas whose next segment or log record finds no room on the disk of this host.
    """

    extents: tuple[Extent, ...]
    problems: tuple[TabletProblem, ...] = ()
    without_room: tuple[Extent, ...] = ()


@dataclass(frozen=True, slots=True)
class SplitPoint:
    """The row that splits a tablet near the middle of its segments; None: ``reason`` says why no row does.
    ``size_bytes`` are those of its segments as far as they lie in the tablet, ``shared_bytes`` the part of them in
    files of several tablets.
    """

    size_bytes: int
    shared_bytes: int
    row: bytes | None
    reason: str


@dataclass(frozen=True, slots=True)
class OperationInfo:
    """A FATE operation that runs, or that failed recently (``step`` is ``failed``). ``note`` says what it waits for, or
    its error; ``arguments`` are JSON; ``begun_ms`` is in milliseconds since 1970.
    """

    txid: str
    kind: str
    step: str
    note: str
    arguments: str
    begun_ms: int


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as the master describes it. ``state`` is creating, online or deleting; ``properties`` has the
    values that were set; all others have their defaults.
    """

    table_id: str
    name: str
    state: str
    groups: tuple[LocalityGroup, ...]
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class WriteBatch:
    """Complete row mutations for a tablet in the client's cache. ``placed`` is that of its location: a tserver that got
    the tablet later refuses them; None = no check.
    """

    extent: Extent
    records: bytes
    placed: int | None = None


@dataclass(frozen=True, slots=True)
class WriteResult:
    """Extents of the batches that were not applied, because the tserver does not serve their tablets."""

    not_serving: tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on a cell of a row: its newest version has this ``value``; None = the cell does not exist."""

    family: bytes
    qualifier: bytes
    visibility: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """One page of a tablet. ``columns``: family, qualifier, family, ...; ``resume`` is that of the previous page;
    ``versions`` None = all that the table retains; timestamps in ``[from_ms, to_ms)``. ``authorizations`` None = all
    that ``user`` (None = root) has. ``stale_ms``: any host with a replica may answer from a state that is at most so
    old, and not older than ``least_state``; None = the leader answers.
    """

    extent: Extent
    start_row: bytes | None
    stop_row: bytes | None
    families: tuple[bytes, ...]
    columns: tuple[bytes, ...]
    resume: bytes | None
    page_bytes: int
    versions: int | None = None
    from_ms: int | None = None
    to_ms: int | None = None
    user: str | None = None
    authorizations: tuple[str, ...] | None = None
    stale_ms: int | None = None
    least_state: int | None = None


@dataclass(frozen=True, slots=True)
class ScanPage:
    """Sorted records, versions newest first, deletes resolved; ``resume`` None = no more records in the tablet. Of a
    page that the leader did not serve, ``state_id`` is its state, which has every write acknowledged until
    ``as_of_ms``.
    """

    records: bytes
    resume: bytes | None
    state_id: int | None = None
    as_of_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CompactionTicket:
    """A tablet that is not compacted yet; ``ticket`` 0 = the request did not reach it yet."""

    extent: Extent
    ticket: int


@dataclass(frozen=True, slots=True)
class CompactRequest:
    """The tablets of a table with rows from ``begin_row`` to ``end_row``, both included (None = no end); ``tickets``
    is empty for a new request, else the result of the previous call.
    """

    table: str
    begin_row: bytes | None
    end_row: bytes | None
    tickets: tuple[CompactionTicket, ...]


@dataclass(frozen=True, slots=True)
class TableUsage:
    """The size of a table on disk: its tablets, their segment files, and the records and bytes in these files."""

    table: str
    tablets: int
    segments: int
    records: int
    bytes: int  # the name in the contract


@dataclass(frozen=True, slots=True)
class ImportRequest:
    """Import the files of a directory on the master's machine; the same ``request_id`` again is the same import."""

    request_id: str
    table: str
    directory: str
    time_ms: int | None


@dataclass(frozen=True, slots=True)
class CopyRequest:
    """A table to or from a directory on the master's machine; the same ``request_id`` again is the same copy."""

    request_id: str
    table: str
    directory: str


@dataclass(frozen=True, slots=True)
class BulkProgress:
    """The progress of an import or export; ``records`` counts once it is done."""

    done: bool
    records: int


@dataclass(frozen=True, slots=True)
class TargetStatus:
    """The state of one log file for one target.

    ``state`` is OPEN or CLOSED (no record can follow). ``needed`` and ``finished`` are offsets of the file: records
    from 1. ``lag_records`` and ``lag_bytes`` are upper bounds of the target's share that it lacks, ``lag_seconds`` of
    the age of its oldest record. ``phase`` is waiting, shipping, blocked, uncopied, backing_off, failing, quarantined,
    unsealed or done; ``next_try_in_ms`` is the time to the next try, ``worker`` the tserver that ships it (None =
    none). ``records_shipped`` and ``bytes_shipped`` count each record once, ``resends`` counts messages that were sent
    again. ``groups`` empty = all locality groups.
    """

    file: str
    target: TargetKey
    state: str
    needed: int
    finished: int
    lag_records: int
    lag_bytes: int
    lag_seconds: float
    phase: str
    last_error: str | None
    next_try_in_ms: int | None
    worker: str | None
    records_shipped: int
    bytes_shipped: int
    resends: int
    table: str
    groups: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ReplicationReport:
    """The files that are not removed yet for their targets. ``age_ms`` is the age of the data in milliseconds,
    ``problem`` says why the master has no newer data; "" = no problem.
    """

    targets: tuple[TargetStatus, ...]
    age_ms: int
    problem: str


@dataclass(frozen=True, slots=True)
class QuarantinedRange:
    """A range of records of a file that one target lacks. ``state`` is blocking, held, retrying or skipping.
    ``since_ms`` is in milliseconds since 1970; 0 while the range blocks. ``tries`` counts the tries of this master.
    """

    range_id: str
    table: str
    target: TargetKey
    file: str
    blocks: BlockRange
    state: str
    error_code: str
    error: str
    since_ms: int
    tries: int


@dataclass(frozen=True, slots=True)
class FileMark:
    """A position in a log file: the ``offset`` of a record, from 1; 0 = before the first one."""

    file: str
    offset: int


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """A defined peer: its name here, its address, and its instance id, which never changes (rule R23)."""

    name: str
    quorum: str
    instance_id: str


@dataclass(frozen=True, slots=True)
class ReplicationConfig:
    """A configured target: ``remote_table`` is the table's name at the peer; ``groups`` empty = all locality
    groups.
    """

    table: str
    target: TargetKey
    groups: tuple[str, ...]
    remote_table: str


@dataclass(frozen=True, slots=True)
class ReplicationChange:
    """The targets of a table after a change; ``warnings`` name the records that a peer lacks and will not get."""

    targets: tuple[ReplicationConfig, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SourceBlock:
    """Records of one block of a source file, from ``first_offset`` to ``last_offset``, both included.

    ``records`` is an Arrow IPC record batch message of ``MUTATION_SCHEMA`` without the schema; ``decode_batch`` of
    ``bookkeeper.storage.wal`` reads it. ``record_count`` may be less than the offset range, because records that are
    not for the target are filtered out. ``min_row`` and ``max_row`` are its first and last row in order.
    ``block_origins`` says where the records were first written (rule R22); None = in this file.
    """

    first_offset: int
    last_offset: int
    records: bytes
    record_count: int
    min_row: bytes
    max_row: bytes
    block_origins: bytes | None = None


@dataclass(frozen=True, slots=True)
class ReplicateRequest:
    """All records of a source file in ``(after_offset, to_offset]`` for one target table."""

    stream_session: str
    stream: StreamKey
    provenance: tuple[str, ...]
    acked_offset: int
    after_offset: int
    to_offset: int
    blocks: tuple[SourceBlock, ...]


@dataclass(frozen=True, slots=True)
class ReplicateResult:
    """The outcome of a request: records that it wrote, and duplicates that it dropped."""

    acked_offset: int
    records_applied: int
    records_dropped: int


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """One receiving tablet's share of a :class:`ReplicateRequest`."""

    extent: Extent
    stream: StreamKey
    provenance: tuple[str, ...]
    acked_offset: int
    after_offset: int
    to_offset: int
    blocks: tuple[SourceBlock, ...]


@dataclass(frozen=True, slots=True)
class WorkItem:
    """A range of a file to ship, offsets inclusive, on behalf of the FATE operation ``txid``.

    The ranges in ``passed`` are in quarantine and count as finished once all records before them are. ``run_id`` names
    a separate stream, which the books do not record; then ``passed`` has everything before the range.
    """

    txid: str
    file: str
    target: TargetKey
    first_offset: int
    last_offset: int
    peer_quorum: str
    peer_instance_id: str
    epoch: int
    passed: tuple[BlockRange, ...] = ()
    run_id: str = ""


@dataclass(frozen=True, slots=True)
class WorkReport:
    """The progress of a worker; ``finished_offset`` is durable on the peer and, without a ``run_id``, in the books.
    ``failed`` is the smallest range with a permanent error, if the error belongs to a range. ``share_records`` and
    ``share_bytes``: the target's share of the file up to ``finished_offset``.
    """

    txid: str
    file: str
    target: TargetKey
    finished_offset: int
    records: int
    bytes: int  # the name in the contract
    filtered: int
    resends: int
    error: str | None
    error_transient: bool
    queued_ranges: int
    error_code: str | None = None
    failed: BlockRange | None = None
    run_id: str = ""
    share_records: int = 0
    share_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TabletAssignment:
    """A tablet to load, its directory, and the epoch of the master that decided it."""

    extent: Extent
    directory: str
    epoch: int
