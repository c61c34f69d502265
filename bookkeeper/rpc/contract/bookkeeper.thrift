// The wire contract of a cluster, for any language. Framed transport, strict binary protocol; both sides refuse
// frames above the configured limit. A connection begins with a handshake, which is not Thrift (handshake.py, and
// docs/formats/wire.md); the first call on it must be `hello`.
// Batches of records travel as one Arrow IPC record batch message of the mutation schema (no schema message):
// row, family, qualifier, visibility: binary; timestamp: int64 or null; delete: bool; value: binary.

namespace py bookkeeper.rpc

const i32 PROTOCOL_VERSION = 5

exception Fault {
  1: required bool transient_
  2: required string code                 // stable name of the error class
  3: required string message
  4: optional map<string, string> details
}

struct Hello {
  1: required i32 protocol_version
  2: required string instance_id          // empty for a plain client
  3: required string cluster_name
  4: required string role                 // client, master, tserver, replay
}

struct Extent {
  1: required string table_id
  2: optional binary end_row              // inclusive; absent = to the end
  3: optional binary prev_row             // exclusive; absent = from the start
}

struct RowRange {
  1: optional binary prev_row             // exclusive; absent = from the start
  2: optional binary end_row              // inclusive; absent = to the end
}

struct TabletLocation {
  1: required Extent extent
  2: optional string address              // absent = no tserver serves it
  3: optional i64 placed                  // rises when the tablet moves to another tserver, splits or merges
  4: optional string problem              // why no tserver can serve it until an operator acts, for example a damaged file
  5: optional string warning              // what fails while a tserver serves it, for example its compaction
  6: optional bool loaded                 // whether its tserver serves it, by the last report of that tserver; absent = unknown
  7: required list<string> replicas       // addresses of the live hosts that hold a replica; empty for a table with one replica
}

struct TabletProblem {
  1: required Extent extent
  2: required string reason
}

struct ServedTablets {
  1: required list<Extent> extents
  2: required list<TabletProblem> problems   // what fails repeatedly for some of them until an operator acts
  3: required list<Extent> without_room      // those with several replicas whose next segment this host's disk has no room for
}

struct SplitPoint {
  1: required i64 size_bytes           // of the segments, as far as their rows lie in the tablet
  2: required i64 shared_bytes         // the part of it that lies in files of several tablets
  3: optional binary row               // it splits the tablet near the middle; absent: no row does
  4: required string reason            // why no row does
}

struct OperationInfo {
  1: required string txid
  2: required string kind
  3: required string step                 // "failed" = the operation ended with an error
  4: required string note                 // what the operation waits for, or its error; may be empty
  5: required string arguments            // JSON, as in the books
  6: required i64 begun_ms
}

struct LocalityGroup { 1: required string name  2: required list<binary> families }

struct TableInfo {
  1: required string table_id
  2: required string name
  3: required string state                // creating, online, deleting
  4: required list<LocalityGroup> groups
  5: required map<string, string> properties
}

struct TargetKey {
  1: required string cluster
  2: required string remote_table_id
  3: required string source_table_id
  4: required i64 incarnation
}

// The identity of a source file at a receiver, which records its progress under it.
struct StreamKey {
  1: required string source_instance_id
  2: required string file
  3: required string source_table_id
  4: required string target_table_id
  5: required i64 incarnation
  6: required string run_id
}

// ---- client data path

struct WriteBatch {
  1: required Extent extent               // the tablet in the client's cache; the tserver checks the rows against the real one
  2: required binary records              // Arrow record batch, complete row mutations
  3: optional i64 placed                  // of the location; a tserver that got the tablet later refuses the batch. Absent = no check
}

struct WriteResult {
  1: required list<Extent> not_serving    // batches that were not applied: the tserver does not serve their tablets
}

struct Condition {
  1: required binary family
  2: required binary qualifier
  3: required binary visibility
  4: optional binary value                // of the newest version of the cell; absent = the cell must not exist
}

