"""The causes of all waits in words, for ``replication why``, the status, the monitor and the metrics. Pure.

Arrives: waits, the configuration. Leaves: :class:`WaitCause` messages, those that need a person first. Tables that wait
for the same peer for the same reason are in one message, unless the next step names the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime

from msgspec import Struct, field

from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.coordination.host_names import directories
from bookkeeper.master.cycle.check_ins import OlderState
from bookkeeper.master.quarantine.quarantined_ranges import RangeKey
from bookkeeper.master.queries import causes
from bookkeeper.master.queries.cause_texts import Names, explain
from bookkeeper.master.queries.causes import Cause, LocalFacts, Now
from bookkeeper.master.queries.target_states import TargetState
from bookkeeper.master.queries.waits import Wait, Waits
from bookkeeper.metadata.values import Quarantined
from bookkeeper.model import Target, TargetKey
from bookkeeper.rpc.contract.messages import NextStep, WaitCause

OF_TABLES = frozenset(
    {
        *(causes.UNCOPIED, causes.DAMAGED, causes.QUARANTINED, causes.BEHIND),
        *(causes.REFUSED_RECORD, causes.TABLE_REFUSED, causes.TABLE_GONE, causes.PEER_REFUSES),
    }
)
"""Kinds whose words are about one table; all others are about a peer, or about this cluster."""


NOTHING_MISSING = LocalFacts()


class Directory(Struct, frozen=True):
    """The names that commands need: of this cluster, its tables by id, its peers and their targets, and the directories
    of its hosts.
    """

    path: str
    own_name: str
    own_instance_id: str
    tables: Mapping[str, str]
    quorums: Mapping[str, str]
    targets: Sequence[tuple[str, Target]]
    hosts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings, config: ClusterConfig) -> Directory:
        """Those of a configuration."""
        tables = sorted(config.tables.values(), key=lambda table: table.name)
        return cls(
            str(settings.cluster_directory),
            settings.instance.name,
            settings.instance.instance_id,
            {table.table_id: table.name for table in tables},
            {alias: peer.quorum for alias, peer in config.clusters.items()},
            [(table.name, target) for table in tables for target in table.targets],
            directories(settings.cluster_directory, config.hosts),
        )

    def names(self, wait: Wait, tables: Sequence[str], local: LocalFacts = NOTHING_MISSING) -> Names:
        """The names around a wait. ``local``: what runs in the directories of this cluster."""
        key = wait.target.key
        return Names(
            self.path,
            self.own_name,
            self.own_instance_id,
            self.tables.get(key.source_table_id, key.source_table_id),
            tables,
            self.quorums.get(key.cluster, key.cluster),
            wait.target,
            wait.root,
            [(table, target) for table, target in self.targets if target.key.cluster == key.cluster],
            self.hosts,
            local.supervised,
            local.apart,
        )


def quarantined_waits(
    quarantined: Mapping[RangeKey, Quarantined], targets: Sequence[tuple[str, Target]], now: Now
) -> list[Wait]:
    """The waits of ranges in quarantine: their targets lack them until a person decides. ``targets``: the configured
    ones; ranges for others are left out.
    """
    waits = Waits()
    configured = {target.key: target for _, target in targets}
    for key, value in sorted(quarantined.items()):
        target = configured.get(key.target)
        if target is not None:
            since_ns = now.boot_ns - max(0, now.wall_ms - value.since_ms) * 1_000_000
            cause = Cause(causes.QUARANTINED, since_ns, value.error, value.code, is_final=True, range_id=key.range_id)
            waits.add(target, key.file, cause, value.blocks.last - value.blocks.first + 1, 0)
    return waits.all()


def older_waits(older: Iterable[OlderState], targets: Sequence[tuple[str, Target]], now: Now) -> list[Wait]:
    """The waits of targets at peers that came back in an older state. The number of missing records is not known."""
    waits = Waits()
    for state in older:
        since = f" after {utc_text(state.since_ms)}" if state.since_ms > 1 else ""
        logs = f" ({', '.join(place_text(*log) for log in state.logs)})" if state.logs else ""
        since_ns = now.boot_ns - max(0, now.wall_ms - state.since_ms) * 1_000_000
        cause = Cause(causes.PEER_OLDER, since_ns, f"{since}{logs}", is_final=True)
        for _, target in targets:
            if target.key.cluster == state.cluster and target.key.incarnation <= state.incarnation:
                waits.add(target, state.logs[0][0] if state.logs else "", cause, 0, 0)
    return waits.all()


def unread_waits(targets: Iterable[tuple[str, Target]], now: Now) -> list[Wait]:
    """The waits of all targets while the books can't be read or written: further records may wait, of any file."""
    lack = now.local.no_books
    if lack is None:
        return []
    return [Wait(target, Cause(causes.NO_BOOKS, lack.since_ns, lack.words), "") for _, target in targets]


