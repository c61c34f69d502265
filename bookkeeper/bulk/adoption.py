"""The files that tablets take as they are: those of an import, and those that another cluster sends.

A tablet names such a file by the name that the file was made with, and several tablets may name it. So the maker
deletes no file that a tablet has been told of: the collector does, when no tablet names the file and no hold keeps it
(``file_holds``). Rules: R4 and R17.
"""

from __future__ import annotations

from collections.abc import Sequence

from bookkeeper.errors import NotFoundError
from bookkeeper.storage.tablet.segments.block_cache import BlockCache
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.tablet.segments.segment_reader import Segment
from bookkeeper.storage.volume.names import tablet_directory
from bookkeeper.storage.volume.volume_protocol import Volume

INCOMING = "tables/_incoming"
"""The directory of files from other clusters, with a directory for each tserver's session. No table has its name."""

IMPORT_PREFIX = "import-"
"""The beginning of the directory of an import, beside those of its table's tablets; each attempt has one below it."""

_PARTS = 5
"""Parts of the name of an imported file: ``tables/<table>/import-<request>/<attempt>/<file>``."""


def import_directory(table_id: str, request_id: str) -> str:
    """The directory of an import."""
    return tablet_directory(table_id, f"{IMPORT_PREFIX}{request_id}")


def is_adoptable(name: str) -> bool:
    """Whether a file has a name by which tablets take files."""
    if name.startswith(f"{INCOMING}/"):
        return True
    parts = name.split("/")
    return len(parts) == _PARTS and parts[2].startswith(IMPORT_PREFIX)


def check_files(volume: Volume, refs: Sequence[SegmentRef]) -> None:
    """Check that files are what their references say, before a tablet names them. Raises NotFoundError, OSError,
    CorruptionError.
    """
    for ref in refs:
        if not volume.exists(ref.name):
            raise NotFoundError(f"there is no segment {ref.name}")
        Segment(volume, ref, BlockCache(0, readers=0)).check()
