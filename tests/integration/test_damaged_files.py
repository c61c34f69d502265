"""A cluster that was killed, and one of its files damaged, is started again: the file is named, the rest is served.

The directory is that of a cluster whose processes were all killed: table ``kept`` is in segments, ``logged`` in a log
without a seal. After each kind of damage to each kind of file its users get right data or an error, never wrong data.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from bookkeeper.client import Client, tablet_extents
from bookkeeper.client import scanner as scanner_module
from bookkeeper.clock import SystemClock
from bookkeeper.config.file import SETTINGS_FILE, load_settings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import BookkeeperError, CorruptionError, NotServingError
from bookkeeper.standalone.directory import complete_cluster
from bookkeeper.tserver.process import TServerProcess
from shell.failures import ExitCode
from tests.support.books import books_of
from tests.support.local_pair import HASTE, local_cluster
from tests.support.masters import LocalMaster
from tests.support.shell import quick

pytestmark = pytest.mark.integration

Damage = Callable[[bytes], bytes]
ROWS = {b"%c%02d" % (letter, number): b"v%d" % number for letter in b"az" for number in range(20)}
SCAN_MS = 30_000.0


class Remains:
    """The killed cluster: ``home`` was its directory, and gets a whole copy of it again."""

    def __init__(self, home: Path, saved: Path) -> None:
        self.home, self._saved = home, saved

    def lay_out(self) -> None:
        shutil.rmtree(self.home, ignore_errors=True)
        shutil.copytree(self._saved, self.home)

    def file(self, pattern: str) -> Path:
        return sorted(self.home.glob(pattern))[0]

    @contextmanager
    def started(self) -> Iterator[Client]:
        """As ``standalone`` starts it, inside the test. Raises what the checks before the start raise."""
        settings = load_settings(self.home)
        complete_cluster(settings)
        with ExitStack() as stack:
            coordination, metadata = open_coordination(settings), books_of(settings)
            stack.callback(coordination.close)
            stack.callback(metadata.close)
            stack.enter_context(LocalMaster(settings))
            died: list[str] = []
            tserver = TServerProcess(settings, coordination, metadata, SystemClock(), died.append)
            tserver.start()
            stack.callback(tserver.stop)
            yield stack.enter_context(Client.connect(self.home))
            assert not died


@pytest.fixture(scope="module")
def remains(tmp_path_factory: pytest.TempPathFactory) -> Remains:
    place = tmp_path_factory.mktemp("killed")
    with local_cluster(place / "west", HASTE) as cluster:
        for table in ("kept", "logged"):
            cluster.client.tables.create(table, [b"m"])
            for row, value in ROWS.items():
                cluster.put(table, row, value)
            if table == "kept":
                cluster.client.tables.flush("kept")
        cluster.master.stop()  # a copy of books in which it writes may be of two moments
        shutil.copytree(place / "west", place / "saved", ignore=shutil.ignore_patterns("*-shm"))
    return Remains(place / "west", place / "saved")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanner_module, "BUDGET_MS", SCAN_MS)
    monkeypatch.setattr(tablet_extents, "UNSERVABLE_MS", 200)


def read(client: Client, table: str, start: bytes | None = None, stop: bytes | None = None) -> dict[bytes, bytes]:
    return {cell.row: cell.value for cell in client.scan(table, start, stop).cells()}


def flipped(raw: bytes) -> bytes:
    """One bit: of a settings file in its first section's bracket, for in a comment it changes nothing."""
    at = raw.find(b"[instance]") if b"[instance]" in raw else len(raw) // 2
    return raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :]