struct ScanRequest {
  1: required Extent extent
  2: optional binary start_row            // inclusive
  3: optional binary stop_row             // exclusive
  4: required list<binary> families       // empty = all
  5: required list<binary> columns        // pairs family, qualifier, flattened; empty = all
  6: optional binary resume               // `resume` of the previous page
  7: required i32 page_bytes
  8: optional i32 versions                // most versions of a cell; absent = all that the table retains (table.versions.max)
  9: optional i64 from_ms                 // timestamps, inclusive
  10: optional i64 to_ms                  // exclusive
  11: optional string user                // absent = root; users are not authenticated yet
  12: optional list<string> authorizations   // a subset of the user's authorizations; absent = all of them
  13: optional i64 stale_ms               // any host with a replica may answer from a state that is at most so old; absent = the leader answers
  14: optional i64 least_state            // `state_id` of the previous page: a host with an older state does not answer
}

struct ScanPage {
  1: required binary records              // Arrow record batch, sorted, versions of a cell newest first, deletes resolved; may be empty
  2: optional binary resume               // absent = no more records in this tablet
  3: optional i64 state_id                // of a page that the leader did not serve: its state
  4: optional i64 as_of_ms                // and the time up to which the state has every acknowledged write
}

// ---- compaction

struct CompactionTicket {                 // a tablet that is not compacted yet; ticket 0 = the request did not reach it
  1: required Extent extent
  2: required i64 ticket
}

struct CompactRequest {
  1: required string table
  2: optional binary begin_row            // tablets with a row at or after this one
  3: optional binary end_row              // inclusive
  4: required list<CompactionTicket> tickets   // empty = a new request; else the result of the previous call
}

struct TableUsage {                       // from the books; memtables are not counted
  1: required string table
  2: required i64 tablets
  3: required i64 segments                // files; a file that several tablets share counts once
  4: required i64 records                 // older versions and deletes included
  5: required i64 bytes
}

// ---- bulk import

struct ImportRequest {
  1: required string request_id           // 32 hex digits of the caller's choice; the same again is the same import
  2: required string table
  3: required string directory            // absolute, on the master's machine
  4: optional i64 time_ms                 // of records without a timestamp; absent = the start of the import
}

struct BulkProgress {
  1: required bool done                   // false = still running; call again with the same request
  2: required i64 records
}

struct CopyRequest {                      // a table to or from a directory on the master's machine
  1: required string request_id           // 32 hex digits of the caller's choice; the same again is the same copy
  2: required string table
  3: required string directory            // absolute
}

struct ImportedSegment {
  1: required string name
  2: required binary entry                // JSON, as in the books
}

struct ImportedLog {                      // the same records as a log, for peers
  1: required string name
  2: required i64 offset                  // of the last record
  3: required i64 position                // bytes
  4: required i64 created_ms
}

struct AdoptRequest {                     // the segments of an import for one tablet
  1: required Extent extent
  2: required StreamKey stream            // identifies the import: a tablet takes it once
  3: required list<ImportedSegment> segments
  4: optional ImportedLog log             // of a replicated table
  5: optional i64 through                 // of another cluster's stream: its last offset, which the segments hold all of; absent = an import here
  6: optional RelayFacts relay            // of another cluster's stream
}

struct RelayFacts {                       // facts about files that a cluster between hands on
  1: required list<string> provenance     // instance ids that its records have passed, the sender's included
  2: optional string root                 // where the records were first written; absent = the source file itself
}

// ---- replication status

struct TargetStatus {
  1: required string file
  2: required TargetKey target
  3: required string state                // OPEN, CLOSED
  4: required i64 needed
  5: required i64 finished
  6: required i64 lag_records
  7: required i64 lag_bytes
  8: required double lag_seconds
  9: required string phase                // waiting, shipping, blocked, uncopied, backing_off, failing, quarantined, unsealed, done
  10: optional string last_error
  11: optional i64 next_try_in_ms
  12: optional string worker
  13: required i64 records_shipped
  14: required i64 bytes_shipped
  15: required i64 resends
  16: required string table
  17: required list<string> groups
}

