"""Root and metadata tables belong to a cluster: users can't create one, and none is ever replicated."""

from __future__ import annotations

import pytest

from bookkeeper.coordination.config_changes import create_table_record
from bookkeeper.errors import RefusedError
from bookkeeper.master.operations.replicated_tables import enable_args
from bookkeeper.master.operations.table_lifecycle import create_table_args
from tests.support.master_world import World

SYSTEM = ["root", "metadata", "METADATA", "!METADATA", "accumulo.metadata", "Bookkeeper.books", "hbase:meta"]


@pytest.mark.parametrize("name", SYSTEM)
def test_a_system_table_is_never_made(world: World, name: str) -> None:
    with pytest.raises(RefusedError, match=r"root or metadata table.*choose another name"):
        create_table_args(name, [], [], {})
    with pytest.raises(RefusedError):  # each new table passes here
        create_table_record(world.coordination, "9", name, [], {})
    assert "9" not in world.config().tables


@pytest.mark.parametrize("name", SYSTEM)
def test_a_system_table_is_never_replicated_neither_from_here_nor_into_one(name: str) -> None:
    for table, remote in ((name, ""), (name, "cities"), ("cities", name)):
        with pytest.raises(RefusedError, match="root or metadata table"):
            enable_args(table, [], "east", remote)


@pytest.mark.parametrize("name", ["roots", "my.metadata", "metadata2", "bookkeeper"])
def test_names_that_only_look_alike_are_free(name: str) -> None:
    create_table_args(name, [], [], {})
    enable_args(name, [], "east", "")
