"""The lease of a session: its record, the decision whether the session is alive, and an interrupted renewal."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.clock import SystemClock
from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.embedded import EmbeddedCoordination, process_started
from bookkeeper.coordination.embedded_session import EmbeddedSession
from bookkeeper.coordination.host_leases import HostLeases, own_token
from bookkeeper.coordination.lease import (
    RECORD_BYTES,
    RECORD_BYTES_MAX,
    TOKEN_VARIABLE,
    LeaseRecord,
    LeaseState,
    is_dead,
    is_token,
)
from bookkeeper.coordination.lease_file import read_lease
from bookkeeper.errors import CorruptionError, UnavailableError
from bookkeeper.runtime.process_exit import EXIT_CODE
from tests.support.coordination_process import CoordinationProcess
from tests.support.faults import fault

BOOT = "0b7b6a56-6c5e-4b43-9b53-3c4f6a1d2e3f"
SECOND = 10**9
SETTINGS = CoordinationSettings(session_lease_ms=3_600_000, session_renew_ms=1_000_000, session_margin_ms=1_000)
HOUR = 3600 * SECOND


class StepClock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_ns = 1_000 * SECOND

    def wall_ms(self) -> int:
        return self.now_ns // 1_000_000

    def boot_ns(self) -> int:
        return self.now_ns

    def wait(self, event: threading.Event, timeout_ms: float) -> bool:
        return event.wait(timeout_ms / 1000)


TOKEN = "0123456789abcdef" * 2


@given(st.integers(0, 2**63 - 1), st.sampled_from(["", TOKEN]))
def test_a_record_reads_back(expires_ns: int, token: str) -> None:
    record = LeaseRecord(BOOT, expires_ns, token)
    assert LeaseRecord.decode(record.encode()) == record


@given(st.sampled_from([("", RECORD_BYTES), (TOKEN, RECORD_BYTES_MAX)]), st.integers(0, 99), st.integers(1, 255))
def test_a_record_with_any_byte_changed_or_cut_does_not_parse(record: tuple[str, int], at: int, change: int) -> None:
    token, size = record
    raw = bytearray(LeaseRecord(BOOT, 123456789, token).encode())
    assert len(raw) == size
    at %= size
    with pytest.raises(CorruptionError):
        LeaseRecord.decode(bytes(raw[:at]))
    raw[at] ^= change
    with pytest.raises(CorruptionError):
        LeaseRecord.decode(bytes(raw))


@pytest.mark.parametrize("token", [TOKEN.upper(), TOKEN[:-1], TOKEN + "0", f"{TOKEN[:-1]} "])
def test_a_record_with_another_text_than_a_token_does_not_parse(token: str) -> None:
    assert not is_token(token)
    with pytest.raises(CorruptionError):
        LeaseRecord.decode(LeaseRecord(BOOT, 123456789, token).encode())


def test_a_process_takes_the_token_of_its_supervisor_and_leaves_it_to_no_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own_token.cache_clear()
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    try:
        leases = HostLeases(tmp_path, 1_000, SystemClock())
        assert (leases.token, own_token()) == (TOKEN, TOKEN)
        assert TOKEN_VARIABLE not in os.environ
    finally:
        own_token.cache_clear()


@pytest.mark.parametrize("given_token", ["", "a word of somebody"])
def test_a_process_without_a_supervisor_makes_its_own_token(monkeypatch: pytest.MonkeyPatch, given_token: str) -> None:
    own_token.cache_clear()
    monkeypatch.setenv(TOKEN_VARIABLE, given_token)
    try:
        made = own_token()
        assert is_token(made)
        assert own_token() == made
    finally:
        own_token.cache_clear()


@pytest.mark.parametrize("name", ["notes", "a.b.c", "tserver-1-f.1", "tserver-1-f.1.2.3", "tserver-1-f.x.2", "x.1.2~"])
def test_another_file_beside_the_leases_of_a_host_stands_for_no_session(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("somebody else's")
    leases = HostLeases(tmp_path, 1_000, SystemClock())
    own = leases.make("tserver-1-f", SystemClock().boot_ns())
    assert [found.session_id for found in leases.processes()] == ["tserver-1-f"]
    assert leases.abandoned() == []
    own.remove()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_session_is_dead_when_lease_and_margin_are_over_or_its_process_or_boot_is_gone() -> None:
    alive = LeaseState(LeaseRecord(BOOT, 100), is_locked=True)
    assert not is_dead(alive, BOOT, 110, 10)
    assert is_dead(alive, BOOT, 111, 10)
    assert is_dead(LeaseState(alive.record, is_locked=False), BOOT, 0, 10)
    assert is_dead(alive, "another boot", 0, 10)


def _session_stopped_in_the_middle_of_a_renewal(directory: Path) -> tuple[bool, bool]:
    """Whether other processes and the owner count the session as alive after lease and margin pass in a renewal."""
    clock = StepClock()
    coordination = EmbeddedCoordination(directory, SETTINGS, clock, boot_id=lambda: BOOT)
    session = coordination.open_session("tserver", "h:1")
    assert isinstance(session, EmbeddedSession)
    clock.now_ns += HOUR - 1  # the last moment at which a renewal may begin
    write = session._file.write

    def write_late(before_ns: int) -> None:
        clock.now_ns += 2 * SECOND
        assert not coordination.sessions("tserver")[0].alive
        write(before_ns)

    session._file.write = write_late  # type: ignore[method-assign]
    session._renew()
    verdicts = coordination.sessions("tserver")[0].alive, session.is_valid()
    coordination.close()
    return verdicts


def test_r15_a_renewal_written_after_others_saw_the_lease_run_out_does_not_count(tmp_path: Path) -> None:
    assert _session_stopped_in_the_middle_of_a_renewal(tmp_path) == (False, False)


def test_r15_without_the_check_the_resumed_owner_counts_itself_as_alive(tmp_path: Path) -> None:
    with fault("late-renewal-counts"):
        assert _session_stopped_in_the_middle_of_a_renewal(tmp_path) == (False, True)


def test_r15_without_a_stored_death_a_dead_session_revives(tmp_path: Path) -> None:
    with fault("death-not-written-down"):
        assert _session_stopped_in_the_middle_of_a_renewal(tmp_path) == (True, False)


def _seen_dead_while_valid(directory: Path) -> bool:
    clock = StepClock()
    coordination = EmbeddedCoordination(directory, SETTINGS, clock, boot_id=lambda: BOOT)
    session = coordination.open_session("tserver", "h:1")
    found = False
    for _ in range(40):
        clock.now_ns += HOUR // 30 - SECOND // 60
        found |= session.is_valid() and not coordination.sessions("tserver")[0].alive
    assert not session.is_valid()
    assert not coordination.sessions("tserver")[0].alive
    coordination.close()
    return found


def test_r15_no_owner_counts_as_dead_while_it_may_acknowledge(tmp_path: Path) -> None:
    assert not _seen_dead_while_valid(tmp_path)


def test_r15_without_the_margin_an_owner_does(tmp_path: Path) -> None:
    with fault("no-lease-margin"):
        assert _seen_dead_while_valid(tmp_path)


def test_another_boot_ends_every_session(tmp_path: Path) -> None:
    clock = StepClock()
    first = EmbeddedCoordination(tmp_path, SETTINGS, clock, boot_id=lambda: BOOT)
    leader = first.try_lead(first.open_session("master", "h:1"))
    assert leader is not None
    second = EmbeddedCoordination(tmp_path, SETTINGS, clock, boot_id=lambda: BOOT.replace("0", "1"))
    assert second.leader() is None
    assert not second.sessions("master")[0].alive
    first.close()
    second.close()


def test_r8_without_a_rising_epoch_two_reigns_have_the_same_rank(tmp_path: Path) -> None:
    coordination = EmbeddedCoordination(tmp_path, SETTINGS, StepClock())
    with fault("epoch-starts-again"):
        epochs = []
        for _ in range(2):
            session = coordination.open_session("master", "h:1")
            leader = coordination.try_lead(session)
            assert leader is not None
            epochs.append(leader.epoch)
            session.close()
    assert epochs == [1, 1]
    coordination.close()


def test_a_session_without_a_renewal_is_silent_from_half_of_its_lease_on_and_alive(tmp_path: Path) -> None:
    clock = StepClock()
    coordination = EmbeddedCoordination(tmp_path, SETTINGS, clock, boot_id=lambda: BOOT)
    session = coordination.open_session("tserver", "h:1")
    assert isinstance(session, EmbeddedSession)
    found = []
    for _ in range(3):
        (info,) = coordination.sessions("tserver")
        found.append((info.alive, info.silent_ms))
        clock.now_ns += HOUR // 4
    assert found == [(True, 0), (True, 0), (True, 1_800_000)]
    assert session._renew()
    assert coordination.sessions("tserver")[0].silent_ms == 0
    coordination.close()


def test_an_owner_whose_file_was_removed_gives_up_and_only_then_is_dead(tmp_path: Path) -> None:
    coordination = EmbeddedCoordination(tmp_path, SETTINGS, StepClock())
    session = coordination.open_session("tserver", "h:1")
    assert isinstance(session, EmbeddedSession)
    (tmp_path / "sessions" / session.session_id).unlink()
    assert coordination.sessions("tserver")[0].alive, "its process is there, and may still write"
    assert not session._renew()
    assert not session.is_valid()
    coordination.close()


def test_a_file_that_is_no_lease_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"rubbish")
    with path.open("rb") as locked:
        fcntl.flock(locked, fcntl.LOCK_EX)
        seen = read_lease(path)
        assert seen.damage == f"{path} is damaged: it has no lease record"
        assert not is_dead(seen, "boot", 2**62, 0), "garbage does not make a living process dead"
    assert is_dead(read_lease(path), "boot", 0, 0), "the content does not matter without a process"
    with pytest.raises(FileNotFoundError):
        read_lease(tmp_path / "y")


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Path]:
    """The file of a session of another process, which renews it ten times a second."""
    with CoordinationProcess("embedded", str(tmp_path)) as process:
        yield tmp_path / "sessions" / process.ask("open", "tserver", "127.0.0.1:1")


GARBAGE = [b"", b"rubbish", b"rubbish" * 100]


def _is_repaired(member: Path, garbage: bytes, limit_s: float) -> bool:
    """Whether the file of a living session has its lease again after a write of garbage into it."""
    member.write_bytes(garbage)
    clock, never, began_ns = SystemClock(), threading.Event(), SystemClock().boot_ns()
    while read_lease(member).damage:
        if clock.boot_ns() - began_ns > limit_s * SECOND:
            return False
        clock.wait(never, 20)
    return True


@pytest.mark.parametrize("garbage", GARBAGE)
def test_a_living_process_repairs_its_lease(tmp_path: Path, member: Path, garbage: bytes) -> None:
    coordination = EmbeddedCoordination(tmp_path, SETTINGS)
    assert _is_repaired(member, garbage, 60)
    assert [info.alive for info in coordination.sessions("tserver")] == [True]
    coordination.close()


def test_without_the_comparison_garbage_after_a_lease_stays(member: Path) -> None:
    with fault("lease-not-read"):
        session = EmbeddedSession("own", member.with_name("own"), StepClock(), BOOT, SETTINGS)
        member.with_name("own").write_bytes(b"rubbish" * 100)
        assert session._renew()
        assert read_lease(member.with_name("own")).damage
        session.close()


def test_session_files_without_a_record_are_removed(tmp_path: Path) -> None:
    coordination = EmbeddedCoordination(tmp_path, SETTINGS)
    stray = tmp_path / "sessions" / "tserver-77-deadbeef"
    stray.write_bytes(b"")
    session = coordination.open_session("tserver", "h:1")
    assert [p.name for p in (tmp_path / "sessions").iterdir()] == [session.session_id]
    coordination.close()


def test_a_process_that_is_gone_has_no_start() -> None:
    assert process_started(1)
    assert process_started(2**22 + 1) == ""


def test_a_damaged_store_and_a_closed_one_raise_their_errors(tmp_path: Path) -> None:
    (tmp_path / "coordination.db").write_bytes(b"rubbish" * 1000)
    with pytest.raises(CorruptionError, match=r"coordination\.db"):
        EmbeddedCoordination(tmp_path, SETTINGS)
    coordination = EmbeddedCoordination(tmp_path / "good", SETTINGS)
    coordination.close()
    with pytest.raises(UnavailableError):
        coordination.generation()


def test_a_store_that_can_not_be_created_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UnavailableError, match="can't make"):
        EmbeddedCoordination(tmp_path / "file", SETTINGS)


DYING_LEASE = """
import sys
from pathlib import Path
from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.runtime.process_exit import EXIT_CODE
from bookkeeper.coordination.embedded_session import EmbeddedSession

EmbeddedSession._renew = None
settings = CoordinationSettings(session_lease_ms=300, session_renew_ms=10)
EmbeddedCoordination(Path(sys.argv[1]), settings).open_session("tserver", "h:1")._thread.join()
"""


def test_a_lease_thread_that_dies_takes_its_process_down(tmp_path: Path) -> None:
    command = [sys.executable, "-c", DYING_LEASE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[3], check=False)
    assert done.returncode == EXIT_CODE
    assert "TypeError" in done.stderr
