"""The fence kills a process that outlives its lease, and no other process."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.coordination.lease_file import SessionProcess
from bookkeeper.errors import TransientError
from bookkeeper.standalone.fencing import Fence, has_session, kill, overdue
from tests.support.coordination_process import LEASE_MS, MARGIN_MS, CoordinationProcess
from tests.support.tservers import wait_until

MARGIN_NS = MARGIN_MS * 1_000_000
LIMIT_S = 60


@contextmanager
def _member(directory: Path) -> Iterator[tuple[CoordinationProcess, str]]:
    """A process with one session, and the session's id."""
    with CoordinationProcess("embedded", str(directory)) as process:
        yield process, process.ask("open", "tserver", "127.0.0.1:1")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedCoordination]:
    coordination = EmbeddedCoordination(tmp_path, CoordinationSettings(session_lease_ms=LEASE_MS, session_renew_ms=100))
    yield coordination
    coordination.close()


def test_only_lease_and_margin_together_are_the_end() -> None:
    process = SessionProcess("s", 1, Path("/s"), expires_ns=1_000)
    assert overdue([process], 1_000 + MARGIN_NS, MARGIN_NS) == []
    assert overdue([process], 1_001 + MARGIN_NS, MARGIN_NS) == [process]


def test_a_stopped_process_is_ended_when_its_lease_is_over(store: EmbeddedCoordination, tmp_path: Path) -> None:
    with _member(tmp_path) as (member, session):
        member.freeze()
        (seen,) = store.processes()
        reports: list[str] = []
        fence = Fence(store.processes, MARGIN_NS, reports.append)
        fence.run_once(seen.expires_ns)
        assert has_session(seen)
        fence.run_once(seen.expires_ns + MARGIN_NS + 1)
        psutil.Process(seen.pid).wait(LIMIT_S)
        assert reports == [f"{session} (pid {seen.pid}) outlived its lease and was killed"]
        fence.run_once(seen.expires_ns + MARGIN_NS + 2)
        assert len(reports) == 1


def test_a_process_that_closes_other_files_during_the_check_still_has_its_session(
    store: EmbeddedCoordination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A descriptor that is listed and closed before it is read says nothing about the session's file."""
    with _member(tmp_path):
        (seen,) = store.processes()
        listed = Path.iterdir
        closed = Path(f"/proc/{seen.pid}/fd/99999")
        monkeypatch.setattr(Path, "iterdir", lambda self: iter([closed, *listed(self)]))
        assert has_session(seen)


def test_a_process_whose_session_was_removed_in_between_is_killed_too(
    store: EmbeddedCoordination, tmp_path: Path
) -> None:
    with _member(tmp_path) as (member, session):
        member.freeze()
        (seen,) = store.processes()
        fence = Fence(store.processes, MARGIN_NS, lambda _: None)
        fence.run_once(seen.expires_ns)
        seen.path.unlink()
        assert store.processes() == []
        fence.run_once(seen.expires_ns + MARGIN_NS + 1)
        psutil.Process(seen.pid).wait(LIMIT_S)
    store.forget_session(session)


def test_a_stopped_process_with_an_unreadable_lease_is_reported_and_killed_a_lease_later(
    store: EmbeddedCoordination, tmp_path: Path
) -> None:
    with _member(tmp_path) as (member, session):
        member.freeze()
        path = tmp_path / "sessions" / session
        path.write_bytes(b"rubbish" * 100)
        reports: list[str] = []
        fence = Fence(store.processes, MARGIN_NS, reports.append)
        fence.run_once(0)
        (seen,) = store.processes()
        assert [info.alive for info in store.sessions("tserver")] == [True]
        text = "a renewal by its process repairs the file; without one the process is killed"
        assert reports == [f"the session file {path} is damaged: it has no lease record (pid {seen.pid}); {text}"]
        fence.run_once(seen.expires_ns + MARGIN_NS + 1)
        psutil.Process(seen.pid).wait(LIMIT_S)
        assert reports[1:] == [f"{session} (pid {seen.pid}) outlived its lease and was killed"]
        assert [info.alive for info in store.sessions("tserver")] == [False]


def test_supervisors_of_several_hosts_end_an_overdue_process_of_any_host_once(
    store: EmbeddedCoordination, tmp_path: Path
) -> None:
    settings = CoordinationSettings(session_lease_ms=LEASE_MS, session_renew_ms=100)
    with _member(tmp_path) as (member, session), closing(EmbeddedCoordination(tmp_path, settings)) as other:
        member.freeze()
        (seen,) = store.processes()
        reports: list[str] = []
        fences = [Fence(opened.processes, MARGIN_NS, reports.append) for opened in (store, other)]
        for fence in fences:
            fence.run_once(seen.expires_ns + MARGIN_NS)
        assert reports == [], "its lease and the margin have not passed"
        fences[0].run_once(seen.expires_ns + MARGIN_NS + 1)
        psutil.Process(seen.pid).wait(LIMIT_S)
        fences[1].run_once(seen.expires_ns + MARGIN_NS + 1)
        assert reports == [f"{session} (pid {seen.pid}) outlived its lease and was killed"]


def test_a_process_that_repairs_its_lease_lives_on(store: EmbeddedCoordination, tmp_path: Path) -> None:
    with _member(tmp_path) as (member, session):
        member.freeze()
        reports: list[str] = []
        fence = Fence(store.processes, MARGIN_NS, reports.append)
        (tmp_path / "sessions" / session).write_bytes(b"")
        (seen,) = store.processes()
        fence.run_once(0)
        member.thaw()
        wait_until(lambda: not store.processes()[0].damage, "a renewal")
        (mended,) = store.processes()
        fence.run_once(mended.expires_ns + MARGIN_NS)
        assert len(reports) == 1
        assert member.ask("valid", session)
        assert mended.pid == seen.pid


def test_a_process_that_has_closed_its_session_lives_on(store: EmbeddedCoordination) -> None:
    session = store.open_session("tserver", "127.0.0.1:1")
    (seen,) = store.processes()
    assert has_session(seen)
    session.close()
    assert not has_session(seen)
    assert not kill(seen)
    assert not kill(replace(seen, pid=2**22 - 1))
    Fence(store.processes, MARGIN_NS, lambda _: None).run_once(seen.expires_ns + MARGIN_NS + 1)


def test_a_writer_that_stopped_inside_a_transaction_holds_others_up_until_it_is_ended(
    store: EmbeddedCoordination, tmp_path: Path
) -> None:
    """Without the fence no process could write to the store until an operator ended the writer."""
    with _member(tmp_path) as (member, _):
        member.ask("begin")
        member.freeze()
        (seen,) = store.processes()
        other = sqlite3.connect(tmp_path / "coordination.db", timeout=0, isolation_level=None)
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            other.execute("BEGIN IMMEDIATE")
        Fence(store.processes, MARGIN_NS, lambda _: None).run_once(seen.expires_ns + MARGIN_NS + 1)
        psutil.Process(seen.pid).wait(LIMIT_S)
        other.execute("BEGIN IMMEDIATE")
        other.close()


def test_a_closed_store_raises_its_error(store: EmbeddedCoordination) -> None:
    store.close()
    with pytest.raises(TransientError):
        Fence(store.processes, MARGIN_NS, lambda _: None).run_once(0)
