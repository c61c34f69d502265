"""Embedded coordination: the processes of one machine share one SQLite file, and each session has one locked file.

The tree, its generation, the epoch and the deaths of sessions survive a crash of any process or of the machine. A
session is alive while its process, on this boot, holds the lock of its file and renews within a lease and a margin. A
session without a file is alive while its process exists. A process that finds
a session dead stores that before it reports it, so no late renewal revives the session. Rules: R8, R14, R15.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.coordination_protocol import (
    Candidacy,
    Leader,
    Session,
    SessionInfo,
    Versioned,
    refuse_alive,
)
from bookkeeper.coordination.embedded_candidacies import (
    end_candidacies,
    read_candidacies,
    read_version,
    set_candidacies,
)
from bookkeeper.coordination.embedded_session import EmbeddedSession
from bookkeeper.coordination.embedded_store import EmbeddedStore, increment
from bookkeeper.coordination.lease import is_dead, silent_ms
from bookkeeper.coordination.lease_file import SessionProcess, read_boot_id, read_lease
from bookkeeper.errors import (
    ConflictError,
    InvalidInputError,
    LeaseLostError,
    RefusedError,
    UnavailableError,
    unavailable,
)
from bookkeeper.model import HostIdentity

COORDINATION_FILE = "coordination.db"
_GENERATION = "generation"
_SESSION_SERIAL = "session"
_NUMBERS = "number/"
TRIES = 50
"""Tries of a change that sessions came before."""


def _random_suffix() -> str:
    return secrets.token_hex(4)


class EmbeddedCoordination:
    """See :class:`bookkeeper.coordination.coordination_protocol.Coordination`."""

    def __init__(
        self,
        directory: Path,
        settings: CoordinationSettings,
        clock: Clock | None = None,
        *,
        boot_id: Callable[[], str] = read_boot_id,
        suffix: Callable[[], str] = _random_suffix,
    ) -> None:
        self._clock = clock or SystemClock()
        self._settings = settings
        self._boot_id = boot_id()
        self._suffix = suffix
        self._sessions_dir = directory / "sessions"
        try:
            self._sessions_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(f"can't make {self._sessions_dir} ({error.strerror}); correct it") from error
        self._store = EmbeddedStore(directory / COORDINATION_FILE, settings.busy_timeout_ms)
        self._own: list[EmbeddedSession] = []
        self._own_lock = threading.Lock()

    # ---- sessions

    def open_session(self, kind: str, address: str, host: HostIdentity | None = None) -> Session:
        """See the protocol."""
        if not (kind.isascii() and kind.isalnum()):
            raise InvalidInputError(f"a session's kind consists of letters and digits, not {kind!r}")
        session: EmbeddedSession | None = None
        try:
            with self._store.writing() as db:
                self._sweep(db)
                session_id = f"{kind}-{increment(db, _SESSION_SERIAL)}-{self._suffix()}"
                pid = os.getpid()
                identity = (None, None, None) if host is None else (host.name, host.incarnation, host.zone)
                row = (session_id, kind, address, pid, process_started(pid), *identity)
                db.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?)", row)
                session = EmbeddedSession(
                    session_id, self._path(session_id), self._clock, self._boot_id, self._settings
                )
        except OSError as error:
            raise unavailable(f"no session can be written below {self._sessions_dir}", error) from error
        except BaseException:
            if session is not None:
                session.close()
            raise
        session.start()
        with self._own_lock:
            self._own.append(session)
        return session

    def sessions(self, *kinds: str) -> list[SessionInfo]:
        """See the protocol."""
        with self._store.reading() as db:
            rows = db.execute("SELECT session_id, kind FROM sessions ORDER BY 1").fetchall()
        ids = [session_id for session_id, kind in rows if kind in kinds]
        found = (self._judge(session_id) for session_id in ids)
        return [info for info in found if info is not None]

    def has_session_news(self) -> bool:
        """See the protocol: a look is cheap here."""
        return True

    def processes(self) -> list[SessionProcess]:
        """The processes that hold the lock of a session's file on this boot, also if the session counts as dead; no
        writer blocks this call.
        """
        with self._store.reading() as db:
            rows = db.execute("SELECT session_id, pid FROM sessions ORDER BY 1").fetchall()
        found = []
        for session_id, pid in rows:
            path = self._path(session_id).resolve()
            try:
                state = read_lease(path)
            except FileNotFoundError:
                continue
            if state.damage:
                latest_ns = self._clock.boot_ns() + self._settings.session_lease_ms * 1_000_000
                found.append(SessionProcess(session_id, pid, path, latest_ns, state.damage))
            elif state.record.boot_id == self._boot_id:
                found.append(SessionProcess(session_id, pid, path, state.record.expires_ns))
        return found

    def forget_session(self, session_id: str) -> None:
        """See the protocol; raises RefusedError while the session is alive."""
        info = self._judge(session_id)
        if info is None:
            return
        if info.alive:
            raise RefusedError(f"session {session_id} is alive and can't be forgotten; end its process first")
        with self._store.writing() as db:
            end_candidacies(db, session_id)
            db.execute("DELETE FROM sessions WHERE session_id = ?", (session_id,))
        self._path(session_id).unlink(missing_ok=True)

    def _path(self, session_id: str) -> Path:
        return self._sessions_dir / session_id

    def _sweep(self, db: sqlite3.Connection) -> None:
        """Remove session files without a row in ``sessions``. Processes create such files only inside write
        transactions, in which this runs, too.
        """
        session_ids = {row[0] for row in db.execute("SELECT session_id FROM sessions")}
        for path in self._sessions_dir.iterdir():
            if path.name not in session_ids:
                path.unlink(missing_ok=True)

    def _judge(self, session_id: str) -> SessionInfo | None:
        """The current state of a session; its death is durable before this returns it."""
        with self._store.reading() as db:
            row = db.execute(
                "SELECT kind, address, pid, pid_started, dead, host, incarnation, zone FROM sessions"
                " WHERE session_id = ?",
                (session_id,),
            ).fetchone()
        if row is None:
            return None
        kind, address, pid, pid_started, dead, name, incarnation, zone = row
        silent = 0
        if not dead:
            dead, silent = self._judge_lease(session_id, pid, pid_started)
            if dead:
                self._write_dead(session_id)
        host = None if name is None else HostIdentity(name, incarnation, zone)
        return SessionInfo(session_id, kind, address, not dead, host, silent)

    def _judge_lease(self, session_id: str, pid: int, pid_started: str) -> tuple[bool, int]:
        """Whether the session seems dead, and else for how long it has been silent, see :func:`silent_ms`."""
        try:
            state = read_lease(self._path(session_id))
        except FileNotFoundError:  # without the file its owner can't renew and ends; until then the session is alive
            return process_started(pid) != pid_started, 0
        now_ns, settings = self._clock.boot_ns(), self._settings
        if is_dead(state, self._boot_id, now_ns, settings.session_margin_ms * 1_000_000):
            return True, 0
        return False, silent_ms(state, now_ns, settings.session_lease_ms)

    def _write_dead(self, session_id: str) -> None:
        with self._store.writing() as db:
            db.execute("UPDATE sessions SET dead = 1 WHERE session_id = ?", (session_id,))
            end_candidacies(db, session_id)

    # ---- leadership

    def try_lead(self, session: Session) -> Leader | None:
        """See the protocol."""
        session.check()
        current = self.leader()
        if current is not None:
            return current if current.session_id == session.session_id else None
        with self._store.writing() as db:
            address = self._own_address(db, session)
            row = _leader_row(db)
            if row is not None and not self._was_dead(db, row.session_id):
                return None  # another candidate was first
            session.check()
            epoch = 1 if row is None else row.epoch + 1  # R8: above all earlier reigns, so that its ranks are, too
            leader = Leader(session.session_id, address, epoch)
            _write_leader(db, leader)
        return leader

    def leader(self) -> Leader | None:
        """See the protocol."""
        with self._store.reading() as db:
            leader = _leader_row(db)
        if leader is None:
            return None
        info = self._judge(leader.session_id)
        return leader if info is not None and info.alive else None

    def raise_epoch(self, session: Session, above: int) -> Leader:
        """See the protocol."""
        session.check()
        with self._store.writing() as db:
            self._own_address(db, session)
            row = _leader_row(db)
            if row is None or row.session_id != session.session_id:
                raise LeaseLostError(f"session {session.session_id} does not lead any more")
            leader = Leader(row.session_id, row.address, max(row.epoch, above + 1))
            _write_leader(db, leader)
        return leader

    def _own_address(self, db: sqlite3.Connection, session: Session) -> str:
        row = db.execute("SELECT address, dead FROM sessions WHERE session_id = ?", (session.session_id,)).fetchone()
        if row is None or row[1]:
            raise LeaseLostError(f"session {session.session_id} counts as dead; this process must stop")
        return str(row[0])

    def _was_dead(self, db: sqlite3.Connection, session_id: str) -> bool:
        row = db.execute("SELECT dead FROM sessions WHERE session_id = ?", (session_id,)).fetchone()
        return row is None or bool(row[0])

    # ---- elections

    def campaign(self, session: Session, candidacies: Mapping[str, bytes]) -> None:
        """See the protocol."""
        session.check()
        with self._store.writing() as db:
            self._own_address(db, session)
            session.check()
            set_candidacies(db, session.session_id, candidacies)

    def candidates(self) -> dict[str, list[Candidacy]]:
        """See the protocol; notes the deaths of sessions first."""
        with self._store.reading() as db:
            ids = [row[0] for row in db.execute("SELECT DISTINCT session_id FROM candidacies")]
        dead = {id_ for id_ in ids if (info := self._judge(id_)) is None or not info.alive}
        with self._store.reading() as db:
            found = read_candidacies(db)
        return {
            election: live
            for election, all_ in found.items()
            if (live := [one for one in all_ if one.session_id not in dead])
        }

    def candidates_version(self) -> int:
        """See the protocol."""
        with self._store.reading() as db:
            return read_version(db)

    # ---- configuration tree

    def get(self, path: str) -> Versioned | None:
        """See the protocol."""
        with self._store.reading() as db:
            row = db.execute("SELECT value, version FROM tree WHERE path = ?", (_checked(path),)).fetchone()
        return None if row is None else Versioned(row[0], row[1])

    def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        """See the protocol."""
        with self._store.writing() as db:
            version = _expect(db, _checked(path), expected_version) + 1
            db.execute("INSERT OR REPLACE INTO tree VALUES (?, ?, ?)", (path, value, version))
            increment(db, _GENERATION)
        return version

    def delete(self, path: str, expected_version: int | None = None) -> None:
        """See the protocol."""
        with self._store.writing() as db:
            if db.execute("SELECT 1 FROM tree WHERE path = ?", (_checked(path),)).fetchone() is None:
                return
            _expect(db, path, expected_version)
            db.execute("DELETE FROM tree WHERE path = ?", (path,))
            increment(db, _GENERATION)

    def put_while_idle(self, values: Mapping[str, bytes]) -> None:
        """See the protocol."""
        for path in values:
            _checked(path)
        for _ in range(TRIES):
            with self._store.reading() as db:
                serial = _counter(db, _SESSION_SERIAL)
                ids = [row[0] for row in db.execute("SELECT session_id FROM sessions ORDER BY 1")]
            refuse_alive([info for session_id in ids if (info := self._judge(session_id)) is not None])
            with self._store.writing() as db:
                if _counter(db, _SESSION_SERIAL) != serial:
                    continue  # another session has begun
                for path, value in values.items():
                    version = _expect(db, path, None) + 1
                    db.execute("INSERT OR REPLACE INTO tree VALUES (?, ?, ?)", (path, value, version))
                increment(db, _GENERATION)
                return
        raise ConflictError(f"{TRIES} sessions began meanwhile; try again")

    def children(self, prefix: str) -> dict[str, Versioned]:
        """See the protocol."""
        with self._store.reading() as db:
            return _values(db, _checked(prefix))

    def tree(self) -> tuple[int, dict[str, Versioned]]:
        """See the protocol."""
        with self._store.reading() as db:
            return _counter(db, _GENERATION), _values(db, "/")

    def generation(self) -> int:
        """See the protocol."""
        with self._store.reading() as db:
            return _counter(db, _GENERATION)

    def confirm(self, session: Session) -> None:
        """See the protocol: all processes have one clock here, so the lease says it."""
        session.check()

    def settled_generation(self) -> int:
        """See the protocol: here, :meth:`generation` is."""
        return self.generation()

    # ---- numbers

    def number(self, name: str) -> int:
        """See the protocol."""
        with self._store.reading() as db:
            return _counter(db, _NUMBERS + name)

    def raise_number(self, name: str, least: int) -> None:
        """See the protocol."""
        with self._store.writing() as db:
            db.execute(
                "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE"
                " SET value = max(value, excluded.value)",
                (_NUMBERS + name, least),
            )

    def publish_masters(self, instance_id: str) -> None:
        """See the protocol; who is on the machine reads the address in the settings."""

    def close(self) -> None:
        """See the protocol."""
        with self._own_lock:
            own, self._own = self._own, []
        for session in own:
            session.close()
        self._store.close()


def process_started(pid: int) -> str:
    """Start time of the process with this pid in ticks since boot, which differs when a pid is reused; "" = gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    state, started = fields[0], fields[19]
    return "" if state in "ZX" else started


