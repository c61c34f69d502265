"""The structs of the wire contract as frozen values.

``make contract`` writes this module from ``bookkeeper.thrift``. It lacks the structs that are classes of
:mod:`bookkeeper.model` or :mod:`bookkeeper.origins`. An absent field is None. Lists arrive as tuples. Batches of
records are Arrow IPC record batch messages without a schema message.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from bookkeeper.model import BlockRange, Extent, LocalityGroup, StreamKey, TargetKey
from bookkeeper.origins import RootLog

PROTOCOL_VERSION = 5
"""Both sides of a connection must have the same."""

TAKEN = "taken"
"""State of an OfferAnswer: it is all here."""

WANTED = "wanted"
"""State of an OfferAnswer: send the files."""

DECLINED = "declined"
"""State of an OfferAnswer: send records."""

CONTENT_BYTES_MAX = 1048576
"""Most content of one answer with a part of a file: 1 MiB."""

TRANSIT_BYTES_MAX = 4194304
"""Most content of one SegmentTransit: 4 MiB, because each message costs time besides its bytes."""

ACCEPTED = "accepted"
"""State of a SegmentAnswer: send the content."""

ACKED = "acked"
"""State of a SegmentAnswer: the segment is durable here."""

REFUSED = "declined"
"""State of a SegmentAnswer: the receiver does not take it."""

LOG_CONTENT_BYTES_MAX = 1048576
"""Most content of one LogPart: 1 MiB."""

LOG_NAMES_MAX = 10000
"""Most names in one answer to list_logs."""

LOG_DROPS_MAX = 1000
"""Most names in one call of drop_logs."""


class Fault(Struct, frozen=True):
    """An encoded error. In Python only ``bookkeeper.rpc.contract.faults`` uses it."""

    transient_: bool
    code: str
    """Stable name of the error class."""
    message: str
    details: Mapping[str, str] | None = None


class Hello(Struct, frozen=True):
    """The identity of a process."""

    protocol_version: int
    instance_id: str
    """Empty for a plain client."""
    cluster_name: str
    role: str
    """One of client, master, tserver, replay."""


class TabletLocation(Struct, frozen=True):
    """The location of a tablet."""

    extent: Extent
    address: str | None
    """``host:port``; absent = no tserver serves it."""
    placed: int | None = None
    """Rises when the tablet moves to another tserver, splits or merges; absent = it was never assigned."""
    problem: str | None = None
    """Why no tserver can serve it until an operator acts, for example a damaged file; usually absent."""
    warning: str | None = None
    """What fails while a tserver serves it, for example its compaction, or which host it waits for; usually absent."""
    loaded: bool | None = None
    """Whether its tserver serves it, by the last report of that tserver; absent = unknown."""
    replicas: tuple[str, ...] = ()
    """Addresses of the live hosts that hold a replica, for reads with ``stale_ms``; empty for a table with one
    replica.
    """


class TabletProblem(Struct, frozen=True):
    """A repeated failure of a tablet that is served, and its reason."""

    extent: Extent
    reason: str


class ServedTablets(Struct, frozen=True):
    """The tablets that a tserver serves."""

    extents: tuple[Extent, ...]
    problems: tuple[TabletProblem, ...] = ()
    """What fails repeatedly for some of them until an operator acts."""
    without_room: tuple[Extent, ...] = ()
    """Those with several replicas that another host should lead: the next segment or log record finds no room on the
    disk of this host, or a damaged file is here alone, so that no state is ever named.
    """


class SplitPoint(Struct, frozen=True):
    """The row that splits a tablet near the middle of its segments."""

    size_bytes: int
    """Of the segments, as far as their rows lie in the tablet."""
    shared_bytes: int
    """The part of it that lies in files of several tablets."""
    row: bytes | None
    """Absent: no row splits it."""
    reason: str
    """Why no row does."""


class OperationInfo(Struct, frozen=True):
    """A FATE operation that runs, or that failed recently."""

    txid: str
    kind: str
    step: str
    """``failed`` = the operation ended with an error."""
    note: str
    """What the operation waits for, or its error; may be empty."""
    arguments: str
    """JSON, as in the books."""
    begun_ms: int
    """Milliseconds since 1970."""
    left: int | None = None
    """Of its present step, in units; absent = not known."""
    unit: str | None = None
    """Of what is left: bytes, or a plural."""


class TableInfo(Struct, frozen=True):
    """A table as the master describes it."""

    table_id: str
    name: str
    state: str
    """One of creating, online, deleting."""
    groups: tuple[LocalityGroup, ...]
    properties: Mapping[str, str]
    """The values that were set; all others have their defaults."""


class WriteBatch(Struct, frozen=True):
    """Complete row mutations for a tablet in the client's cache."""

    extent: Extent
    """The tserver checks the rows against the tablet that it serves."""
    records: bytes
    """Arrow record batch."""
    placed: int | None = None
    """Of the location; a tserver that got the tablet later refuses the batch. Absent = no check."""


