"""A directory as a peer: its identity, its refusals, the content of its files."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bookkeeper.config.file import new_settings
from bookkeeper.errors import (
    CorruptionError,
    IncompatibleError,
    InvalidInputError,
    RefusedError,
    UnavailableError,
)
from bookkeeper.model import StreamKey
from bookkeeper.peers.parquet import ParquetSystem
from bookkeeper.peers.parquet.file_store import LocalStore, RemoteStore, open_store
from bookkeeper.peers.parquet.layout import check_table, first_run, last_file, parts_of, stream_directory
from bookkeeper.peers.parquet.records import CHANGE_SCHEMA
from bookkeeper.peers.protocol import BlockFacts, InstalledSystem, Message, MessageBlock, Peer, RetryLimits
from bookkeeper.peers.registry import retry_limits
from bookkeeper.security.file_roots import ANYWHERE, FileRoots
from tests.support.directory_peer import DirectoryPeer, remote_twin
from tests.support.directory_senders import DAY_MS, source_block
from tests.support.wal_files import WEST

STREAM = StreamKey(WEST, "w/1.wal", "7", "cities", 2)
NOON_MS = 20_000 * DAY_MS + DAY_MS // 2


@pytest.fixture
def limits(tmp_path: Path) -> RetryLimits:
    return retry_limits(new_settings(tmp_path / "west", "west", instance_id=WEST))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "lake"


def peer(root: Path) -> Peer:
    return Peer("lake", str(root), ParquetSystem(roots=ANYWHERE).prepare(str(root)).instance_id)


def message(*parts: tuple[int, int, int]) -> Message:
    """One block for each (first, size, last)."""
    made = [source_block(first, size, last, NOON_MS) for first, size, last in parts]
    blocks, facts = tuple(part.block for part in made), tuple(part.facts for part in made)
    return Message((WEST,), 0, 0, parts[-1][2], blocks, facts)


def test_it_is_a_replica_system_that_the_master_can_ask() -> None:
    assert isinstance(ParquetSystem(roots=ANYWHERE), InstalledSystem)


def test_a_directory_is_made_and_says_for_ever_who_it_is(root: Path) -> None:
    system = ParquetSystem(roots=ANYWHERE)
    first = system.prepare(str(root))
    assert first.instance_id
    assert system.prepare(str(root)) == system.identify(str(root)) == first
    assert ParquetSystem(opener=remote_twin, roots=ANYWHERE).prepare(str(root)) == first
    assert json.loads((root / "_bookkeeper.json").read_text())["files"] == "runs"
    other = system.prepare(str(root.with_name("other")))
    assert other.instance_id != first.instance_id


def test_of_two_that_make_one_directory_at_once_both_get_the_identity_that_holds(root: Path) -> None:
    other: list[str] = []

    class Late(LocalStore, frozen=True):
        """A store in which another process is faster between the check and the creation."""

        def prepare(self) -> None:
            LocalStore.prepare(self)
            if not other:
                other.append("asked")
                other.append(ParquetSystem(roots=ANYWHERE).prepare(str(root)).instance_id)

    made = ParquetSystem(opener=lambda quorum, roots: Late(Path(quorum), roots=roots), roots=ANYWHERE).prepare(
        str(root)
    )
    assert other[1] == made.instance_id
    assert DirectoryPeer(root).leftovers == []


def test_a_directory_with_something_else_in_it_is_refused(root: Path) -> None:
    root.mkdir()
    (root / "_SUCCESS").touch()
    (root / "photos").mkdir()
    with pytest.raises(RefusedError, match="photos"):
        ParquetSystem(roots=ANYWHERE).prepare(str(root))
    assert not (root / "_bookkeeper.json").exists()


def test_a_directory_that_is_not_mounted_is_unavailable_and_nothing_is_made_in_its_place(
    root: Path, limits: RetryLimits
) -> None:
    lake = peer(root)
    session = ParquetSystem(roots=ANYWHERE).open(lake, STREAM, limits)
    root.rename(root.with_name("away"))
    with pytest.raises(UnavailableError):
        session.ship(message((1, 1, 1)))
    with pytest.raises(UnavailableError, match="not mounted"):
        ParquetSystem(roots=ANYWHERE).open(lake, STREAM, limits)
    assert not root.exists()


def test_a_directory_that_was_replaced_by_an_empty_one_stays_as_it_is_and_the_reason_is_told(
    root: Path, limits: RetryLimits
) -> None:
    lake = peer(root)
    root.rename(root.with_name("away"))
    root.mkdir()
    system = ParquetSystem(roots=ANYWHERE)
    for ask in (lambda: system.identify(str(root)), lambda: system.open(lake, STREAM, limits)):
        with pytest.raises(UnavailableError, match=r"_bookkeeper\.json: the directory is gone, .* or replaced"):
            ask()
    assert list(root.iterdir()) == []
    root.rmdir()
    root.with_name("away").rename(root)
    system.open(lake, STREAM, limits).ship(message((1, 1, 1)))


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff", b'{"format": 1, "files": "x"}', b"[" * 9000])
def test_an_identity_that_does_not_parse_is_damage(root: Path, limits: RetryLimits, content: bytes) -> None:
    lake = peer(root)
    (root / "_bookkeeper.json").write_bytes(content)
    with pytest.raises(CorruptionError, match=r"_bookkeeper\.json"):
        ParquetSystem(roots=ANYWHERE).open(lake, STREAM, limits)


def test_a_newer_format_and_a_weaker_way_there_are_refused(root: Path, limits: RetryLimits) -> None:
    lake = peer(root)
    with pytest.raises(IncompatibleError, match="exclusive"):
        ParquetSystem(opener=remote_twin, roots=ANYWHERE).open(lake, STREAM, limits)
    told = json.loads((root / "_bookkeeper.json").read_text())
    (root / "_bookkeeper.json").write_text(json.dumps(told | {"format": 2}))
    with pytest.raises(IncompatibleError, match="upgrade"):
        ParquetSystem(roots=ANYWHERE).open(lake, STREAM, limits)


def test_a_directory_of_single_blocks_stays_one_wherever_it_is_mounted(root: Path, limits: RetryLimits) -> None:
    made = ParquetSystem(opener=remote_twin, roots=ANYWHERE).prepare(str(root))
    session = ParquetSystem(roots=ANYWHERE).open(Peer("lake", str(root), made.instance_id), STREAM, limits)
    session.ship(message((1, 1, 1), (2, 2, 3)))
    assert len(DirectoryPeer(root).messages) == 2


def test_every_record_says_what_it_was_and_where_it_comes_from(root: Path, limits: RetryLimits) -> None:
    session = ParquetSystem(roots=ANYWHERE).open(peer(root), STREAM, limits)
    session.ship(message((1, 2, 2), (5, 2, 9)))
    (path,) = DirectoryPeer(root).messages
    assert str(path.relative_to(root).parent) == stream_directory(STREAM, "2024-10-04")
    assert path.name == "00000000000000000001.parquet"
    found = pq.ParquetFile(path).read()
    assert found.schema.remove_metadata() == CHANGE_SCHEMA
    assert found.column("row").to_pylist() == [b"000001", b"000002", b"000005", b"000006"]
    assert found.column("_offset").to_pylist() == [1, 2, 5, 6]
    assert found.column("_sequence").to_pylist() == [1, 2, 5, 6]
    first = found.to_pylist()[0]
    assert first["_written"] == datetime.fromtimestamp(NOON_MS / 1000, UTC)
    assert (first["_source"], first["_table_id"], first["_file"], first["_run"]) == (WEST, "7", "w/1.wal", "")
    assert (first["value"], first["timestamp"], first["delete"]) == (b"000001", 1, False)


def test_records_that_were_filtered_keep_the_places_of_the_others(root: Path, limits: RetryLimits) -> None:
    whole = message((1, 4, 4))
    rest = source_block(1, 2, 4, NOON_MS).block
    facts = BlockFacts(NOON_MS, 100, pa.array([1, 3], pa.uint64()))
    session = ParquetSystem(roots=ANYWHERE).open(peer(root), STREAM, limits)
    session.ship(Message(whole.provenance, 0, 0, 4, (rest,), (facts,)))
    found = DirectoryPeer(root).table()
    assert found.column("_offset").to_pylist() == [2, 4]
    assert found.column("_sequence").to_pylist() == [101, 103]


def test_a_sender_that_tells_no_facts_and_a_block_that_lies_are_refused(root: Path, limits: RetryLimits) -> None:
    told = message((1, 2, 2))
    session = ParquetSystem(roots=ANYWHERE).open(peer(root), STREAM, limits)
    with pytest.raises(IncompatibleError, match="write times"):
        session.ship(Message(told.provenance, 0, 0, 2, told.blocks))
    block = told.blocks[0]
    short = MessageBlock(1, 2, block.records, 3, block.min_row, block.max_row)
    with pytest.raises(CorruptionError, match="announces 3"):
        session.ship(Message(told.provenance, 0, 0, 2, (short,), told.facts))
    assert DirectoryPeer(root).messages == []
    assert DirectoryPeer(root).leftovers == []


def test_a_message_without_a_block_is_nothing_to_write(root: Path, limits: RetryLimits) -> None:
    session = ParquetSystem(roots=ANYWHERE).open(peer(root), STREAM, limits)
    assert session.ship(Message((WEST,), 0, 0, 9, ())).offset == 9
    assert session.ship(Message((WEST,), 0, 9, 12, ())).offset == 12
    assert DirectoryPeer(root).messages == []


@pytest.mark.parametrize("damage", ["garbage", "moved", "foreign"])
def test_a_file_that_is_not_what_its_name_says_is_damage(root: Path, limits: RetryLimits, damage: str) -> None:
    lake = peer(root)
    ParquetSystem(roots=ANYWHERE).open(lake, STREAM, limits).ship(message((1, 2, 2)))
    (path,) = DirectoryPeer(root).messages
    if damage == "garbage":
        path.write_bytes(b"PAR1 and no more")
    elif damage == "foreign":
        pq.write_table(pa.table({"a": [1]}), path)
    else:
        other = StreamKey(WEST, "w/2.wal", "7", "cities", 2)
        (root / stream_directory(other, "2024-10-04")).mkdir(parents=True)
        path.rename(root / stream_directory(other, "2024-10-04") / path.name)
        with pytest.raises(CorruptionError, match="was it moved"):
            ParquetSystem(roots=ANYWHERE).open(lake, other, limits).ship(message((1, 2, 2)))
        return
    with pytest.raises(CorruptionError, match=path.name):
        ParquetSystem(roots=ANYWHERE).open(lake, STREAM, limits).ship(message((1, 2, 2)))


def test_files_that_are_not_ours_are_passed_over(root: Path, limits: RetryLimits) -> None:
    assert last_file(["x.parquet", "00000000000000000007.parquet", "9.parquet", "_SUCCESS"]) == (
        "00000000000000000007.parquet"
    )
    session = ParquetSystem(roots=ANYWHERE).open(peer(root), STREAM, limits)
    directory = root / stream_directory(STREAM, "2024-10-04")
    directory.mkdir(parents=True)
    (directory / "notes.txt").touch()
    assert session.ship(message((1, 2, 2))).applied == 2


def test_what_crashes_left_is_swept_when_a_stream_is_over_and_it_is_old(root: Path) -> None:
    class LaterClock:
        """Hours ahead."""

        def wall_ms(self) -> int:
            return int(datetime.now(UTC).timestamp() * 1000) + 3 * 3_600_000

    lake = peer(root)
    (root / "_unfinished" / "x.tmp").touch()
    ParquetSystem(roots=ANYWHERE).stream_done(lake, [STREAM])
    assert len(DirectoryPeer(root).leftovers) == 1
    for opener in (open_store, remote_twin):
        (root / "_unfinished" / "x.tmp").touch()
        ParquetSystem(clock=LaterClock(), opener=opener, roots=ANYWHERE).stream_done(lake, [STREAM])  # type: ignore[arg-type]
        assert DirectoryPeer(root).leftovers == []


@pytest.mark.parametrize("name", ["cities", "a.b-c_d", "_x", "9"])
def test_a_table_is_a_part_of_a_path(root: Path, name: str) -> None:
    assert ParquetSystem(roots=ANYWHERE).resolve_table(peer(root), name) == name


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden", "a=b", "ü", "x" * 300, "a b", "a\n"])
def test_a_name_that_can_not_be_one_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="--remote-table"):
        check_table(name)


def test_quorums_are_paths_or_uris(tmp_path: Path) -> None:
    roots = FileRoots((Path("/"),), ("mock:///a", "nowhere://x"))
    assert isinstance(open_store(str(tmp_path), roots), LocalStore)
    local = open_store(tmp_path.as_uri(), roots)
    assert isinstance(local, LocalStore)
    assert local.root == tmp_path
    assert isinstance(open_store("mock:///a/b", roots), RemoteStore)
    for wrong in ("relative/path", "nowhere://x/y", "", "lake"):
        with pytest.raises(InvalidInputError, match="names no directory"):
            open_store(wrong, roots)


def test_a_directory_below_no_root_is_refused_when_it_is_opened(
    root: Path, limits: RetryLimits, tmp_path: Path
) -> None:
    with pytest.raises(RefusedError, match="there is none"):
        ParquetSystem().prepare(str(root))
    assert not root.exists()
    system = ParquetSystem(roots=FileRoots((root.parent / "open",)))
    for wrong in (root, root.parent / "open" / ".." / "lake"):
        with pytest.raises(RefusedError, match="below a directory"):
            system.prepare(str(wrong))
    with pytest.raises(RefusedError, match="below a directory"):
        system.prepare("s3://bucket/lake")
    place = root.parent / "open" / "lake"
    lake = Peer("lake", str(place), system.prepare(str(place)).instance_id)
    session = system.open(lake, STREAM, limits)
    session.ship(message((1, 2, 2)))
    moved = tmp_path / "moved"
    place.rename(moved)
    place.symlink_to(moved)
    before = sorted(moved.rglob("*"))
    for use in (lambda: session.ship(message((3, 4, 4))), lambda: system.open(lake, STREAM, limits)):
        with pytest.raises(RefusedError, match="below a directory"):
            use()
    assert sorted(moved.rglob("*")) == before


def test_files_are_as_open_as_their_directory(root: Path, limits: RetryLimits) -> None:
    lake = peer(root)
    root.chmod(0o750)
    ParquetSystem(roots=ANYWHERE).open(lake, STREAM, limits).ship(message((1, 2, 2)))
    (file,) = DirectoryPeer(root).messages
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert {stat.S_IMODE(place.stat().st_mode) for place in file.parents if root in place.parents} == {0o750}


def test_a_full_disk_leaves_no_part_and_is_tried_again(root: Path, limits: RetryLimits) -> None:
    lake = peer(root)
    session = ParquetSystem(roots=ANYWHERE).open(lake, STREAM, limits)
    (root / "_unfinished").rename(root / "_gone")
    with pytest.raises(UnavailableError, match="can't be written"):
        session.ship(message((1, 2, 2)))
    (root / "_gone").rename(root / "_unfinished")
    assert session.ship(message((1, 2, 2))).applied == 2


def test_runs_end_with_the_day_or_with_the_block() -> None:
    days = [0, 0, 1, 0]
    made = [source_block(n, 1, n, day * DAY_MS) for n, day in enumerate(days, start=1)]
    told = Message((WEST,), 0, 0, 9, tuple(p.block for p in made), tuple(p.facts for p in made))
    parts = parts_of(told)
    assert [first_run(parts[n:], 9, one_block=False).to_offset for n in range(4)] == [2, 2, 3, 9]
    assert [first_run(parts[n:], 9, one_block=True).to_offset for n in range(4)] == [1, 2, 3, 4]
    assert first_run(parts, 9, one_block=False).day == "1970-01-01"
