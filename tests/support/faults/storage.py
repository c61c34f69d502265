"""Fault switches of segments, scans, compactions, imports and stores."""

from __future__ import annotations

from tests.support.faults.switch import Edit, Switch

STORAGE: dict[str, Switch] = {
    "any-time-will-do": Switch(
        "bookkeeper.storage.tablet.batch_routing",
        "is_too_late",
        old="return newest_ms is not None and newest_ms > latest_ms",
        new="return False",
        breaks="a delete with a time in the far future hides a cell for ever",
    ),
    "imports-are-applied-again": Switch(
        "bookkeeper.tserver.bulk.bulk_loader",
        "is_taken",
        old="return tablet.received.high_water.get(request.stream, 0) >= through_of(request)",
        new="return False",
        breaks="R18: cells that were deleted since an import come back when its order is repeated",
    ),
    "mixtures-are-accepted": Switch(
        "bookkeeper.tserver.bulk.bulk_loader",
        "refuse_mixture",
        old="if (",
        new="""
        return
        if (
        """,
        breaks="R18: cells that came as records and were deleted since come back with the file",
    ),
    "targets-of-relays-are-ignored": Switch(
        "bookkeeper.tserver.bulk.relay_log",
        "RelayLogs.log_of",
        old="if view is None or not view.block_targets:",
        new="if True:",
        breaks="R13: a file that a table takes never reaches the table's own peers",
    ),
    "relay-logs-are-sealed-at-once": Switch(
        "bookkeeper.tserver.bulk.relay_log",
        "RelayLogs._write",
        old="return log",
        new="""
        seal(self._volume, log)
        return log
        """,
        breaks="R17: the log of files that go on is collected before their tablet's put names it",
    ),
    "parts-are-relayed-as-files": Switch(
        "bookkeeper.tserver.bulk.bulk_loader",
        "refuse_parts",
        old="if view.block_targets and (",
        new="if False and (",
        breaks="R13: the records of a file that can't be relayed as a file never come",
    ),
    "files-have-no-provenance": Switch(
        "bookkeeper.tserver.bulk.relay_log",
        "describe",
        old="header.provenance.extend(() if request.relay is None else request.relay.provenance)",
        new="pass",
        breaks="R21: a file comes back to the cluster that it began at",
    ),
    "blocks-are-cut-by-the-average": Switch(
        "bookkeeper.storage.columns",
        "slices_within",
        old='within = int(np.searchsorted(ends, begin + bytes_max, side="right"))',
        new="within = first + bytes_max * batch.num_rows // int(ends[-1])",
        breaks="a block of large values among small ones is larger than a frame, and its log reaches no peer",
    ),
    "relay-logs-go-at-once": Switch(
        "bookkeeper.bulk.import_log",
        "is_relay_log",
        old='return log.rpartition("/")[2].startswith(TAKEN_PREFIX)',
        new="return False",
        breaks="R4: a put that comes late names a log that was collected, and its files never reach the peers",
    ),
    "no-write-waits-for-the-barrier": Switch(
        "bookkeeper.tserver.write.config_barrier",
        "ConfigBarrier.settle",
        old="if not self._changed.wait_for(lambda: not before & self._running, timeout_ms / 1000):",
        new="if False:",
        breaks="R14: a file that is taken after its table's replication was enabled reaches no peer",
    ),
    "some-is-nothing": Switch(
        "bookkeeper.tserver.bulk.segment_offers",
        "standing_of",
        old="return Standing.SOME if high_water or has_partial else Standing.NOTHING",
        new="return Standing.NOTHING",
        breaks="R18: entries that came as records come again with the file",
    ),
    "damage-on-the-way-counts": Switch(
        "bookkeeper.tserver.bulk.segment_uploads",
        "_File.check",
        old="if self._digest.hexdigest() != self.offered.sha256:",
        new="if False:",
        breaks="L7: a file that was damaged on its way is taken",
    ),
    "imports-are-never-over": Switch(
        "bookkeeper.tserver.books.received_index",
        "ReceivedIndex.is_open",
        old="return row is not None and cell.column in row.cells",
        new="return True",
        breaks="R20: an order that comes when its import is over is taken again",
    ),
    "imports-are-not-remembered": Switch(
        "bookkeeper.tserver.bulk.bulk_loader",
        "adopted_state",
        old="high_water={**state.high_water, request.stream: through_of(request)},",
        new="high_water=state.high_water,",
        breaks="R18: a tablet that moves forgets that it has taken an import",
    ),
    "imports-have-no-place": Switch(
        "bookkeeper.tserver.bulk.bulk_loader",
        "shifted",
        old="shift = max(0, next_seq - min(ref.first_seq for ref in segments))",
        new="shift = 0",
        breaks="an older write hides an imported cell of the same timestamp",
    ),
    "a-log-is-one-targets": Switch(
        "bookkeeper.storage.wal.blocks.target_shares",
        "LogShares.counting",
        old="totals = dict(self.totals)",
        new="""
        log = ("", "", "", 0)
        records, size = self.totals.get(log, (0, 0))
        for block in blocks:
            records, size = records + block.header.record_count, size + block.payload.size
            block.header.target_records[:] = [records] * len(block.header.block_targets)
            block.header.target_bytes[:] = [size] * len(block.header.block_targets)
        return LogShares({log: (records, size)})
        totals = dict(self.totals)
        """,
        breaks="the lag of a table counts the records of others in the same log",
    ),
    "imports-show-before-they-travel": Switch(
        "bookkeeper.tserver.bulk.bulk_loader",
        "with_log",
        old="if log is None:",
        new="if True:",
        breaks="an import is visible here, its log is not in the books, and the peers never get it",
    ),
    "imports-wait-for-nothing": Switch(
        "bookkeeper.tserver.bulk.bulk_loader",
        "with_log",
        old="barriers = [barrier_at(1, last) for last in after]",
        new="barriers = []",
        breaks="R24: an import overtakes older writes",
    ),
    "damaged-logs-have-no-records": Switch(
        "bookkeeper.master.placement.placement",
        "Placement._released",
        old="if keys.log_column(log) in row.cells",
        new="if False",
        breaks="R15: a tablet is given to another tserver while a log that has records of it is not sealed",
    ),
    "cut-logs-are-short-logs": Switch(
        "bookkeeper.storage.wal.reading.wal_recovery",
        "refuse_less",
        old="if claim.is_used and end.position == 0:",
        new="""
        return
        if claim.is_used and end.position == 0:
        """,
        breaks="L1: acknowledged records are lost silently with the end of a log",
    ),
    "nothing-is-on-its-way": Switch(
        "bookkeeper.metadata.flight",
        "books_flight_ms",
        old="return writer_ms + LAST_RETRY_MS + region_ms",
        new="return 1",
        breaks="R4: a write that arrives after its process died names what is gone, and nothing removes it",
    ),
    "gateways-may-stand-still": Switch(
        "bookkeeper.standalone.hbase.gateway_watch",
        "GatewayWatch.run_once",
        old="self._silent_ms() > (START_MS if self._answered_ns is None else self.silence_ms)",
        new="False",
        breaks="R4: a gateway that goes on writes for a process that ended long ago",
    ),
    "gateways-leave-it-to-the-kernel": Switch(
        "bookkeeper.standalone.hbase.gateway",
        "site_xml",
        old='"bookkeeper.gateway.unconfirmed.ms": GATEWAY_UNCONFIRMED_MS,',
        new="",
        breaks="R4: what a link that is cut swallowed is sent again when it is back, for a quarter of an hour",
    ),
    "gateways-try-for-long": Switch(
        "bookkeeper.standalone.hbase.gateway",
        "site_xml",
        old='"hbase.client.retries.number": 1,',
        new="""
        "hbase.client.retries.number": 15,
        "hbase.client.operation.timeout": 1_200_000,
        "hbase.client.meta.operation.timeout": 1_200_000,
        """,
        breaks="R4: a gateway tries for twenty minutes, for a process that ended long ago",
    ),
    "region-servers-never-stand-still": Switch(
        "bookkeeper.metadata.flight",
        "books_flight_ms",
        old="return writer_ms + gateway_ms + settings.metadata.region_session_ms",
        new="return writer_ms + gateway_ms",
        breaks="R4: a region server that goes on writes for a process that ended long ago",
    ),
    "lost-stores-are-new": Switch(
        "bookkeeper.standalone.books",
        "check_books",
        old="stored_round = coordination.number(ROUND_NAME)",
        new="""
        return
        stored_round = coordination.number(ROUND_NAME)
        """,
        breaks="L1: a cluster whose books or configuration are lost starts as a new one, and collects its own files",
    ),
    "owners-are-not-compared": Switch(
        "bookkeeper.metadata.owner",
        "check_owner",
        old="if owner == values.Owner(instance_id, FORMAT_VERSION):",
        new="if True:",
        breaks="L2: a cluster takes another one's books for its own, and deletes the files that they do not name",
    ),
    "older-books-are-believed": Switch(
        "bookkeeper.metadata.owner",
        "check_round",
        old="if round_number < latest_round:",
        new="if False:",
        breaks="L2: books that were put back from a copy do not name the logs since, which go",
    ),
    "older-coordination-is-believed": Switch(
        "bookkeeper.metadata.owner",
        "is_ahead",
        old="return round_number > stored_round + 1",
        new="return False",
        breaks="R9: tables that an older copy of the configuration does not know count as complete",
    ),
    "proofs-last-for-ever": Switch(
        "bookkeeper.metadata.hbase.hbase_pool",
        "_CheckedConnection.check",
        old="if self.checked_ns is None or now_ns - self.checked_ns >= CHECK_VALID_MS * 1_000_000:",
        new="if self.checked_ns is None:",
        breaks="L2: a table is dropped and created again behind an open connection, unnoticed",
    ),
    "cells-are-believed": Switch(
        "bookkeeper.metadata.sqlite.sqlite_cells",
        "is_sound",
        old="return (",
        new="return True or (",
        breaks="L7: a flipped bit in the books passes silently, and a file is deleted that no peer has",
    ),
    "long-rows-end-with-their-first-part": Switch(
        "bookkeeper.metadata.sqlite.sqlite_cells",
        "read_parts",
        old="yield from _pages_of(path, cursor, PART_CELLS, PAGE_CELLS)",
        new="""
        parts = list(_pages_of(path, cursor, PART_CELLS, PAGE_CELLS))
        yield parts[0][0], parts[-1][1]
        """,
        breaks="R9: files that the rest of a row names are not outstanding, and go before they were shipped",
    ),
    "long-rows-of-hbase-end-with-their-first-part": Switch(
        "bookkeeper.metadata.hbase.hbase_store",
        "HBaseMetadataTable._page_of_parts",
        old="if len(row.cells) >= PART_CELLS",
        new="if False",
        breaks="R9: files that the rest of a row names are not outstanding, and go before they were shipped",
    ),
    "any-content-will-do": Switch(
        "bookkeeper.coordination.embedded_store",
        "is_whole",
        old="return digest(connection) == (0 if stored is None else stored[0])",
        new="return True",
        breaks="L7: a flipped bit in the configuration passes silently",
    ),
    "journals-end-where-they-are-bad": Switch(
        "bookkeeper.sqlite_file",
        "first_bad_frame",
        old="magic, _, page_bytes, _, *salts, first, second = _HEADER.unpack_from(raw)",
        new="""
        return None
        magic, _, page_bytes, _, *salts, first, second = _HEADER.unpack_from(raw)
        """,
        breaks="L1: commits behind a bad frame are skipped silently",
    ),
    "any-log-will-do": Switch(
        "bookkeeper.storage.wal.reading.log_formats",
        "check_own",
        old="if file_header.name and",
        new="if False and",
        breaks="L7: a whole log of another session passes as this one's records",
    ),
    "an-index-may-lead-anywhere": Switch(
        "bookkeeper.storage.tablet.segments.segment_reader",
        "lies_within",
        old="return all(",
        new="return True or all(",
        breaks="L7: a file of some kilobytes asks for any amount of memory",
    ),
    "one-tablet-is-all": Switch(
        "bookkeeper.tserver.maintenance.containment",
        "contained",
        old="except Exception as error:",
        new="except () as error:",
        breaks="an unexpected error in one tablet ends the tserver of all",
    ),
    "files-are-not-decoded": Switch(
        "bookkeeper.tserver.bulk.segment_receiver",
        "check_received",
        old="check_segment(volume, segment_ref(name, offered.entry), bounds)",
        new="pass",
        breaks="L7: a peer's statements about a file are in the books, unchecked",
    ),
    "segments-take-any-number": Switch(
        "bookkeeper.tserver.bulk.bulk_loader",
        "refuse_exhaustion",
        old="if last_seq <= SEQ_MAX:",
        new="if True:",
        breaks="a file takes the sequence numbers that records need",
    ),
    "numbers-never-end": Switch(
        "bookkeeper.tserver.write.write_guards",
        "refuse_exhausted",
        old="if next_seq >= SEQ_MAX:",
        new="if False:",
        breaks="a tablet at its last sequence number ends its tserver",
    ),
    "numbers-of-files-are-believed": Switch(
        "bookkeeper.storage.tablet.segments.segment_check",
        "equals_stated",
        old="return found == stated",
        new="return True",
        breaks="R18: a peer's file uses up the sequence numbers of a tablet, which then refuses all writes",
    ),
    "any-size-is-decoded": Switch(
        "bookkeeper.storage.tablet.segments.segment_check",
        "_Check.row_group",
        old="if pages > most:",
        new="if False:",
        breaks="L7: a file of some kilobytes takes gigabytes when it is read",
        also=[
            Edit(
                "bookkeeper.storage.tablet.segments.segment_check",
                "_Check.row_group",
                "if plain > self._bounds.group_bytes_max:",
                "if False:",
            )
        ],
    ),
    "the-wall-clock-is-believed": Switch(
        "bookkeeper.clock",
        "SteadyWall.wall_ms",
        old="return min(self._clock.wall_ms(), self._boot_time_ms + self._clock.boot_ns() // 1_000_000)",
        new="return self._clock.wall_ms()",
        breaks="young data is lost when the clock jumps ahead and back",
    ),
    "checksums-not-compared": Switch(
        "bookkeeper.storage.tablet.segments.segment_reader",
        "matches",
        old="return crc32c(content) == check",
        new="return True",
        breaks="L7: garbage in a segment passes silently",
    ),
    "freezing-hides-memory": Switch(
        "bookkeeper.storage.tablet.tablet_data",
        "TabletData.begin_flush",
        old=", frozen=FrozenMemtable(state.active)",
        new="",
        breaks="a reader misses acknowledged records while they are flushed",
    ),
    "flushed-before-segments": Switch(
        "bookkeeper.storage.tablet.tablet_data",
        "TabletData.finish_flush",
        old=", segments=(*state.segments, *opened)",
        new="",
        breaks="a reader misses acknowledged records after they were flushed",
    ),
    "a-page-forgets-its-cell": Switch(
        "bookkeeper.storage.tablet.scans.scan_position",
        "Resume.partial_cell",
        old="if at is None else",
        new="if True else",
        breaks="versions are counted anew in each page: a scan shows some that do not count",
    ),
    "a-part-forgets-deletes": Switch(
        "bookkeeper.storage.tablet.compaction",
        "families_outside",
        old="for listed in families:",
        new="for listed in ():",
        breaks="L1: deleted cells come back from an older segment",
    ),
    "deletes-hide-nothing": Switch(
        "bookkeeper.storage.tablet.scans.scan",
        "are_deletes",
        old='return _as_mask(entries.column("delete"))',
        new='return ~entries.column("timestamp").is_valid().to_numpy(zero_copy_only=False)',
        breaks="a delete hides the entries of its cell that are not newer",
    ),
    "words-are-rows": Switch(
        "bookkeeper.storage.tablet.sorting.entries",
        "RowWords.between",
        old="return np.flatnonzero((self._words - np.uint64(first)) <= np.uint64(last - first))",
        new="""
        inside = (self._words > np.uint64(self._word_of(low))) & (self._words < np.uint64(self._word_of(high)))
        return np.flatnonzero(inside)
        """,
        breaks="a small range lacks rows that are in it",
    ),
    "page-begins-at-its-row": Switch(
        "bookkeeper.storage.tablet.sorting.entries",
        "after_cell",
        old="return (*cell, _BEHIND_ALL_VERSIONS)",
        new="return cell[:1]",
        breaks="a scan gives each cell once, however it is cut into pages",
    ),
    "every-segment-cell-counts": Switch(
        "bookkeeper.tserver.tablets.load_plan",
        "is_live",
        old="return state is not None and name in state.segments",
        new="return True",
        breaks="R1: a late flush of an earlier holder, or a segment that a compaction replaced, is read again",
    ),
    "late-states-decide": Switch(
        "bookkeeper.tserver.tablets.tablet_segments",
        "is_own",
        old="return first_flush_id(serial) <= flush_id < first_flush_id(serial + 1)",
        new="return True",
        breaks="L2: the state that an earlier holder wrote late has the present one's files deleted",
    ),
    "replaced-before-the-books-say-so": Switch(
        "bookkeeper.tserver.maintenance.tablet_states",
        "NamedStates.merged",
        old="flush_id = tablet.flushes.take_flush_id()",
        new="""
        from bookkeeper.metadata.metadata_table import MAX_RANK, CellKey
        self._books.delete([CellKey(tablet.row, keys.segment_column(name)) for name in sorted(inputs)], MAX_RANK)
        flush_id = tablet.flushes.take_flush_id()
        """,
        breaks="L8: a cut between the delete and the state leaves a tablet without segments that it names",
    ),
    "compactions-forget-streams": Switch(
        "bookkeeper.tserver.tablets.tablet_segments",
        "merged_state",
        old="return named_state(before or NEVER_FLUSHED, flush_id, segments, compacted)",
        new="""
        empty = FlushState(1, {}, 0 if before is None else before.last_seq, 0, {}, ())
        return named_state(empty, flush_id, segments, compacted)
        """,
        breaks="R18: a put that is sent again after its delete and a compaction comes back from the dead",
    ),
    "labels-are-for-show": Switch(
        "bookkeeper.storage.tablet.scans.visibility",
        "Authorizations.mask",
        old="if _is_unlabelled(column):",
        new="if True:",
        breaks="a cell is shown to a user who may not see it",
    ),
    "labels-are-not-read": Switch(
        "bookkeeper.storage.tablet.scans.visibility",
        "check_labels",
        old="if _is_unlabelled(column):",
        new="if True:",
        breaks="L7: a label that does not parse is taken silently",
    ),
    "authorizations-for-the-asking": Switch(
        "bookkeeper.tserver.authorizations",
        "lacking",
        old="return sorted(requested - granted)",
        new="return []",
        breaks="a scan sees with authorizations that its user does not have",
    ),
    "files-go-while-they-are-read": Switch(
        "bookkeeper.storage.tablet.tablet_data",
        "TabletData.is_read",
        old="states = list(self._reading.values())",
        new="states = []",
        breaks="a scan loses the file under it",
    ),
}