class WriteResult(Struct, frozen=True):
    """The outcome of a write."""

    not_serving: tuple[Extent, ...]
    """Of the batches that were not applied, because the tserver does not serve their tablets."""


class Condition(Struct, frozen=True):
    """A condition on a cell of a row."""

    family: bytes
    qualifier: bytes
    visibility: bytes
    value: bytes | None
    """Of the newest version of the cell; absent = the cell must not exist."""


class ScanRequest(Struct, frozen=True):
    """A request for one page of a tablet."""

    extent: Extent
    start_row: bytes | None
    """Inclusive."""
    stop_row: bytes | None
    """Exclusive."""
    families: tuple[bytes, ...]
    """Empty = all."""
    columns: tuple[bytes, ...]
    """Pairs family, qualifier, flattened; empty = all."""
    resume: bytes | None
    """``resume`` of the previous page."""
    page_bytes: int
    versions: int | None = None
    """Most versions of a cell; absent = all that the table retains (table.versions.max)."""
    from_ms: int | None = None
    """Timestamps, inclusive."""
    to_ms: int | None = None
    """Exclusive."""
    user: str | None = None
    """Absent = root; users are not authenticated yet."""
    authorizations: tuple[str, ...] | None = None
    """A subset of the user's authorizations; absent = all of them."""
    stale_ms: int | None = None
    """Any host with a replica may answer from a state that is at most so old; absent = the leader answers."""
    least_state: int | None = None
    """``state_id`` of the previous page: a host with an older state does not answer."""


class ScanPage(Struct, frozen=True):
    """A page of records."""

    records: bytes
    """Arrow record batch, sorted, versions of a cell newest first, deletes resolved; may be empty."""
    resume: bytes | None
    """Absent = no more records in this tablet."""
    state_id: int | None = None
    """Of a page that the leader did not serve: its state."""
    as_of_ms: int | None = None
    """The time up to which that state has every acknowledged write."""


class CompactionTicket(Struct, frozen=True):
    """A tablet that is not compacted yet."""

    extent: Extent
    ticket: int
    """0 = the request did not reach it yet."""


class CompactRequest(Struct, frozen=True):
    """The tablets of a table to compact."""

    table: str
    begin_row: bytes | None
    """Tablets with a row at or after this one."""
    end_row: bytes | None
    """Inclusive."""
    tickets: tuple[CompactionTicket, ...]
    """Empty = a new request; else the result of the previous call."""


class TableUsage(Struct, frozen=True):
    """The size of a table on disk, from the books; memtables are not counted."""

    table: str
    tablets: int
    segments: int
    """Files; a file that several tablets share counts once."""
    records: int
    """In these files, older versions and deletes included."""
    bytes: int


class ImportRequest(Struct, frozen=True):
    """An import of the files of a directory."""

    request_id: str
    """32 hex digits of the caller's choice; the same again is the same import."""
    table: str
    directory: str
    """Absolute, on the master's machine."""
    time_ms: int | None
    """Of records without a timestamp; absent = the start of the import."""


class BulkProgress(Struct, frozen=True):
    """The progress of an import, an export or a copy."""

    done: bool
    """False = still running; call again with the same request."""
    records: int
    """Counted once it is done."""
    left: int | None = None
    """Of its present step, in units; absent = not known."""
    unit: str | None = None
    """Of what is left: bytes, or a plural."""


class CopyRequest(Struct, frozen=True):
    """A copy of a table to or from a directory on the master's machine."""

    request_id: str
    """32 hex digits of the caller's choice; the same again is the same copy."""
    table: str
    directory: str
    """Absolute."""


class ImportedSegment(Struct, frozen=True):
    """A segment file of an import."""

    name: str
    entry: bytes
    """JSON, as in the books."""


