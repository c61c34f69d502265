// The wire contract of a cluster, for any language, and the one source of it: `make contract` writes the Python modules
// `messages`, `services` and `tables` beside this file.
//
// Framed transport, strict binary protocol; both sides refuse frames above the configured limit. A connection begins
// with a handshake, which is not Thrift (handshake.py, and docs/formats/wire.md); the first call on it must be `hello`.
// Batches of records travel as one Arrow IPC record batch message of the mutation schema (no schema message):
// row, family, qualifier, visibility: binary; timestamp: int64 or null; delete: bool; value: binary.
//
// A struct, a method or a constant has its description before it, a field at the end of its line and below. Older
// processes skip fields that they do not know, so a new field is optional. Annotations of a method:
//   may_call  who may call it, besides the processes of the cluster: "client", "peer", or "client, peer"
//   size      "bulk": a call may fill a frame, for records and lists; a call of any other method is small
//   reads     "true": a method of the master that changes nothing, so that a caller tries the next master soon
// and of Python's classes:
//   py.module    of a struct: a class of this module has the fields, and none is generated
//   py.order     of a struct, "true": its values have an order, field by field
//   py.explicit  of an optional field, "true": its constructor has no default for it. Any other one defaults to absent

namespace py bookkeeper.rpc

/** Both sides of a connection must have the same. */
const i32 PROTOCOL_VERSION = 5

/** An encoded error. In Python only `bookkeeper.rpc.contract.faults` uses it. */
exception Fault {
  1: required bool transient_
  2: required string code                 // stable name of the error class
  3: required string message
  4: optional map<string, string> details
}

/** The identity of a process. */
struct Hello {
  1: required i32 protocol_version
  2: required string instance_id          // empty for a plain client
  3: required string cluster_name
  4: required string role                 // one of client, master, tserver, replay
}

/** The rows of one tablet. */
struct Extent {
  1: required string table_id
  2: optional binary end_row              // inclusive; absent = to the end
  3: optional binary prev_row             // exclusive; absent = from the start
} (py.module = "bookkeeper.model")

/** Rows of a table. */
struct RowRange {
  1: optional binary prev_row             // exclusive; absent = from the start
  2: optional binary end_row              // inclusive; absent = to the end
} (py.module = "bookkeeper.model")

/** The location of a tablet. */
struct TabletLocation {
  1: required Extent extent
  2: optional string address (py.explicit = "true")   // `host:port`; absent = no tserver serves it
  3: optional i64 placed                  // rises when the tablet moves to another tserver, splits or merges; absent =
                                          // it was never assigned
  4: optional string problem              // why no tserver can serve it until an operator acts, for example a damaged
                                          // file; usually absent
  5: optional string warning              // what fails while a tserver serves it, for example its compaction, or which
                                          // host it waits for; usually absent
  6: optional bool loaded                 // whether its tserver serves it, by the last report of that tserver; absent =
                                          // unknown
  7: required list<string> replicas = []  // addresses of the live hosts that hold a replica, for reads with `stale_ms`;
                                          // empty for a table with one replica
}

/** A repeated failure of a tablet that is served, and its reason. */
struct TabletProblem {
  1: required Extent extent
  2: required string reason
}

/** The tablets that a tserver serves. */
struct ServedTablets {
  1: required list<Extent> extents
  2: required list<TabletProblem> problems = []   // what fails repeatedly for some of them until an operator acts
  3: required list<Extent> without_room = []      // those with several replicas that another host should lead: the next
                                                  // segment or log record finds no room on the disk of this host, or a
                                                  // damaged file is here alone, so that no state is ever named
}

/** The row that splits a tablet near the middle of its segments. */
struct SplitPoint {
  1: required i64 size_bytes              // of the segments, as far as their rows lie in the tablet
  2: required i64 shared_bytes            // the part of it that lies in files of several tablets
  3: optional binary row (py.explicit = "true")   // absent: no row splits it
  4: required string reason               // why no row does
}

/** A FATE operation that runs, or that failed recently. */
struct OperationInfo {
  1: required string txid
  2: required string kind
  3: required string step                 // `failed` = the operation ended with an error
  4: required string note                 // what the operation waits for, or its error; may be empty
  5: required string arguments            // JSON, as in the books
  6: required i64 begun_ms                // milliseconds since 1970
  7: optional i64 left                    // of its present step, in units; absent = not known
  8: optional string unit                 // of what is left: bytes, or a plural
}

/** A named group of families that are stored together. */
struct LocalityGroup {
  1: required string name
  2: required list<binary> families
} (py.module = "bookkeeper.model")

/** A table as the master describes it. */
struct TableInfo {
  1: required string table_id
  2: required string name
  3: required string state                // one of creating, online, deleting
  4: required list<LocalityGroup> groups
  5: required map<string, string> properties   // the values that were set; all others have their defaults
}

/** The destination of a file: cluster alias, table there, table here, and incarnation (rule R5). */
struct TargetKey {
  1: required string cluster
  2: required string remote_table_id
  3: required string source_table_id
  4: required i64 incarnation
} (py.module = "bookkeeper.model")

/** The identity of a source file at a receiver, which records its progress under it. */
struct StreamKey {
  1: required string source_instance_id
  2: required string file
  3: required string source_table_id
  4: required string target_table_id
  5: required i64 incarnation
  6: required string run_id = ""
} (py.module = "bookkeeper.model")

// ---- client data path

/** Complete row mutations for a tablet in the client's cache. */
struct WriteBatch {
  1: required Extent extent               // the tserver checks the rows against the tablet that it serves
  2: required binary records              // Arrow record batch
  3: optional i64 placed                  // of the location; a tserver that got the tablet later refuses the batch.
                                          // Absent = no check
}

/** The outcome of a write. */
struct WriteResult {
  1: required list<Extent> not_serving    // of the batches that were not applied, because the tserver does not serve
                                          // their tablets
}

