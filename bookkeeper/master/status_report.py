"""The leading master's facts for operators, as ``status`` answers them: names and values, one line each."""

from __future__ import annotations

import json
from collections.abc import Iterable

from bookkeeper.errors import TransientError
from bookkeeper.master.books.tserver_recovery import RESTORE
from bookkeeper.master.leadership import Leadership
from bookkeeper.master.origins import origin_gc
from bookkeeper.master.queries.causes import FAULTS
from bookkeeper.master.queries.why import Directory, described, problem_of
from bookkeeper.rpc.contract.messages import OperationInfo, WaitCause

OPERATIONS_SHOWN_MAX = 100

WARNING = "warning:"
"""The start of the names of facts about served tablets with a repeated failure."""

NEEDS_HELP = "needs help:"
"""The start of the names of facts about tablets that stay unserved until an operator acts."""


def leader_facts(lead: Leadership, monitor: str) -> dict[str, str]:
    """All facts of the status. ``monitor``: the URL of this master's monitor, "" when it has none."""
    health = lead.cycle.health
    facts = {
        "session": lead.reign.session_id,
        "epoch": str(lead.reign.epoch),
        "full_cycles": str(health.full_cycles),
        "quick_cycles": str(health.quick_cycles),
        "failed_cycles": str(health.failures),
        "last_full_cycle_ms": f"{health.full_ms:.1f}",
        "last_quick_cycle_ms": f"{health.quick_ms:.1f}",
        **books_facts(lead),
        "tablets_split": str(lead.splits.begun),
        "files_deleted": str(lead.gc.runner.deleted),
        "missing_files": str(len(lead.gc.runner.missing)),
        **origin_gc.facts(lead.gc.runner.origin_gc),
    }
    if monitor:
        facts["monitor"] = monitor
    facts |= problems(lead)
    for shown in operation_infos(lead)[:OPERATIONS_SHOWN_MAX]:
        facts[f"operation {shown.txid}"] = operation_text(shown)
    return facts


def books_facts(lead: Leadership) -> dict[str, str]:
    """Numbers from the latest full cycle; empty before the first one: zeros would mean that no file waits."""
    age_ms = lead.knowledge().age_ms
    if age_ms is None:
        return {}
    snapshot = lead.cycle.books.snapshot
    return {
        "books_age_ms": f"{age_ms:.0f}",
        "outstanding_files": str(len(snapshot.files)),
        "tablets": str(len(snapshot.tablets)),
        "live_tservers": str(len(lead.cycle.live)),
    }


def failures(lead: Leadership) -> dict[str, str]:
    """The present failures of this cluster's own work, by the failing part."""
    facts: dict[str, str] = {}
    unknown = lead.knowledge().problem
    if unknown:
        facts["books"] = unknown
    health = lead.cycle.health
    if health.last_error:
        facts["last_cycle_error"] = health.last_error
    for name, error in sorted(dict(lead.errors).items()):
        facts[f"last_{name}_error"] = error
    for name, problem in sorted(dict(lead.cycle.recovery.problems).items()):
        facts[f"{NEEDS_HELP} log {name}"] = f"{problem}; {RESTORE}"
    for row, problem in sorted(dict(lead.cycle.placement.problems).items()):
        facts[f"{NEEDS_HELP} tablet {row!r}"] = problem
    for row, warning in sorted(dict(lead.cycle.placement.warnings).items()):
        facts[f"{WARNING} tablet {row!r}"] = warning
    for row, problem in sorted(dict(lead.splits.problems).items()):
        facts[f"{WARNING} size of tablet {row!r}"] = problem
    return facts


def problems(lead: Leadership) -> dict[str, str]:
    """The present failures and the causes of waits that are a problem, by the failing part."""
    facts, config = failures(lead), lead.cycle.config
    if config is not None:
        try:
            now, directory = lead.moment(), Directory.of(lead.settings, config)
            every = lead.waits().all() + lead.other_waits(config, directory.targets, now)
            facts |= wait_problems(described(every, directory, now))
        except TransientError as error:
            facts["coordination"] = error.message
    return facts


def wait_problems(waiting: Iterable[WaitCause]) -> dict[str, str]:
    """The causes that are a problem, each under its peer and kind."""
    facts: dict[str, str] = {}
    for cause in waiting:
        if cause.kind in FAULTS:
            name = f"peer {cause.cluster} ({cause.kind})"
            facts[name] = "; ".join(filter(None, (facts.get(name), problem_of(cause))))
    return facts


def operation_text(shown: OperationInfo) -> str:
    """One line about a running or failed operation."""
    return f"{shown.kind} at {shown.step}{': ' + shown.note if shown.note else ''}"


def operation_infos(lead: Leadership) -> list[OperationInfo]:
    """Running operations and those that failed recently, in order of their start. The operations of files that are
    shipped (``replicate_file``) are left out: ``replication status`` shows them.
    """
    return [
        OperationInfo(
            running.txid,
            running.op.type,
            running.step,
            running.note if running.error is None else running.error.message,
            json.dumps(running.op.args, sort_keys=True),
            running.op.created_ms,
            running.left,
            running.unit,
        )
        for running in lead.fate.pending()
    ]