struct ReplicationReport {
  1: required list<TargetStatus> targets
  2: required i64 age_ms                  // age of the data in the answer
  3: required string problem              // why the data is old, for example failed cycles; empty = no problem
}

struct BlockRange {                       // complete blocks of a file; position 0 = unknown
  1: required i64 first                   // records, both inclusive
  2: required i64 last
  3: required i64 start_position          // bytes [start, end)
  4: required i64 end_position
}

struct QuarantinedRange {                 // a range that can't be shipped to one target
  1: required string range_id
  2: required string table
  3: required TargetKey target
  4: required string file
  5: required BlockRange blocks
  6: required string state                // blocking, held, retrying, skipping
  7: required string error_code
  8: required string error
  9: required i64 since_ms                // wall clock; 0 while it blocks
  10: required i64 tries                  // by this master, while it blocks
}

struct FileMark { 1: required string file  2: required i64 offset }

// A log, named by the cluster that wrote it (rule R22).
struct RootLog { 1: required string instance_id  2: required string file }

struct RootQuestion {
  1: required RootLog log
  2: required list<RootLog> streams       // deleted logs with records of this one that were sent to the answering cluster
}

struct HandedOn {
  1: required string instance_id
  2: required string file                 // a deleted log with records of it that was sent there; empty = records may still be sent
}

struct RootStanding {
  1: required bool owed                   // an existing log has records of it that must still be sent on
  2: required bool under_way              // the stream of a log in the question is still open here: a message may still arrive
  3: required list<HandedOn> handed
  4: optional bool refused                // the caller neither wrote the log nor sent records of it: the other fields say nothing
}

struct ClusterInfo { 1: required string name  2: required string quorum  3: required string instance_id }

struct ReplicationConfig {
  1: required string table
  2: required TargetKey target
  3: required list<string> groups         // empty = every group
  4: required string remote_table
}

struct ReplicationChange {                // of enabling or disabling
  1: required list<ReplicationConfig> targets   // of the table, now
  2: required list<string> warnings       // records that the peer lacks and will not get
}

// ---- replication between clusters

struct SourceBlock {
  1: required i64 first_offset            // of the source file, both inclusive; blocks ascend and never cross the end of a range
  2: required i64 last_offset
  3: required binary records              // Arrow record batch; may have fewer records than the offset range (filtered)
  4: required i32 record_count
  5: required binary min_row
  6: required binary max_row
  7: optional binary block_origins        // protobuf BlockOrigins of block.proto: where the records were first written (R22); absent = as the offsets say, unless filtered
}

struct ReplicateRequest {
  1: required string stream_session       // from open_stream
  2: required StreamKey stream
  3: required list<string> provenance     // instance ids, the sender's own included
  4: required i64 acked_offset            // all records up to here are durable on every receiving tablet
  5: required i64 after_offset            // this request covers (after_offset, to_offset] of the source file
  6: required i64 to_offset
  7: required list<SourceBlock> blocks
}

struct ReplicateResult {
  1: required i64 acked_offset
  2: required i64 records_applied         // records written now
  3: required i64 records_dropped         // duplicates
}

struct ApplyRequest {                     // one receiving tablet's share of a ReplicateRequest
  1: required Extent extent
  2: required StreamKey stream
  3: required list<string> provenance
  4: required i64 acked_offset
  5: required i64 after_offset
  6: required i64 to_offset
  7: required list<SourceBlock> blocks
}

// Segment transfer: a source file is offered as segments, sent in parts, and taken by tablets that have no record of it.

struct OfferedSegment {
  1: required binary entry                // JSON, as in the books
  2: required string sha256               // of the file, hex
}

struct SegmentsOffer {
  1: required string stream_session       // from open_stream
  2: required StreamKey stream
  3: required list<string> provenance     // instance ids, the sender's own included
  4: required i64 to_offset               // of the source file's last record: the segments have all records for the target up to there
  5: required list<LocalityGroup> groups  // the locality groups of the segments
  6: required i64 row_bytes               // of the longest row, column part and value
  7: required i64 column_bytes
  8: required i64 value_bytes
  9: required list<OfferedSegment> segments
  10: optional string root                // instance id, log and table where its records were first written, with the same offsets; absent = in the source file
}

