"""The structs of the wire contract as frozen typed values; ``bookkeeper.thrift`` describes each field.

``BlockRange``, ``Extent``, ``RowRange``, ``TargetKey``, ``StreamKey`` and ``LocalityGroup`` are those of
:mod:`bookkeeper.model`; ``structs`` lists all of them. Lists arrive as tuples. Record batches (``records``) are Arrow
IPC record batch messages without a schema message. A test compares every class with the contract.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bookkeeper.model import BlockRange, Extent, LocalityGroup, StreamKey, TargetKey

PROTOCOL_VERSION = 5


class Fault(Struct, frozen=True):
    """An encoded error; only :mod:`bookkeeper.rpc.contract.faults` uses it."""

    transient_: bool
    code: str
    message: str
    details: Mapping[str, str] | None = None


class Hello(Struct, frozen=True):
    """The identity of a process. ``instance_id`` is empty for a plain client; ``role`` is client, master, tserver or
    replay.
    """

    protocol_version: int
    instance_id: str
    cluster_name: str
    role: str


class TabletLocation(Struct, frozen=True):
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


class TabletProblem(Struct, frozen=True):
    """A repeated failure of a tablet that is served, and its reason."""

    extent: Extent
    reason: str


class ServedTablets(Struct, frozen=True):
    """The tablets that a tserver serves, and the problems of some of them. ``without_room``: tablets with several
    replicas whose next segment or log record finds no room on the disk of this host.
    """

    extents: tuple[Extent, ...]
    problems: tuple[TabletProblem, ...] = ()
    without_room: tuple[Extent, ...] = ()


class SplitPoint(Struct, frozen=True):
    """The row that splits a tablet near the middle of its segments; None: ``reason`` says why no row does.
    ``size_bytes`` are those of its segments as far as they lie in the tablet, ``shared_bytes`` the part of them in
    files of several tablets.
    """

    size_bytes: int
    shared_bytes: int
    row: bytes | None
    reason: str


class OperationInfo(Struct, frozen=True):
    """A FATE operation that runs, or that failed recently (``step`` is ``failed``). ``note`` says what it waits for, or
    its error; ``arguments`` are JSON; ``begun_ms`` is in milliseconds since 1970.
    """

    txid: str
    kind: str
    step: str
    note: str
    arguments: str
    begun_ms: int


class TableInfo(Struct, frozen=True):
    """A table as the master describes it. ``state`` is creating, online or deleting; ``properties`` has the
    values that were set; all others have their defaults.
    """

    table_id: str
    name: str
    state: str
    groups: tuple[LocalityGroup, ...]
    properties: Mapping[str, str]


class WriteBatch(Struct, frozen=True):
    """Complete row mutations for a tablet in the client's cache. ``placed`` is that of its location: a tserver that got
    the tablet later refuses them; None = no check.
    """

    extent: Extent
    records: bytes
    placed: int | None = None


class WriteResult(Struct, frozen=True):
    """Extents of the batches that were not applied, because the tserver does not serve their tablets."""

    not_serving: tuple[Extent, ...]


class Condition(Struct, frozen=True):
    """A condition on a cell of a row: its newest version has this ``value``; None = the cell does not exist."""

    family: bytes
    qualifier: bytes
    visibility: bytes
    value: bytes | None


class ScanRequest(Struct, frozen=True):
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


class ScanPage(Struct, frozen=True):
    """Sorted records, versions newest first, deletes resolved; ``resume`` None = no more records in the tablet. Of a
    page that the leader did not serve, ``state_id`` is its state, which has every write acknowledged until
    ``as_of_ms``.
    """

    records: bytes
    resume: bytes | None
    state_id: int | None = None
    as_of_ms: int | None = None


class CompactionTicket(Struct, frozen=True):
    """A tablet that is not compacted yet; ``ticket`` 0 = the request did not reach it yet."""

    extent: Extent
    ticket: int


class CompactRequest(Struct, frozen=True):
    """The tablets of a table with rows from ``begin_row`` to ``end_row``, both included (None = no end); ``tickets``
    is empty for a new request, else the result of the previous call.
    """

    table: str
    begin_row: bytes | None
    end_row: bytes | None
    tickets: tuple[CompactionTicket, ...]


class TableUsage(Struct, frozen=True):
    """The size of a table on disk: its tablets, their segment files, and the records and bytes in these files."""

    table: str
    tablets: int
    segments: int
    records: int
    bytes: int  # the name in the contract


class ImportRequest(Struct, frozen=True):
    """Import the files of a directory on the master's machine; the same ``request_id`` again is the same import."""

    request_id: str
    table: str
    directory: str
    time_ms: int | None


class CopyRequest(Struct, frozen=True):
    """A table to or from a directory on the master's machine; the same ``request_id`` again is the same copy."""

    request_id: str
    table: str
    directory: str


class BulkProgress(Struct, frozen=True):
    """The progress of an import or export; ``records`` counts once it is done."""

    done: bool
    records: int


class TargetStatus(Struct, frozen=True):
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


class ReplicationReport(Struct, frozen=True):
    """The files that are not removed yet for their targets. ``age_ms`` is the age of the data in milliseconds,
    ``problem`` says why the master has no newer data; "" = no problem.
    """

    targets: tuple[TargetStatus, ...]
    age_ms: int
    problem: str


class QuarantinedRange(Struct, frozen=True):
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


class FileMark(Struct, frozen=True):
    """A position in a log file: the ``offset`` of a record, from 1; 0 = before the first one."""

    file: str
    offset: int


class ClusterInfo(Struct, frozen=True):
    """A defined peer: its name here, its address, and its instance id, which never changes (rule R23)."""

    name: str
    quorum: str
    instance_id: str


class ReplicationConfig(Struct, frozen=True):
    """A configured target: ``remote_table`` is the table's name at the peer; ``groups`` empty = all locality
    groups.
    """

    table: str
    target: TargetKey
    groups: tuple[str, ...]
    remote_table: str


class ReplicationChange(Struct, frozen=True):
    """The targets of a table after a change; ``warnings`` name the records that a peer lacks and will not get."""

    targets: tuple[ReplicationConfig, ...]
    warnings: tuple[str, ...]


class SourceBlock(Struct, frozen=True):
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


class ReplicateRequest(Struct, frozen=True):
    """All records of a source file in ``(after_offset, to_offset]`` for one target table."""

    stream_session: str
    stream: StreamKey
    provenance: tuple[str, ...]
    acked_offset: int
    after_offset: int
    to_offset: int
    blocks: tuple[SourceBlock, ...]


class ReplicateResult(Struct, frozen=True):
    """The outcome of a request: records that it wrote, and duplicates that it dropped."""

    acked_offset: int
    records_applied: int
    records_dropped: int


class ApplyRequest(Struct, frozen=True):
    """One receiving tablet's share of a :class:`ReplicateRequest`."""

    extent: Extent
    stream: StreamKey
    provenance: tuple[str, ...]
    acked_offset: int
    after_offset: int
    to_offset: int
    blocks: tuple[SourceBlock, ...]


class WorkItem(Struct, frozen=True):
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


class WorkReport(Struct, frozen=True):
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


class TabletAssignment(Struct, frozen=True):
    """A tablet to load, its directory, and the epoch of the master that decided it."""

    extent: Extent
    directory: str
    epoch: int