class ImportedLog(Struct, frozen=True):
    """The log with the records of an import, for peers."""

    name: str
    offset: int
    """Of the last record."""
    position: int
    """The byte position after it."""
    created_ms: int


class RelayFacts(Struct, frozen=True):
    """Facts about another cluster's file for the peers that get it from here."""

    provenance: tuple[str, ...]
    """Instance ids that its records have passed, the sender's included."""
    root: str | None = None
    """Where the records were first written (``Root.encode``); absent = the source file itself."""


class AdoptRequest(Struct, frozen=True):
    """The segments of an import for one tablet."""

    extent: Extent
    stream: StreamKey
    """Identifies the import: a tablet takes it once."""
    segments: tuple[ImportedSegment, ...]
    log: ImportedLog | None = None
    """Of a replicated table."""
    through: int | None = None
    """Of another cluster's stream: its last offset, which the segments hold all of; absent = an import here."""
    relay: RelayFacts | None = None
    """Of another cluster's stream."""


class TargetStatus(Struct, frozen=True):
    """The state of one log file for one target."""

    file: str
    target: TargetKey
    state: str
    """OPEN, or CLOSED = no record can follow."""
    needed: int
    """Offset in the file: records from 1."""
    finished: int
    """Offset in the file."""
    lag_records: int
    """Upper bound of the target's share that it lacks."""
    lag_bytes: int
    """Upper bound, too."""
    lag_seconds: float | None
    """Age of the first record that it lacks; absent = unknown, because a new master has not read that record's
    header yet.
    """
    phase: str
    """One of waiting, shipping, blocked, uncopied, backing_off, failing, quarantined, unsealed, done."""
    last_error: str | None
    next_try_in_ms: int | None
    worker: str | None
    """The tserver that ships it; absent = none."""
    records_shipped: int
    """Each record counts once."""
    bytes_shipped: int
    resends: int
    """Messages that were sent again."""
    table: str
    groups: tuple[str, ...]
    """Empty = all locality groups."""
    cause: str | None = None
    """Why it waits, a kind as in WaitCause; absent = it waits for nothing."""
    root_cause: str | None = None
    """Of a file behind others: the kind of the one that all wait for."""


class ReplicationReport(Struct, frozen=True):
    """The files that are not removed yet for their targets."""

    targets: tuple[TargetStatus, ...]
    age_ms: int
    """Age of the data in the answer."""
    problem: str
    """Why the data is old, for example failed cycles; empty = no problem."""


class NextStep(Struct, frozen=True):
    """A command line with its names filled in."""

    at: str
    """The peer in whose directory it is typed; empty = this cluster."""
    command: str


class WaitCause(Struct, frozen=True):
    """Why records wait for a peer."""

    cluster: str
    """The peer."""
    kind: str
    """One of bookkeeper.master.queries.causes.KINDS."""
    tables: tuple[str, ...]
    text: str
    steps: tuple[NextStep, ...]
    needs_person: bool
    """It goes on until a person does something."""
    since_seconds: float | None
    """Absent = not known."""
    files: int
    records: int
    """That the peer lacks."""
    bytes: int
    file: str
    """The one that waits longest; of files behind others, the one at the root."""
    next_try_in_ms: int | None
    """Absent = none is planned."""
    tries: int
    """Failed ones in a row."""


class RetentionReason(Struct, frozen=True):
    """A reason to retain a file."""

    kind: str
    who: str
    detail: str


class LackingTarget(Struct, frozen=True):
    """The records of a file that a target lacks."""

    table: str
    cluster: str
    first: int
    """Offsets in the file, both included; 0 = it lacks nothing."""
    last: int
    records: int
    kind: str
    """As in WaitCause."""


class FileWhy(Struct, frozen=True):
    """Why a file is retained."""

    file: str
    bytes: int | None
    """Absent = it is gone, or its host is away."""
    reasons: tuple[RetentionReason, ...]
    targets: tuple[LackingTarget, ...]


class WhyReport(Struct, frozen=True):
    """The cause of each wait."""

    causes: tuple[WaitCause, ...]
    file: FileWhy | None
    targets: tuple[str, ...]
    """TABLE to PEER, for each configured target that was asked for."""
    age_ms: int
    """Age of the data in the answer."""
    problem: str
    """Why the data is old; empty = no problem."""


