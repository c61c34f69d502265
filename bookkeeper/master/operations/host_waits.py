"""For how long operations have waited for hosts that are away, by the boot clock. A new master begins anew."""

from __future__ import annotations

from dataclasses import dataclass, field

from bookkeeper.clock import Clock


@dataclass(frozen=True, slots=True)
class HostWaits:
    """The waits of one kind of operations, by operation. Its steps run one at a time."""

    _since_ns: dict[str, int] = field(default_factory=dict)

    def waited_ms(self, txid: str, clock: Clock) -> float:
        """For how long an operation has waited; it begins to wait with the first call."""
        now_ns = clock.boot_ns()
        return (now_ns - self._since_ns.setdefault(txid, now_ns)) / 1e6

    def end(self, txid: str) -> None:
        """The operation waits no longer."""
        self._since_ns.pop(txid, None)
