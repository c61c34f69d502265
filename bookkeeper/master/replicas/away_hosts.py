"""Since when hosts are away: noted in the coordination store, so a change of the master forgets nothing.

For each host two numbers, which only rise: the wall clock when a master noticed that it was away, and when one noticed
that it was back. The later one tells. A host that was away and back while no master led was not away.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from bookkeeper.clock import Clock
from bookkeeper.coordination.coordination_protocol import Coordination


@dataclass(slots=True)
class AwayHosts:
    """The notes of one reign. One thread notes; any thread reads."""

    coordination: Coordination
    clock: Clock
    _since: Mapping[str, int | None] = field(init=False, default_factory=dict)
    """Host to the wall clock since which it is away; None for a host that lives."""

    @property
    def since_ms(self) -> Mapping[str, int]:
        """The hosts that are away, and since when, in ms of the wall clock."""
        return {name: since for name, since in self._since.items() if since is not None}

    def note(self, known: Collection[str], live: Collection[str]) -> None:
        """Compare the hosts with what was noted; only a change is written. Raises TransientError."""
        found: dict[str, int | None] = {}
        for name in known:
            is_same = name in self._since and (self._since[name] is None) == (name in live)
            found[name] = self._since[name] if is_same else self._noted(name, name in live)
        self._since = found

    def _noted(self, name: str, is_live: bool) -> int | None:
        """Write a change if no master has; returns since when the host is away."""
        away, back = (self.coordination.number(f"{kind}/{name}") for kind in ("away", "back"))
        if is_live and away > back:
            self.coordination.raise_number(f"back/{name}", max(self.clock.wall_ms(), away))
        if not is_live and away <= back:
            away = max(self.clock.wall_ms(), back + 1)
            self.coordination.raise_number(f"away/{name}", away)
        return None if is_live else away