def place_text(log: str, offset: int | None) -> str:
    """Where a log was at a time. ``offset``: the first record written after it, None = not known, 0 = there is none."""
    if offset is None:
        return f"{log} was open then"
    return f"the next record of {log} was {offset} then" if offset else f"{log} had all its records then"


def utc_text(time_ms: int) -> str:
    """Milliseconds since 1970 as ISO 8601."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def unread(targets: Sequence[tuple[str, Target]]) -> Waits:
    """The waits before the first read of the books: nothing is known of any target."""
    waits = Waits()
    for _, target in targets:
        waits.add(target, "", Cause(causes.NOT_READ), 0, 0)
    return waits


def described(waits: Sequence[Wait], directory: Directory, now: Now) -> list[WaitCause]:
    """The waits in words, those that need a person first, then the oldest."""
    groups: dict[tuple[str, str, TargetKey | None], list[Wait]] = {}
    for wait in waits:
        target = wait.target.key if wait.cause.kind in OF_TABLES else None
        groups.setdefault((wait.target.key.cluster, wait.cause.kind, target), []).append(wait)
    found = [_message(group, directory, now) for group in groups.values()]
    return sorted(found, key=order_of)


def order_of(cause: WaitCause) -> tuple[object, ...]:
    """The sort key of causes."""
    return not cause.needs_person, -(cause.since_seconds or 0.0), cause.cluster, cause.kind, cause.tables


def _message(group: Sequence[Wait], directory: Directory, now: Now) -> WaitCause:
    first = max(group, key=lambda wait: seconds_since(wait.cause, now) or 0.0)
    tables = sorted(
        {directory.tables.get(key.source_table_id, key.source_table_id) for key in (wait.target.key for wait in group)}
    )
    cause = first.cause
    words = explain(cause, directory.names(first, tables, now.local), now.boot_ns)
    return WaitCause(
        cluster=first.target.key.cluster,
        kind=cause.kind,
        tables=tuple(tables),
        text=words.text,
        steps=words.steps,
        needs_person=words.needs_person,
        since_seconds=seconds_since(cause, now),
        files=sum(wait.files for wait in group),
        records=sum(wait.records for wait in group),
        bytes=sum(wait.size for wait in group),
        file=first.root,
        next_try_in_ms=next_try_in_ms(cause, now),
        tries=max(wait.cause.bottom.tries for wait in group),
    )


def problem_of(cause: WaitCause) -> str:
    """A cause as one line."""
    tables = ", ".join(cause.tables)
    nouns = "tables" if len(cause.tables) > 1 else "table"
    return "; ".join([f"{nouns} {tables}: {cause.text}", *(f"next: {step_text(step)}" for step in cause.steps[:1])])


def step_text(step: NextStep) -> str:
    """A step as text."""
    return f"at {step.at}: {step.command}" if step.at else step.command


def seconds_since(cause: Cause, now: Now) -> float | None:
    """For how long a cause holds; None = not known."""
    since_ns = cause.lasts_since_ns
    return None if since_ns is None else max(0.0, (now.boot_ns - since_ns) / 1e9)


def next_try_in_ms(cause: Cause, now: Now) -> int | None:
    """The time until the next try; None when none is planned."""
    next_try_ns = cause.bottom.next_try_ns
    return max(0, (next_try_ns - now.boot_ns) // 1_000_000) if next_try_ns else None


def why_lacks(state: TargetState | None) -> str | None:
    """For the reason of a file: what a target lacks, and why; "" when the master does not know the target's state, None
    when it lacks nothing.
    """
    if state is None:
        return ""
    return f"lacks {state.lag_records} records ({state.cause.kind})" if state.lag_records else None