struct OfferAnswer {
  1: required string state                // taken: it is all here; wanted: send the files; declined: send records
  2: required string reason               // why it is declined
  3: required list<i64> received_bytes    // bytes of each file that are here already, when they are wanted
}

struct SegmentPart {
  1: required string stream_session
  2: required StreamKey stream
  3: required i32 number                  // index of the file, from 0
  4: required i64 start                   // position of the part in the file
  5: required binary content
}

// ---- replication work inside a cluster

struct WorkItem {
  1: required string txid                 // the FATE operation that owns it
  2: required string file
  3: required TargetKey target
  4: required i64 first_offset            // inclusive, both
  5: required i64 last_offset
  6: required string peer_quorum
  7: required string peer_instance_id
  8: required i64 epoch                   // of the master that assigns it
  9: required list<BlockRange> passed     // quarantined ranges: they count as finished once all records before them are
  10: required string run_id              // "" = the target's stream; else a separate stream, which the books do not record
}

struct WorkReport {
  1: required string txid
  2: required string file
  3: required TargetKey target
  4: required i64 finished_offset         // durable on the peer and written to the books
  5: required i64 records
  6: required i64 bytes
  7: required i64 filtered
  8: required i64 resends
  9: optional string error
  10: required bool error_transient
  11: required i64 queued_ranges
  12: optional string error_code
  13: optional BlockRange failed          // the smallest range that has the error
  14: required string run_id
  15: required i64 share_records          // records for the target in the file up to finished_offset
  16: required i64 share_bytes            // bytes of the blocks with those records
}

struct TabletAssignment {
  1: required Extent extent
  2: required string directory
  3: required i64 epoch
}

// ---- replicas of a tablet on hosts: segments travel as files between tservers of one cluster

struct ReplicaPlacement {                 // one assignment of a tablet to a host
  1: required string host
  2: required string placement
  3: required string incarnation          // of the host's disk
}

struct LogPosition { 1: required i64 term  2: required i64 offset }   // of a term's log, or of an import: a negative number

struct SegmentRecord {                    // one step of a tablet's data
  1: required i64 segment_id              // the flush id of the state after it
  2: optional i64 base                    // the state that it was made on; absent = none
  3: required bool is_major               // it may be taken without its base
  4: required list<i64> included          // ids that were folded into it, newest first
  5: required list<string> files          // the files that it brings
  6: required list<string> retained       // the earlier files that count beside them
  7: required list<LogPosition> logs      // what its list has of the logs
}

struct ReplicaFile {
  1: required string name                 // on a Volume, the same on every host
  2: required i64 size_bytes
  3: required i64 crc32c                  // of its bytes
  4: required binary entry                // JSON, as in the books
}

struct SegmentOffer {
  1: required Extent extent
  2: required string directory            // of the tablet
  3: required i64 term                    // the newest that the sender has heard of
  4: optional string leader               // the host that leads that term
  5: required ReplicaPlacement sender
  6: required ReplicaPlacement receiver   // as the sender knows it
  7: required SegmentRecord segment
  8: required list<ReplicaFile> files     // each file of its list: those that it brings and those that it retains
  9: required binary state                // JSON of the state after it, as in the books
  10: optional i64 as_of_ms               // the state has every write acknowledged until this time of the leader's clock
}

struct FileNeed {
  1: required string name
  2: required i64 start                   // send the bytes from this one on; those before are here
}

struct SegmentAnswer {
  1: required string state                // accepted: send the content; acked: the segment is durable here; declined
  2: required string reason               // of a decline: SEGMENT_EXISTS, OVERLOADED, INVALID, INFLIGHT, OUT_OF_ORDER
  3: required string problem              // the reason in words; may be empty
  4: required ReplicaPlacement placement  // the receiver's
  5: optional i64 root                    // the receiver's newest state
  6: required list<FileNeed> need         // of an accepted segment; send the files in this order
}

