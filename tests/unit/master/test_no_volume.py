"""A cluster whose hosts share no directory refuses what needs one, in words, and changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.config.file import new_settings
from bookkeeper.errors import RefusedError
from bookkeeper.master.fate.engine import Args
from bookkeeper.master.operations.bulk_import import import_args
from bookkeeper.master.operations.export import copy_args
from bookkeeper.master.operations.properties import change_properties_args
from bookkeeper.master.operations.table_lifecycle import create_table_args
from bookkeeper.model import HostIdentity
from bookkeeper.rpc.contract.messages import CopyRequest, ImportRequest
from tests.support.faults import fault
from tests.support.machines_settings import ON_MACHINES
from tests.support.master_world import Master, World
from tests.support.must_raise import must_raise

SAYS = r"a place that all hosts reach, and this cluster has none \(storage.volume = none\): "


@pytest.fixture
def master(world: World, tmp_path: Path) -> Master:
    """The leader of a cluster with three live hosts, each of which has its own directory."""
    for number in range(1, 4):
        world.tserver(host=HostIdentity(f"h{number}", f"disk-{number}"))
    world.create_table("1")
    world.settings = new_settings(tmp_path, "west", overrides=ON_MACHINES)
    return world.master()


def run(master: Master, kind: str, args: Args) -> object:
    running = master.fate.submit(kind, args)
    master.run_fate()
    return master.fate.wait(running, 0)


def wanted(directory: str) -> dict[str, tuple[str, Args, str]]:
    """By a name for the case: the kind of operation, its arguments, its next step."""
    copy = CopyRequest(request_id="ab" * 16, table="table-1", directory=directory)
    imported = ImportRequest(request_id="ab" * 16, table="table-1", directory=directory, time_ms=None)
    return {
        "create": ("create_table", create_table_args("t", [], [], {}), "table.replicas of 2 or more"),
        "change": ("change_properties", change_properties_args("table-1", {"table.replicas": "1"}, []), "2 or more"),
        "import": ("import_directory", import_args(imported), "write the rows with a client instead"),
        "export": ("export_table", copy_args(copy), "read the rows with a scan instead"),
        "import table": ("import_table", copy_args(copy), "write the rows with a client instead"),
    }


CASES = ["create", "change", "import", "export", "import table"]


def what_needs_a_volume_is_refused(world: World, master: Master, directory: Path, case: str) -> None:
    kind, args, step = wanted(str(directory))[case]
    before = world.config()
    with must_raise(RefusedError, "files come to lie on one machine", match=f"{SAYS}.*{step}"):
        run(master, kind, args)
    assert world.config() == before


@pytest.mark.parametrize("case", CASES)
def test_what_needs_a_volume_is_refused_without_one(world: World, master: Master, tmp_path: Path, case: str) -> None:
    what_needs_a_volume_is_refused(world, master, tmp_path, case)


def test_without_the_refusal_a_table_lies_on_one_machine(world: World, master: Master, tmp_path: Path) -> None:
    for session in list(world.sessions):
        world.kill(session)  # the table would wait for them
    world.clock.jump(1_000)
    with fault("a-table-on-one-machine"), pytest.raises(AssertionError, match="files come to lie on one machine"):
        what_needs_a_volume_is_refused(world, master, tmp_path, "create")