/** A condition on a cell of a row. */
struct Condition {
  1: required binary family
  2: required binary qualifier
  3: required binary visibility
  4: optional binary value (py.explicit = "true")   // of the newest version of the cell; absent = the cell must not
                                                    // exist
}

/** A request for one page of a tablet. */
struct ScanRequest {
  1: required Extent extent
  2: optional binary start_row (py.explicit = "true")   // inclusive
  3: optional binary stop_row (py.explicit = "true")    // exclusive
  4: required list<binary> families       // empty = all
  5: required list<binary> columns        // pairs family, qualifier, flattened; empty = all
  6: optional binary resume (py.explicit = "true")      // `resume` of the previous page
  7: required i32 page_bytes
  8: optional i32 versions                // most versions of a cell; absent = all that the table retains
                                          // (table.versions.max)
  9: optional i64 from_ms                 // timestamps, inclusive
  10: optional i64 to_ms                  // exclusive
  11: optional string user                // absent = root; users are not authenticated yet
  12: optional list<string> authorizations   // a subset of the user's authorizations; absent = all of them
  13: optional i64 stale_ms               // any host with a replica may answer from a state that is at most so old;
                                          // absent = the leader answers
  14: optional i64 least_state            // `state_id` of the previous page: a host with an older state does not answer
}

/** A page of records. */
struct ScanPage {
  1: required binary records              // Arrow record batch, sorted, versions of a cell newest first, deletes
                                          // resolved; may be empty
  2: optional binary resume (py.explicit = "true")   // absent = no more records in this tablet
  3: optional i64 state_id                // of a page that the leader did not serve: its state
  4: optional i64 as_of_ms                // the time up to which that state has every acknowledged write
}

// ---- compaction

/** A tablet that is not compacted yet. */
struct CompactionTicket {
  1: required Extent extent
  2: required i64 ticket                  // 0 = the request did not reach it yet
}

/** The tablets of a table to compact. */
struct CompactRequest {
  1: required string table
  2: optional binary begin_row (py.explicit = "true")   // tablets with a row at or after this one
  3: optional binary end_row (py.explicit = "true")     // inclusive
  4: required list<CompactionTicket> tickets   // empty = a new request; else the result of the previous call
}

/** The size of a table on disk, from the books; memtables are not counted. */
struct TableUsage {
  1: required string table
  2: required i64 tablets
  3: required i64 segments                // files; a file that several tablets share counts once
  4: required i64 records                 // in these files, older versions and deletes included
  5: required i64 bytes
}

// ---- bulk import

/** An import of the files of a directory. */
struct ImportRequest {
  1: required string request_id           // 32 hex digits of the caller's choice; the same again is the same import
  2: required string table
  3: required string directory            // absolute, on the master's machine
  4: optional i64 time_ms (py.explicit = "true")   // of records without a timestamp; absent = the start of the import
}

/** The progress of an import, an export or a copy. */
struct BulkProgress {
  1: required bool done                   // false = still running; call again with the same request
  2: required i64 records                 // counted once it is done
  3: optional i64 left                    // of its present step, in units; absent = not known
  4: optional string unit                 // of what is left: bytes, or a plural
}

/** A copy of a table to or from a directory on the master's machine. */
struct CopyRequest {
  1: required string request_id           // 32 hex digits of the caller's choice; the same again is the same copy
  2: required string table
  3: required string directory            // absolute
}

/** A segment file of an import. */
struct ImportedSegment {
  1: required string name
  2: required binary entry                // JSON, as in the books
}

/** The log with the records of an import, for peers. */
struct ImportedLog {
  1: required string name
  2: required i64 offset                  // of the last record
  3: required i64 position                // the byte position after it
  4: required i64 created_ms
}

/** Facts about another cluster's file for the peers that get it from here. */
struct RelayFacts {
  1: required list<string> provenance     // instance ids that its records have passed, the sender's included
  2: optional string root                 // where the records were first written (`Root.encode`); absent = the source
                                          // file itself
}

/** The segments of an import for one tablet. */
struct AdoptRequest {
  1: required Extent extent
  2: required StreamKey stream            // identifies the import: a tablet takes it once
  3: required list<ImportedSegment> segments
  4: optional ImportedLog log             // of a replicated table
  5: optional i64 through                 // of another cluster's stream: its last offset, which the segments hold all
                                          // of; absent = an import here
  6: optional RelayFacts relay            // of another cluster's stream
}

// ---- replication status

/** The state of one log file for one target. */
struct TargetStatus {
  1: required string file
  2: required TargetKey target
  3: required string state                // OPEN, or CLOSED = no record can follow
  4: required i64 needed                  // offset in the file: records from 1
  5: required i64 finished                // offset in the file
  6: required i64 lag_records             // upper bound of the target's share that it lacks
  7: required i64 lag_bytes               // upper bound, too
  8: optional double lag_seconds (py.explicit = "true")   // age of the first record that it lacks; absent = unknown,
                                          // because a new master has not read that record's header yet
  9: required string phase                // one of waiting, shipping, blocked, uncopied, backing_off, failing,
                                          // quarantined, unsealed, done
  10: optional string last_error (py.explicit = "true")
  11: optional i64 next_try_in_ms (py.explicit = "true")
  12: optional string worker (py.explicit = "true")   // the tserver that ships it; absent = none
  13: required i64 records_shipped        // each record counts once
  14: required i64 bytes_shipped
  15: required i64 resends                // messages that were sent again
  16: required string table
  17: required list<string> groups        // empty = all locality groups
  18: optional string cause               // why it waits, a kind as in WaitCause; absent = it waits for nothing
  19: optional string root_cause          // of a file behind others: the kind of the one that all wait for
}

/** The files that are not removed yet for their targets. */
struct ReplicationReport {
  1: required list<TargetStatus> targets
  2: required i64 age_ms                  // age of the data in the answer
  3: required string problem              // why the data is old, for example failed cycles; empty = no problem
}