struct LogPart {
  1: optional i64 size                    // bytes of the file; unset = this host has no file of that name
  2: required binary content              // at most 1 MiB, less at the end of the file
}

struct LogSeal {
  1: required i64 offset                  // of the last record; 0 = there is none
  2: required i64 position                // behind its block
}

struct SegmentTransit {
  1: required string table_id
  2: required string directory
  3: required ReplicaPlacement sender
  4: required ReplicaPlacement receiver
  5: required i64 segment_id
  6: required string file
  7: required i64 start                   // position of the content in the file
  8: required binary content              // at most 4 MiB
}

struct SegmentAck {
  1: required string file
  2: required i64 held_bytes              // of the file that are here
  3: optional SegmentAnswer answer        // with the last byte of the last file: acked, or declined after all
}

struct ReplicaContent {
  1: required i64 size_bytes              // of the complete file
  2: required i64 crc32c
  3: required binary content              // from the position that was asked for, at most 1 MiB
}

struct FileRequest {                     // of a replica whose copy of a file is damaged
  1: required string table_id
  2: required string directory
  3: required ReplicaPlacement receiver
  4: required string file
  5: required i64 size_bytes
  6: required i64 crc32c
  7: required i64 start                   // position of the content in the file
}

struct HeldSegment {
  1: required SegmentRecord segment
  2: required bool is_complete            // the host holds each file of its list
  3: required list<ReplicaPlacement> acked   // who else said so; without hosts that the replica does not know
  4: required i64 bytes                   // of the files that it brings, as far as they are here
}

struct ReplicaLag {                       // segments that a host has not acknowledged
  1: required string host
  2: required i32 lacking
  3: required i64 bytes                   // of the files that have to go there, at most
}

struct UnlistedFile {                     // a file on a host that the newest state there does not list
  1: required string name
  2: required i64 bytes
  3: required bool in_use                 // by a reader, by a copy, or by a segment that is under way
}

struct HeldReplicaInfo {
  1: required Extent extent
  2: required string directory
  3: required ReplicaPlacement placement
  4: required string stage                // LOADING, JOINING, LIVE, UNLOAD, UNLOAD_FINAL
  5: required i64 term                    // the newest that it has heard of
  6: optional string leader               // the host that it takes for the leader of that term
  7: required bool is_leader
  8: optional i64 root                    // its newest state
  9: required list<i64> complete          // states whose files the host holds, each of them
  10: required i32 files
  11: required i64 bytes
  12: required list<ReplicaLag> lags      // of a leader
  13: required list<HeldSegment> segments // empty unless they were asked for
  14: required i64 incoming_bytes         // of segments that are under way to it
  15: required list<UnlistedFile> unlisted   // empty unless segments were asked for
  16: required list<string> damaged       // files that are to be replaced by sound copies
}

struct HeldReplicas {
  1: required list<HeldReplicaInfo> replicas
  2: required map<string, string> damaged // table/directory of replicas that can't be read, and why
}

struct StateConfirmation {                // a leader's word about a state that the receiver has
  1: required string table_id
  2: required string directory
  3: required ReplicaPlacement receiver
  4: required i64 term
  5: required i64 state_id
  6: required i64 as_of_ms                // it has every write that was acknowledged until then
}

struct HostInfo {                         // for operators
  1: required string name
  2: optional string incarnation          // of its disk; absent while it is away
  3: optional string address
  4: required bool draining               // it gives its replicas away
  5: required i32 replicas                // that rows name
  6: required i32 joining                 // of these
  7: required i32 leads                   // tablets that it serves, also those of one replica
  8: optional i64 bytes                   // of the replicas that it holds; absent = it did not answer
  9: required string problem              // may be empty
  10: optional string zone                // of a live host; empty = a zone of its own
  11: optional i64 away_since_ms          // wall clock when a master noticed it; absent while it lives
  12: required i32 lacking_segments       // that leaders on other hosts have for it
  13: required i64 lacking_bytes
  14: required i32 unsent_segments        // of tablets that it leads, and that other hosts have not acknowledged
  15: required i64 unsent_bytes
  16: required i64 joining_bytes          // of the replicas that join here, when they are complete
  17: required i64 joined_bytes           // of these, already here
  18: required i32 lost_logs              // tablets go on without so many logs of this host
}

