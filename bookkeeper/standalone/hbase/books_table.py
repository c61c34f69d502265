"""Makes and checks the table of the books in an HBase cluster with a Java program of its own.

HBase's Thrift gateway makes tables of one region only, and shows few of a table's settings. The program is
``docker/hbase/src/bookkeeper/hbase/BooksTable.java``; it runs for some seconds, in ``init`` and in ``config check``.
"""

from __future__ import annotations

import signal
import subprocess
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from bookkeeper.config.sections import Settings
from bookkeeper.errors import IncompatibleError, InvalidInputError, NotFoundError, UnavailableError, unavailable
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import FAMILIES, OWNER_FAMILY
from bookkeeper.metadata.opening import hbase_address
from bookkeeper.standalone.children.parent_death import ended_with_parent
from bookkeeper.standalone.hbase.gateway import site_xml
from bookkeeper.standalone.hbase.java import default_home, java_command, why_not_runnable

REGION_STARTS = (keys.TABLETS_STOP, keys.HOLD_PREFIX, keys.RECV_PREFIX, keys.REPL_PREFIX, keys.ROOT_PREFIX)
"""First rows of the regions of a new table, behind that of the tablets: each section that grows with the data has a
region of its own, so that HBase spreads them over its servers.
"""

DURABILITY, FSYNC = "DURABILITY", "FSYNC_WAL"
PURGE_DELETES = "hbase.hstore.time.to.purge.deletes"
HARMFUL = {
    "KEEP_DELETED_CELLS": "FALSE",
    "NEW_VERSION_BEHAVIOR": "false",
    "MIN_VERSIONS": "0",
    PURGE_DELETES: "0",
}
"""Settings of a family, or of the table for all of them, with the one value under which a rank decides what is read."""

PROGRAM_S = 60
PROGRAM_HEAP_MB = 128
REFUSALS = ("IllegalArgumentException", "AccessDeniedException", "NamespaceNotFoundException")


class TableSettings(Struct, frozen=True):
    """The settings of an HBase table, and of each of its families, by their names in HBase."""

    table: Mapping[str, str]
    families: Mapping[str, Mapping[str, str]]

    @property
    def is_synced(self) -> bool:
        """Whether the table itself asks that each write is on disks before it is acknowledged."""
        return self.table.get(DURABILITY) == FSYNC


def make_table(settings: Settings) -> None:
    """Create the table of a new cluster with one region for each section; one that exists stays. Its owner comes later
    (``hbase_table``). Raises IncompatibleError when its settings harm books, InvalidInputError, UnavailableError.
    """
    families = ",".join((*FAMILIES, OWNER_FAMILY))
    first_rows = ",".join(row.hex() for row in REGION_STARTS)
    check_settings_of_table(settings, settings_in(_run(settings, families, first_rows)))


def table_settings(settings: Settings) -> TableSettings:
    """The settings of the table of the books. Raises InvalidInputError, UnavailableError."""
    return settings_in(_run(settings))


def check_settings_of_table(settings: Settings, found: TableSettings) -> None:
    """Raise IncompatibleError when HBase would keep what a rank hides, or read versions by another order."""
    scopes = {"the table": found.table, **{f"family {name}": values for name, values in found.families.items()}}
    wrong = [
        f"{setting} = {values[setting]} of {scope}"
        for scope, values in scopes.items()
        for setting, right in HARMFUL.items()
        if values.get(setting, right).lower() != right.lower()
    ]
    if wrong:
        right_text = ", ".join(f"{name} = {value}" for name, value in HARMFUL.items())
        raise IncompatibleError(
            f"{hbase_address(settings.metadata_url)} has settings that harm the books: {'; '.join(wrong)}; set "
            f"{right_text} in HBase's shell, or choose another prefix"
        )


def _run(settings: Settings, *arguments: str) -> str:
    """The output of the program. Raises NotFoundError without Java or jars."""
    if (missing := why_not_runnable()) is not None:
        raise NotFoundError(f"the table of the books can't be made or checked: {missing}")
    table = hbase_address(settings.metadata_url).table.decode()
    with TemporaryDirectory(prefix="bookkeeper-table-") as site:
        (Path(site) / "hbase-site.xml").write_text(site_xml(settings.hbase_quorum))
        command = java_command(default_home(), "bookkeeper.hbase.BooksTable", PROGRAM_HEAP_MB, Path(site))
        command += [table, *arguments]
        try:
            done = subprocess.run(
                ended_with_parent(command, signal.SIGKILL),
                capture_output=True,
                text=True,
                timeout=PROGRAM_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired as expired:
            raise UnavailableError(f"HBase does not make or describe {table} within {PROGRAM_S} s") from expired
        except OSError as error:
            raise unavailable("the program for the table of the books can't be started", error) from error
    if done.returncode:
        reason = done.stderr.strip().rpartition("HBASE REFUSED ")[2][:500]
        kind = InvalidInputError if any(refusal in reason for refusal in REFUSALS) else UnavailableError
        raise kind(f"HBase does not make or describe {table}: {reason}")
    return done.stdout


def settings_in(printed: str) -> TableSettings:
    """The settings that the program printed."""
    table: dict[str, str] = {}
    families: dict[str, dict[str, str]] = defaultdict(dict)
    for line in printed.splitlines():
        scope, _, rest = line.partition(" ")
        if scope == "table":
            name, _, value = rest.partition(" ")
            table[name] = value
        elif scope == "family":
            family, name, value = rest.split(" ", 2)
            families[family][name] = value
    return TableSettings(table, families)
