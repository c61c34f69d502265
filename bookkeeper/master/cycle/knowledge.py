"""The age of a leading master's view of the outstanding files.

Arrives: the health of the cycle's thread. Leaves: a :class:`Knowledge`, or :class:`NotReadyError` for questions whose
empty answer would mean "no file waits". A new leader reads the outstanding files in its first full cycle. Pure. Rule:
R6.
"""

from __future__ import annotations

from msgspec import Struct

from bookkeeper.errors import NotReadyError
from bookkeeper.master.cycle.cycle import Health

STALE_CYCLES = 2
STALE_SLACK_MS = 1_000
"""The knowledge is stale after so many cycles (interval and work) and this slack."""


class Knowledge(Struct, frozen=True):
    """``age_ms``: the time since the start of the latest complete scan, None before the first one. ``problem``: the
    reason for the lack of a newer one, or "".
    """

    age_ms: float | None
    problem: str = ""


def knowledge_of(health: Health, scan_interval_ms: int, now_ns: int) -> Knowledge:
    """The master's knowledge at ``now_ns`` (boot clock)."""
    failures = health.failures_in_row
    failed = f": the last {failures} cycles failed, {health.last_error}" if failures else ""
    if health.known_ns is None:
        return Knowledge(
            None, f"this master has just begun to lead and has not read the books yet{failed}; ask again in a moment"
        )
    age_ms = (now_ns - health.known_ns) / 1e6
    if failures or age_ms > STALE_CYCLES * (scan_interval_ms + health.full_ms) + STALE_SLACK_MS:
        why = failed or ": no full cycle has ended since"
        return Knowledge(age_ms, f"what is shown was read {age_ms / 1000:.1f} s ago{why}")
    return Knowledge(age_ms)


def expect_known(knowledge: Knowledge) -> Knowledge:
    """The same; raises NotReadyError before the first full cycle."""
    if knowledge.age_ms is None:
        raise NotReadyError(knowledge.problem)
    return knowledge
