"""Tables as files: the refusals and the outcome of exports and imports of tables."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from msgspec.structs import replace

from bookkeeper.bulk.exported_table import Exported
from bookkeeper.config.sections import FilesSettings
from bookkeeper.errors import CorruptionError, ExistsError, InvalidInputError, NotFoundError, RefusedError
from bookkeeper.master.fate.engine import Args
from bookkeeper.master.operations.export import CLAIM, claim, copy_args, copy_name
from bookkeeper.metadata import keys
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.rpc.contract.messages import CopyRequest
from tests.support.exports import BATCH, GROUPS, make_export
from tests.support.faults import fault
from tests.support.hosted_scenes import EXPORT_AGAIN, HOSTED
from tests.support.master_world import Master, World
from tests.support.operation_scenes import Scene
from tests.support.scripted_tserver import scripted
from tests.support.volumes import MACHINE, name_at


@pytest.fixture
def master(world: World) -> Master:
    """The leader of a cluster with one table, ``table-1``."""
    return world.master()


def _args(name: str, directory: Path) -> Args:
    return copy_args(CopyRequest(uuid4().hex, name, str(directory)))


def _run(master: Master, kind: str, args: Args) -> object:
    running = master.fate.submit(kind, args)
    master.run_fate()
    return master.fate.wait(running, 0)


def _nothing_is_left(world: World, master: Master) -> None:
    assert [table.name for table in world.config().tables.values()] == ["table-1"]
    assert not list(world.settings.tables_dir.rglob("*.*"))
    world.clock.jump(10_000_000)
    master.run_fate()
    assert not list(world.table.scan(*keys.recv_section(world.settings.instance.instance_id)))


def test_an_export_becomes_a_table_of_the_same_tablets_settings_and_counters(
    world: World, master: Master, tmp_path: Path
) -> None:
    exported = make_export(tmp_path / "e")
    assert _run(master, "import_table", _args("copy", tmp_path / "e")) == 3
    table = world.config().table_named("copy")
    assert (table.state, table.groups) == ("online", GROUPS)
    assert dict(table.properties) == {"table.versions.max": "3", "table.custom.key": "value"}, "and it takes writes"
    rows = list(world.table.scan(*keys.table_section(table.table_id)))
    assert [keys.parse_tablet_row(row.key)[1] for row in rows] == [b"m", None]
    for row, tablet in zip(rows, exported.tablets, strict=True):
        state = FlushState.decode(row.cells[keys.FLUSH].value)
        assert (state.flush_id, state.last_seq, state.last_time_ms) == (1, 41, 7)
        assert [world.path(name).name for name in state.segments] == list(tablet.segments)
        assert {keys.parse_file(name) for name in row.family("segment")} == set(state.segments)
        assert all(world.path(name).stat().st_size for name in state.segments)


def test_an_imported_table_can_be_exported_again(world: World, master: Master, tmp_path: Path) -> None:
    exported = make_export(tmp_path / "e")
    _run(master, "import_table", _args("copy", tmp_path / "e"))
    table_id = world.config().table_named("copy").table_id
    args = _args("copy", tmp_path / "again")
    with scripted(world) as tserver:
        running = master.fate.submit("export_table", args)
        master.run_fate()
        assert "0 of 2 tablets are flushed" in running.note
        for end in (b"m", None):
            world.locate(keys.tablet_row(table_id, end), tserver.session)
        world.clock.jump(1_000)
        master.run_fate()
        assert (running.ended, running.result) == (True, 3)
        assert tserver.orders == ["flush b'm'", "flush None"]
        assert _run(master, "export_table", args) == 3, "a repeated request gets the receipt"
    again = Exported.read(MACHINE, name_at(tmp_path / "again"))
    assert sorted(again.checksums.values()) == sorted(exported.checksums.values())
    entries = [[list(tablet.segments.values()) for tablet in found.tablets] for found in (again, exported)]
    assert entries[0] == entries[1]
    assert [(t.rows, t.last_seq) for t in again.tablets] == [(t.rows, t.last_seq) for t in exported.tablets]
    assert not list((world.settings.tables_dir / table_id).glob("export-*"))


def test_an_export_that_began_again_has_no_file_of_the_attempt_before(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    play = HOSTED[EXPORT_AGAIN]
    args = play.prepare(scene)
    play.run(scene, args)
    assert "begins again: no host holds" in caplog.text
    exported = scene.world.settings.directory / "exported"
    named = Exported.read(MACHINE, name_at(exported)).checksums
    assert len(named) == 4
    assert {path.name for path in exported.iterdir()} == {"manifest.json", *named}, "files that no manifest names"


def test_an_export_ends_although_its_directory_is_gone(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    play = HOSTED[EXPORT_AGAIN]
    running = scene.master.fate.submit("export_table", play.prepare(scene))
    while running.step != "end":
        scene.wait()
        scene.master.fate.step_once()
    (exported := scene.world.settings.directory / "exported").rename(exported.with_name("taken"))
    play.go_on(scene)
    assert (running.ended, running.error) == (True, None)
    assert "exported may have files that its manifest does not name" in caplog.text


def test_an_export_needs_a_directory_of_its_own(master: Master, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ExistsError, match="is not empty"):
        _run(master, "export_table", _args("table-1", tmp_path))
    with pytest.raises(RefusedError, match="can't be written"):
        _run(master, "export_table", _args("table-1", tmp_path / "file"))
    with pytest.raises(NotFoundError):
        _run(master, "export_table", _args("nosuch", tmp_path / "e"))
    assert not (tmp_path / "e").exists()


def test_one_of_two_exports_gets_a_directory(master: Master, tmp_path: Path) -> None:
    """The second one begins while the first one flushes, and has written no segment."""
    make_export(tmp_path / "e")
    _run(master, "import_table", _args("copy", tmp_path / "e"))
    master.fate.submit("export_table", _args("copy", tmp_path / "both"))
    master.run_fate()
    second = master.fate.submit("export_table", _args("table-1", tmp_path / "both"))
    master.run_fate()
    assert second.error is not None, "two exports write into one directory"
    assert "is taken: another export writes there, or has failed" in second.error.message


def test_without_a_claim_two_exports_get_a_directory(master: Master, tmp_path: Path) -> None:
    with fault("exports-share-a-directory"), pytest.raises(AssertionError, match="two exports write"):
        test_one_of_two_exports_gets_a_directory(master, tmp_path)


def test_an_export_that_is_asked_for_again_goes_on_in_its_directory(
    world: World, master: Master, tmp_path: Path
) -> None:
    """The first time it failed for good, and left a copy; a crash left the beginning of a claim."""
    args, directory = _args("table-1", tmp_path / "e"), tmp_path / "e"
    with scripted(world) as tserver:
        world.locate(keys.tablet_row("1", None), tserver.session)
        directory.mkdir()
        (directory / f"{CLAIM}.0.tmp").touch()
        claim(directory, str(args["request_id"]))
        (directory / copy_name("0" * 32, 1)).write_bytes(b"left")
        assert _run(master, "export_table", args) == 0
    assert [path.name for path in directory.iterdir()] == ["manifest.json"]


def test_files_that_differ_from_the_manifest_make_no_table(world: World, master: Master, tmp_path: Path) -> None:
    """The manifest's checksums are right, and a number beside a file is wrong."""
    make_export(tmp_path / "e")
    manifest = tmp_path / "e" / "manifest.json"
    said = manifest.read_text()
    assert said.count(r"\"first_seq\":2") == 1
    manifest.write_text(said.replace(r"\"first_seq\":2", r"\"first_seq\":1"))
    with pytest.raises(CorruptionError, match="its sequence numbers are"):
        _run(master, "import_table", _args("copy", tmp_path / "e"))
    _nothing_is_left(world, master)


