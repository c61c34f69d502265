"""Fault switches of holds: segments that an operation reads stay, and no longer (see ``faults``)."""

from __future__ import annotations

from bookkeeper.bulk import file_holds
from bookkeeper.master.gc import gc_rules, orphan_files
from bookkeeper.master.gc.retention_reasons import RetentionReasons
from bookkeeper.master.operations import holds
from bookkeeper.tserver.bulk import segment_uploads, session_holds
from tests.support.replacement import Binding, Fault

_REFERENCES = gc_rules.references

HOLD_FAULTS: dict[str, Fault] = {
    "holds-keep-nothing": Fault(
        gc_rules.held_files,
        lambda rows: iter(()),  # noqa: ARG005
        "R17: a file goes while an export copies it",
    ),
    "holds-of-what-was-named-before": Fault(
        holds.are_held,
        lambda named, held: bool(held),  # noqa: ARG005
        "R17: a compaction replaces a file between its name and its hold, and an export copies the next one",
    ),
    "holds-outlive-their-operation": Fault(
        gc_rules.ended_holds,
        lambda rows, holders: [],  # noqa: ARG005
        "R4: a hold that a deposed master put late keeps its file for ever",
    ),
    "uploads-own-their-files": Fault(
        segment_uploads.is_own,
        lambda may_be_named: True,  # noqa: ARG005
        "R17: the end of an upload deletes a file that a tablet names",
    ),
    "files-go-with-their-maker": Fault(
        orphan_files.is_orphan_file,
        lambda name, named: True,  # noqa: ARG005
        "R17: a file goes with the session or the import that made it, though a tablet names it",
    ),
    "files-need-no-holder": Fault(
        Binding(session_holds, file_holds.unheld),
        lambda table, files: [],  # noqa: ARG005
        "R17: a tablet takes a file that the collector is about to delete",
    ),
    "takers-vouch-for-each-other": Fault(
        file_holds.is_given,
        lambda row: row is not None and len(row.cells) > 1,
        "R17: two tablets take a file that nothing held, each on the word of the other",
    ),
    "given-up-files-go-at-once": Fault(
        gc_rules.is_idle_for_long,
        lambda file, idle, now_ns, flight_ns: True,  # noqa: ARG005
        "R4: a compaction of one tablet takes a file from another one that is about to name it",
    ),
    "holds-are-read-last": Fault(
        gc_rules.references,
        lambda tablets, books, ranges=(), holds=(), first_holds=(): _REFERENCES(tablets, books, ranges, holds),  # noqa: ARG005
        "R17: the collector sees a file neither by its hold nor by its name",
    ),
    "takers-end-at-once": Fault(
        gc_rules.is_leaving,
        lambda since_ns, now_ns, flight_ns: False,  # noqa: ARG005
        "R4: a put that was in flight when its tserver died names a file that is deleted",
    ),
    "holds-keep-silently": Fault(
        RetentionReasons.held,
        lambda keeper, row: None,  # noqa: ARG005
        "an operator asks why a file is retained, and the operation is missing in the answer",
    ),
}
