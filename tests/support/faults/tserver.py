"""Fault switches of a tserver: writing, receiving, loading tablets."""

from __future__ import annotations

from tests.support.faults.switch import Edit, Switch

TSERVER: dict[str, Switch] = {
    "conditions-see-the-past": Switch(
        "bookkeeper.tserver.commit.submission_queue",
        "SubmissionQueue.take",
        old="(count and entry.begins_group)",
        new="False",
        breaks="a condition ignores a write just before it",
        also=[
            Edit(
                "bookkeeper.tserver.commit.submission_queue", "SubmissionQueue.take_ahead", " or head.begins_group", ""
            )
        ],
    ),
    "flushes-begin-anywhere": Switch(
        "bookkeeper.tserver.write.commit_path",
        "CommitPath.begin_flush",
        old=", begins_group=True",
        new="",
        breaks="R12, R15: a flush deletes the cell of a log whose last records were not applied when the flush began",
    ),
    "conditions-are-replicated": Switch(
        "bookkeeper.tserver.write.write_guards",
        "refuse_conditional",
        old="if view.block_targets:",
        new="if False:",
        breaks="a conditional write is taken by a table that is replicated",
    ),
    "read-only-is-a-word": Switch(
        "bookkeeper.tserver.write.write_guards",
        "refuse_read_only",
        old='if view.read_only == "cluster":',
        new="""
        return
        if view.read_only == "cluster":
        """,
        breaks="L6: a read-only peer takes a user's write",
    ),
    "marks-of-ended-streams-stay": Switch(
        "bookkeeper.tserver.tablets.load_plan",
        "forgotten_streams",
        old="return [stream for stream in high_water if stream not in indexed]",
        new="return []",
        breaks="R20: the high-waters of ended streams stay and grow in number for ever",
    ),
    "high-water-does-not-count": Switch(
        "bookkeeper.tserver.receive.slice_decision",
        "decide",
        old="max(high_water, acked)",
        new="acked",
        breaks="R18: a range that comes twice is applied twice",
    ),
    "in-flight-is-not-known": Switch(
        "bookkeeper.tserver.tablets.received_state",
        "ReceivedState.staged_high_water",
        old="return self._staged_high_water.get(stream, self._high_water.get(stream, 0))",
        new="return self._high_water.get(stream, 0)",
        breaks="R18: a range that comes again while its first copy is synced is applied twice",
    ),
    "each-part-has-its-limits": Switch(
        "bookkeeper.tserver.receive.message_decoding",
        "limits_of_slices",
        old="return replace(limits, row_bytes_max=NO_LIMIT, column_bytes_max=NO_LIMIT, value_bytes_max=NO_LIMIT)",
        new="return limits",
        breaks="R18: one tablet takes its half of a block, another one refuses it for good, a retry is applied twice",
    ),
    "gaps-are-swallowed": Switch(
        "bookkeeper.tserver.receive.slice_decision",
        "decide",
        old="if after > known:",
        new="if False:",
        breaks="R19: records that came too late are dropped as duplicates",
    ),
    "durable-for-unasked-tablets": Switch(
        "bookkeeper.tserver.receive.message_order",
        "durable_offset",
        old="return to if after <= acked else acked",
        new="return to",
        breaks="R19: an answer claims for all tablets the records that one of them has",
    ),
    "sent-counts-as-durable": Switch(
        "bookkeeper.tserver.receive.message_order",
        "MessageOrder._fact",
        old=(
            'return max(message.acked_offset, self._path.wait_for(in_front.durable_to, "the message in front of '
            'this one"))'
        ),
        new="return in_front.to_offset",
        breaks=(
            "R19: a message in front, which failed elsewhere, counts as durable for a tablet that lacks its records"
        ),
    ),
    "memory-takes-all": Switch(
        "bookkeeper.tserver.maintenance.flusher",
        "Flusher.make_room",
        old="tablet.data.memory_bytes < MEMTABLES_MAX * limit",
        new="True",
        breaks="a peer that sends faster than the tserver flushes fills the memory",
    ),
    "unknown-fields-are-passed-over": Switch(
        "bookkeeper.strict_json",
        "read_fields",
        old="check_names(fields, raw, what, *names)",
        new="fields = {name: fields[name] for name in names}",
        breaks="L7: a value of a newer version is rewritten without the fields that this version does not know",
    ),
    "own-data-is-welcome": Switch(
        "bookkeeper.tserver.receive.message_admission",
        "check_provenance",
        old="if own_instance_id in provenance or stream.source_instance_id == own_instance_id:",
        new="if False:",
        breaks="R21: data returns to a cluster that it has passed",
    ),
    "ended-streams-are-accepted": Switch(
        "bookkeeper.tserver.receive.message_admission",
        "refuse_ended",
        old="if not is_open:",
        new="if False:",
        breaks="R20: a message out of a process that was stopped for long is applied again",
    ),
    "forgotten-meanwhile-counts": Switch(
        "bookkeeper.tserver.receive.receiver",
        "may_be_forgotten",
        old="return not has_stream and forgotten_before != forgotten_now",
        new="return False",
        breaks="R20: a message that saw its stream in the books is taken when the stream is forgotten",
    ),
    "tokens-live-for-ever": Switch(
        "bookkeeper.tserver.receive.receive_streams",
        "Streams._expire",
        old="if now_ns - oldest.used_ns <= self._idle_timeout_ms * 1_000_000:",
        new="if True:",
        breaks="R20: a message arrives after its stream was forgotten, and is applied again",
    ),
    "high-water-not-rebuilt": Switch(
        "bookkeeper.tserver.tablets.load_plan",
        "raise_high_water",
        old="high_water[stream] = max(high_water.get(stream, 0), to_offset)",
        new="pass",
        breaks="R18: a resend after a crash is applied again",
    ),
    "moves-leave-no-trace": Switch(
        "bookkeeper.tserver.tablets.wal_order",
        "predecessors",
        old="return [position for position in last if position.file != wal]",
        new="return []",
        breaks="R24: a delete overtakes its put in another log",
    ),
    "no-barriers-in-the-books": Switch(
        "bookkeeper.tserver.books.wal_cells",
        "TabletUse.start",
        old="(*self.barriers, *(barrier_at(block.first_offset, one) for one in after))",
        new="self.barriers",
        breaks="R24: the master does not know that a log waits for another",
    ),
    "log-without-repl": Switch(
        "bookkeeper.tserver.books.wal_cells",
        "first_use_values",
        old="if replicated or use.replicated:",
        new="if False:",
        breaks="R12: readable here, never shipped",
    ),
    "refused-uses-stay-marked": Switch(
        "bookkeeper.tserver.books.wal_cells",
        "WalBooks.give_up",
        old="in self._previous_uses.items():",
        new="in ():",
        breaks="R12: the first write after the books' disk has room again has no cell",
    ),
    "enabling-needs-no-cell": Switch(
        "bookkeeper.tserver.books.wal_cells",
        "needs_first_use",
        old="return bool(header.block_targets) and (not use.replicated or bool(header.after))",
        new="return False",
        breaks="R12: records that follow an enable in the same log have no cell",
    ),
    "written-counts-as-synced": Switch(
        "bookkeeper.tserver.books.wal_cells",
        "WalBooks.appended",
        old="self.written = self.tables[block.header.table_id] = block.last_offset",
        new="""
        self.written = self.tables[block.header.table_id] = block.last_offset
        self.synced(Reach(self.written, 0))
        """,
        breaks="R15: the peer gets records that the primary loses in a crash",
    ),
    "a-flush-keeps-the-log-cell": Switch(
        "bookkeeper.tserver.books.wal_cells",
        "WalBooks.release",
        old="if use is not None:",
        new="if False:",
        breaks="R12: the log of records that came during a flush is let go",
    ),
    "no-block-has-targets": Switch(
        "bookkeeper.tserver.tablets.block_targets",
        "_table_view",
        old="config.block_targets_of(table_id)",
        new="()",
        breaks="R13: a block does not say for whom it is",
    ),
    "confirmed-unseen": Switch(
        "bookkeeper.tserver.write.configuration",
        "Configuration.confirm",
        old="if self._path.context.view.generation < generation:",
        new="""
        return generation
        if self._path.context.view.generation < generation:
        """,
        breaks="R14: a write after the confirmation is made under the old configuration",
    ),
    "unsealed-logs-are-read": Switch(
        "bookkeeper.tserver.maintenance.tablet_opener",
        "check_sealed",
        old="if read_seal(volume, name) is not None:",
        new="if True:",
        breaks="R15: a tablet is served from a log that may still grow",
    ),
    "rows-are-checked-once": Switch(
        "bookkeeper.tserver.maintenance.tablet_opener",
        "TabletOpener._claim",
        old="cells != self._metadata.get(row_key, TABLET_FAMILIES)",
        new="False",
        breaks="R1: a holder takes the serial that another one took while it checked the logs",
    ),
    "tablets-that-left-are-flushed": Switch(
        "bookkeeper.tserver.tablets.tablet_registry",
        "Registry.holds",
        old="return self.find(tablet.extent) is tablet",
        new="return True",
        breaks="a flush that begins when its table is deleted brings the tablet's row back, for ever",
    ),
    "uses-end-behind-the-seal": Switch(
        "bookkeeper.tserver.tablets.load_plan",
        "all_uses",
        old="return dict.fromkeys(logs, keys.OFFSET_MAX)",
        new="""
        from tests.support.simulation.wal import Watch
        return {log: 1 + Watch.ledger.files[log].last() for log in logs}
        """,
        breaks="R12: a use that a power loss left behind the seal stays in the books, and its log for ever",
    ),
    "disk-is-not-reserved": Switch(
        "bookkeeper.storage.wal.writing.wal_writer",
        "WalWriter.reserve",
        old="if end <= self._reserved:",
        new="if True:",
        breaks="a full disk is met in the middle of a block, and ends the server",
    ),
    "rolls-do-not-reserve": Switch(
        "bookkeeper.errors",
        "is_full",
        old="return error.errno in (errno.ENOSPC, errno.EDQUOT)",
        new="return False",
        breaks="a full disk ends the server because a log is due to end",
    ),
    "late-attempts-count": Switch(
        "bookkeeper.tserver.write.request_dedup",
        "RequestDedup.admit",
        old="if attempt.number < self._latest.get(key, 0):",
        new="if False:",
        breaks="L1: a request that its client has given up brings an old value back over an acknowledged one",
    ),
    "late-uses-are-needed": Switch(
        "bookkeeper.tserver.maintenance.tablet_opener",
        "TabletOpener._without_void_uses",
        old="if not log_exists(self._volume, name) and self._is_marked(name)",
        new="if False",
        breaks="R4: a tablet with a use that came after its log was collected can't be loaded",
    ),
    "flush-ids-begin-again": Switch(
        "bookkeeper.tserver.tablets.load_plan",
        "first_flush_id",
        old="return keys.first_flush_id(serial)",
        new="return 1",
        breaks="R1: two holders of a tablet write one rank with two values",
    ),
    "epochs-are-believed": Switch(
        "bookkeeper.tserver.maintenance.loader",
        "has_not_begun",
        old="return epoch > newest",
        new="return False",
        breaks="R7: one call with an epoch that no master has makes a tserver refuse all masters",
    ),
    "orders-of-the-deposed-count": Switch(
        "bookkeeper.tserver.maintenance.loader",
        "Loader._check_epoch",
        old="if epoch < self._epoch:",
        new="if False:",
        breaks="R7: a deposed master moves a tablet",
    ),
}
