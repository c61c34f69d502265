"""Fault switches of workers, shipping and replica systems."""

from __future__ import annotations

from tests.support.faults.switch import Edit, Switch

SHIPPING: dict[str, Switch] = {
    "today's-configuration-counts": Switch(
        "bookkeeper.replay.stream.filters",
        "block_target_for",
        old="for message in header.block_targets:",
        new="""
        return BlockTarget(target, None)
        for message in header.block_targets:
        """,
        breaks="R13: a block that was written before its target was enabled is shipped",
    ),
    "imports-count-from-one": Switch(
        "bookkeeper.replay.stream.block_stream",
        "sequence_of",
        old="return header.first_seq + max(0, current.first_seq - 1)",
        new="return header.first_seq",
        breaks="of equal timestamps a change log has the wrong record last, where a table takes imports",
    ),
    "tablets-are-not-waited-for": Switch(
        "bookkeeper.tserver.receive.slice_retry",
        "is_away",
        old="return isinstance(error, NotServingError | UnavailableError) and not isinstance(error, NoSpaceError)",
        new="return False",
        breaks="a killed tserver makes peers send whole messages again, for the shares of its tablets",
    ),
    "progress-is-not-remembered": Switch(
        "bookkeeper.replay.progress",
        "missing_part",
        old="if acked is None or acked.offset <= r.finished:",
        new="if True:",
        breaks="after a tserver is killed, the next worker ships the records of the last run again",
    ),
    "a-peer-with-less-is-not-believed": Switch(
        "bookkeeper.replay.progress",
        "StreamProgress._record",
        old="if result.high_water is not None:",
        new="if False:",
        breaks="R19: records that a peer lost in a restore are never sent again",
    ),
    "acknowledged-blocks-are-believed": Switch(
        "bookkeeper.replay.stream.block_stream",
        "RangeStream._check",
        old="if self._confirmed is not None and",
        new="if False and self._confirmed is not None and",
        breaks="a peer that was restored from a copy younger than the last check-in lacks records, and nobody says so",
    ),
    "tails-count-as-lost": Switch(
        "bookkeeper.tserver.receive.receiver",
        "SliceCheck.prepare",
        old="if not self._tablet.given_up.awaits_tails:",
        new="if True:",
        breaks="a peer whose host is away for a while counts as one that was restored from a backup",
    ),
    "streams-have-two-senders": Switch(
        "bookkeeper.replay.progress",
        "StreamProgress._wait_until_free",
        old="while any(stream in self._shipping for stream in streams):",
        new="while False:",
        breaks="two runs send the same records at the same time",
    ),
    "incarnations-are-one": Switch(
        "bookkeeper.replay.stream.filters",
        "block_target_for",
        old="if target_from_pb(message) == target:",
        new="if message.cluster == target.cluster:",
        breaks="R5: a target that was disabled and enabled again gets records of its earlier incarnation",
        also=[
            Edit(
                "bookkeeper.replay.stream.filters",
                "block_target_for",
                old="return block_target_from_pb(message)",
                new="return BlockTarget(target, None)",
            )
        ],
    ),
    "files-for-every-target": Switch(
        "bookkeeper.replay.stream.segment_transfer",
        "wanted_segments",
        old="block_target = filters.block_target_for(header, r.target)",
        new="""
        return log.segments
        block_target = filters.block_target_for(header, r.target)
        """,
        breaks="R13: a target gets groups, or whole imports, that are not for it",
    ),
    "loop-not-seen": Switch(
        "bookkeeper.replay.stream.filters",
        "would_loop",
        old="return peer_instance_id in provenance",
        new="return False",
        breaks="R21: data is sent to a cluster that it has passed",
    ),
    "provenance-is-the-file's": Switch(
        "bookkeeper.replay.stream.filters",
        "would_loop",
        old="return peer_instance_id in provenance",
        new="""
        from tests.support.faults.memory import REMEMBERED
        seen = REMEMBERED.setdefault("provenance", set())
        seen.update(provenance)
        return peer_instance_id in seen
        """,
        breaks="R21: a cluster's own writes stop travelling once something of the peer lies in the same log",
    ),
    "groups-ignored": Switch(
        "bookkeeper.replay.stream.filters",
        "decision_of",
        old="if block_target.groups is None:",
        new="if True:",
        breaks="R13: groups that are not replicated travel",
    ),
    "sender-leaves-no-trace": Switch(
        "bookkeeper.replay.stream.filters",
        "provenance_for",
        old="return (*header.provenance, own_instance_id)",
        new="return tuple(header.provenance)",
        breaks="R21: the sender is missing in the provenance, and its data comes back",
    ),
    "hole-behind-the-fact": Switch(
        "bookkeeper.replay.stream.block_stream",
        "RangeStream._begin",
        old="if current.first == self._acked + 1:",
        new="if True:",
        breaks="R19: a range is shipped while records before it are missing",
    ),
    "answers-count-as-they-come": Switch(
        "bookkeeper.replay.stream.block_stream",
        "RangeStream._take_answer",
        old="sent = self._in_flight.popleft()",
        new="sent = self._in_flight.pop()",
        breaks="R19: a message is acknowledged, one in front of it never was, and counts as acknowledged, too",
    ),
    "any-cluster-will-do": Switch(
        "bookkeeper.peers.bookkeeper",
        "expect_instance",
        old="if hello.instance_id != peer.instance_id:",
        new="if False:",
        breaks="R23: data goes to any server that answers at the address",
    ),
    "sent-counts-as-finished": Switch(
        "bookkeeper.tserver.shipping.worker_plan",
        "advance",
        old="if result.acked_offset <= progress.offset:",
        new="""
        return StreamProgress(progress.offset + 10, progress.offset + 10, 1)
        if result.acked_offset <= progress.offset:
        """,
        breaks="L2: finished is written before the peer has acknowledged, and the file goes",
    ),
    "shipped-past-the-range": Switch(
        "bookkeeper.tserver.shipping.worker_plan",
        "range_to_ship",
        old="last=last_to_ship(item, progress),",
        new="last=10**6,",
        breaks="R15, R24: records are shipped that are not synced, or before their barrier",
    ),
    "finished-without-rank": Switch(
        "bookkeeper.tserver.shipping.worker_books",
        "write_finished",
        old="keys.done_rank(progress.recorded)",
        new="1",
        breaks="a worker that lost its work turns the finished offset back",
    ),
    "dead-peers-take-all-slots": Switch(
        "bookkeeper.replay.slots",
        "grant",
        old="if peer not in suspects:",
        new="if True:",
        breaks="an offline peer delays another",
    ),
    "runs-wait-for-other-tservers": Switch(
        "bookkeeper.replay.slots",
        "grant",
        old="further = int(own < total // 2)",
        new="further = 0",
        breaks="of three tservers on two cores one ships nothing while the others do",
    ),
    "names-are-used-twice": Switch(
        "bookkeeper.peers.parquet.file_store",
        "take_name",
        old="ops.link(temporary, target)",
        new="temporary.replace(target)",
        breaks="R18: of two writers of a name in a change log the last one wins",
    ),
    "present-records-are-not-read": Switch(
        "bookkeeper.peers.parquet.system",
        "ParquetSession._covered",
        old="if last is None:",
        new="if True:",
        breaks="R18: a sender takes the change log for empty of its stream",
    ),
    "facts-are-not-verified": Switch(
        "bookkeeper.peers.parquet.system",
        "ParquetSession._take_fact",
        old="""
        if acked_offset > self.covered_offset:
            self.covered_offset, self.has_read_files = acked_offset, False
        """,
        new="self.covered_offset, self.has_read_files = max(self.covered_offset, acked_offset), True",
        breaks="R18: a sender that learns of other senders does not read their records in the change log",
    ),
    "runs-where-the-last-writer-wins": Switch(
        "bookkeeper.peers.parquet.layout",
        "first_run",
        old="day = parts[0].day",
        new="""
        one_block = False
        day = parts[0].day
        """,
        breaks="R18: two writers of a name in a change log write different records under it",
    ),
    "own-barriers-are-optional": Switch(
        "bookkeeper.tserver.shipping.extension",
        "may_extend",
        old="if not is_passed(barrier, target, known):",
        new="if False:",
        breaks="R24: a tserver ships a record of its own before the records of another log that it waits for",
    ),
    "unknown-offsets-count-as-finished": Switch(
        "bookkeeper.tserver.shipping.extension",
        "is_passed",
        old="return known.finished(barrier.file, target) >= until",
        new="return (known.finished(barrier.file, target) or until) >= until",
        breaks="R24: a log of another session that nobody has shipped is not waited for",
    ),
    "logs-without-targets-are-waited-for": Switch(
        "bookkeeper.tserver.shipping.extension",
        "is_passed",
        old="if before is not None and target.source_table_id not in before.tables:",
        new="if False:",
        breaks="a log from before a table was replicated has no finished offset, and those after it wait for ever",
    ),
    "seals-are-ends": Switch(
        "bookkeeper.tserver.shipping.extension",
        "is_passed",
        old="return known.finished(barrier.file, target) >= until",
        new="return (before is not None and before.is_sealed) or known.finished(barrier.file, target) >= until",
        breaks="R24: a log overtakes the tail of the tserver's log before",
    ),
    "the-master's-word-counts-for-nothing": Switch(
        "bookkeeper.tserver.shipping.extension",
        "may_extend",
        old="first = bisect.bisect_right(log.barriers, vouched, key=lambda barrier: barrier.offset)",
        new="first = 0",
        breaks="a stream waits for ever at a barrier that only the master can judge",
    ),
    "logs-on-hosts-go-by-themselves": Switch(
        "bookkeeper.tserver.shipping.extension",
        "may_extend",
        old="end = min(log.end, max(log.named_until, vouched))",
        new="end = log.end",
        breaks="R15: a peer has records of a log on one host's disk that the cluster loses with it",
    ),
    "logs-on-hosts-wait-for-the-master": Switch(
        "bookkeeper.tserver.shipping.extension",
        "may_extend",
        old="end = min(log.end, max(log.named_until, vouched))",
        new="end = min(log.end, vouched)",
        breaks="while no master lives, no record of a log on a host's disk leaves",
    ),
    "records-are-named-when-written": Switch(
        "bookkeeper.tserver.shipping.own_log",
        "OwnLogs.note_records",
        old="if self._unnamed is None:",
        new="if True:",
        breaks="R15: a peer has records of a log on one host's disk that no named state has",
    ),
    "streams-end-with-their-range": Switch(
        "bookkeeper.tserver.shipping.open_streams",
        "OpenStreams.due",
        old="if self.pause_ms() > 0:",
        new="if True:",
        breaks="while no master lives, no record leaves a healthy tserver",
    ),
    "only-the-master-opens-logs": Switch(
        "bookkeeper.tserver.shipping.open_streams",
        "OpenStreams._go_on",
        old="self._open_later_logs(newest)",
        new="pass",
        breaks="while no master lives, streams stop at the end of the log",
    ),
    "any-error-ends-a-stream": Switch(
        "bookkeeper.tserver.shipping.open_streams",
        "OpenStreams.settle",
        old="if error is not None and not error.transient:",
        new="if error is not None:",
        breaks="while no master lives, a peer that restarts gets no more records",
    ),
    "written-records-are-own-ends": Switch(
        "bookkeeper.tserver.books.wal_bookkeeper",
        "WalBookkeeper.before_append",
        old="self._current.appended(blocks)",
        new="""
        self._current.appended(blocks)
        self._own_logs.note_end(wal_name, blocks[-1].last_offset)
        """,
        breaks="R15: a peer has records that a power failure takes from the tserver",
    ),
    "repeated-runs-go-on": Switch(
        "bookkeeper.tserver.shipping.open_streams",
        "OpenStreams.open",
        old="if item.run_id or self",
        new="if self",
        breaks="a run that ships records again ships all that follow them, too",
    ),
    "streams-keep-their-address": Switch(
        "bookkeeper.tserver.shipping.open_streams",
        "OpenStreams._extended",
        old="last_offset=last, peer_quorum=destination.quorum)",
        new="last_offset=last)",
        breaks="while no master lives, a peer that moved gets no more records",
    ),
    "streams-follow-an-address": Switch(
        "bookkeeper.tserver.shipping.open_streams",
        "is_at",
        old="destination.instance_id == item.peer_instance_id and",
        new="",
        breaks="R23: a stream goes on to a cluster that took over the peer's place",
    ),
    "directories-take-single-records": Switch(
        "bookkeeper.tserver.shipping.open_streams",
        "is_at",
        old=" and destination.takes_small_messages",
        new="",
        breaks="a directory of Parquet files gets a file for each record",
    ),
    "books-come-before-the-journal": Switch(
        "bookkeeper.tserver.shipping.lane_books",
        "LaneBooks._run",
        old="self._write_lines(lines)",
        new="pass",
        breaks="ranges that are finished in the books are not in the journal",
    ),
    "cells-are-taken-behind-the-journal": Switch(
        "bookkeeper.tserver.shipping.lane_books",
        "LaneBooks._run",
        old="self._write_cells(unbooked)",
        new="self._write_cells({**unbooked, **self._take_unbooked()})",
        breaks="a range that came during the call to the journal is finished in the books, and its line is not written",
    ),
    "reports-come-before-the-books": Switch(
        "bookkeeper.tserver.shipping.lane_books",
        "LaneBooks._send_reports",
        old="key not in self._unbooked and ",
        new="",
        breaks="the master hears of a finished offset that is lost when the tserver dies",
        also=[
            Edit(
                "bookkeeper.tserver.shipping.lane_books",
                "LaneBooks._has_report",
                old=" and key not in self._unbooked",
                new="",
            )
        ],
    ),
    "streams-begin-without-a-cell": Switch(
        "bookkeeper.tserver.shipping.worker_plan",
        "LanePlan.waits_for_books",
        old="return is_import_log(item.file) or must_read_books(progress, item)",
        new="return False",
        breaks="R20: nobody tells the peer that a stream is over, and it remembers it for ever",
    ),
    "ids-of-ranges-repeat": Switch(
        "bookkeeper.tserver.shipping.follower",
        "Follower._hand_out",
        old="first_id, self._next_id = self._next_id, self._next_id + len(batch)",
        new="first_id = 0",
        breaks="R19: a late result of one range counts for another one, which the peer lacks",
    ),
    "results-go-above-their-range": Switch(
        "bookkeeper.tserver.shipping.follower",
        "Follower._outcome",
        old="if row is not None and row.acked_offset > out.ranges[n].last:",
        new="if row is not None and row.acked_offset < 0:",
        breaks="a task that acknowledges too much stops all streams of its peer",
    ),
    "followed-ranges-start-runs": Switch(
        "bookkeeper.tserver.shipping.follower",
        "Follower.follows",
        old="if not self.is_active or key not in self._streams.items or progress is None:",
        new="if progress is None or progress:",
        breaks="a record that a task ships at once waits for a run",
    ),
    "runs-keep-their-streams": Switch(
        "bookkeeper.tserver.shipping.follower",
        "Follower.follows",
        old="if is_for_runs(item, progress.offset):",
        new="if is_for_runs(item, progress.offset) or key in self._lane.queue or key in self._lane.running:",
        breaks="runs ship a stream as long as it grows, and its lag is that of runs",
    ),
    "first-records-go-in-runs": Switch(
        "bookkeeper.tserver.shipping.follower",
        "Follower.begin_due",
        old="if self._polled_ns is None:",
        new="if False:",
        breaks="a run has the stream for seconds on a busy machine, while a task waits for it",
    ),
    "names-of-tasks-repeat": Switch(
        "bookkeeper.tserver.shipping.follower",
        "Follower.begin_due",
        old="{self._tools.own_logs.session_id}/",
        new="",
        breaks="R19: a result for a dead tserver counts for another log, of the tserver with the same address",
    ),
    "needed-offsets-are-told-first": Switch(
        "bookkeeper.tserver.books.wal_bookkeeper",
        "WalBookkeeper._write_or_log",
        old=" and self._own_logs.is_followed()",
        new=" and self._own_logs is None",
        breaks="the master hands out each record that a task ships at once",
    ),
    "silent-tasks-keep-their-ranges": Switch(
        "bookkeeper.tserver.shipping.follower",
        "Follower.give_up_overdue",
        old="if self._out is not None and self._now_ns() - self._out.since_ns > patience_ms * 1_000_000:",
        new="if False:",
        breaks="a task that stands still stops the streams of its peer for ever",
    ),
    "polls-outlive-their-tasks": Switch(
        "bookkeeper.tserver.shipping.follower",
        "Follower._next",
        old=" or run not in self._tasks",
        new="",
        breaks="a poll whose task died takes ranges, and they wait until it is missed",
    ),
    "followed-ranges-owe-no-report": Switch(
        "bookkeeper.tserver.shipping.lane_books",
        "LaneBooks.owe",
        old="is_owed=True",
        new="is_owed=False",
        breaks="the master takes a range that was finished at once for one that hangs",
    ),
    "tasks-ship-quarantined-records": Switch(
        "bookkeeper.tserver.shipping.follower",
        "is_for_runs",
        old=" or any(blocks.last > finished for blocks in item.passed)",
        new="",
        breaks="R19: records in quarantine go to the peer, or are lost",
    ),
    "runs-and-tasks-ship-the-same": Switch(
        "bookkeeper.tserver.shipping.worker_lane",
        "Lane._is_ready",
        old="stream_of(queued.item) not in busy and ",
        new="",
        breaks="a run and a task send the same records at the same time",
    ),
    "refused-records-go-again": Switch(
        "bookkeeper.tserver.shipping.open_streams",
        "OpenStreams.settle",
        old="if error is not None and not error.transient:",
        new="if False:",
        breaks="a record that a peer refuses is sent to it again and again",
    ),
    "errors-cause-no-pause": Switch(
        "bookkeeper.tserver.shipping.open_streams",
        "OpenStreams.settle",
        old="self._failures = self._failures + 1 if transient else 0",
        new="self._failures = 0",
        breaks="a peer that is away is tried all the time",
    ),
    "reports-wait-for-a-stopped-master": Switch(
        "bookkeeper.tserver.master_notices",
        "MasterLink.report",
        old="if address == self._silent and",
        new="if False and",
        breaks="a new stream waits until a stopped master took the report of a record before",
    ),
    "only-the-master-begins-streams": Switch(
        "bookkeeper.tserver.shipping.open_streams",
        "OpenStreams._go_on",
        old="elif place.takes_small_messages:",
        new="elif False:",
        breaks="while no master lives, the first records of a table wait",
    ),
    "refused-streams-begin-again": Switch(
        "bookkeeper.tserver.shipping.open_streams",
        "OpenStreams._go_on",
        old="elif newest is not None:",
        new="elif newest is not None and target not in self._stopped:",
        breaks="a record that a peer refuses is sent to it with each change of the configuration",
    ),
    "finished-cells-are-not-read": Switch(
        "bookkeeper.tserver.shipping.open_streams",
        "OpenStreams.look_ms",
        old="if not self._waiting:",
        new="if True:",
        breaks="while no master lives, a tablet that moved sends nothing",
    ),
    "only-a-master-knows-tservers": Switch(
        "bookkeeper.peers.bookkeeper",
        "BookkeeperSession._open_soon",
        old="if not known:",
        new="if True:",
        breaks="while no master of a peer lives, it gets nothing of a new log",
    ),
    "known-tservers-of-one-process": Switch(
        "bookkeeper.peers.known_tservers",
        "KnownTServers._read",
        old="found = json.loads(self._file.read_text())",
        new="found = {}",
        breaks="while no master of a peer lives, a new process ships nothing to it",
    ),
    "one-tserver-is-known": Switch(
        "bookkeeper.peers.known_tservers",
        "KnownTServers.note",
        old="[address, *others][:ADDRESSES_MAX]",
        new="[address]",
        breaks="while no master of a peer lives, the death of one of its tservers ends the streams to the others",
    ),
    "failed-tservers-are-forgotten": Switch(
        "bookkeeper.peers.known_tservers",
        "KnownTServers.put_last",
        old="addresses.sort(key=lambda other: other == address)",
        new="addresses.remove(address)",
        breaks="while no master of a peer lives, a tserver that was away for a moment gets nothing",
    ),
    "masters-are-waited-for": Switch(
        "bookkeeper.peers.bookkeeper",
        "BookkeeperSession._open_soon",
        old="min(MASTER_PATIENCE_MS, self._timeout_ms)",
        new="self._timeout_ms",
        breaks="a stopped master of a peer delays each new stream by the time-out of a message",
    ),
    "silence-is-forgotten": Switch(
        "bookkeeper.peers.known_tservers",
        "KnownTServers.is_silent",
        old="now_ns < self._silent_until_ns.get(instance_id, 0)",
        new="False",
        breaks="a stopped master of a peer is waited for at each new stream",
    ),
}
