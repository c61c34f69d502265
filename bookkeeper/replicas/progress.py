"""How far each target is: what an operator sees, and what waits for it."""

from __future__ import annotations

from msgspec import Struct

from bookkeeper.replicas.chain import entries_to_send
from bookkeeper.replicas.rules import Rules
from bookkeeper.replicas.values import Replica, Target, is_acked


class TargetProgress(Struct, frozen=True):
    """What one target lacks."""

    target: Target
    lacking: tuple[int, ...]
    """Segments that the target has not acknowledged, old to new."""

    @property
    def host(self) -> str:
        """The target's host."""
        return self.target.host

    @property
    def is_in_sync(self) -> bool:
        """Whether the target has the sender's root."""
        return not self.lacking


def progress(replica: Replica, rules: Rules) -> tuple[TargetProgress, ...]:
    """For each target of a leader, the segments of its chain that the target lacks."""
    entries = entries_to_send(replica, rules)
    return tuple(
        TargetProgress(
            target,
            tuple(
                entry.segment.id for entry in entries if not is_acked(entry, target.placement, rules.p10_incarnation)
            ),
        )
        for target in replica.targets
    )


def files_to_send(replica: Replica, target: Target, rules: Rules) -> frozenset[str]:
    """The files that a target may still have to get: those of the segments that it lacks, without those of the states
    that it has acknowledged. It may have some of them from an earlier term.
    """
    wanted: set[str] = set()
    there: set[str] = set()
    for entry in entries_to_send(replica, rules):
        if not is_acked(entry, target.placement, rules.p10_incarnation):
            wanted.update(entry.segment.list)
    for entry in replica.entries if wanted else ():
        if is_acked(entry, target.placement, rules.p10_incarnation):
            there.update(entry.segment.list)
    return frozenset(wanted - there)
