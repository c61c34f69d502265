"""The records of a ``parquet`` peer, as a reader finds them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from bookkeeper.peers.parquet.file_store import RemoteStore
from bookkeeper.security.file_roots import ANYWHERE, FileRoots

LATEST = """
SELECT row, family, qualifier, arg_max(timestamp, (timestamp, _sequence)), arg_max(value, (timestamp, _sequence))
FROM read_parquet('{root}/table_name=*/day=*/stream=*/*.parquet', hive_partitioning = true)
WHERE table_name = '{table}'
GROUP BY row, family, qualifier
HAVING NOT arg_max("delete", (timestamp, _sequence))
"""
"""The state to which a change log leads, in DuckDB's words."""


@dataclass(frozen=True, slots=True)
class DirectoryPeer:
    """A directory of a change log."""

    root: Path

    @property
    def messages(self) -> list[Path]:
        """Every file that a reader sees, by stream and offset."""
        return sorted(self.root.rglob("*.parquet"), key=lambda path: (path.parent.name, path.name))

    @property
    def rows(self) -> list[bytes]:
        """Rows in the order of files."""
        return [row for path in self.messages for row in pq.read_table(path).column("row").to_pylist()]

    def table(self) -> pa.Table:
        """All records, without the columns that are directories."""
        return pa.concat_tables(pq.ParquetFile(path).read() for path in self.messages)

    @property
    def leftovers(self) -> list[Path]:
        """Temporary files."""
        return sorted((self.root / "_unfinished").iterdir())


def remote_twin(quorum: str, roots: FileRoots = ANYWHERE) -> RemoteStore:
    """A local directory as if it were on a filesystem where the last writer of a name wins."""
    roots.resolve(Path(quorum))
    path = Path(quorum)
    path.mkdir(parents=True, exist_ok=True)
    return RemoteStore(pyarrow.fs.SubTreeFileSystem(str(path), pyarrow.fs.LocalFileSystem()), "")
