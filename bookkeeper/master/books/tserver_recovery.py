"""Recovers dead tservers: seals their logs, releases their tablets, and forgets them in the end.

Arrives: sessions that are dead for good, their logs on disk. Leaves: seals, which never change; sessions whose tablets
the master's thread may place elsewhere; no record of a session without a log. Rules: R10, R14, R15 and R17.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from functools import partial

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.coordination.config_tree import ClusterConfig
from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.errors import CorruptionError, NotFoundError, UnavailableError, is_away
from bookkeeper.log_homes.log_recovery import recover_log
from bookkeeper.master.calls.tservers import OTHER_KINDS, TServers
from bookkeeper.master.index.log_files import LogFile
from bookkeeper.master.index.snapshot import chained, online_tables
from bookkeeper.master.reign.leader import Reign
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import MetadataTable, scan_parts
from bookkeeper.storage.wal.reading.wal_recovery import BooksClaim

LOG = logging.getLogger(__name__)

RESTORE = "restore the file, or give up its records behind the damage: bookkeeper wal seal"

ROUNDS_TO_TRY_AGAIN = 25
"""Rounds between two tries of a log that can't be recovered: an operator may have restored it."""

ROUNDS_TO_ASK_AGAIN = 5
"""Rounds between two tries of a session whose logs lie on a host that is away."""

ROUNDS_TO_CHECK_AGAIN = 50
"""Rounds between two checks of all logs of sessions that were found sealed."""


class TServerRecovery(Struct):
    """Seals the logs of dead sessions. Used by one thread; any thread may read ``problems``."""

    tservers: TServers
    reign: Reign
    read_claim: Callable[[str], BooksClaim]
    """The facts about a log in the books."""
    clock: Clock
    problems: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)
    """Dead sessions with logs on a host that is away, and the reason with the time since when: their tablets wait."""
    _round: int = 0

    def run_once(self, sessions: Iterable[SessionInfo]) -> list[str]:
        """Seal every log of every dead session; returns the sessions that had one to seal. Raises TransientError."""
        recovered = []
        self._round += 1
        if self._round % ROUNDS_TO_CHECK_AGAIN == 0:
            self.tservers.forget_sealed_sessions()
        for info in sessions:
            if info.session_id in self.waiting and self._round % ROUNDS_TO_ASK_AGAIN:
                continue
            if info.alive or self.tservers.is_sealed_off(info.session_id):
                self.waiting.pop(info.session_id, None)
                continue
            try:
                if self._seal_logs(info.session_id):
                    recovered.append(info.session_id)
            except UnavailableError as error:  # the logs of other sessions do not wait for this host
                if not is_away(error):
                    raise
                self._wait(info.session_id, error)
            else:
                self.waiting.pop(info.session_id, None)
        return recovered

    def _seal_logs(self, session_id: str) -> bool:
        """Seal the logs of a dead session; returns whether there was one to seal."""
        unsealed = [log for log in self.tservers.logs_of(session_id) if not log.sealed]
        for log in unsealed:
            if log.name not in self.problems or self._round % ROUNDS_TO_TRY_AGAIN == 0:
                self._seal(log)
        return any(log.name not in self.problems for log in unsealed)

    def _wait(self, session_id: str, error: UnavailableError) -> None:
        if session_id not in self.waiting:
            since = datetime.fromtimestamp(self.clock.wall_ms() / 1000, UTC).isoformat(timespec="seconds")
            self.waiting[session_id] = f"{error.message} (since {since})"
            LOG.warning("dead session %s can't be recovered yet: %s", session_id, error.message)

    def _seal(self, log: LogFile) -> None:
        self.reign.check()
        try:
            seal = recover_log(self.tservers.volume, log.name, partial(self.read_claim, log.name))
        except NotFoundError:
            return
        except CorruptionError as error:
            if self.problems.get(log.name) != error.message:
                LOG.error("a log can't be recovered, an operator has to decide: %s", error.message)
            self.problems[log.name] = error.message
            return
        self.problems.pop(log.name, None)
        LOG.info("%s of dead session %s is sealed at %s", log.name, log.session, seal)

    def forget_others(self, sessions: Iterable[SessionInfo]) -> None:
        """Remove the records of dead masters and replay processes: the books have all that their successors need."""
        for info in sessions:
            if info.kind in OTHER_KINDS and not info.alive:
                self.reign.check()
                self.tservers.coordination.forget_session(info.session_id)

    def forget(self, sessions: Iterable[SessionInfo], holding: Collection[str]) -> list[str]:
        """Remove the records of dead sessions without tablets and logs; ``holding``: sessions with assigned tablets."""
        forgotten = []
        for info in sessions:
            # R17: the logs of a session may be deleted only while its death is on record, so they go before the record.
            if not info.alive and info.session_id not in holding and self._has_no_log(info.session_id):
                self.reign.check()
                self.tservers.remove_directory(info.session_id)
                self.tservers.coordination.forget_session(info.session_id)
                forgotten.append(info.session_id)
        return forgotten

    def _has_no_log(self, session_id: str) -> bool:
        """Whether a listing shows that the session has no log; False while a host is away that may have one."""
        try:
            return not self.tservers.logs_of(session_id)
        except UnavailableError as error:
            if not is_away(error):
                raise
            return False


def read_claim(table: MetadataTable, read_config: Callable[[], ClusterConfig], name: str) -> BooksClaim:
    """The facts about a log in the rows of all tablets: its users (R12) and the targets that it is replicated to (R15).
    Skips cells that do not parse. Raises TransientError, BrokenChainError unless the scan found every tablet (R16).
    """
    log, repl = keys.log_column(name), keys.repl_column(name)
    is_used, statuses = False, list[bytes]()
    parts = scan_parts(table, keys.TABLETS_START, keys.TABLETS_STOP, ("log", "repl", "tablet"))
    for part in chained(parts, online_tables(read_config())):
        is_used = is_used or log in part.cells or repl in part.cells
        if repl in part.cells:
            statuses.append(part.cells[repl].value)
    return BooksClaim(is_used, claim_of(statuses).durable_offset)


def claim_of(statuses: Iterable[bytes]) -> BooksClaim:
    """The facts about a log in its `repl:` cells."""
    needed = [needed_of(raw) for raw in statuses]
    return BooksClaim(bool(needed), max(needed, default=0))


def needed_of(raw: bytes) -> int:
    """The needed offset in a status; 0 when it does not parse."""
    try:
        return values.decode_status(raw).replication_needed_offset
    except CorruptionError:
        return 0


def unsealed_sessions(sessions: Iterable[SessionInfo], tservers: TServers) -> list[str]:
    """Dead sessions with a log that is not sealed: no tserver may load their tablets yet (rule R15)."""
    dead = [info.session_id for info in sessions if not info.alive]
    return [session for session in dead if not tservers.is_sealed_off(session)]
