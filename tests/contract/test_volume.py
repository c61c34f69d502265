"""What every Volume promises (``bookkeeper.storage.volume.volume_protocol``)."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.errors import InvalidInputError, NotFoundError, UnavailableError
from bookkeeper.log_homes.host_logs import Hosts
from bookkeeper.log_homes.log_volume import LogVolume, OwnLogs
from bookkeeper.metadata.values import LogHome
from bookkeeper.replay.stream.range_logs import GivenHomes
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.volume.volume_protocol import Volume
from tests.support.must_raise import must_raise

LOG = "wal/tserver-1-0a/000001.wal"


SESSION = LOG.split("/")[1]
HOME = LogHome("host2", "9f3a")


def away(home: LogHome) -> str:
    """No other host answers."""
    raise UnavailableError(f"{home.host} is away")


def never(address: str) -> TServer:
    """No address was found."""
    raise AssertionError(address)


def with_own_logs(directory: Path) -> Volume:
    """The Volume of a process that holds a host with logs."""
    own = OwnLogs(HOME, LocalVolume(directory / "host"))
    return LogVolume(
        LocalVolume(directory / "shared"), GivenHomes({SESSION: HOME}, {}), Hosts(away, never, SystemClock()), own
    )


@pytest.fixture(params=[LocalVolume, with_own_logs], ids=["local", "own logs"])
def volume(request: pytest.FixtureRequest, tmp_path: Path) -> Volume:
    """Each Volume in turn, empty."""
    made: Volume = request.param(tmp_path / "volume")
    return made


def content(volume: Volume, name: str) -> bytes:
    """All bytes of a file."""
    source = volume.open(name)
    return bytes(source.read(0, source.size))


# ---- names


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/etc/hosts",
        "../a",
        "a/../b",
        "a/./b",
        "a//b",
        "a/",
        ".",
        "..",
        "a\0b",
        "\ud800",
        "a" * 256,
        "a/" * 600 + "b",
    ],
)
def test_a_name_leads_to_a_file_of_the_volume_and_nowhere_else(volume: Volume, name: str) -> None:
    for act in (volume.open, volume.exists, volume.fence, lambda name: volume.create(name, [])):
        with must_raise(InvalidInputError, f"{name[:20]!r} is taken for a name", match="is no name of a file"):
            act(name)


# ---- making files


def test_a_file_is_made_once(volume: Volume) -> None:
    volume.create(LOG, [b"head"]).close()
    with pytest.raises(FileExistsError):
        volume.create(LOG, [b"other"])
    assert content(volume, LOG) == b"head"


def test_parts_and_appended_bytes_follow_each_other(volume: Volume) -> None:
    appender = volume.create(LOG, [b"head", pa.py_buffer(b" and more")])
    appender.write([b" one", memoryview(b" two")])
    appender.sync()
    appender.write([b" three"])
    appender.close()
    assert content(volume, LOG) == b"head and more one two three"


def test_what_fails_in_the_parts_reaches_the_caller(volume: Volume) -> None:
    def parts() -> Iterator[bytes]:
        yield b"head"
        raise ArithmeticError

    with pytest.raises(ArithmeticError):
        volume.create(LOG, parts())


def test_a_full_volume_leaves_no_file(volume: Volume) -> None:
    def parts() -> Iterator[bytes]:
        yield b"head"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space"):
        volume.create(LOG, parts())
    assert not volume.exists(LOG), "a file without its head is left"
    volume.create(LOG, []).close()


def test_a_reservation_changes_no_content(volume: Volume) -> None:
    appender = volume.create(LOG, [b"head"])
    assert appender.free_bytes() > 0
    appender.reserve(4, 1 << 20)
    assert volume.open(LOG).size == 4
    appender.write([b" more"])
    appender.sync()
    appender.uncache(9)
    appender.truncate(9)
    appender.close()
    assert content(volume, LOG) == b"head more"


def test_a_closed_file_is_gone_on_with_at_its_end_only(volume: Volume) -> None:
    volume.create(LOG, [b"head"]).close()
    appender = volume.reopen(LOG, 4)
    appender.write([b" more"])
    appender.close()
    with must_raise(
        OSError, "a file that another process wrote to is gone on with", match="9 bytes, and 4 were written"
    ):
        volume.reopen(LOG, 4)
    with pytest.raises(FileNotFoundError):
        volume.reopen("wal/none", 0)


def test_the_first_content_of_a_small_file_stays(volume: Volume) -> None:
    volume.create(LOG, []).close()
    for attempt in (b"first", b"second"):
        volume.create_once(LOG + ".seal", attempt)
    assert volume.read(LOG + ".seal", 100) == b"first"
    assert volume.list_names(LOG) == [LOG, LOG + ".seal"], "a temporary file is left"


# ---- reading


def test_a_source_has_the_bytes_of_the_time_when_it_was_opened(volume: Volume) -> None:
    appender = volume.create(LOG, [b"head"])
    before = volume.open(LOG)
    appender.write([b" more"])
    appender.close()
    assert before.size == 4
    assert bytes(volume.open(LOG).read(5, 4)) == b"more"


def test_files_that_are_not_there_are_not_there(volume: Volume) -> None:
    with pytest.raises(NotFoundError):
        volume.open(LOG)
    assert volume.read(LOG, 10) is None
    assert not volume.exists(LOG)
    assert volume.list_names("wal/") == []


def test_what_can_not_be_read_is_unavailable(tmp_path: Path) -> None:
    volume = LocalVolume(tmp_path)
    volume.create(f"{LOG}.segments/1", [b"0"]).close()
    with pytest.raises(UnavailableError, match="can't be read"):
        volume.read(f"{LOG}.segments", 4)


def test_a_small_read_is_bounded(volume: Volume) -> None:
    volume.create(LOG, [b"0123456789"]).close()
    assert volume.read(LOG, 4) == b"0123"
    assert volume.read(LOG, 40) == b"0123456789"


def test_the_durable_content_is_what_was_synced(volume: Volume) -> None:
    appender = volume.create(LOG, [b"head"])
    appender.write([b"x" * 5000])
    appender.sync()
    with volume.open_durable(LOG) as source:
        assert source.size == 5004
        assert bytes(source.read(2, 5)) == b"adxxx"
    appender.close()


# ---- files that are built elsewhere

SEGMENT = "tables/1/t-0000/0000000001-ab.parquet"


def build(volume: Volume, name: str, written: bytes) -> None:
    """A complete scratch file."""
    volume.scratch(name).path.write_bytes(written)


def test_a_scratch_file_has_its_name_only_when_it_is_published(volume: Volume) -> None:
    build(volume, SEGMENT, b"content")
    assert not volume.exists(SEGMENT), "a reader sees a file that may be incomplete"
    volume.publish([SEGMENT])
    assert content(volume, SEGMENT) == b"content"
    assert volume.list_names("") == [SEGMENT], "its scratch file is left"


def test_several_files_are_published_together(volume: Volume) -> None:
    names = [SEGMENT, "tables/1/t-0001/2.parquet"]
    for name in names:
        build(volume, name, name.encode())
    volume.publish(names)
    assert [content(volume, name) for name in names] == [name.encode() for name in names]


def test_two_writers_of_a_file_do_not_meet(volume: Volume) -> None:
    for writer in ("h1", "h2"):
        volume.scratch(SEGMENT, writer).path.write_bytes(b"content")
    volume.scratch(SEGMENT, "h2").path.write_bytes(b"con")
    volume.publish([SEGMENT], "h1")
    assert content(volume, SEGMENT) == b"content", "one writer publishes what the other has not finished"
    volume.scratch(SEGMENT, "h2").path.write_bytes(b"content")
    volume.publish([SEGMENT], "h2")
    assert content(volume, SEGMENT) == b"content"
    assert volume.list_names("") == [SEGMENT], "a scratch file is left"


def test_what_is_discarded_is_gone_published_or_not(volume: Volume) -> None:
    build(volume, SEGMENT, b"content")
    volume.discard([SEGMENT])
    assert volume.list_names("") == []
    with pytest.raises(FileNotFoundError):
        volume.publish([SEGMENT])
    build(volume, SEGMENT, b"content")
    volume.publish([SEGMENT])
    for _ in range(2):
        volume.discard([SEGMENT])
        assert volume.list_names("") == []


def test_a_range_of_a_file_is_read(volume: Volume) -> None:
    volume.create(SEGMENT, [b"0123456789"]).close()
    assert volume.size(SEGMENT) == 10
    assert volume.read_range(SEGMENT, 2, 3) == b"234"
    assert volume.read_range(SEGMENT, 8, 9) == b"89", "a truncated file is not noticed"
    for act in (volume.size, lambda name: volume.read_range(name, 0, 1)):
        with pytest.raises(FileNotFoundError):
            act("tables/none")


# ---- fences


def test_a_fence_is_seen_by_the_writer_and_stays(volume: Volume) -> None:
    appender = volume.create(LOG, [b"head"])
    assert not volume.is_fenced(LOG)
    appender.write([b" more"])
    for _ in range(2):
        volume.fence(LOG)
        assert volume.is_fenced(LOG), "a late writer acknowledges what nobody counts"
    assert not volume.is_fenced("wal/tserver-1-0a/000002.wal"), "the fence of one file stops another"
    appender.close()
    assert content(volume, LOG) == b"head more"


def test_a_missing_file_is_not_fenced(volume: Volume) -> None:
    with pytest.raises(FileNotFoundError):
        volume.fence(LOG)
    assert not volume.is_fenced(LOG)


# ---- listing and deleting


def test_a_list_has_every_name_with_the_prefix_and_no_other(volume: Volume) -> None:
    names = ["tables/1/a", "wal/a/1.wal", "wal/a/1.wal.seal", "wal/a/10.wal", "wal/ab/1.wal", "wal/b"]
    for name in names:
        volume.create(name, [b""]).close()
    assert volume.list_names("") == names
    assert volume.list_names("wal/a") == names[1:5]
    assert volume.list_names("wal/a/") == names[1:4]
    assert volume.list_names("wal/a/1.wal") == names[1:3]
    assert volume.list_names("none/") == []


def test_the_directories_and_the_files_right_below_a_name_are_listed_apart(volume: Volume) -> None:
    for name in ("tables/1/t-0001/a", "tables/1/t-0001/b", "tables/10/t-0001/c", "tables/d", "wal/s/1.wal"):
        volume.create(name, [b""]).close()
    assert volume.list_directories("tables") == ["1", "10"]
    assert volume.list_directories("tables/1/t-0001") == volume.list_directories("none") == []
    assert sorted(volume.entries("tables/1/t-0001")) == ["tables/1/t-0001/a", "tables/1/t-0001/b"]
    assert list(volume.entries("tables")) == ["tables/d"]
    assert list(volume.entries("none")) == []


def test_a_tree_is_removed_and_its_neighbours_stay(volume: Volume) -> None:
    for name in ("tables/1/import-a/x/1", "tables/1/import-a/2", "tables/1/import-ab/3"):
        volume.create(name, [b""]).close()
    for _ in range(2):
        volume.remove_tree("tables/1/import-a")
        assert volume.list_names("") == ["tables/1/import-ab/3"]
    assert volume.list_directories("tables/1") == ["import-ab"]


def test_a_directory_with_files_is_not_pruned(volume: Volume) -> None:
    volume.create(LOG, [b""]).close()
    session = LOG.rpartition("/")[0]
    volume.prune(session)
    assert volume.list_names("") == [LOG], "a log goes with its directory"
    volume.delete([LOG])
    for _ in range(2):
        volume.prune(session)
        assert volume.list_directories("wal") == ([SESSION] if isinstance(volume, LogVolume) else [])
        assert volume.list_names("") == []


def test_the_first_file_of_a_directory_may_be_made_at_once(volume: Volume) -> None:
    volume.create_once("tables/1/import-a/manifest.json", b"{}")
    assert content(volume, "tables/1/import-a/manifest.json") == b"{}"


def test_deleting_again_changes_nothing(volume: Volume) -> None:
    volume.create(LOG, [b""]).close()
    volume.create("wal/other", [b""]).close()
    for _ in range(2):
        volume.delete([LOG, LOG + ".seal"])
        assert volume.list_names("") == ["wal/other"]


def test_an_open_source_outlives_its_name(volume: Volume) -> None:
    volume.create(LOG, [b"head"]).close()
    source = volume.open(LOG)
    volume.delete([LOG])
    assert bytes(source.read(0, 4)) == b"head"


class OpenDoors(LocalVolume):
    """Breaks a promise: it knows no fence."""

    def is_fenced(self, name: str) -> bool:
        super().is_fenced(name)
        return False


class Sweeping(LocalVolume):
    """Breaks a promise: it removes a directory with its files."""

    def prune(self, directory: str) -> None:
        self.remove_tree(directory)


def test_a_volume_that_prunes_files_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a log goes with its directory"):
        test_a_directory_with_files_is_not_pruned(Sweeping(tmp_path))


def test_a_volume_without_fences_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="a late writer acknowledges"):
        test_a_fence_is_seen_by_the_writer_and_stays(OpenDoors(tmp_path))
