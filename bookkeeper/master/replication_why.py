"""The leading master's answer to ``replication why``: the cause of each wait in words, and why a file is retained.

Arrives: the parts of a leadership, the configuration. Leaves: a :class:`WhyReport`. A master that has not read the
books yet says so as a cause.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.errors import NotFoundError
from bookkeeper.master.leadership import Leadership
from bookkeeper.master.queries.causes import Now
from bookkeeper.master.queries.queries import table_names
from bookkeeper.master.queries.retained_files import retained_files
from bookkeeper.master.queries.target_states import TargetState, all_states
from bookkeeper.master.queries.waits import Wait, Waits
from bookkeeper.master.queries.why import Directory, described, unread, why_lacks
from bookkeeper.model import Target, TargetKey
from bookkeeper.rpc.contract.messages import FileWhy, LackingTarget, RetentionReason, WhyReport

UNREAD = RetentionReason("books", "not known", "the books do not answer now")
"""The reason of a file while its reasons can't be read."""


class About(Struct, frozen=True):
    """The subject of a question: the targets that it asks for, and a file or "" for all."""

    targets: Sequence[tuple[str, Target]]
    file: str = ""

    @property
    def keys(self) -> frozenset[TargetKey]:
        """The keys of the targets."""
        return frozenset(target.key for _, target in self.targets)


def why_report(lead: Leadership, config: ClusterConfig, about: str) -> WhyReport:
    """The causes of a table, a peer, a file, or of all (""). Raises NotFoundError, TransientError."""
    directory = Directory.of(lead.settings, config)
    known, now = lead.knowledge(), lead.moment()
    asked = subject(lead, directory, config, about)
    if known.age_ms is None:
        waits, file = unread(asked.targets).all(), None
    else:
        waits, states = waits_of(lead, config, asked, now)
        file = file_why(lead, config, asked.file, states, now) if asked.file else None
    return WhyReport(
        tuple(described(waits, directory, now)),
        file,
        tuple(f"{table} to {target.key.cluster}" for table, target in asked.targets),
        int(known.age_ms or 0),
        known.problem,
    )


def subject(lead: Leadership, directory: Directory, config: ClusterConfig, about: str) -> About:
    """The table, peer or file of that name, in this order. Raises NotFoundError."""
    if not about:
        return About(directory.targets)
    if any(table.name == about for table in config.tables.values()):
        return About([(table, target) for table, target in directory.targets if table == about])
    if about in config.clusters:
        return About([(table, target) for table, target in directory.targets if target.key.cluster == about])
    names = {entry.name() for entry in lead.cycle.books.snapshot.files.values()}
    found = sorted(name for name in names if is_called(name, about))
    if not found:
        found = sorted(log.name for log in lead.tservers.logs_in_reach() if is_called(log.name, about))
    if len(found) != 1:
        ending = f"{len(found)} files end with {about}, such as {found[0]}" if found else ""
        which = ending or f"no table, peer or log {about}"
        raise NotFoundError(f"{which}; replication status lists the logs, tables the tables, clusters the peers")
    return About(directory.targets, found[0])


def is_called(name: str, about: str) -> bool:
    """Whether a word is the name of a file, or its last parts."""
    return name == about or name.endswith(f"/{about}")


def waits_of(lead: Leadership, config: ClusterConfig, asked: About, now: Now) -> tuple[list[Wait], list[TargetState]]:
    """The waits that were asked for; of a file also its states."""
    waits, states = Waits(), list[TargetState]()
    files, shipping = lead.cycle.books.snapshot.files, lead.cycle.dispatcher.shipping
    tries = lead.settings.replication.quarantine_tries
    keys = asked.keys
    found = all_states(files, shipping, now, lambda target: target.key in keys, tries)
    chosen = (state for state in found if asked.file in ("", state.file))
    for state in waits.counted(chosen):
        if asked.file:
            states.append(state)
    return waits.all() + lead.other_waits(config, asked.targets, now, asked.file), states


def file_why(lead: Leadership, config: ClusterConfig, file: str, states: Sequence[TargetState], now: Now) -> FileWhy:
    """Why a file is retained, and what each target lacks of it. Waits for no books that do not answer."""
    names = table_names(config.tables.values())
    by_target = {state.target.key: state for state in states}
    lacking = tuple(lacking_target(state, names.get(state.target.key.source_table_id, "")) for state in states)
    if now.local.no_books is not None:
        return FileWhy(file, None, (UNREAD,), lacking)
    table, tservers = lead.gc.runner.stores.table, lead.tservers
    found = retained_files(table, tservers, names, lambda _file, key: why_lacks(by_target.get(key)), file)
    reasons = found[0].reasons if found else ()
    return FileWhy(
        file,
        found[0].bytes if found else None,
        tuple(RetentionReason(reason.kind, reason.who, reason.detail) for reason in reasons),
        lacking,
    )


def lacking_target(state: TargetState, table: str) -> LackingTarget:
    """The offsets that a target lacks."""
    lacks = state.lag_records > 0
    return LackingTarget(
        table,
        state.target.key.cluster,
        state.finished + 1 if lacks else 0,
        state.needed if lacks else 0,
        state.lag_records,
        state.cause.kind,
    )