struct ReplicaStanding {                  // a replica that a row names, and what its host says
  1: required string host
  2: required string placement
  3: required string role                 // voter or joining
  4: required bool leads
  5: optional HeldReplicaInfo held        // absent: the host is away, or holds another placement
  6: required string problem
  7: required list<WaitingFiles> waiting  // empty unless segments were asked for
}

struct WaitingFiles {                     // files on a host that wait to be deleted
  1: required string reason
  2: required list<string> names
  3: required i64 bytes
}

struct SegmentStanding {                  // a segment that any host of the tablet has
  1: required i64 segment_id
  2: optional i64 base
  3: required bool is_major
  4: required i32 files                   // that it brings
  5: required i64 bytes
  6: required i32 retained
  7: required list<string> held_by        // hosts with each file of the state after it
  8: required list<string> acked_by       // hosts that told the leader so
  9: required string waits_for
}

struct TabletReplicas {
  1: required Extent extent
  2: required i64 named                   // the state that the books name, 0 = none
  3: required i32 copies_needed
  4: required list<ReplicaStanding> replicas   // empty with one replica
  20: required string directory           // of the tablet, which it keeps
  21: required i32 wanted                 // table.replicas
  22: required string problem             // why no host leads it; may be empty
  23: required list<SegmentStanding> segments   // old to new; empty unless they were asked for
  30: required list<string> lost_logs      // logs that the tablet is served without
}

service Node {
  Hello hello(1: Hello hello) throws (1: Fault fault)
  map<string, string> status() throws (1: Fault fault)
}

