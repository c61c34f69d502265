"""Since when hosts are away, by two clocks: one for people, one for the repair.

People see the wall clock (``since_ms``), noted in the coordination store, so a change of the master forgets nothing.
For each host two numbers, which only rise: when a master noticed that it was away, and when one noticed that it was
back. The later one tells. A host that was away and back while no master led was not away.

The repair decides by the boot clock of this reign (``away_ms``): a wall clock that jumps must not begin copies. A next
master measures anew, so a repair may begin later, never earlier.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.coordination.coordination_protocol import Coordination


class AwayHosts(Struct):
    """The notes of one reign. One thread notes; any thread reads."""

    coordination: Coordination
    clock: Clock
    _since: Mapping[str, int | None] = field(default_factory=dict)
    """Host to the wall clock since which it is away; None for a host that lives."""
    _noticed_ns: Mapping[str, int] = field(default_factory=dict)
    """Host that is away to the boot clock when this reign noticed it."""

    @property
    def since_ms(self) -> Mapping[str, int]:
        """The hosts that are away, and since when, in ms of the wall clock."""
        return {name: since for name, since in self._since.items() if since is not None}

    def noticed_ns(self, name: str) -> int | None:
        """Since when this reign has known that a host is away (boot clock); None for one that lives."""
        return self._noticed_ns.get(name)

    def away_ms(self, name: str) -> float:
        """For how long this reign has known that a host is away; 0 for one that lives."""
        noticed_ns = self._noticed_ns.get(name)
        return 0.0 if noticed_ns is None else (self.clock.boot_ns() - noticed_ns) / 1e6

    def note(self, known: Collection[str], live: Collection[str]) -> None:
        """Compare the hosts with what was noted; only a change is written. Raises TransientError."""
        now_ns = self.clock.boot_ns()
        self._noticed_ns = {name: self._noticed_ns.get(name, now_ns) for name in known if name not in live}
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