/** A command line with its names filled in. */
struct NextStep {
  1: required string at                   // the peer in whose directory it is typed; empty = this cluster
  2: required string command
}

/** Why records wait for a peer. */
struct WaitCause {
  1: required string cluster              // the peer
  2: required string kind                 // one of bookkeeper.master.queries.causes.KINDS
  3: required list<string> tables
  4: required string text
  5: required list<NextStep> steps
  6: required bool needs_person           // it goes on until a person does something
  7: optional double since_seconds (py.explicit = "true")   // absent = not known
  8: required i64 files
  9: required i64 records                 // that the peer lacks
  10: required i64 bytes
  11: required string file                // the one that waits longest; of files behind others, the one at the root
  12: optional i64 next_try_in_ms (py.explicit = "true")   // absent = none is planned
  13: required i64 tries                  // failed ones in a row
}

/** A reason to retain a file. */
struct RetentionReason {
  1: required string kind
  2: required string who
  3: required string detail
}

/** The records of a file that a target lacks. */
struct LackingTarget {
  1: required string table
  2: required string cluster
  3: required i64 first                   // offsets in the file, both included; 0 = it lacks nothing
  4: required i64 last
  5: required i64 records
  6: required string kind                 // as in WaitCause
}

/** Why a file is retained. */
struct FileWhy {
  1: required string file
  2: optional i64 bytes (py.explicit = "true")   // absent = it is gone, or its host is away
  3: required list<RetentionReason> reasons
  4: required list<LackingTarget> targets
}

/** The cause of each wait. */
struct WhyReport {
  1: required list<WaitCause> causes
  2: optional FileWhy file (py.explicit = "true")
  3: required list<string> targets        // TABLE to PEER, for each configured target that was asked for
  4: required i64 age_ms                  // age of the data in the answer
  5: required string problem              // why the data is old; empty = no problem
}

/** Complete blocks of a file. */
struct BlockRange {
  1: required i64 first                   // records, both inclusive
  2: required i64 last
  3: required i64 start_position          // bytes [start, end); 0 = unknown
  4: required i64 end_position
} (py.module = "bookkeeper.model")

/** A range of records of a file that can't be shipped to one target. */
struct QuarantinedRange {
  1: required string range_id
  2: required string table
  3: required TargetKey target
  4: required string file
  5: required BlockRange blocks
  6: required string state                // one of blocking, held, retrying, skipping
  7: required string error_code
  8: required string error
  9: required i64 since_ms                // milliseconds since 1970; 0 while it blocks
  10: required i64 tries                  // by this master, while it blocks
}

/** A position in a log file. */
struct FileMark {
  1: required string file
  2: required i64 offset                  // of a record, from 1; 0 = before the first one
}

/** A log, named by the cluster that wrote it (rule R22). */
struct RootLog {
  1: required string instance_id
  2: required string file
} (py.module = "bookkeeper.origins")

/** A question about the end of a root log (rule R22). */
struct RootQuestion {
  1: required RootLog log
  2: required list<RootLog> streams = []  // deleted logs of other clusters with records of this one that were sent to
                                          // the answering cluster
}

/** An instance that received records of a root log, and the log in which they were sent. */
struct HandedOn {
  1: required string instance_id
  2: required string file                 // a deleted log with records of it that was sent there; empty = records may
                                          // still be sent
} (py.order = "true")

/** The answer of a cluster about a root log (rule R22). */
struct RootStanding {
  1: required bool owed                   // an existing log of the cluster has records of it that must still be sent on
  2: required bool under_way              // the stream of a log in the question is still open there: a message may
                                          // still bring records
  3: required list<HandedOn> handed
  4: optional bool refused                // the caller neither wrote the log nor sent records of it: the other fields
                                          // say nothing
}

/** A defined peer. */
struct ClusterInfo {
  1: required string name                 // its name here
  2: required string quorum               // its address
  3: required string instance_id          // never changes (rule R23)
}

/** A configured target. */
struct ReplicationConfig {
  1: required string table
  2: required TargetKey target
  3: required list<string> groups         // empty = all locality groups
  4: required string remote_table         // the table's name at the peer
}

/** The targets of a table after replication was enabled or disabled. */
struct ReplicationChange {
  1: required list<ReplicationConfig> targets
  2: required list<string> warnings       // records that a peer lacks and will not get
}

// ---- replication between clusters

/** Records of one block of a source file. */
struct SourceBlock {
  1: required i64 first_offset            // of the source file, both inclusive; blocks ascend and never cross the end
                                          // of a range
  2: required i64 last_offset
  3: required binary records              // Arrow record batch without the schema; `decode_batch` of
                                          // `bookkeeper.storage.wal` reads it
  4: required i32 record_count            // may be less than the offset range: records that are not for the target are
                                          // filtered out
  5: required binary min_row              // the first row in order
  6: required binary max_row              // the last one
  7: optional binary block_origins        // `BlockOrigins` of block.proto: where the records were first written (rule
                                          // R22); absent = as the offsets say, in this file, unless filtered
}

/** All records of a source file in `(after_offset, to_offset]` for one target table. */
struct ReplicateRequest {
  1: required string stream_session       // from open_stream
  2: required StreamKey stream
  3: required list<string> provenance     // instance ids, the sender's own included
  4: required i64 acked_offset            // all records up to here are durable on every receiving tablet
  5: required i64 after_offset
  6: required i64 to_offset
  7: required list<SourceBlock> blocks
  8: optional bool confirms               // the sender has the acknowledgement of these records already: count those
                                          // that are missing here, and take none; the session is not checked; usually
                                          // absent
}

/** The outcome of a request. */
struct ReplicateResult {
  1: required i64 acked_offset
  2: required i64 records_applied         // records written now
  3: required i64 records_dropped         // duplicates
  4: optional i64 records_missing         // of a request that confirms: the records that are not here; otherwise absent
}

