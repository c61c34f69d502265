"""The books of one cluster before its processes start: made by ``init``, and looked at by everybody who starts.

Arrives: settings, the coordination store. Leaves: books with an owner, or an error that names the store, the reason and
the next step. The two stores know of each other: the books name the instance, and both count the rounds in which
a leader read all of the books (``metadata.owner``). So a store is refused that is another's, empty, or older than the
other one. Changes nothing but in :func:`make_books`.
"""

from __future__ import annotations

from contextlib import closing

from bookkeeper.config import Settings
from bookkeeper.coordination.config_tree import ClusterConfig, read_config
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.embedded import COORDINATION_FILE
from bookkeeper.errors import CorruptionError, RefusedError
from bookkeeper.master.index import snapshot
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.metadata.opening import make_metadata, open_metadata, sqlite_path
from bookkeeper.metadata.owner import COPY_STEP, ROUND_NAME, is_ahead, read_owner_row, round_of
from bookkeeper.metadata.sqlite.sqlite_store import SqliteMetadataTable
from bookkeeper.sqlite_file import damaged

RETRY_MS = 5_000
"""How long a metadata store is waited for; longer than a hiccup, shorter than an operator's patience."""


def make_books(settings: Settings) -> None:
    """The metadata table of a new cluster. Raises ExistsError when there is one, OSError, TransientError."""
    path = sqlite_path(settings.metadata_url)
    if path is not None and path.parent == settings.directory:
        settings.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    make_metadata(settings.metadata_url, settings.instance.instance_id, retry_for_ms=RETRY_MS)


def check_books(settings: Settings, coordination: Coordination, *, thoroughly: bool = False) -> None:
    """Both stores are there, belong to this instance, and are of one moment; ``thoroughly``: every cell of an SQLite
    file is as it was written, too.

    Raises NotFoundError, RefusedError, IncompatibleError, CorruptionError, TransientError.
    """
    known = coordination.number(ROUND_NAME)
    config = read_config(coordination)
    opened = open_metadata(
        settings.metadata_url, settings.instance.instance_id, least_round=known, retry_for_ms=RETRY_MS
    )
    with closing(opened) as table:
        if thoroughly and isinstance(table, SqliteMetadataTable):
            table.check()
        held = round_of(read_owner_row(table))
        refuse_lost_coordination(settings, config, held, known)
        refuse_missing_tables(settings.metadata_url, config, table)


def refuse_lost_coordination(settings: Settings, config: ClusterConfig, held: int, known: int) -> None:
    """Raise CorruptionError when the coordination store is gone or empty beside books that were used, RefusedError when
    it is an older copy.
    """
    store = settings.coordination_dir / COORDINATION_FILE
    if config.instance is None and held:
        raise damaged(store, "coordination store", f"it is gone or empty, and {settings.metadata_url} holds books")
    if is_ahead(held, known):
        raise RefusedError(
            f"the coordination store {store} knows of round {known} only, and the metadata table "
            f"{settings.metadata_url} is of round {held}: the store is an older copy; {COPY_STEP}"
        )


def refuse_missing_tables(url: str, config: ClusterConfig, table: MetadataTable) -> None:
    """Raise CorruptionError when a table that is online has no tablet in the books. Its tablets may not join up: an
    operation that was cut between two of them goes on.
    """
    online = snapshot.online_tables(config)
    sections = {table_id: keys.table_section(table_id) for table_id in online}
    seen = {t for t, section in sections.items() if any(map(keys.is_tablet, table.scan(*section, ("tablet",))))}
    for table_id in snapshot.missing_tables(online, seen):
        raise CorruptionError(
            f"the metadata table {url} has no tablets of table {config.tables[table_id].name} (id {table_id}), "
            f"which is online: it was emptied, or is another one; {COPY_STEP}"
        )
