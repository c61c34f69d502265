"""The pause before a process is started again; pure."""

from __future__ import annotations

RESTART_DELAY_MIN_MS = 100
RESTART_DELAY_MAX_MS = 5_000
STABLE_AFTER_MS = 10_000
"""A process that lived this long is restarted at once."""


def restart_delay_ms(previous_ms: int | None, lived_ms: int) -> int:
    """The delay of the next start: none after a long life, and none for the first restart (``previous_ms`` None). Else
    it doubles as long as a process ends soon after its start.
    """
    if lived_ms >= STABLE_AFTER_MS or previous_ms is None:
        return 0
    return min(RESTART_DELAY_MAX_MS, max(RESTART_DELAY_MIN_MS, 2 * previous_ms))