/** One receiving tablet's share of a ReplicateRequest. */
struct ApplyRequest {
  1: required Extent extent
  2: required StreamKey stream
  3: required list<string> provenance
  4: required i64 acked_offset
  5: required i64 after_offset
  6: required i64 to_offset
  7: required list<SourceBlock> blocks
  8: optional bool confirms               // as in ReplicateRequest; usually absent
}

// Segment transfer: a source file is offered as segments, sent in parts, and taken by tablets that have no record of
// it.

/** A segment file of a source file. */
struct OfferedSegment {
  1: required binary entry                // JSON, as in the books
  2: required string sha256               // of the file, hex
}

/** A source file as segments, for one target table. */
struct SegmentsOffer {
  1: required string stream_session       // from open_stream
  2: required StreamKey stream
  3: required list<string> provenance     // instance ids, the sender's own included
  4: required i64 to_offset               // of the source file's last record: the segments have all records for the
                                          // target up to there
  5: required list<LocalityGroup> groups  // the locality groups of the segments
  6: required i64 row_bytes               // of the longest row, column part and value
  7: required i64 column_bytes
  8: required i64 value_bytes
  9: required list<OfferedSegment> segments
  10: optional string root                // instance id, log and table where its records were first written, with the
                                          // same offsets (`Root.encode`); absent = in the source file
}

/** State of an OfferAnswer: it is all here. */
const string TAKEN = "taken"

/** State of an OfferAnswer: send the files. */
const string WANTED = "wanted"

/** State of an OfferAnswer: send records. */
const string DECLINED = "declined"

/** The outcome of an offer. */
struct OfferAnswer {
  1: required string state                // TAKEN, WANTED or DECLINED
  2: required string reason = ""          // why it is declined
  3: required list<i64> received_bytes = []   // bytes of each file that are here already, when they are wanted
}

/** Some bytes of a file of an offer. */
struct SegmentPart {
  1: required string stream_session
  2: required StreamKey stream
  3: required i32 number                  // index of the file, from 0
  4: required i64 start                   // position of the part in the file
  5: required binary content
}

// ---- replication work inside a cluster

/** A range of a file to ship. */
struct WorkItem {
  1: required string txid                 // the FATE operation that owns it
  2: required string file
  3: required TargetKey target
  4: required i64 first_offset            // inclusive, both
  5: required i64 last_offset
  6: required string peer_quorum
  7: required string peer_instance_id
  8: required i64 epoch                   // of the master that assigns it
  9: required list<BlockRange> passed = []   // quarantined ranges: they count as finished once all records before them
                                          // are. With a `run_id` it has everything before the range
  10: required string run_id = ""         // empty = the target's stream; else a separate stream, which the books do not
                                          // record
}

/** The progress of a worker. */
struct WorkReport {
  1: required string txid
  2: required string file
  3: required TargetKey target
  4: required i64 finished_offset         // durable on the peer and, without a `run_id`, written to the books
  5: required i64 records
  6: required i64 bytes
  7: required i64 filtered
  8: required i64 resends
  9: optional string error (py.explicit = "true")
  10: required bool error_transient
  11: required i64 queued_ranges
  12: optional string error_code
  13: optional BlockRange failed          // the smallest range that has a permanent error, if the error belongs to one
  14: required string run_id = ""
  15: required i64 share_records = 0      // records for the target in the file up to finished_offset
  16: required i64 share_bytes = 0        // bytes of the blocks with those records
  17: optional string failed_at           // the place of the error: log, replay, books or peer; absent = not known
}

/** A tablet to load. */
struct TabletAssignment {
  1: required Extent extent
  2: required string directory
  3: required i64 epoch                   // of the master that decided it
}

// ---- replicas of a tablet on hosts: segments travel as files between tservers of one cluster

/** Most content of one answer with a part of a file: 1 MiB. */
const i32 CONTENT_BYTES_MAX = 1048576

/** Most content of one SegmentTransit: 4 MiB, because each message costs time besides its bytes. */
const i32 TRANSIT_BYTES_MAX = 4194304

/** State of a SegmentAnswer: send the content. */
const string ACCEPTED = "accepted"

/** State of a SegmentAnswer: the segment is durable here. */
const string ACKED = "acked"

/** State of a SegmentAnswer: the receiver does not take it. */
const string REFUSED = "declined"

/** One assignment of a tablet to a host. */
struct ReplicaPlacement {
  1: required string host
  2: required string placement
  3: required string incarnation          // of the host's disk
}

/** Up to which offset a state has the records of a source. */
struct LogPosition {
  1: required i64 term                    // of a term's log, or of an import: a negative number
  2: required i64 offset
}

/** One step of a tablet's data; in Python see `bookkeeper.replicas.values.Segment`. */
struct SegmentRecord {
  1: required i64 segment_id              // the flush id of the state after it
  2: optional i64 base (py.explicit = "true")   // the state that it was made on; absent = none
  3: required bool is_major               // it may be taken without its base
  4: required list<i64> included          // ids that were folded into it, newest first
  5: required list<string> files          // the files that it brings
  6: required list<string> retained       // the earlier files that count beside them
  7: required list<LogPosition> logs      // what its list has of the logs
}

/** A segment file. */
struct ReplicaFile {
  1: required string name                 // on a Volume, the same on every host
  2: required i64 size_bytes
  3: required i64 crc32c                  // of its bytes
  4: required binary entry                // JSON, as in the books
}

/** A segment of a tablet for one replica. */
struct SegmentOffer {
  1: required Extent extent
  2: required string directory            // of the tablet
  3: required i64 term                    // the newest that the sender has heard of
  4: optional string leader (py.explicit = "true")   // the host that leads that term
  5: required ReplicaPlacement sender
  6: required ReplicaPlacement receiver   // as the sender knows it
  7: required SegmentRecord segment
  8: required list<ReplicaFile> files     // each file of its list: those that it brings and those that it retains
  9: required binary state                // JSON of the state after it, as in the books
  10: optional i64 as_of_ms               // the sender confirms that the state after it has every write acknowledged
                                          // until this time of the leader's clock; absent = unknown
}

