"""The refusals of an import, its waits, and its outcome."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from bookkeeper.coordination.config_changes import change_table, set_read_only
from bookkeeper.errors import InvalidInputError, NotFoundError, ReadOnlyError, UnavailableError
from bookkeeper.master.fate.engine import Args, is_blocked, shared
from bookkeeper.master.operations.bulk_import import ImportDirectory, import_args
from bookkeeper.master.operations.read_only import read_only_args
from bookkeeper.metadata import keys
from bookkeeper.model import Extent
from bookkeeper.rpc.contract.messages import ImportRequest
from bookkeeper.storage.wal.blocks.block_messages import block_target_from_pb
from bookkeeper.storage.wal.reading.block_reader import read_headers
from tests.support.faults import fault
from tests.support.inputs_here import inputs_read_here
from tests.support.master_world import Master, World
from tests.support.scripted_tserver import scripted

GOOD = "row,family,qualifier,value\nz,f,q,1\na,f,q,2\n"


@pytest.fixture
def master(world: World) -> Iterator[Master]:
    """The leader of a cluster with one table, ``table-1``."""
    with inputs_read_here():
        yield world.master()


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """Two good records."""
    directory = tmp_path / "inputs"
    directory.mkdir()
    (directory / "a.csv").write_text(GOOD)
    return directory


def _args(directory: Path, table: str = "table-1") -> Args:
    return import_args(ImportRequest(uuid4().hex, table, str(directory), None))


def _run(master: Master, args: Args) -> object:
    running = master.fate.submit("import_directory", args)
    master.run_fate()
    return master.fate.wait(running, 0)


def _nothing_is_left(world: World) -> None:
    assert not list(world.settings.tables_dir.rglob("*.*"))
    assert not list(world.table.scan(*keys.recv_section(world.settings.instance.instance_id)))


@pytest.mark.parametrize(
    "request_",
    [ImportRequest("short", "t", "/d", None), ImportRequest("0" * 32, "t", "relative", None)],
    ids=["request id", "directory"],
)
def test_an_invalid_request_is_refused_before_an_operation_begins(request_: ImportRequest) -> None:
    with pytest.raises(InvalidInputError):
        import_args(request_)


def test_bad_input_is_refused_and_leaves_nothing(world: World, master: Master, inputs: Path) -> None:
    (inputs / "b.csv").write_text(GOOD + ",f,q,3\n")
    with pytest.raises(InvalidInputError, match=r"b\.csv can't be imported: a record has an empty row"):
        _run(master, _args(inputs))
    _nothing_is_left(world)
    with pytest.raises(NotFoundError):
        _run(master, _args(inputs, "nosuch"))


def test_bad_input_of_a_late_master_leaves_the_segments_of_another_attempt(
    world: World, master: Master, inputs: Path
) -> None:
    """A paused master may find the input gone when another one has converted it, and tablets have not added it yet."""
    args = _args(inputs)
    directory = world.settings.tables_dir / "1" / f"import-{args['request_id']}"
    other = directory / "other-attempt" / "segment"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"x")
    (inputs / "b.csv").write_text(GOOD + ",f,q,3\n")
    with pytest.raises(InvalidInputError, match="can't be imported"):
        _run(master, args)
    assert [path for path in directory.rglob("*") if path.is_file()] == [other]


def test_of_a_replicated_table_each_tablets_records_are_a_log_for_its_targets(
    world: World, master: Master, inputs: Path
) -> None:
    target = world.enable("1")
    world.disable("1")
    again = world.enable("1")
    with scripted(world) as tserver:
        world.locate(keys.tablet_row("1", None), tserver.session)
        assert _run(master, _args(inputs)) == 2
        (log,) = tserver.logs
    assert len(world.wakes) == 1, "the master looks for the log at once"
    (at,) = read_headers(world.volume, log.name)
    assert (log.offset, log.position, at.header.record_count) == (2, at.end_position, 2)
    assert (
        [block_target_from_pb(block_target).target for block_target in at.header.block_targets] == [again] != [target]
    )
    assert at.load().batch().column("row").to_pylist() == [b"z", b"a"], "in the order of the input"
    assert world.tservers().session_of(log.name) == "import"


def test_r17_logs_of_an_import_are_left_alone_while_one_is_under_way(
    world: World, master: Master, inputs: Path
) -> None:
    world.enable("1")
    args = _args(inputs)
    master.fate.submit("import_directory", args)
    master.run_fate()
    (log,) = (log for log in world.tservers().logs() if log.session == "import")
    assert master.collect() == []
    with fault("imports-under-way-are-over"):
        assert master.collect() == [log.name]


def test_logs_of_an_import_that_no_tablet_took_are_collected(world: World, master: Master, inputs: Path) -> None:
    world.enable("1")
    args = _args(inputs)
    with scripted(world) as tserver:
        world.locate(keys.tablet_row("1", None), tserver.session)
        assert _run(master, args) == 2
        (log,) = tserver.logs
        assert master.collect() == [log.name]


def test_a_read_only_table_or_cluster_takes_no_import(world: World, master: Master, inputs: Path) -> None:
    set_read_only(world.coordination, True)
    with pytest.raises(ReadOnlyError, match="this cluster is read-only and refuses importdirectory"):
        _run(master, _args(inputs))
    set_read_only(world.coordination, False)
    change_table(world.coordination, "1", lambda table: replace(table, properties={"table.read_only": "true"}))
    with pytest.raises(ReadOnlyError, match="table table-1 is read-only"):
        _run(master, _args(inputs))
    _nothing_is_left(world)


def test_no_other_operation_changes_the_table_or_makes_it_read_only_meanwhile(master: Master, inputs: Path) -> None:
    kind = master.fate.kinds["import_directory"]
    args = _args(inputs)
    assert set(kind.locks(args)) == {"table table-1", shared("read_only")}
    (switch,) = master.fate.kinds["set_read_only"].locks({})
    assert is_blocked(switch, kind.locks(args))
    assert is_blocked(shared("read_only"), [switch])


def test_imports_into_several_tables_run_beside_each_other(world: World, master: Master, inputs: Path) -> None:
    world.create_table("2")
    waiting = master.fate.submit("import_directory", _args(inputs))
    with scripted(world) as tserver:
        world.locate(keys.tablet_row("2", None), tserver.session)
        other = master.fate.submit("import_directory", _args(inputs, "table-2"))
        master.run_fate()
        assert other.result == 2, "an import waits for one into another table"
        assert (waiting.step, waiting.ended) == ("adopt", False)
        read_only = master.fate.submit("set_read_only", read_only_args(True))
        later = master.fate.submit("import_directory", _args(inputs, "table-2"))
        master.run_fate()
        assert (read_only.step, later.step) == ("write", "check"), "a later request waits longer"
        world.locate(keys.tablet_row("1", None), tserver.session)
        world.clock.jump(1_000)
        master.run_fate()
        assert (waiting.result, read_only.ended) == (2, True)
        assert isinstance(later.error, ReadOnlyError)


def test_without_the_rule_an_import_that_waits_keeps_all_others_waiting(
    world: World, master: Master, inputs: Path
) -> None:
    with fault("nothing-is-shared"), pytest.raises(AssertionError, match="an import waits for one into another table"):
        test_imports_into_several_tables_run_beside_each_other(world, master, inputs)


def test_imports_take_turns_in_expensive_steps(world: World, master: Master, inputs: Path) -> None:
    world.create_table("2")
    kind = master.fate.kinds["import_directory"]
    assert isinstance(kind, ImportDirectory)
    running = master.fate.submit("import_directory", _args(inputs))
    with kind.converting:
        master.run_fate()
        assert (running.step, running.note) == ("convert", "other imports occupy this step")
    world.clock.jump(1_000)
    with kind.adopting, kind.adopting:
        master.run_fate()
        assert (running.step, running.note) == ("adopt", "other imports occupy this step")
    world.clock.jump(1_000)
    master.run_fate()
    assert "1 of 1 tablets lack" in running.note


def test_a_repeated_request_gets_the_receipt(world: World, master: Master, inputs: Path) -> None:
    args = _args(inputs)
    with scripted(world) as tserver:
        world.locate(keys.tablet_row("1", None), tserver.session)
        assert _run(master, args) == 2
        orders = list(tserver.orders)
        assert _run(master, args) == 2
        assert tserver.orders == orders == ["adopt None"]
        assert next(iter(tserver.adopted.values())) == {Extent("1", None, None): [b"a", b"z"]}
        assert _run(master, _args(inputs)) == 2
        assert len(tserver.adopted) == 2, "another request is another import"


def test_an_import_waits_for_a_tablet_without_a_tserver(world: World, master: Master, inputs: Path) -> None:
    args = _args(inputs)
    running = master.fate.submit("import_directory", args)
    master.run_fate()
    assert (running.step, running.ended) == ("adopt", False)
    assert "1 of 1 tablets lack their segments" in running.note
    assert (running.left, running.unit) == (1, "tablets")
    with scripted(world) as tserver:
        tserver.trouble["adopt_segments"] = UnavailableError("not now")
        world.locate(keys.tablet_row("1", None), tserver.session)
        world.clock.jump(1_000)
        master.run_fate()
        assert "not now" in running.note
        del tserver.trouble["adopt_segments"]
        world.clock.jump(1_000)
        master.run_fate()
        assert (running.ended, running.result) == (True, 2)