class QuarantinedRange(Struct, frozen=True):
    """A range of records of a file that can't be shipped to one target."""

    range_id: str
    table: str
    target: TargetKey
    file: str
    blocks: BlockRange
    state: str
    """One of blocking, held, retrying, skipping."""
    error_code: str
    error: str
    since_ms: int
    """Milliseconds since 1970; 0 while it blocks."""
    tries: int
    """By this master, while it blocks."""


class FileMark(Struct, frozen=True):
    """A position in a log file."""

    file: str
    offset: int
    """Of a record, from 1; 0 = before the first one."""


class RootQuestion(Struct, frozen=True):
    """A question about the end of a root log (rule R22)."""

    log: RootLog
    streams: tuple[RootLog, ...] = ()
    """Deleted logs of other clusters with records of this one that were sent to the answering cluster."""


class HandedOn(Struct, frozen=True, order=True):
    """An instance that received records of a root log, and the log in which they were sent."""

    instance_id: str
    file: str
    """A deleted log with records of it that was sent there; empty = records may still be sent."""


class RootStanding(Struct, frozen=True):
    """The answer of a cluster about a root log (rule R22)."""

    owed: bool
    """An existing log of the cluster has records of it that must still be sent on."""
    under_way: bool
    """The stream of a log in the question is still open there: a message may still bring records."""
    handed: tuple[HandedOn, ...]
    refused: bool | None = None
    """The caller neither wrote the log nor sent records of it: the other fields say nothing."""


class ClusterInfo(Struct, frozen=True):
    """A defined peer."""

    name: str
    """Its name here."""
    quorum: str
    """Its address."""
    instance_id: str
    """Never changes (rule R23)."""


class ReplicationConfig(Struct, frozen=True):
    """A configured target."""

    table: str
    target: TargetKey
    groups: tuple[str, ...]
    """Empty = all locality groups."""
    remote_table: str
    """The table's name at the peer."""


class ReplicationChange(Struct, frozen=True):
    """The targets of a table after replication was enabled or disabled."""

    targets: tuple[ReplicationConfig, ...]
    warnings: tuple[str, ...]
    """Records that a peer lacks and will not get."""


class SourceBlock(Struct, frozen=True):
    """Records of one block of a source file."""

    first_offset: int
    """Of the source file, both inclusive; blocks ascend and never cross the end of a range."""
    last_offset: int
    records: bytes
    """Arrow record batch without the schema; ``decode_batch`` of ``bookkeeper.storage.wal`` reads it."""
    record_count: int
    """May be less than the offset range: records that are not for the target are filtered out."""
    min_row: bytes
    """The first row in order."""
    max_row: bytes
    """The last one."""
    block_origins: bytes | None = None
    """``BlockOrigins`` of block.proto: where the records were first written (rule R22); absent = as the offsets say,
    in this file, unless filtered.
    """


class ReplicateRequest(Struct, frozen=True):
    """All records of a source file in ``(after_offset, to_offset]`` for one target table."""

    stream_session: str
    """From open_stream."""
    stream: StreamKey
    provenance: tuple[str, ...]
    """Instance ids, the sender's own included."""
    acked_offset: int
    """All records up to here are durable on every receiving tablet."""
    after_offset: int
    to_offset: int
    blocks: tuple[SourceBlock, ...]
    confirms: bool | None = None
    """The sender has the acknowledgement of these records already: count those that are missing here, and take none;
    the session is not checked; usually absent.
    """


class ReplicateResult(Struct, frozen=True):
    """The outcome of a request."""

    acked_offset: int
    records_applied: int
    """Records written now."""
    records_dropped: int
    """Duplicates."""
    records_missing: int | None = None
    """Of a request that confirms: the records that are not here; otherwise absent."""


class ApplyRequest(Struct, frozen=True):
    """One receiving tablet's share of a ReplicateRequest."""

    extent: Extent
    stream: StreamKey
    provenance: tuple[str, ...]
    acked_offset: int
    after_offset: int
    to_offset: int
    blocks: tuple[SourceBlock, ...]
    confirms: bool | None = None
    """As in ReplicateRequest; usually absent."""


class OfferedSegment(Struct, frozen=True):
    """A segment file of a source file."""

    entry: bytes
    """JSON, as in the books."""
    sha256: str
    """Of the file, hex."""