def test_an_export_of_a_time_far_ahead_makes_no_table(world: World, master: Master, tmp_path: Path) -> None:
    late = world.clock.wall_ms() + 2 * world.settings.tserver.future_timestamp_max_ms
    exported = make_export(tmp_path / "e")
    manifest = tmp_path / "e" / "manifest.json"
    manifest.unlink()
    tablets = tuple(replace(tablet, last_time_ms=late) for tablet in exported.tablets)
    replace(exported, tablets=tablets).write(MACHINE, name_at(tmp_path / "e"))
    with pytest.raises(InvalidInputError, match=f"a tablet of the export was at {late} ms"):
        _run(master, "import_table", _args("copy", tmp_path / "e"))
    batch = BATCH.set_column(4, MUTATION_SCHEMA.field(4), pa.array([late] * BATCH.num_rows, pa.int64()))
    make_export(tmp_path / "late", batch)
    with pytest.raises(CorruptionError, match=f"timestamp {late}: at most"):
        _run(master, "import_table", _args("copy", tmp_path / "late"))
    _nothing_is_left(world, master)


@pytest.mark.parametrize("kind", ["import_table", "export_table"])
def test_a_directory_outside_the_roots_is_neither_read_nor_written(kind: str, world: World, master: Master) -> None:
    """The directory of the cluster's own secrets is one."""
    secrets = world.settings.directory / "secrets"
    world.settings = replace(world.settings, files=FilesSettings())
    master.session.close()
    master = world.master()
    before = sorted(secrets.rglob("*"))
    name = {"import_table": "copy", "export_table": "table-1"}[kind]
    with pytest.raises(RefusedError, match=r"secrets(/deep)? is not below a directory"):
        _run(master, kind, _args(name, secrets / "deep"))
    assert sorted(secrets.rglob("*")) == before


def test_damaged_files_make_no_table(world: World, master: Master, tmp_path: Path) -> None:
    make_export(tmp_path / "e")
    path = tmp_path / "e" / "000001.parquet"
    raw = bytearray(path.read_bytes())
    raw[20] ^= 1
    path.write_bytes(raw)
    with pytest.raises(CorruptionError) as found:
        _run(master, "import_table", _args("copy", tmp_path / "e"))
    assert "000001.parquet is damaged" in found.value.message, "a damaged export becomes a table"
    path.unlink()
    with pytest.raises(CorruptionError, match=r"000001\.parquet can't be read"):
        _run(master, "import_table", _args("copy", tmp_path / "e"))
    _nothing_is_left(world, master)


def test_without_checksums_damage_would_pass(world: World, master: Master, tmp_path: Path) -> None:
    with (
        fault("exports-are-believed"),
        pytest.raises(AssertionError, match="a damaged export becomes a table"),
    ):
        test_damaged_files_make_no_table(world, master, tmp_path)


def test_an_import_makes_a_new_table_or_none(world: World, master: Master, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="nothing was exported there"):
        _run(master, "import_table", _args("copy", tmp_path))
    make_export(tmp_path / "e")
    with pytest.raises(ExistsError, match="there is a table table-1 already"):
        _run(master, "import_table", _args("table-1", tmp_path / "e"))
    with pytest.raises(RefusedError):
        _args("metadata", tmp_path / "e")
    _nothing_is_left(world, master)
