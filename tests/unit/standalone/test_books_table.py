"""The settings of the HBase table of the books: those that would change what a rank decides are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.config.file import new_settings
from bookkeeper.config.sections import Settings
from bookkeeper.errors import IncompatibleError
from bookkeeper.standalone.hbase.books_table import TableSettings, check_settings_of_table, settings_in

PRINTED = """\
table DURABILITY FSYNC_WAL
table IS_META false
table hbase.hstore.time.to.purge.deletes 0
family repl KEEP_DELETED_CELLS FALSE
family repl MIN_VERSIONS 0
family repl NEW_VERSION_BEHAVIOR false
family log KEEP_DELETED_CELLS FALSE
"""


@pytest.fixture
def settings() -> Settings:
    overrides = {"standalone.gateway_port": 4711}
    return new_settings(Path("west"), "west", metadata_url="hbase+zk://z:2181/west", overrides=overrides)


def test_the_settings_of_our_own_table_are_right(settings: Settings) -> None:
    found = settings_in(PRINTED)
    assert found.is_synced
    assert set(found.families) == {"repl", "log"}
    check_settings_of_table(settings, found)


def test_a_table_that_does_not_sync_is_told_from_one_that_does() -> None:
    assert not settings_in("table DURABILITY USE_DEFAULT\n").is_synced
    assert not TableSettings({}, {}).is_synced


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("family repl KEEP_DELETED_CELLS TRUE", "KEEP_DELETED_CELLS = TRUE of family repl"),
        ("family repl KEEP_DELETED_CELLS TTL", "KEEP_DELETED_CELLS = TTL of family repl"),
        ("family log NEW_VERSION_BEHAVIOR true", "NEW_VERSION_BEHAVIOR = true of family log"),
        ("family log MIN_VERSIONS 1", "MIN_VERSIONS = 1 of family log"),
        ("table hbase.hstore.time.to.purge.deletes 60000", "to.purge.deletes = 60000 of the table"),
        ("family log hbase.hstore.time.to.purge.deletes 60000", "to.purge.deletes = 60000 of family log"),
    ],
)
def test_a_setting_that_changes_what_a_rank_decides_is_refused(settings: Settings, line: str, named: str) -> None:
    with pytest.raises(IncompatibleError, match=named.replace(".", r"\.")) as refused:
        check_settings_of_table(settings, settings_in(f"{PRINTED}{line}\n"))
    assert "in HBase's shell" in refused.value.message