/** A file that the receiver lacks. */
struct FileNeed {
  1: required string name
  2: required i64 start                   // send the bytes from this one on; those before are here
}

/** The answer to the offer of a segment. */
struct SegmentAnswer {
  1: required string state                // ACCEPTED, ACKED or REFUSED
  2: required string reason               // of a refusal (E-70): SEGMENT_EXISTS, OVERLOADED, INVALID, INFLIGHT,
                                          // OUT_OF_ORDER
  3: required string problem              // the reason in words; may be empty
  4: required ReplicaPlacement placement  // the receiver's
  5: optional i64 root                    // the receiver's newest state
  6: required list<FileNeed> need = []    // of an accepted segment; send the files in this order
}

/** Most content of one LogPart: 1 MiB. */
const i32 LOG_CONTENT_BYTES_MAX = 1048576

/** Most names in one answer to list_logs. */
const i32 LOG_NAMES_MAX = 10000

/** Most names in one call of drop_logs. */
const i32 LOG_DROPS_MAX = 1000

/** A range of a log, or of a file beside one. */
struct LogPart {
  1: optional i64 size (py.explicit = "true")   // bytes of the file; absent = this host has no file of that name
  2: required binary content              // at most LOG_CONTENT_BYTES_MAX, less at the end of the file
}

/** The end of a log, for ever. */
struct LogSeal {
  1: required i64 offset                  // of the last record; 0 = there is none
  2: required i64 position                // behind its block
}

/** Content of a file of an accepted segment. The receiver has it until its answer. */
struct SegmentTransit {
  1: required string table_id
  2: required string directory
  3: required ReplicaPlacement sender
  4: required ReplicaPlacement receiver
  5: required i64 segment_id
  6: required string file
  7: required i64 start                   // position of the content in the file
  8: required binary content              // at most TRANSIT_BYTES_MAX
}

/** How much of a file of an accepted segment is here. */
struct SegmentAck {
  1: required string file
  2: required i64 held_bytes              // of the file that are here
  3: optional SegmentAnswer answer        // to the segment, with the last byte of the last file: acked, or declined
                                          // after all
}

/** Content of a file on a host. */
struct ReplicaContent {
  1: required i64 size_bytes              // of the complete file
  2: required i64 crc32c                  // of the complete file
  3: required binary content              // from the position that was asked for, at most CONTENT_BYTES_MAX
}

/**
 * A part of a file of a replica, for a replica whose copy is damaged. A host that holds the file with this size and
 * checksum answers.
 */
struct FileRequest {
  1: required string table_id
  2: required string directory
  3: required ReplicaPlacement receiver
  4: required string file
  5: required i64 size_bytes
  6: required i64 crc32c
  7: required i64 start                   // position of the content in the file
}

/** A segment in a replica's list. */
struct HeldSegment {
  1: required SegmentRecord segment
  2: required bool is_complete            // the host holds each file of its state
  3: required list<ReplicaPlacement> acked   // who else acknowledged it; without hosts that the replica does not know
  4: required i64 bytes = 0               // of the files that it brings, as far as they are here
}

/** The segments that a host has not acknowledged. */
struct ReplicaLag {
  1: required string host
  2: required i32 lacking
  3: required i64 bytes = 0               // of the files that have to go there, at most
}

/** A file on a host that the newest state there does not list. */
struct UnlistedFile {
  1: required string name
  2: required i64 bytes
  3: required bool in_use                 // by a reader, by a copy to another host, or by a segment that is under way
                                          // to this one
}

/** One tablet's replica on a host. */
struct HeldReplicaInfo {
  1: required Extent extent
  2: required string directory
  3: required ReplicaPlacement placement
  4: required string stage                // one of LOADING, JOINING, LIVE, UNLOAD, UNLOAD_FINAL
  5: required i64 term                    // the newest that it has heard of
  6: optional string leader (py.explicit = "true")   // the host that it takes for the leader of that term
  7: required bool is_leader
  8: optional i64 root (py.explicit = "true")        // its newest state
  9: required list<i64> complete          // states whose files the host holds, each of them
  10: required i32 files
  11: required i64 bytes
  12: required list<ReplicaLag> lags = [] // of a leader
  13: required list<HeldSegment> segments = []    // empty unless segments were asked for
  14: required i64 incoming_bytes = 0     // of segments that are under way to it
  15: required list<UnlistedFile> unlisted = []   // empty unless segments were asked for
  16: required list<string> damaged = []  // files that are to be replaced by sound copies
}

/** A secret of a cluster on one host, without its key. */
struct SecretMark {
  1: required string file                 // below DIR/secrets
  2: required string id
}

/** The replicas on a host. */
struct HeldReplicas {
  1: required list<HeldReplicaInfo> replicas
  2: required map<string, string> damaged // by `table/directory` of replicas that can't be read: why
  3: optional string disk_problem        // why its disk counts as full; absent = there is room
  4: optional i64 wall_ms                // its wall clock while it answers
  5: optional list<SecretMark> secrets   // of the host, when all replicas were asked for
}

/** A leader's word that a state, which the receiver has, lacks no write that was acknowledged until a time. */
struct StateConfirmation {
  1: required string table_id
  2: required string directory
  3: required ReplicaPlacement receiver
  4: required i64 term
  5: required i64 state_id
  6: required i64 as_of_ms                // the time
}

// ---- hosts and replicas, for operators

