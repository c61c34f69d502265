"""What hosts that share no directory may have different, and should not: their secrets and their clocks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from bookkeeper.rpc.contract.messages import SecretMark

AHEAD_MS_MAX = 1_000
"""A wall clock further off is named: no decision rests on it, but the times that people read do."""


class ClockOffset(Struct, frozen=True):
    """A host's wall clock less that of the master, ms, and how wrong that may be: half of the call that measured it."""

    ahead_ms: int
    within_ms: int

    @classmethod
    def measured(cls, before_ms: int, call_ms: int, theirs_ms: int) -> ClockOffset:
        """``before_ms``: the master's clock before a call of ``call_ms``; ``theirs_ms``: the host's during it."""
        return cls(theirs_ms - before_ms - call_ms // 2, (call_ms + 1) // 2)

    @property
    def warning(self) -> str:
        """Empty while the clocks may differ by :data:`AHEAD_MS_MAX` or less."""
        if abs(self.ahead_ms) - self.within_ms <= AHEAD_MS_MAX:
            return ""
        side = "ahead of" if self.ahead_ms > 0 else "behind"
        return f"its clock is {abs(self.ahead_ms) / 1000:.1f} s {side} the master's: set the clocks of both machines"


def lacking_secrets(secrets: Mapping[str, Sequence[SecretMark]]) -> dict[str, str]:
    """A warning for each host that lacks secrets which another one has, by name. ``secrets``: of the hosts that
    answered.
    """
    known = {mark for marks in secrets.values() for mark in marks}
    found = {}
    for host, marks in secrets.items():
        if lacking := known - set(marks):
            names = ", ".join(sorted(f"{mark.file} ({mark.id})" for mark in lacking))
            found[host] = f"it lacks secrets that other hosts have: {names}"
    return found
