"""Fault switches of logs on hosts' disks (see ``faults``)."""

from __future__ import annotations

from bookkeeper.log_homes import home_books, opening
from bookkeeper.log_homes.opening import SessionLogs
from bookkeeper.master.books.books_cycle import Books
from bookkeeper.master.gc import gc_rules
from bookkeeper.master.index.held_back import LogsOnHosts
from bookkeeper.tserver.replicas import served_logs
from tests.support.replacement import Fault

LOG_HOME_FAULTS: dict[str, Fault] = {
    "any-disk-serves-logs": Fault(
        served_logs.is_meant,
        lambda incarnation, own: True,  # noqa: ARG005
        "P10: a replaced disk passes for the one with the logs",
    ),
    "living-logs-are-sealed": Fault(
        served_logs.is_written_here,
        lambda name, session_id: False,  # noqa: ARG005
        "R15: a log that is being written is sealed, and acknowledged records are lost",
    ),
    "unmarked-logs-go": Fault(
        served_logs.needed,
        lambda logs, marked: [],  # noqa: ARG005
        "R17: a log that a tablet needs is deleted",
    ),
    "homes-are-guessed": Fault(
        home_books.is_final,
        lambda home, had_shared_logs: True,  # noqa: ARG005
        "R12: a session that was asked about too early has no logs for ever",
    ),
    "logs-before-their-home": Fault(
        SessionLogs.begin,
        lambda self, homes: None,  # noqa: ARG005
        "R12: a log lies on a host's disk, and the books do not say so",
    ),
    "ends-without-seals": Fault(
        opening.are_sealed,
        lambda names: True,  # noqa: ARG005
        "R15: a tablet is served without the end of a log",
    ),
    "away-hosts-are-empty": Fault(
        gc_rules.is_read,
        lambda file, unread: True,  # noqa: ARG005
        "R17: books of logs are purged because a host is away",
    ),
    "one-disk-is-enough": Fault(
        LogsOnHosts.held_back_by,
        lambda self, row, replicas: {},  # noqa: ARG005
        "R15: a peer has what the cluster loses with one disk",
    ),
    "quick-cycles-trust-one-disk": Fault(
        Books._may_hold_back,
        lambda self, session: False,  # noqa: ARG005
        "R15: a tablet that uses a log again between two full cycles holds nothing back",
    ),
    "sealed-logs-are-copied": Fault(
        Books._is_on_host,
        lambda self, file: False,  # noqa: ARG005
        "R15: a log goes to peers when it is sealed, whoever has copies",
    ),
}
