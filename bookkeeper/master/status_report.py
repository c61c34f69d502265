"""The leading master's facts for people, as ``status`` answers them.

Arrives: the parts of a leadership. Leaves: names and values, one line each.
"""

from __future__ import annotations

import json

from bookkeeper.master.books.tserver_recovery import RESTORE
from bookkeeper.master.leadership import Leadership
from bookkeeper.master.origins import origin_gc
from bookkeeper.rpc.contract.messages import OperationInfo

OPERATIONS_SHOWN_MAX = 100

WARNING = "warning:"
"""Facts whose names begin so are what fails again and again with a tablet that is served."""

NEEDS_HELP = "needs help:"
"""Facts whose names begin so are why some tablet is not served, and stay until a person does something."""


def leader_facts(lead: Leadership, monitor: str) -> dict[str, str]:
    """Everything that is worth a look. ``monitor``: the URL of this master's pages, "" when it has none."""
    health = lead.cycle.health
    facts = {
        "session": lead.reign.session_id,
        "epoch": str(lead.reign.epoch),
        "full_cycles": str(health.full_cycles),
        "quick_cycles": str(health.quick_cycles),
        "failed_cycles": str(health.failures),
        "last_full_cycle_ms": f"{health.full_ms:.1f}",
        "last_quick_cycle_ms": f"{health.quick_ms:.1f}",
        **known_facts(lead),
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


def known_facts(lead: Leadership) -> dict[str, str]:
    """Numbers from the master's latest full look; none before the first one: a zero would say that nothing waits."""
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


def problems(lead: Leadership) -> dict[str, str]:
    """What does not work now, by where."""
    facts: dict[str, str] = {}
    unknown = lead.knowledge().problem
    if unknown:
        facts["books"] = unknown
    health, shipping = lead.cycle.health, lead.cycle.dispatcher.shipping
    if health.last_error:
        facts["last_cycle_error"] = health.last_error
    for name, error in sorted(dict(lead.errors).items()):
        facts[f"last_{name}_error"] = error
    for uri, problem in sorted(dict(lead.cycle.recovery.problems).items()):
        facts[f"{NEEDS_HELP} log {uri}"] = f"{problem}; {RESTORE}"
    for row, problem in sorted(dict(lead.cycle.placement.problems).items()):
        facts[f"{NEEDS_HELP} tablet {row!r}"] = problem
    for row, warning in sorted(dict(lead.cycle.placement.warnings).items()):
        facts[f"{WARNING} tablet {row!r}"] = warning
    for cluster, retry in sorted(dict(shipping.peers).items()):
        if retry.failures:
            wait_ms = max(0, (retry.next_try_ns - lead.clock.boot_ns()) // 1_000_000)
            facts[f"peer {cluster}"] = f"failed {retry.failures} times, next try in {wait_ms} ms: {retry.last_error}"
    return facts


def operation_text(shown: OperationInfo) -> str:
    """One operation under way or failed."""
    return f"{shown.kind} at {shown.step}{': ' + shown.note if shown.note else ''}"


def operation_infos(lead: Leadership) -> list[OperationInfo]:
    """Operations under way and those that failed a while ago, in order of beginning. Files that are being shipped have
    operations, too (``replicate_file``); ``replication status`` shows those.
    """
    return [
        OperationInfo(
            running.txid,
            running.op.type,
            running.step,
            running.note if running.error is None else running.error.message,
            json.dumps(running.op.args, sort_keys=True),
            running.op.created_ms,
        )
        for running in lead.fate.pending()
    ]
