"""Fault switches of logs on hosts' disks."""

from __future__ import annotations

from tests.support.faults.switch import Switch

LOG_HOMES: dict[str, Switch] = {
    "paused-hosts-begin-to-use-logs": Switch(
        "bookkeeper.tserver.books.wal_bookkeeper",
        "WalBookkeeper._write_first_uses",
        old='self._persistence.retry("the look whether others count this process as dead", self._persistence.confirm)',
        new="pass",
        breaks="R15: a host that was paused acknowledges a record that no other host asks it for",
    ),
    "paused-hosts-let-logs-go": Switch(
        "bookkeeper.tserver.leading.namer",
        "Namer._let_logs_go",
        old="self._books.confirm()",
        new="pass",
        breaks="R15: a host that was paused lets its log go, and the next leader's state lacks the records",
    ),
    "any-disk-serves-logs": Switch(
        "bookkeeper.tserver.replicas.served_logs",
        "ServedLogs._check",
        old="if incarnation != own.incarnation:",
        new="if False:",
        breaks="P10: a replaced disk passes for the one with the logs",
    ),
    "living-logs-are-sealed": Switch(
        "bookkeeper.tserver.replicas.served_logs",
        "ServedLogs.seal",
        old="if session_of_numbered(name) == self._session_id:",
        new="if False:",
        breaks="R15: a log that is being written is sealed, and acknowledged records are lost",
    ),
    "unmarked-logs-go": Switch(
        "bookkeeper.tserver.replicas.served_logs",
        "needed",
        old="return sorted(set(logs).difference(marked))",
        new="return []",
        breaks="R17: a log that a tablet needs is deleted",
    ),
    "homes-are-guessed": Switch(
        "bookkeeper.log_homes.home_books",
        "HomeBooks.of",
        old="if home is not None or had_shared_logs:",
        new="if True:",
        breaks="R12: a session that was asked about too early has no logs for ever",
    ),
    "logs-before-their-home": Switch(
        "bookkeeper.log_homes.opening",
        "SessionLogs.begin",
        old="if self.home is not None:",
        new="if False:",
        breaks="R12: a log lies on a host's disk, and the books do not say so",
    ),
    "ends-without-seals": Switch(
        "bookkeeper.log_homes.opening",
        "are_sealed",
        old="name + SEAL_SUFFIX in files for",
        new="True for",
        breaks="R15: a tablet is served without the end of a log",
    ),
    "away-hosts-are-empty": Switch(
        "bookkeeper.master.gc.gc_rules",
        "is_read",
        old="return not unread or session_of_log(file.decode()) not in unread",
        new="return True",
        breaks="R17: books of logs are purged because a host is away",
    ),
    "one-disk-is-enough": Switch(
        "bookkeeper.master.index.held_back",
        "LogsOnHosts.held_back_by",
        old="if is_one_copy_enough(replicas, self.properties.get(table_id, DEFAULT_PROPERTIES)):",
        new="if True:",
        breaks="R15: a peer has what the cluster loses with one disk",
    ),
    "quick-cycles-trust-one-disk": Switch(
        "bookkeeper.master.books.books_cycle",
        "Books._may_hold_back",
        old="return any(view is None or view.replicas for view in views) and self.homes.of(session) is not None",
        new="return False",
        breaks="R15: a tablet that uses a log again between two full cycles holds nothing back",
    ),
    "sealed-logs-are-copied": Switch(
        "bookkeeper.master.books.books_cycle",
        "Books._fold_closed",
        old="and home_of(self.homes, file.decode()) is None",
        new="",
        breaks="R15: a log goes to peers when it is sealed, whoever has copies",
    ),
}
