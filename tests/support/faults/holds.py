"""Fault switches of holds: segments that an operation reads stay, and no longer."""

from __future__ import annotations

from tests.support.faults.switch import Edit, Switch

HOLDS: dict[str, Switch] = {
    "holds-keep-nothing": Switch(
        "bookkeeper.master.gc.gc_rules",
        "held_files",
        old="for row in rows:",
        new="for row in ():",
        breaks="R17: a file goes while an export copies it",
    ),
    "holds-of-what-was-named-before": Switch(
        "bookkeeper.master.operations.holds",
        "hold_named",
        old="if named <= held:",
        new="if held:",
        breaks="R17: a compaction replaces a file between its name and its hold, and an export copies the next one",
    ),
    "holds-outlive-their-operation": Switch(
        "bookkeeper.master.gc.gc_runner",
        "GcRunner.finish",
        old="if not holders.keep(column)",
        new="if False",
        breaks="R4: a hold that a deposed master put late keeps its file for ever",
    ),
    "uploads-own-their-files": Switch(
        "bookkeeper.tserver.bulk.segment_uploads",
        "Upload.end",
        old="if not self.may_be_named:",
        new="if True:",
        breaks="R17: the end of an upload deletes a file that a tablet names",
        also=[
            Edit(
                "bookkeeper.tserver.bulk.segment_uploads",
                "SegmentUploads.close",
                "if not upload.may_be_named for",
                "for",
            )
        ],
    ),
    "files-go-with-their-maker": Switch(
        "bookkeeper.master.gc.orphan_files",
        "is_orphan_file",
        old="return file not in named.segments and file not in named.held",
        new="return True",
        breaks=(
            "R17: a file that a tablet names is marked for deletion when the session or the import that made it is over"
        ),
    ),
    "files-need-no-holder": Switch(
        "bookkeeper.tserver.bulk.session_holds",
        "SessionHolds.taking",
        old="gone = unheld(self._table, files)",
        new="gone = []",
        breaks="R17: a tablet takes a file that the collector is about to delete",
    ),
    "takers-vouch-for-each-other": Switch(
        "bookkeeper.bulk.file_holds",
        "unheld",
        old="all(column.family == keys.TAKING_FAMILY for column in row.cells)",
        new="len(row.cells) == 1",
        breaks="R17: two tablets take a file that nothing held, each on the word of the other",
    ),
    "given-up-files-go-at-once": Switch(
        "bookkeeper.master.gc.gc_runner",
        "GcRunner._due",
        old="if name not in idle or now_ns - idle[name] > flight_ns:",
        new="if True:",
        breaks="R4: a compaction of one tablet takes a file from another one that is about to name it",
    ),
    "holds-are-read-last": Switch(
        "bookkeeper.master.gc.gc_rules",
        "references",
        old="in held_files(first_holds):",
        new="in ():",
        breaks="R17: the collector sees a file neither by its hold nor by its name",
    ),
    "takers-end-at-once": Switch(
        "bookkeeper.master.gc.gc_runner",
        "GcRunner._holders",
        old="if now_ns - at <= flight_ns",
        new="if False",
        breaks="R4: a put that was in flight when its tserver died names a file that is deleted",
    ),
    "books-are-compacted-at-once": Switch(
        "bookkeeper.master.gc.gc_runner",
        "GcRunner.compact",
        old="is_due = self.compacted_ns is None or is_over(self.compacted_ns, now_ns, self.flight_ms * 1_000_000)",
        new="is_due = True",
        breaks="R4: a put that was in flight when its cell was deleted shows the cell again",
    ),
    "holds-keep-silently": Switch(
        "bookkeeper.master.gc.retention_reasons",
        "RetentionReasons.held",
        old="self._of(keys.parse_hold_row(row.key)).holders.update(map(reason_of_hold, row.cells))",
        new="pass",
        breaks="an operator asks why a file is retained, and the operation is missing in the answer",
    ),
}