/** A host of the cluster. */
struct HostInfo {
  1: required string name
  2: optional string incarnation (py.explicit = "true")   // of its disk; absent while it is away
  3: optional string address (py.explicit = "true")       // absent while it is away
  4: required bool draining               // it gives its replicas away
  5: required i32 replicas                // that rows name
  6: required i32 joining                 // of these
  7: required i32 leads                   // tablets that it serves, also those of one replica
  8: optional i64 bytes (py.explicit = "true")   // of the replicas that it holds; absent = it did not answer
  9: required string problem = ""
  10: optional string zone                // of a live host; empty = a zone of its own
  11: optional i64 away_since_ms          // wall clock when a master noticed that it was away; absent while it lives
  12: required i32 lacking_segments = 0   // that leaders on other hosts have for it
  13: required i64 lacking_bytes = 0
  14: required i32 unsent_segments = 0    // of tablets that it leads, and that other hosts have not acknowledged
  15: required i64 unsent_bytes = 0
  16: required i64 joining_bytes = 0      // of the replicas that join here, when they are complete
  17: required i64 joined_bytes = 0       // of these, already here
  18: required i32 lost_logs = 0          // logs on it that tablets go on without
  19: optional i32 leaving                // replicas that vote no more, and go once enough others have the tablet
  20: optional i64 clock_ahead_ms         // its wall clock less that of the master, measured in a call
  21: optional list<SecretMark> secrets   // that it has; absent = it did not answer
}

/** Files on a host that wait to be deleted: its newest state does not list them. */
struct WaitingFiles {
  1: required string reason               // why they are still there
  2: required list<string> names
  3: required i64 bytes
}

/** One replica that a tablet's row names, and what its host says. */
struct ReplicaStanding {
  1: required string host
  2: required string placement
  3: required string role                 // one of voter, joining, leaving
  4: required bool leads
  5: optional HeldReplicaInfo held        // absent: the host is away, or holds another placement
  6: required string problem = ""
  7: required list<WaitingFiles> waiting = []   // empty unless segments were asked for
}

/** A segment that any host of a tablet has. */
struct SegmentStanding {
  1: required i64 segment_id
  2: optional i64 base (py.explicit = "true")
  3: required bool is_major
  4: required i32 files                   // that it brings
  5: required i64 bytes                   // of these files
  6: required i32 retained
  7: required list<string> held_by        // hosts with each file of the state after it
  8: required list<string> acked_by       // hosts that told the leader so
  9: required string waits_for            // in words
}

/** The replicas of a tablet. */
struct TabletReplicas {
  1: required Extent extent
  2: required i64 named                   // the state that the books name, 0 = none
  3: required i32 copies_needed
  4: required list<ReplicaStanding> replicas   // empty with one replica
  20: required string directory = ""      // of the tablet, which it keeps
  21: required i32 wanted = 0             // the property `table.replicas`
  22: required string problem = ""        // why no host leads it
  23: required list<SegmentStanding> segments = []   // old to new; empty unless they were asked for
  30: required list<string> lost_logs = []   // logs that the tablet is served without
  31: optional string warning             // the lack or the wait of a tablet that is served, as in `TabletLocation`
}

/** Every process. */
service Node {
  /** The first call on a connection: the caller and the server introduce themselves. The server itself answers. */
  Hello hello(1: Hello hello) throws (1: Fault fault) (may_call = "client, peer")

  /** Status of this process, for people. It contains tables, rows and paths, so peers may not read it. */
  map<string, string> status() throws (1: Fault fault) (may_call = "client")
}

