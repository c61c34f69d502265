"""The place of an import's records in the tablet that took them, as the books have it.

The tablet writes it beside the log when it takes the import, and the cell goes when all targets have the log. A range
in quarantine may be shipped after that, so its row has the place, too.
"""

from __future__ import annotations

from bookkeeper.bulk.import_log import is_import_log
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.metadata.values import Quarantined
from bookkeeper.model import TargetKey


def read_first_seq(metadata: MetadataTable, file: str, target: TargetKey) -> int:
    """The number in its tablet of the first record of an import's log, which the tablet gave when it took the import.

    Returns 0 for another log, and when the books do not say it: an older version wrote them, or the file's cells are
    gone. Raises TransientError or CorruptionError.
    """
    if not is_import_log(file):
        return 0
    row = metadata.get(keys.repl_row(file), ("repl",))
    cell = row.cells.get(keys.needed_column(target)) if row else None
    return values.decode_status(cell.value).first_seq if cell else 0


def read_first_seq_of_range(metadata: MetadataTable, file: str, target: TargetKey, first: int) -> int:
    """The same number, by the row of a range in quarantine that begins with record ``first``. Raises as above."""
    row = metadata.get(keys.quar_row(file), ("quar",))
    cell = row.cells.get(keys.quar_column(target, first)) if row else None
    return Quarantined.decode(cell.value).first_seq if cell else 0