service Master extends Node {
  // all callers
  string leader() throws (1: Fault fault)                     // host:port of the leading master
  list<TableInfo> tables() throws (1: Fault fault)
  list<TabletLocation> locate(1: string table_id) throws (1: Fault fault)
  TabletLocation locate_tablet(1: string table_id, 2: binary row) throws (1: Fault fault)  // the tablet of the row; tservers load it first

  // administration
  TableInfo create_table(1: string name, 2: list<binary> splits, 3: list<LocalityGroup> groups, 4: map<string, string> properties) throws (1: Fault fault)
  void delete_table(1: string name) throws (1: Fault fault)
  void set_groups(1: string name, 2: list<LocalityGroup> groups) throws (1: Fault fault)
  TableInfo change_properties(1: string name, 2: map<string,string> changes, 3: list<string> removals) throws (1: Fault fault)
  void set_read_only(1: bool read_only) throws (1: Fault fault)                    // for all tables; a single table has the property table.read_only
  bool is_read_only() throws (1: Fault fault)
  void flush_table(1: string name) throws (1: Fault fault)
  list<CompactionTicket> compact_table(1: CompactRequest request) throws (1: Fault fault)   // the tablets to wait for; empty = done
  BulkProgress import_directory(1: ImportRequest request) throws (1: Fault fault)
  BulkProgress export_table(1: CopyRequest request) throws (1: Fault fault)         // the directory must be empty or missing
  BulkProgress import_table(1: CopyRequest request) throws (1: Fault fault)         // creates the table
  list<HostInfo> hosts() throws (1: Fault fault)
  void drain_host(1: string name, 2: bool draining) throws (1: Fault fault)        // true: the host gives its replicas away
  void forget_host(1: string name) throws (1: Fault fault)                         // the logs on its lost disk are lost for ever
  list<TabletReplicas> table_replicas(1: string table_id, 2: bool with_segments) throws (1: Fault fault)
  list<TableUsage> disk_usage(1: list<string> tables) throws (1: Fault fault)      // empty = every table
  void set_authorizations(1: string user, 2: list<string> authorizations) throws (1: Fault fault)   // replaces the previous ones
  list<string> authorizations(1: string user) throws (1: Fault fault)
  void add_splits(1: string name, 2: list<binary> rows, 3: list<string> onto) throws (1: Fault fault)    // adds tablet borders at these rows; the tablets that end there begin to move to the hosts of `onto`, empty = they stay
  void merge_tablets(1: string name, 2: RowRange rows) throws (1: Fault fault)     // merges all tablets with rows in the range into one
  list<OperationInfo> operations() throws (1: Fault fault)                         // running, or failed recently
  list<ClusterInfo> clusters() throws (1: Fault fault)
  ClusterInfo define_cluster(1: string name, 2: string quorum) throws (1: Fault fault)
  void delete_cluster(1: string name, 2: string quorum) throws (1: Fault fault)
  ReplicationChange enable_replication(1: string table, 2: list<string> groups, 3: string cluster, 4: string remote_table) throws (1: Fault fault)   // groups empty = all
  ReplicationChange disable_replication(1: string table, 2: list<string> groups, 3: string cluster) throws (1: Fault fault)
  list<ReplicationConfig> replication_config() throws (1: Fault fault)
  ReplicationReport replication_status(1: string table) throws (1: Fault fault)   // empty = all tables; not_ready until the master has read its data
  list<QuarantinedRange> quarantine(1: string table) throws (1: Fault fault)       // empty = all tables; not_ready until the master has read its data
  QuarantinedRange hold_range(1: string range_id) throws (1: Fault fault)                // quarantine a blocking range, so that the queue continues
  void retry_range(1: string range_id) throws (1: Fault fault)                           // ship it; returns once the peer has it
  void skip_range(1: string range_id) throws (1: Fault fault)                            // discard it
  list<FileMark> replication_mark(1: string table) throws (1: Fault fault)         // position of every WAL of the table now, fsynced
  list<TargetStatus> replication_pending(1: list<FileMark> marks, 2: string table, 3: string cluster) throws (1: Fault fault)   // empty = the marks are replicated

  // other clusters
  string resolve_table(1: string name) throws (1: Fault fault)                     // table id; not_found otherwise
  string pick_tserver(1: string table_id) throws (1: Fault fault)                  // host:port
  void stream_done(1: list<StreamKey> streams) throws (1: Fault fault)             // the source never sends these again
  list<RootStanding> root_standings(1: list<string> route, 2: list<RootQuestion> questions) throws (1: Fault fault)   // answered at the end of the route of instances; empty route = here
  void roots_over(1: list<string> route, 2: list<RootLog> logs) throws (1: Fault fault)                     // no record of these logs is in transit anywhere

  // own tservers
  oneway void nudge(1: string session_id)                                          // there are new records to replicate
  oneway void report_work(1: string session_id, 2: list<WorkReport> reports)
}