/** The master; a master that does not lead answers `leader`, and refuses all other methods with not_leader. */
service Master extends Node {
  // ---- all callers

  /** `host:port` of the leading master. */
  string leader() throws (1: Fault fault) (may_call = "client, peer")

  /** All tables. */
  list<TableInfo> tables() throws (1: Fault fault) (may_call = "client", reads = "true")

  /** The tablets of a table. */
  list<TabletLocation> locate(1: string table_id) throws (1: Fault fault) (may_call = "client", reads = "true")

  /** The tablet of the row; tservers load it first. */
  TabletLocation locate_tablet(1: string table_id, 2: binary row) throws (1: Fault fault)
      (may_call = "client", reads = "true")

  // ---- administration

  TableInfo create_table(1: string name, 2: list<binary> splits, 3: list<LocalityGroup> groups,
      4: map<string, string> properties) throws (1: Fault fault) (may_call = "client", size = "bulk")

  void delete_table(1: string name) throws (1: Fault fault) (may_call = "client")

  void set_groups(1: string name, 2: list<LocalityGroup> groups) throws (1: Fault fault)
      (may_call = "client", size = "bulk")

  TableInfo change_properties(1: string name, 2: map<string, string> changes, 3: list<string> removals)
      throws (1: Fault fault) (may_call = "client", size = "bulk")

  /** For all tables; a single table has the property table.read_only. */
  void set_read_only(1: bool read_only) throws (1: Fault fault) (may_call = "client")

  bool is_read_only() throws (1: Fault fault) (may_call = "client", reads = "true")

  void flush_table(1: string name) throws (1: Fault fault) (may_call = "client")

  /** The tablets to wait for; empty = done. */
  list<CompactionTicket> compact_table(1: CompactRequest request) throws (1: Fault fault)
      (may_call = "client", size = "bulk")

  BulkProgress import_directory(1: ImportRequest request) throws (1: Fault fault) (may_call = "client")

  /** The directory must be empty or missing. */
  BulkProgress export_table(1: CopyRequest request) throws (1: Fault fault) (may_call = "client")

  /** Creates the table. */
  BulkProgress import_table(1: CopyRequest request) throws (1: Fault fault) (may_call = "client")

  list<HostInfo> hosts() throws (1: Fault fault) (may_call = "client", reads = "true")

  /** `draining`: the host gives its replicas away. */
  void drain_host(1: string name, 2: bool draining) throws (1: Fault fault) (may_call = "client")

  /** The logs on its lost disk are lost for ever. */
  void forget_host(1: string name) throws (1: Fault fault) (may_call = "client")

  list<TabletReplicas> table_replicas(1: string table_id, 2: bool with_segments) throws (1: Fault fault)
      (may_call = "client", reads = "true")

  /** `tables` empty = every table. */
  list<TableUsage> disk_usage(1: list<string> tables) throws (1: Fault fault) (may_call = "client")

  /** Replaces the previous authorizations. */
  void set_authorizations(1: string user, 2: list<string> authorizations) throws (1: Fault fault) (may_call = "client")

  list<string> authorizations(1: string user) throws (1: Fault fault) (may_call = "client", reads = "true")

  /**
   * Adds tablet borders at these rows. The tablets that end there begin to move to the hosts of `onto`; empty = they
   * stay.
   */
  void add_splits(1: string name, 2: list<binary> rows, 3: list<string> onto) throws (1: Fault fault)
      (may_call = "client", size = "bulk")

  /** Merges all tablets with rows in the range into one. */
  void merge_tablets(1: string name, 2: RowRange rows) throws (1: Fault fault) (may_call = "client")

  /** The operations that run, or failed recently. */
  list<OperationInfo> operations() throws (1: Fault fault) (may_call = "client")

  list<ClusterInfo> clusters() throws (1: Fault fault) (may_call = "client", reads = "true")

  ClusterInfo define_cluster(1: string name, 2: string quorum) throws (1: Fault fault) (may_call = "client")

  void delete_cluster(1: string name, 2: string quorum) throws (1: Fault fault) (may_call = "client")

  /** `groups` empty = all. */
  ReplicationChange enable_replication(1: string table, 2: list<string> groups, 3: string cluster,
      4: string remote_table) throws (1: Fault fault) (may_call = "client")

  ReplicationChange disable_replication(1: string table, 2: list<string> groups, 3: string cluster)
      throws (1: Fault fault) (may_call = "client")

  list<ReplicationConfig> replication_config() throws (1: Fault fault) (may_call = "client", reads = "true")

  /** `table` empty = all tables; not_ready until the master has read its data. */
  ReplicationReport replication_status(1: string table) throws (1: Fault fault) (may_call = "client", reads = "true")

  /** `about`: a table, a peer, a log file or the end of its name; empty = everything. */
  WhyReport replication_why(1: string about) throws (1: Fault fault) (may_call = "client", reads = "true")

  /** `table` empty = all tables; not_ready until the master has read its data. */
  list<QuarantinedRange> quarantine(1: string table) throws (1: Fault fault) (may_call = "client", reads = "true")

  /** Quarantines a blocking range, so that the queue continues. */
  QuarantinedRange hold_range(1: string range_id) throws (1: Fault fault) (may_call = "client")

  /** Ships the range; returns once the peer has it. */
  void retry_range(1: string range_id) throws (1: Fault fault) (may_call = "client")

  /** Discards the range. */
  void skip_range(1: string range_id) throws (1: Fault fault) (may_call = "client")

  /** The position of every WAL of the table now, fsynced. */
  list<FileMark> replication_mark(1: string table) throws (1: Fault fault) (may_call = "client")

  /** Empty = the marks are replicated. */
  list<TargetStatus> replication_pending(1: list<FileMark> marks, 2: string table, 3: string cluster)
      throws (1: Fault fault) (may_call = "client", size = "bulk", reads = "true")

  // ---- other clusters

  /** The id of the table; not_found otherwise. */
  string resolve_table(1: string name) throws (1: Fault fault) (may_call = "peer")

  /** `host:port` of a tserver. */
  string pick_tserver(1: string table_id) throws (1: Fault fault) (may_call = "peer")

  /** The source never sends these again. */
  void stream_done(1: list<StreamKey> streams) throws (1: Fault fault) (may_call = "peer", size = "bulk")

  /**
   * Answered at the end of the route of instances; empty route = here. A relay asks about logs of other clusters: the
   * master checks whether it sent records of them.
   */
  list<RootStanding> root_standings(1: list<string> route, 2: list<RootQuestion> questions) throws (1: Fault fault)
      (may_call = "peer", size = "bulk")

  /** No record of these logs is in transit anywhere. The master checks the caller as in root_standings. */
  void roots_over(1: list<string> route, 2: list<RootLog> logs) throws (1: Fault fault)
      (may_call = "peer", size = "bulk")

  /**
   * The number that the calling cluster left here last, 0 at first. If it is at least `known`, this cluster remembers
   * `number` from now on; a lower one shows that this cluster came back from a backup.
   */
  i64 check_in(1: i64 known, 2: i64 number) throws (1: Fault fault) (may_call = "peer")

  // ---- own tservers

  /** There are new records to replicate. */
  oneway void nudge(1: string session_id)

  oneway void report_work(1: string session_id, 2: list<WorkReport> reports) (size = "bulk")

  /** A replay process works (`problem` is empty), or says what keeps it from its work before it ends. */
  oneway void report_replay(1: string session_id, 2: string problem)
}

