"""Fault switches of holds: segments that an operation reads stay, and no longer (see ``faults``)."""

from __future__ import annotations

from bookkeeper.master.gc import gc_rules
from bookkeeper.master.gc.retention_reasons import RetentionReasons
from bookkeeper.master.operations import holds
from tests.support.replacement import Fault

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
        lambda rows, running: [],  # noqa: ARG005
        "R4: a hold that a deposed master put late keeps its file for ever",
    ),
    "holds-keep-silently": Fault(
        RetentionReasons.held,
        lambda keeper, row: None,  # noqa: ARG005
        "an operator asks why a file is retained, and the operation is missing in the answer",
    ),
}
