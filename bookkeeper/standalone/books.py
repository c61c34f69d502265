"""Creates the books of a cluster, and checks both stores before the processes of the cluster start.

The books name the instance, and each store has the number of the last round, in which a leader read all of the books
(``metadata.owner``). So a check refuses a store that is empty, belongs to another cluster, or is older than the other
store. Only :func:`make_books` writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_tree import ClusterConfig, read_config
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.embedded import COORDINATION_FILE
from bookkeeper.errors import CorruptionError, RefusedError, UnavailableError
from bookkeeper.master.index import snapshot
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable, Probed
from bookkeeper.metadata.opening import make_metadata, open_metadata, sqlite_path
from bookkeeper.metadata.owner import COPY_STEP, ROUND_NAME, is_ahead, read_owner_row, round_of
from bookkeeper.metadata.sqlite.sqlite_store import SqliteMetadataTable
from bookkeeper.sqlite_file import damaged
from bookkeeper.standalone.hbase.books_table import make_table

RETRY_MS = 5_000
"""Time to wait for a metadata store that does not answer: longer than a short outage, and an operator still waits."""

REQUEST_MS = 15_000
"""Time for one request to HBase before a process starts; it may have to open a region first."""


def make_books(settings: Settings) -> None:
    """Create the metadata table of a new cluster. Raises ExistsError when one exists, OSError, TransientError."""
    path = sqlite_path(settings.metadata_url)
    if path is not None and path.parent == settings.directory:
        settings.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _naming_quorum(settings):
        if settings.hbase_quorum:
            make_table(settings)
        make_metadata(settings.metadata_url, settings.instance.instance_id, retry_for_ms=RETRY_MS)


def check_books(
    settings: Settings, coordination: Coordination, *, thoroughly: bool = False, request_ms: int = REQUEST_MS
) -> None:
    """Check that both stores exist, belong to this instance, and are not from different times. ``thoroughly``: compare
    every cell of an SQLite file with its checksum, too. ``request_ms`` bounds one request to HBase.

    Raises NotFoundError, RefusedError, IncompatibleError, CorruptionError, TransientError.
    """
    stored_round = coordination.number(ROUND_NAME)
    config = read_config(coordination)
    with _opened(settings, request_ms, stored_round) as table:
        if thoroughly and isinstance(table, SqliteMetadataTable):
            table.check()
        books_round = round_of(read_owner_row(table))
        latest = coordination.number(ROUND_NAME)  # a leader on another host may raise both meanwhile
        refuse_lost_coordination(settings, config, books_round, latest)
        refuse_missing_tables(settings.metadata_url, config, table)


def check_writes(settings: Settings, *, request_ms: int = REQUEST_MS) -> None:
    """Check that the books take writes: reads may go on while another process keeps them locked. ``request_ms`` as in
    :func:`check_books`. Writes nothing. Raises as :func:`open_metadata`.
    """
    with _opened(settings, request_ms) as table:
        if isinstance(table, Probed):
            table.probe()


@contextmanager
def _opened(settings: Settings, request_ms: int, least_round: int = 0) -> Iterator[MetadataTable]:
    with _naming_quorum(settings):
        opened = open_metadata(
            settings.metadata_url,
            settings.instance.instance_id,
            least_round=least_round,
            timeout_ms=request_ms,
            retry_for_ms=RETRY_MS,
        )
        with closing(opened) as table:
            yield table


@contextmanager
def _naming_quorum(settings: Settings) -> Iterator[None]:
    """An error of books behind a gateway of our own names the HBase behind it."""
    try:
        yield
    except UnavailableError as error:
        if not settings.hbase_quorum:
            raise
        raise UnavailableError(
            f"the HBase of ZooKeeper at {settings.hbase_quorum} can't be used: {error.message} (that address is this "
            "host's own gateway)"
        ) from error


def refuse_lost_coordination(settings: Settings, config: ClusterConfig, books_round: int, stored_round: int) -> None:
    """Raise CorruptionError when the coordination store is missing or empty but its books were used, RefusedError when
    it is an older copy. ``stored_round`` is the round in the coordination store.
    """
    embedded = settings.coordination_dir
    store = settings.coordination.url if embedded is None else embedded / COORDINATION_FILE
    if config.instance is None and books_round:
        reason = f"it is missing or empty, but its books in {settings.metadata_url} were used"
        if embedded is not None:
            raise damaged(embedded / COORDINATION_FILE, "coordination store", reason)
        raise CorruptionError(f"the coordination store {store} is damaged: {reason}; stop the cluster and restore it")
    if is_ahead(books_round, stored_round):
        raise RefusedError(
            f"the coordination store {store} is an older copy: its round is {stored_round}, and the round of the "
            f"metadata table {settings.metadata_url} is {books_round}; {COPY_STEP}"
        )


def refuse_missing_tables(url: str, config: ClusterConfig, table: MetadataTable) -> None:
    """Raise CorruptionError when the books have no tablet of an online table. Gaps between its tablets are no error,
    because an interrupted operation continues and closes them.
    """
    online = snapshot.online_tables(config)
    sections = {table_id: keys.table_section(table_id) for table_id in online}
    seen = {t for t, section in sections.items() if any(map(keys.is_tablet, table.scan(*section, ("tablet",))))}
    for table_id in snapshot.missing_tables(online, seen):
        raise CorruptionError(
            f"the metadata table {url} has no tablets of table {config.tables[table_id].name} (id {table_id}), "
            f"which is online: the metadata table was emptied or replaced; {COPY_STEP}"
        )