/** A tserver. */
service TServer extends Node {
  // ---- clients

  /**
   * A writer counts its calls in `attempt`: once a tablet has seen an attempt, it refuses lower ones. Empty writer: no
   * check. Together with `placed` this also holds after the tablet, or a part of it, moved.
   */
  WriteResult write(1: list<WriteBatch> batches, 2: string durability, 3: string writer, 4: i64 attempt)
      throws (1: Fault fault) (may_call = "client", size = "bulk")

  /** Writes to one row; false = a condition does not hold and no record was written. */
  bool write_if(1: Extent extent, 2: list<Condition> conditions, 3: binary records, 4: string durability)
      throws (1: Fault fault) (may_call = "client", size = "bulk")

  ScanPage scan(1: ScanRequest request) throws (1: Fault fault) (may_call = "client", size = "bulk")

  // ---- the master

  /** Idempotent. */
  void load_tablet(1: TabletAssignment assignment) throws (1: Fault fault)

  void unload_tablet(1: Extent extent, 2: i64 epoch, 3: bool discard) throws (1: Fault fault)

  ServedTablets tablets() throws (1: Fault fault)

  void flush_tablet(1: Extent extent) throws (1: Fault fault)

  /** `ticket` 0 = a new request; returns 0 when it is done, else the ticket for the next call. */
  i64 compact_tablet(1: Extent extent, 2: i64 ticket) throws (1: Fault fault)

  /** From the indexes of the tablet's segments; `row_bytes_max`: the longest row at which it may be split. */
  SplitPoint split_point(1: Extent extent, 2: i64 row_bytes_max) throws (1: Fault fault)

  /** Idempotent until its stream is forgotten. */
  void adopt_segments(1: AdoptRequest request) throws (1: Fault fault) (size = "bulk")

  /** Returns once every later block has the targets of that generation. */
  i64 confirm_config(1: i64 generation) throws (1: Fault fault)

  /** The synced position of every own WAL with records of the table. */
  list<FileMark> wal_positions(1: string table_id) throws (1: Fault fault)

  /** Idempotent; overloaded when the queue is full. */
  void assign_work(1: list<WorkItem> items) throws (1: Fault fault) (size = "bulk")

  /**
   * By a task of a replay process that follows the logs of this tserver for a peer. Arrow IPC streams: the result rows
   * of the ranges that the task got last in, the next ranges out, as soon as there are some and at most after `wait_ms`.
   * No bytes at all: the task is over.
   */
  binary follow(1: string cluster, 2: string run, 3: binary results, 4: i64 wait_ms) throws (1: Fault fault)
      (size = "bulk")

  /** The latest per (txid, target). */
  list<WorkReport> work_reports() throws (1: Fault fault)

  void forget_streams(1: list<StreamKey> streams) throws (1: Fault fault) (size = "bulk")

  void forget_roots(1: list<RootLog> logs) throws (1: Fault fault) (size = "bulk")

  // ---- hosts

  /** By the leader on a host; false: offer the segment instead. */
  list<bool> confirm_states(1: string leader, 2: list<StateConfirmation> confirmations) throws (1: Fault fault)
      (size = "bulk")

  /** The replicas on this host; `table_id` empty = of all tables. */
  HeldReplicas replicas(1: string table_id, 2: bool with_segments) throws (1: Fault fault)

  /** At most one, with its segments. */
  HeldReplicas tablet_replica(1: string table_id, 2: string directory) throws (1: Fault fault)

  /** After a split of the tablet in the directory `source`; returns the children that this host has completely. */
  list<Extent> divide_replica(1: string source, 2: list<Extent> children) throws (1: Fault fault) (size = "bulk")

  /** Content of a file on this host. */
  ReplicaContent read_replica(1: string table_id, 2: string directory, 3: string file, 4: i64 start)
      throws (1: Fault fault)

  /** From the Volume; `files`: name on the host to name there. Returns whether the host has the named state. */
  bool take_replica(1: Extent extent, 2: map<string, string> files) throws (1: Fault fault) (size = "bulk")

  /** To the Volume; false = the host lacks a file of the named state. */
  bool publish_replica(1: Extent extent) throws (1: Fault fault)

  // ---- logs on this host's disk, of its present tserver and of earlier ones; refused when the disk has another
  // incarnation

  /** A part of a log, or of a file beside a log; length 0 asks for the size. */
  LogPart read_log(1: string incarnation, 2: string name, 3: i64 position, 4: i64 length) throws (1: Fault fault)

  /** Names that begin with the prefix, in order, behind the name `after`; empty = no more. At most LOG_NAMES_MAX. */
  list<string> list_logs(1: string incarnation, 2: string prefix, 3: string after) throws (1: Fault fault)

  /** Fences and seals the log of a dead session; refused for the session that runs there; idempotent. */
  LogSeal seal_log(1: string incarnation, 2: string name, 3: bool is_used, 4: i64 durable_offset)
      throws (1: Fault fault)

  /** At most LOG_DROPS_MAX; refused unless the books have a ~del_ row for each log; idempotent. */
  void drop_logs(1: string incarnation, 2: list<string> names) throws (1: Fault fault) (size = "bulk")

  // ---- other clusters

  /** A session token, which expires when idle. */
  string open_stream(1: StreamKey stream) throws (1: Fault fault) (may_call = "peer")

  ReplicateResult replicate(1: ReplicateRequest request) throws (1: Fault fault) (may_call = "peer", size = "bulk")

  OfferAnswer offer_segments(1: SegmentsOffer offer) throws (1: Fault fault) (may_call = "peer", size = "bulk")

  /** In order; bytes that are here already are skipped. */
  void put_segment(1: SegmentPart part) throws (1: Fault fault) (may_call = "peer", size = "bulk")

  /** After all files were put; answers taken or declined. */
  OfferAnswer take_segments(1: string stream_session, 2: StreamKey stream) throws (1: Fault fault) (may_call = "peer")

  // ---- other tservers of the cluster

  SegmentAnswer segment_offer(1: SegmentOffer offer) throws (1: Fault fault) (size = "bulk")

  /** In order; bytes that are here already are skipped. */
  SegmentAck segment_transit(1: SegmentTransit transit) throws (1: Fault fault) (size = "bulk")

  /** At most CONTENT_BYTES_MAX of a file that this host holds sound. */
  binary replica_content(1: FileRequest request) throws (1: Fault fault)

  ReplicateResult apply_replicated(1: ApplyRequest request) throws (1: Fault fault) (size = "bulk")
}

/** The replay process. */
service Replay extends Node {
  void warm() throws (1: Fault fault)

  /** Arrow IPC streams: range descriptors in, one result row per range out. */
  binary run(1: binary ranges) throws (1: Fault fault) (size = "bulk")

  /**
   * Begins a task that follows the logs of a tserver for a peer, and returns when it is over. No other task has the
   * same `run`.
   */
  void follow(1: string tserver, 2: string cluster, 3: string run) throws (1: Fault fault)

  /** By a tserver: ranges that tasks followed, and their result rows, as in `run`, for the journal. */
  void note(1: binary ranges, 2: binary results) throws (1: Fault fault) (size = "bulk")
}