class SegmentsOffer(Struct, frozen=True):
    """A source file as segments, for one target table."""

    stream_session: str
    """From open_stream."""
    stream: StreamKey
    provenance: tuple[str, ...]
    """Instance ids, the sender's own included."""
    to_offset: int
    """Of the source file's last record: the segments have all records for the target up to there."""
    groups: tuple[LocalityGroup, ...]
    """The locality groups of the segments."""
    row_bytes: int
    """Of the longest row, column part and value."""
    column_bytes: int
    value_bytes: int
    segments: tuple[OfferedSegment, ...]
    root: str | None = None
    """Instance id, log and table where its records were first written, with the same offsets (``Root.encode``);
    absent = in the source file.
    """


class OfferAnswer(Struct, frozen=True):
    """The outcome of an offer."""

    state: str
    """TAKEN, WANTED or DECLINED."""
    reason: str = ""
    """Why it is declined."""
    received_bytes: tuple[int, ...] = ()
    """Bytes of each file that are here already, when they are wanted."""


class SegmentPart(Struct, frozen=True):
    """Some bytes of a file of an offer."""

    stream_session: str
    stream: StreamKey
    number: int
    """Index of the file, from 0."""
    start: int
    """Position of the part in the file."""
    content: bytes


class WorkItem(Struct, frozen=True):
    """A range of a file to ship."""

    txid: str
    """The FATE operation that owns it."""
    file: str
    target: TargetKey
    first_offset: int
    """Inclusive, both."""
    last_offset: int
    peer_quorum: str
    peer_instance_id: str
    epoch: int
    """Of the master that assigns it."""
    passed: tuple[BlockRange, ...] = ()
    """Quarantined ranges: they count as finished once all records before them are. With a ``run_id`` it has
    everything before the range.
    """
    run_id: str = ""
    """Empty = the target's stream; else a separate stream, which the books do not record."""


class WorkReport(Struct, frozen=True):
    """The progress of a worker."""

    txid: str
    file: str
    target: TargetKey
    finished_offset: int
    """Durable on the peer and, without a ``run_id``, written to the books."""
    records: int
    bytes: int
    filtered: int
    resends: int
    error: str | None
    error_transient: bool
    queued_ranges: int
    error_code: str | None = None
    failed: BlockRange | None = None
    """The smallest range that has a permanent error, if the error belongs to one."""
    run_id: str = ""
    share_records: int = 0
    """Records for the target in the file up to finished_offset."""
    share_bytes: int = 0
    """Bytes of the blocks with those records."""
    failed_at: str | None = None
    """The place of the error: log, replay, books or peer; absent = not known."""


class TabletAssignment(Struct, frozen=True):
    """A tablet to load."""

    extent: Extent
    directory: str
    epoch: int
    """Of the master that decided it."""


class ReplicaPlacement(Struct, frozen=True):
    """One assignment of a tablet to a host."""

    host: str
    placement: str
    incarnation: str
    """Of the host's disk."""


class LogPosition(Struct, frozen=True):
    """Up to which offset a state has the records of a source."""

    term: int
    """Of a term's log, or of an import: a negative number."""
    offset: int


class SegmentRecord(Struct, frozen=True):
    """One step of a tablet's data; in Python see ``bookkeeper.replicas.values.Segment``."""

    segment_id: int
    """The flush id of the state after it."""
    base: int | None
    """The state that it was made on; absent = none."""
    is_major: bool
    """It may be taken without its base."""
    included: tuple[int, ...]
    """Ids that were folded into it, newest first."""
    files: tuple[str, ...]
    """The files that it brings."""
    retained: tuple[str, ...]
    """The earlier files that count beside them."""
    logs: tuple[LogPosition, ...]
    """What its list has of the logs."""


class ReplicaFile(Struct, frozen=True):
    """A segment file."""

    name: str
    """On a Volume, the same on every host."""
    size_bytes: int
    crc32c: int
    """Of its bytes."""
    entry: bytes
    """JSON, as in the books."""


class SegmentOffer(Struct, frozen=True):
    """A segment of a tablet for one replica."""

    extent: Extent
    directory: str
    """Of the tablet."""
    term: int
    """The newest that the sender has heard of."""
    leader: str | None
    """The host that leads that term."""
    sender: ReplicaPlacement
    receiver: ReplicaPlacement
    """As the sender knows it."""
    segment: SegmentRecord
    files: tuple[ReplicaFile, ...]
    """Each file of its list: those that it brings and those that it retains."""
    state: bytes
    """JSON of the state after it, as in the books."""
    as_of_ms: int | None = None
    """The sender confirms that the state after it has every write acknowledged until this time of the leader's
    clock; absent = unknown.
    """