def _counter(db: sqlite3.Connection, name: str) -> int:
    row = db.execute("SELECT value FROM counters WHERE name = ?", (name,)).fetchone()
    return 0 if row is None else int(row[0])


def _values(db: sqlite3.Connection, prefix: str) -> dict[str, Versioned]:
    rows = db.execute(
        "SELECT path, value, version FROM tree WHERE path >= ?1 AND substr(path, 1, length(?1)) = ?1 ORDER BY 1",
        (prefix,),
    )
    return {path: Versioned(value, version) for path, value, version in rows}


def _leader_row(db: sqlite3.Connection) -> Leader | None:
    row = db.execute("SELECT session_id, address, epoch FROM leader").fetchone()
    return None if row is None else Leader(*row)


def _write_leader(db: sqlite3.Connection, leader: Leader) -> None:
    db.execute("INSERT OR REPLACE INTO leader VALUES (1, ?, ?, ?)", (leader.session_id, leader.address, leader.epoch))


def _checked(path: str) -> str:
    if not path.startswith("/") or "\x00" in path:
        raise InvalidInputError(f"a path of the configuration tree must start with a slash and have no NUL: {path!r}")
    return path


def _expect(db: sqlite3.Connection, path: str, expected_version: int | None) -> int:
    """The version before a change; raises ConflictError unless it is the expected one."""
    row = db.execute("SELECT version FROM tree WHERE path = ?", (path,)).fetchone()
    version = 0 if row is None else int(row[0])
    if expected_version is not None and expected_version != version:
        raise ConflictError(f"{path} has version {version}, expected {expected_version}; read it again")
    return version
