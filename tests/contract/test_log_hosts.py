"""A log on another host: over the wire it reads, is listed and goes as on the disk, and a host that is away is no empty
one.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bookkeeper.errors import (
    HostAwayError,
    InvalidInputError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    is_away,
    unavailable,
)
from bookkeeper.log_homes import host_logs
from bookkeeper.log_homes.log_volume import LogVolume
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.volume.names import log_directory
from bookkeeper.storage.volume.remote_source import HEAD_BYTES, WINDOW_BYTES, RemoteSource
from bookkeeper.storage.wal.reading.wal_recovery import delete_log
from bookkeeper.tserver.replicas import served_logs
from tests.support.faults import fault
from tests.support.host_logs import ON_HOSTS, another_host, logs_of
from tests.support.must_raise import must_raise
from tests.support.tservers import Ground, LocalNode, ground

OLD = "wal/tserver-9-0a/000001.wal"
"""A log of an earlier session of the host."""


class Far:
    """A host with logs, its disk, and the Volume of a process elsewhere."""

    def __init__(self, west: Ground, directory: Path) -> None:
        self.west = west
        self.settings = another_host(west, directory)
        self.node: LocalNode = west.local(settings=self.settings)
        self.disk = LocalVolume(self.settings.replicas_dir)
        self.volume: LogVolume = logs_of(west)
        host = self.node.process.session
        info = next(s for s in west.coordination.sessions("tserver") if s.session_id == host.session_id)
        assert info.host is not None
        self.incarnation = info.host.incarnation
        self.node.process._homes.put("tserver-9-0a", self.node.process._session_logs.home)  # type: ignore[arg-type]

    def mark(self, name: str) -> None:
        """Nothing needs a log: the collector notes it."""
        self.west.metadata.put([RowPut(keys.del_row(name), {keys.DEL: values.EMPTY})], keys.ONCE_RANK)

    def away(self) -> None:
        """The process of the host ends."""
        self.node.crash()


@pytest.fixture
def far(tmp_path: Path) -> Iterator[Far]:
    with ground(tmp_path / "west", ON_HOSTS) as west:
        yield Far(west, tmp_path)


def test_a_session_has_its_logs_where_its_home_says(far: Far) -> None:
    directory = log_directory(far.node.session_id)
    (log,) = far.disk.list_names(f"{directory}/")
    assert list(far.west.volume.entries(directory)) == []
    assert far.volume.list_names(f"{directory}/") == list(far.volume.entries(directory)) == [log]
    assert far.node.session_id in far.volume.list_directories("wal")


def test_bytes_are_those_of_the_disk(far: Far) -> None:
    content = random.Random(1).randbytes(5 * WINDOW_BYTES + 77)
    far.disk.create(OLD, [content]).close()
    source = far.volume.open(OLD)
    assert source.size == far.volume.size(OLD) == len(content)
    rng = random.Random(2)
    for length in (1, 100, WINDOW_BYTES, 4 * WINDOW_BYTES, 5 * WINDOW_BYTES, len(content)):
        position = rng.randrange(len(content) - length + 1)
        assert bytes(source.read(position, length)) == content[position : position + length]
        assert far.volume.read_range(OLD, position, length) == content[position : position + length]
    assert far.volume.read_range(OLD, len(content) - 3, 9) == content[-3:]
    assert far.volume.read(OLD, 5) == content[:5]


def test_a_reader_of_the_end_of_a_log_brings_little_of_its_beginning(far: Far) -> None:
    content = random.Random(1).randbytes(5 * WINDOW_BYTES)
    far.disk.create(OLD, [content]).close()
    source = far.volume.open(OLD)
    assert isinstance(source, RemoteSource)
    brought = [source.window.size]
    fetch = source.fetch

    def counted(position: int, length: int) -> pa.Buffer:
        brought.append(length)
        return fetch(position, length)

    source.fetch = counted
    assert bytes(source.read(0, 100)) == content[:100]
    assert bytes(source.read(len(content) - 300, 300)) == content[-300:]
    assert brought == [HEAD_BYTES, 300]


def test_a_file_that_is_not_there_is_not_there(far: Far) -> None:
    with pytest.raises(NotFoundError, match="host host2 has no log"):
        far.volume.open(OLD)
    assert far.volume.read(OLD + ".seal", 9) is None
    assert not far.volume.exists(OLD)
    assert not far.volume.is_fenced(OLD)
    with pytest.raises(FileNotFoundError):
        far.volume.size(OLD)
    with pytest.raises(FileNotFoundError):
        far.volume.read_range(OLD, 0, 1)


def test_a_log_goes_with_the_files_beside_it_and_no_other(far: Far) -> None:
    other = "wal/tserver-9-0a/000002.wal"
    for name in (OLD, OLD + ".seal", OLD + ".fence", other):
        far.disk.create(name, [b""]).close()
    assert far.volume.is_fenced(OLD)
    far.mark(OLD)
    delete_log(far.volume, OLD)
    assert far.disk.list_names("wal/tserver-9-0a/") == [other]


def test_a_deletion_of_many_files_is_one_call_for_each_part(far: Far, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [OLD, *(f"{OLD}.{number}.copy" for number in range(4))]
    for name in names:
        far.disk.create(name, [b""]).close()
    far.mark(OLD)
    for module in (served_logs, host_logs):
        monkeypatch.setattr(module, "LOG_DROPS_MAX", 2)
    with must_raise(InvalidInputError, "a list of any length is read", match="at most 2 in one call"):
        far.west.tserver(far.node).drop_logs(far.incarnation, names)
    delete_log(far.volume, OLD)
    assert far.disk.list_names("wal/tserver-9-0a/") == []


def test_r17_a_host_deletes_only_logs_that_the_books_mark(far: Far) -> None:
    for name in (OLD, OLD + ".seal"):
        far.disk.create(name, [b""]).close()
    (own,) = far.disk.list_names(f"{log_directory(far.node.session_id)}/")
    tserver = far.west.tserver(far.node)
    far.mark("wal/tserver-9-0a/000002.wal")
    for name in (OLD, OLD + ".seal", own):
        with must_raise(RefusedError, f"{name} is deleted, and a tablet may need it", match="no mark"):
            tserver.drop_logs(far.incarnation, ["wal/tserver-9-0a/000002.wal", name])
    far.mark(OLD)
    tserver.drop_logs(far.incarnation, [OLD, OLD + ".seal"])
    tserver.drop_logs(far.incarnation, [OLD])
    assert not far.disk.exists(OLD)
    assert far.disk.exists(own)


def test_the_red_twin_of_logs_without_a_mark(far: Far) -> None:
    with fault("unmarked-logs-go"), pytest.raises(AssertionError, match="is deleted, and a tablet may need it"):
        test_r17_a_host_deletes_only_logs_that_the_books_mark(far)


def test_r15_the_log_of_a_session_that_runs_gets_no_seal(far: Far) -> None:
    (own,) = far.disk.list_names(f"{log_directory(far.node.session_id)}/")
    tserver = far.west.tserver(far.node)
    with must_raise(RefusedError, "the log of a living session is sealed", match="is alive and writes its logs itself"):
        tserver.seal_log(far.incarnation, own, False, 0)
    assert far.disk.list_names(f"{log_directory(far.node.session_id)}/") == [own], "it is fenced, and its session ends"


def test_the_red_twin_of_a_living_session(far: Far) -> None:
    far.node.may_die = True  # it finds the fence
    with fault("living-logs-are-sealed"), pytest.raises(AssertionError, match="the log of a living session is sealed"):
        test_r15_the_log_of_a_session_that_runs_gets_no_seal(far)


def test_nothing_is_made_for_a_log_that_is_not_there(far: Far) -> None:
    far.disk.create(OLD + ".seal", [b""]).close()
    tserver = far.west.tserver(far.node)
    with must_raise(NotFoundError, "a fence is made for any name", match="there is no log"):
        tserver.seal_log(far.incarnation, OLD, False, 0)
    with must_raise(InvalidInputError, "a file beside a log is sealed", match="lies beside one"):
        tserver.seal_log(far.incarnation, OLD + ".seal", False, 0)
    assert far.disk.list_names("wal/tserver-9-0a/") == [OLD + ".seal"]


def test_a_listing_is_complete_however_long(far: Far) -> None:
    names = [f"wal/tserver-9-0a/{number:06d}.wal" for number in range(1, 8)]
    for name in names:
        far.disk.create(name, [b""]).close()
    for page in (1, 2, 7, 8):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(served_logs, "LOG_NAMES_MAX", page)
            assert far.volume.list_names("wal/tserver-9-0a/") == names


def test_a_host_that_is_away_is_no_host_without_logs(far: Far) -> None:
    far.disk.create(OLD, [b"head"]).close()
    far.away()
    words = f"log {OLD} lies on host host2, which is away: start it"
    with must_raise(UnavailableError, "a log that can't be reached is taken for a missing one", match=words) as raised:
        far.volume.open(OLD)
    assert is_away(raised.value)
    for act in (
        lambda: far.volume.exists(OLD),
        lambda: far.volume.size(OLD),
        lambda: far.volume.list_names("wal/tserver-9-0a/"),
        lambda: list(far.volume.entries("wal/tserver-9-0a")),
        lambda: far.volume.delete([OLD]),
    ):
        with must_raise(HostAwayError, "a host that is away looks like an empty one") as failed:
            act()
        assert is_away(unavailable("it can't be done", failed.value))
    assert far.disk.exists(OLD)


def test_another_disk_has_none_of_the_logs_and_says_so(far: Far) -> None:
    far.disk.create(OLD, [b"head"]).close()
    tserver = far.west.tserver(far.node)
    with must_raise(RefusedError, "a replaced disk passes for the one with the logs", match="was meant"):
        tserver.list_logs("another", "wal/", "")
    far.away()
    shutil.rmtree(far.settings.replicas_dir)
    far.node = far.west.local(settings=far.settings)
    with must_raise(UnavailableError, "a replaced disk passes for the one with the logs", match="bring the disk back"):
        far.volume.open(OLD)


def test_the_red_twin_of_another_disk(far: Far) -> None:
    with fault("any-disk-serves-logs"), pytest.raises(AssertionError, match="a replaced disk passes"):
        test_another_disk_has_none_of_the_logs_and_says_so(far)


def test_only_logs_are_served(far: Far) -> None:
    tserver = far.west.tserver(far.node)
    for name in ("tables/1/t-0001/a", "incarnation", "wal/tserver-9-0a/../../incarnation", "wal/tserver-9-0a/x"):
        with must_raise(InvalidInputError, f"{name} of a host's disk is read"):
            tserver.read_log(far.incarnation, name, 0, 10)
        with must_raise(InvalidInputError, f"{name} of a host's disk is deleted"):
            tserver.drop_logs(far.incarnation, [name])
    for prefix in ("tables/", "wal/../tables/", "wal/../../secrets/", "wal//", "wal/\0/", f"wal/{'a' * 5_000}/"):
        with must_raise(InvalidInputError, f"names below {prefix[:20]!r} are listed as logs"):
            tserver.list_logs(far.incarnation, prefix, "")


def test_another_process_writes_nothing_there(far: Far) -> None:
    far.disk.create(OLD, [b"head"]).close()
    for act in (
        lambda: far.volume.create("wal/tserver-9-0a/000002.wal", [b""]),
        lambda: far.volume.create_once(OLD + ".seal", b""),
        lambda: far.volume.fence(OLD),
        lambda: far.volume.reopen(OLD, 4),
    ):
        with must_raise(OSError, "a process writes on the disk of a host", match="whose process alone writes there"):
            act()
    assert far.disk.list_names("wal/tserver-9-0a/") == [OLD]