class FileNeed(Struct, frozen=True):
    """A file that the receiver lacks."""

    name: str
    start: int
    """Send the bytes from this one on; those before are here."""


class SegmentAnswer(Struct, frozen=True):
    """The answer to the offer of a segment."""

    state: str
    """ACCEPTED, ACKED or REFUSED."""
    reason: str
    """Of a refusal (E-70): SEGMENT_EXISTS, OVERLOADED, INVALID, INFLIGHT, OUT_OF_ORDER."""
    problem: str
    """The reason in words; may be empty."""
    placement: ReplicaPlacement
    """The receiver's."""
    root: int | None = None
    """The receiver's newest state."""
    need: tuple[FileNeed, ...] = ()
    """Of an accepted segment; send the files in this order."""


class LogPart(Struct, frozen=True):
    """A range of a log, or of a file beside one."""

    size: int | None
    """Bytes of the file; absent = this host has no file of that name."""
    content: bytes
    """At most LOG_CONTENT_BYTES_MAX, less at the end of the file."""


class LogSeal(Struct, frozen=True):
    """The end of a log, for ever."""

    offset: int
    """Of the last record; 0 = there is none."""
    position: int
    """Behind its block."""


class SegmentTransit(Struct, frozen=True):
    """Content of a file of an accepted segment. The receiver has it until its answer."""

    table_id: str
    directory: str
    sender: ReplicaPlacement
    receiver: ReplicaPlacement
    segment_id: int
    file: str
    start: int
    """Position of the content in the file."""
    content: bytes
    """At most TRANSIT_BYTES_MAX."""


class SegmentAck(Struct, frozen=True):
    """How much of a file of an accepted segment is here."""

    file: str
    held_bytes: int
    """Of the file that are here."""
    answer: SegmentAnswer | None = None
    """To the segment, with the last byte of the last file: acked, or declined after all."""


class ReplicaContent(Struct, frozen=True):
    """Content of a file on a host."""

    size_bytes: int
    """Of the complete file."""
    crc32c: int
    """Of the complete file."""
    content: bytes
    """From the position that was asked for, at most CONTENT_BYTES_MAX."""


class FileRequest(Struct, frozen=True):
    """A part of a file of a replica, for a replica whose copy is damaged. A host that holds the file with this size
    and checksum answers.
    """

    table_id: str
    directory: str
    receiver: ReplicaPlacement
    file: str
    size_bytes: int
    crc32c: int
    start: int
    """Position of the content in the file."""


class HeldSegment(Struct, frozen=True):
    """A segment in a replica's list."""

    segment: SegmentRecord
    is_complete: bool
    """The host holds each file of its state."""
    acked: tuple[ReplicaPlacement, ...]
    """Who else acknowledged it; without hosts that the replica does not know."""
    bytes: int = 0
    """Of the files that it brings, as far as they are here."""


class ReplicaLag(Struct, frozen=True):
    """The segments that a host has not acknowledged."""

    host: str
    lacking: int
    bytes: int = 0
    """Of the files that have to go there, at most."""


class UnlistedFile(Struct, frozen=True):
    """A file on a host that the newest state there does not list."""

    name: str
    bytes: int
    in_use: bool
    """By a reader, by a copy to another host, or by a segment that is under way to this one."""


class HeldReplicaInfo(Struct, frozen=True):
    """One tablet's replica on a host."""

    extent: Extent
    directory: str
    placement: ReplicaPlacement
    stage: str
    """One of LOADING, JOINING, LIVE, UNLOAD, UNLOAD_FINAL."""
    term: int
    """The newest that it has heard of."""
    leader: str | None
    """The host that it takes for the leader of that term."""
    is_leader: bool
    root: int | None
    """Its newest state."""
    complete: tuple[int, ...]
    """States whose files the host holds, each of them."""
    files: int
    bytes: int
    lags: tuple[ReplicaLag, ...] = ()
    """Of a leader."""
    segments: tuple[HeldSegment, ...] = ()
    """Empty unless segments were asked for."""
    incoming_bytes: int = 0
    """Of segments that are under way to it."""
    unlisted: tuple[UnlistedFile, ...] = ()
    """Empty unless segments were asked for."""
    damaged: tuple[str, ...] = ()
    """Files that are to be replaced by sound copies."""


