"""The files that the collector retains, with all reasons; read in the collector's order.

Arrives: the books, the logs on disk, the lack of each target. Leaves: :class:`RetainedFile` values. It reads only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bookkeeper.master.calls.tservers import TServers
from bookkeeper.master.gc import gc_rules
from bookkeeper.master.gc.retention_reasons import RetentionReasons
from bookkeeper.master.quarantine.quarantined_ranges import scan_rows
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable, scan_parts
from bookkeeper.model import TargetKey
from bookkeeper.monitor.observation import RetainedFile
from bookkeeper.storage.volume.volume_protocol import Volume


def retained_files(
    table: MetadataTable,
    tservers: TServers,
    names: Mapping[str, str],
    lacks: Callable[[str, TargetKey], str | None],
    only: str = "",
) -> list[RetainedFile]:
    """Every retained file, the largest first, or ``only`` one. ``names``: of tables by id; ``lacks``: for a file and
    target, why the target lacks records of it, None = it lacks none. Raises TransientError.
    """
    logs = tservers.logs_in_reach()
    writers = {info.session_id for info in tservers.sessions()}
    reasons = RetentionReasons(names, lacks)
    marked = list(gc_rules.parse_marks(table.scan(*keys.section(keys.DEL_PREFIX), ("del",))))
    tablets = keys.TABLETS_START, keys.TABLETS_STOP
    for row in table.scan(*tablets, ("log", "tablet")):
        reasons.tablet(row)
    for part in scan_parts(table, *tablets, ("repl",)):
        reasons.tablet(part)
    for row in table.scan(*keys.section(keys.REPL_PREFIX), ("repl",)):
        reasons.books(row)
    for key in scan_rows(table):
        reasons.quarantined(key)
    for row in table.scan(*keys.section(keys.HOLD_PREFIX), keys.HOLD_FAMILIES):
        reasons.held(row)
    wanted = {*(log.name for log in logs), *marked}
    sizes = {
        name: size for name in wanted if only in ("", name) if (size := size_of(tservers.volume, name)) is not None
    }
    there = [log for log in logs if log.name in sizes]
    return reasons.retained(there, sizes, writers, [name for name in marked if name in sizes])


def size_of(volume: Volume, file: str) -> int | None:
    """The size of a file; None when it is gone."""
    try:
        return volume.size(file)
    except OSError:
        return None
