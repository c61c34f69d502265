"""The leading master's answers about replication: the status, the quarantine, and the records below marks.

Arrives: the parts of a leadership, the configuration. Leaves: messages of the wire contract. A master that has not read
the books yet answers with :class:`NotReadyError`, because an empty list would mean that no file waits.
"""

from __future__ import annotations

from collections.abc import Sequence

from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.master.cycle.knowledge import expect_known
from bookkeeper.master.leadership import Leadership
from bookkeeper.master.queries.queries import status_message, table_names
from bookkeeper.master.queries.target_states import target_state, target_states
from bookkeeper.rpc.contract.messages import FileMark, QuarantinedRange, ReplicationReport, TargetStatus


def status_report(lead: Leadership, config: ClusterConfig, table: str) -> ReplicationReport:
    """Outstanding files of a table, or of all (""), and their age. Waits for no books that do not answer. Raises
    NotFoundError, NotReadyError.
    """
    wanted = None if not table else config.table_named(table).table_id
    known = expect_known(lead.knowledge())
    now = lead.moment()
    states = target_states(
        lead.cycle.books.snapshot.files,
        lead.cycle.dispatcher.shipping,
        now,
        lambda target: wanted in (None, target.key.source_table_id),
        lead.settings.replication.quarantine_tries,
    )
    names = table_names(config.tables.values())
    held = None if now.local.no_books is None else lead.cycle.dispatcher.quarantine.ranges
    quarantined = lead.quarantine.statuses(wanted, names, held)
    targets = (*(status_message(state, names) for state in states), *quarantined)
    return ReplicationReport(targets, int(known.age_ms or 0), known.problem)


def quarantine_report(lead: Leadership, config: ClusterConfig, table: str) -> list[QuarantinedRange]:
    """Ranges of a table, or of all (""), that block their queue or are in quarantine. Raises NotFoundError,
    NotReadyError.
    """
    wanted = None if not table else config.table_named(table).table_id
    expect_known(lead.knowledge())
    listed = lead.quarantine.list_ranges(table_names(config.tables.values()))
    return [found for found in listed if wanted in (None, found.target.source_table_id)]


def pending_report(
    lead: Leadership, config: ClusterConfig, marks: Sequence[FileMark], table: str, cluster: str
) -> list[TargetStatus]:
    """Files with records below the marks that the peer lacks. Reads the books now, so the answer needs no full cycle.
    Raises NotFoundError.
    """
    shipping, files, now = lead.cycle.dispatcher.shipping, lead.cycle.books.snapshot.files, lead.moment()
    tries = lead.settings.replication.quarantine_tries
    names = table_names(config.tables.values())
    found = []
    for entry, target, progress in lead.queries.pending(marks, table, cluster):
        known = files.get(entry.file) or entry
        found.append(status_message(target_state(known, target, progress, files, shipping, now, tries), names))
    return found + lead.quarantine.statuses_below(marks, config.table_named(table).table_id, cluster, names)