class SecretMark(Struct, frozen=True):
    """A secret of a cluster on one host, without its key."""

    file: str
    """Below DIR/secrets."""
    id: str


class HeldReplicas(Struct, frozen=True):
    """The replicas on a host."""

    replicas: tuple[HeldReplicaInfo, ...]
    damaged: Mapping[str, str]
    """By ``table/directory`` of replicas that can't be read: why."""
    disk_problem: str | None = None
    """Why its disk counts as full; absent = there is room."""
    wall_ms: int | None = None
    """Its wall clock while it answers."""
    secrets: tuple[SecretMark, ...] | None = None
    """Of the host, when all replicas were asked for."""


class StateConfirmation(Struct, frozen=True):
    """A leader's word that a state, which the receiver has, lacks no write that was acknowledged until a time."""

    table_id: str
    directory: str
    receiver: ReplicaPlacement
    term: int
    state_id: int
    as_of_ms: int
    """The time."""


class HostInfo(Struct, frozen=True):
    """A host of the cluster."""

    name: str
    incarnation: str | None
    """Of its disk; absent while it is away."""
    address: str | None
    """Absent while it is away."""
    draining: bool
    """It gives its replicas away."""
    replicas: int
    """That rows name."""
    joining: int
    """Of these."""
    leads: int
    """Tablets that it serves, also those of one replica."""
    bytes: int | None
    """Of the replicas that it holds; absent = it did not answer."""
    problem: str = ""
    zone: str | None = None
    """Of a live host; empty = a zone of its own."""
    away_since_ms: int | None = None
    """Wall clock when a master noticed that it was away; absent while it lives."""
    lacking_segments: int = 0
    """That leaders on other hosts have for it."""
    lacking_bytes: int = 0
    unsent_segments: int = 0
    """Of tablets that it leads, and that other hosts have not acknowledged."""
    unsent_bytes: int = 0
    joining_bytes: int = 0
    """Of the replicas that join here, when they are complete."""
    joined_bytes: int = 0
    """Of these, already here."""
    lost_logs: int = 0
    """Logs on it that tablets go on without."""
    leaving: int | None = None
    """Replicas that vote no more, and go once enough others have the tablet."""
    clock_ahead_ms: int | None = None
    """Its wall clock less that of the master, measured in a call."""
    secrets: tuple[SecretMark, ...] | None = None
    """That it has; absent = it did not answer."""


class WaitingFiles(Struct, frozen=True):
    """Files on a host that wait to be deleted: its newest state does not list them."""

    reason: str
    """Why they are still there."""
    names: tuple[str, ...]
    bytes: int


class ReplicaStanding(Struct, frozen=True):
    """One replica that a tablet's row names, and what its host says."""

    host: str
    placement: str
    role: str
    """One of voter, joining, leaving."""
    leads: bool
    held: HeldReplicaInfo | None = None
    """Absent: the host is away, or holds another placement."""
    problem: str = ""
    waiting: tuple[WaitingFiles, ...] = ()
    """Empty unless segments were asked for."""


class SegmentStanding(Struct, frozen=True):
    """A segment that any host of a tablet has."""

    segment_id: int
    base: int | None
    is_major: bool
    files: int
    """That it brings."""
    bytes: int
    """Of these files."""
    retained: int
    held_by: tuple[str, ...]
    """Hosts with each file of the state after it."""
    acked_by: tuple[str, ...]
    """Hosts that told the leader so."""
    waits_for: str
    """In words."""


class TabletReplicas(Struct, frozen=True):
    """The replicas of a tablet."""

    extent: Extent
    named: int
    """The state that the books name, 0 = none."""
    copies_needed: int
    replicas: tuple[ReplicaStanding, ...]
    """Empty with one replica."""
    directory: str = ""
    """Of the tablet, which it keeps."""
    wanted: int = 0
    """The property ``table.replicas``."""
    problem: str = ""
    """Why no host leads it."""
    segments: tuple[SegmentStanding, ...] = ()
    """Old to new; empty unless they were asked for."""
    lost_logs: tuple[str, ...] = ()
    """Logs that the tablet is served without."""
    warning: str | None = None
    """The lack or the wait of a tablet that is served, as in ``TabletLocation``."""