service TServer extends Node {
  // clients
  // A writer counts its calls in `attempt`: once a tablet has seen an attempt, it refuses lower ones. Empty writer: no check.
  // Together with `placed` this also holds after the tablet, or a part of it, moved.
  WriteResult write(1: list<WriteBatch> batches, 2: string durability, 3: string writer, 4: i64 attempt) throws (1: Fault fault)
  bool write_if(1: Extent extent, 2: list<Condition> conditions, 3: binary records, 4: string durability) throws (1: Fault fault)   // one row; false = a condition does not hold and no record was written
  ScanPage scan(1: ScanRequest request) throws (1: Fault fault)

  // master
  void load_tablet(1: TabletAssignment assignment) throws (1: Fault fault)         // idempotent
  void unload_tablet(1: Extent extent, 2: i64 epoch, 3: bool discard) throws (1: Fault fault)
  ServedTablets tablets() throws (1: Fault fault)
  void flush_tablet(1: Extent extent) throws (1: Fault fault)
  i64 compact_tablet(1: Extent extent, 2: i64 ticket) throws (1: Fault fault)      // ticket 0 = a new request; returns 0 when it is done, else the ticket for the next call
  SplitPoint split_point(1: Extent extent, 2: i64 row_bytes_max) throws (1: Fault fault)   // from the indexes of the tablet's segments; the longest row at which it may be split
  void adopt_segments(1: AdoptRequest request) throws (1: Fault fault)              // idempotent until its stream is forgotten
  i64 confirm_config(1: i64 generation) throws (1: Fault fault)                    // returns once every later block has the targets of that generation
  list<FileMark> wal_positions(1: string table_id) throws (1: Fault fault)         // synced position of every own WAL with records of the table
  void assign_work(1: list<WorkItem> items) throws (1: Fault fault)                // idempotent; overloaded when the queue is full
  list<WorkReport> work_reports() throws (1: Fault fault)                          // latest per (txid, target)
  void forget_streams(1: list<StreamKey> streams) throws (1: Fault fault)
  void forget_roots(1: list<RootLog> logs) throws (1: Fault fault)
  list<bool> confirm_states(1: string leader, 2: list<StateConfirmation> confirmations) throws (1: Fault fault)   // by a host; false: offer the segment instead
  HeldReplicas replicas(1: string table_id, 2: bool with_segments) throws (1: Fault fault)   // on this host; empty = of all tables
  HeldReplicas tablet_replica(1: string table_id, 2: string directory) throws (1: Fault fault)   // at most one, with its segments
  list<Extent> divide_replica(1: string source, 2: list<Extent> children) throws (1: Fault fault)   // after a split of the tablet in this directory; answers the children that this host has completely
  ReplicaContent read_replica(1: string table_id, 2: string directory, 3: string file, 4: i64 start) throws (1: Fault fault)   // of a file on this host
  bool take_replica(1: Extent extent, 2: map<string, string> files) throws (1: Fault fault)   // from the Volume; name on the host to name there; answers whether the host has the named state
  bool publish_replica(1: Extent extent) throws (1: Fault fault)   // to the Volume; false = the host lacks a file of the named state

  // logs on this host's disk, of its present tserver and of earlier ones; refused when the disk has another incarnation
  LogPart read_log(1: string incarnation, 2: string name, 3: i64 position, 4: i64 length) throws (1: Fault fault)   // or a file beside a log; length 0 asks for the size
  list<string> list_logs(1: string incarnation, 2: string prefix, 3: string after) throws (1: Fault fault)   // names that begin so, in order, behind a name; empty = no more
  LogSeal seal_log(1: string incarnation, 2: string name, 3: bool is_used, 4: i64 durable_offset) throws (1: Fault fault)   // fences and seals the log of a dead session; refused for the session that runs there; idempotent
  void drop_logs(1: string incarnation, 2: list<string> names) throws (1: Fault fault)   // at most 1,000; refused unless the books have a ~del_ row for each log; idempotent

  // other clusters
  string open_stream(1: StreamKey stream) throws (1: Fault fault)                  // session token, expires when idle
  ReplicateResult replicate(1: ReplicateRequest request) throws (1: Fault fault)
  OfferAnswer offer_segments(1: SegmentsOffer offer) throws (1: Fault fault)
  void put_segment(1: SegmentPart part) throws (1: Fault fault)                    // in order; bytes that are here already are skipped
  OfferAnswer take_segments(1: string stream_session, 2: StreamKey stream) throws (1: Fault fault)   // after all files were put; answers taken or declined

  // other tservers of the cluster
  SegmentAnswer segment_offer(1: SegmentOffer offer) throws (1: Fault fault)
  SegmentAck segment_transit(1: SegmentTransit transit) throws (1: Fault fault)    // in order; bytes that are here already are skipped
  binary replica_content(1: FileRequest request) throws (1: Fault fault)           // at most 1 MiB of a file that this host holds sound
  ReplicateResult apply_replicated(1: ApplyRequest request) throws (1: Fault fault)
}

service Replay extends Node {
  void warm() throws (1: Fault fault)
  binary run(1: binary ranges) throws (1: Fault fault)       // Arrow IPC streams: range descriptors in, one result row per range out
}