DAMAGE: dict[str, Damage] = {
    "a bit": flipped,
    "zeros": lambda raw: bytes(len(raw)),
    "zeros in the middle": lambda raw: raw[: len(raw) // 3] + bytes(len(raw) // 3) + raw[2 * (len(raw) // 3) :],
    "nothing": lambda raw: b"",  # noqa: ARG005
    "foreign": lambda raw: b"PK\x03\x04 another program's file " * (len(raw) // 20 + 1),
}


def test_undamaged_everything_is_there(remains: Remains) -> None:
    remains.lay_out()
    with remains.started() as client:
        for table in ("kept", "logged"):
            assert wait_for(partial(read, client, table)) == ROWS


def wait_for(act: Callable[[], dict[bytes, bytes]]) -> dict[bytes, bytes]:
    """Until tablets are placed."""
    for _ in range(40):
        try:
            return act()
        except NotServingError as error:
            last = error
    raise last


@pytest.mark.parametrize("damage", ["a bit", "zeros", "nothing"])
def test_a_damaged_log_is_named_and_nothing_of_it_is_cut_off(remains: Remains, damage: str) -> None:
    remains.lay_out()
    log = remains.file("wal/*/*.wal")
    raw = DAMAGE[damage](log.read_bytes())
    log.write_bytes(raw)
    said = r"000001\.wal is damaged at byte .*; restore the file, or give up"
    with remains.started() as client:
        assert wait_for(partial(read, client, "kept")) == ROWS, "the log has nothing of it"
        with pytest.raises(CorruptionError, match=said):
            read(client, "logged")
    assert log.read_bytes() == raw
    assert not log.with_name(f"{log.name}.seal").exists(), "the end of the log is not decided yet"


def test_a_log_that_is_gone_is_named_and_other_tables_are_served(remains: Remains) -> None:
    remains.lay_out()
    remains.file("wal/*/*.wal").unlink()
    with remains.started() as client:
        assert wait_for(partial(read, client, "kept")) == ROWS
        with pytest.raises(CorruptionError, match=r"000001\.wal is needed for recovery and does not exist: restore"):
            read(client, "logged")


@pytest.mark.parametrize("damage", ["a bit", "foreign", "gone"])
def test_a_damaged_segment_is_named_and_all_else_is_served(remains: Remains, damage: str) -> None:
    remains.lay_out()
    segment = remains.file("tables/*/*/*.parquet")
    if damage == "gone":
        segment.unlink()
    else:
        segment.write_bytes(DAMAGE[damage](segment.read_bytes()))
    with remains.started() as client:
        assert wait_for(partial(read, client, "logged")) == ROWS
        with pytest.raises(CorruptionError, match=f"segment .*{segment.name} is corrupt: .*; restore the file"):
            read(client, "kept")
        halves = [(None, b"m\x00"), (b"m\x00", None)]
        found = [attempt(partial(read, client, "kept", *half)) for half in halves]
        assert sorted(len(rows) for rows in found) == [0, 20], "the other tablet is served"


def attempt(act: Callable[[], dict[bytes, bytes]]) -> dict[bytes, bytes]:
    try:
        return act()
    except BookkeeperError:
        return {}


STORES = ("metadata.db", "coordination/coordination.db", SETTINGS_FILE)


@pytest.mark.parametrize("damage", [*DAMAGE, "gone"])
@pytest.mark.parametrize("name", STORES)
def test_a_damaged_store_or_settings_file_keeps_the_cluster_from_starting(
    remains: Remains, name: str, damage: str
) -> None:
    remains.lay_out()
    file = remains.home / name
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(DAMAGE[damage](file.read_bytes()))
    for left in file.parent.glob(f"{file.name}-wal"):
        left.unlink()
    before = {path: path.read_bytes() for path in remains.home.rglob("*") if path.is_file() and "run" not in path.parts}
    with pytest.raises(BookkeeperError):  # first, so that a check that is lacking starts nothing
        complete_cluster(load_settings(remains.home))
    answer = quick("standalone", str(remains.home))
    assert (answer.code, answer.out) == (ExitCode.FAILED, ""), answer
    assert answer.err.startswith("error: ")
    assert answer.err.count("\n") == 1
    assert file.name in answer.err
    for path in remains.home.glob("wal/*/*"):
        assert before[path] == path.read_bytes()
    assert not list((remains.home / "run").glob("*.json")), "no process was started"


def test_a_session_file_that_is_garbage_is_that_of_a_process_that_is_gone(remains: Remains) -> None:
    remains.lay_out()
    for path in remains.home.glob("coordination/sessions/*"):
        path.write_bytes(b"rubbish")
    with remains.started() as client:
        assert wait_for(partial(read, client, "logged")) == ROWS
