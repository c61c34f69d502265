"""A client of one cluster: its tables, writers and scans, and its replication, on one pool of connections.

A client outlives restarts of all processes of the cluster.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from msgspec.structs import replace

from bookkeeper.client.batch_writer import BatchWriter, DurabilityName, WriterOptions
from bookkeeper.client.conditional_writer import ConditionalWriter
from bookkeeper.client.host_admin import Hosts
from bookkeeper.client.location_cache import LOCATE_BUDGET_MS, LocationCache
from bookkeeper.client.master_link import MasterLink
from bookkeeper.client.mutation import Mutation
from bookkeeper.client.replication_admin import Replication
from bookkeeper.client.retry import retrying
from bookkeeper.client.scanner import Scanner, ScanRange
from bookkeeper.client.table_admin import Tables
from bookkeeper.client.tablet_extents import TableMap, table_map
from bookkeeper.client.user_admin import Users
from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.file import load_settings
from bookkeeper.config.sections import RpcSettings, Settings
from bookkeeper.coordination.zookeeper.url import SCHEME
from bookkeeper.errors import BookkeeperError, NotFoundError
from bookkeeper.rpc.contract.messages import Condition, OperationInfo
from bookkeeper.rpc.rpc_pool import SILENT_MS, RpcPool, plain_hello
from bookkeeper.security.access import CredentialFiles, Credentials, client_credentials

LOG = logging.getLogger(__name__)

REASONS_BUDGET_MS = 1_000
NEEDS_HELP = "needs help:"
"""Prefix of those facts of a master's status that name tablets in need of an operator (``master.status_report``)."""

CONNECT_BUDGET_MS = 10_000.0
"""Time for :meth:`Client.connect` to find a leader, ms: a killed master is back in a few seconds. A user waits as long
for the error about a mistyped address, so this is less than the budget of a connected client."""

CONDITIONAL_BUDGET_MS = 60_000.0
"""Time for a conditional write to find a tserver, ms: about the time that replacing a tserver takes."""


class Client:
    """A connection to one cluster. Thread-safe; as a context manager it disconnects at the end.

    ``tables``, ``users`` and ``replication`` are :class:`Tables`, :class:`Users` and :class:`Replication` of the
    cluster. A client goes on when a process of the cluster is replaced: it repeats calls that fail with a
    :class:`~bookkeeper.errors.TransientError`, and raises that error only when its time is over.
    """

    def __init__(
        self,
        quorum: str,
        settings: RpcSettings | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        *,
        credentials: Credentials | None = None,
        home: Path | None = None,
    ) -> None:
        """For tests; users call :meth:`connect`. Opens no connection yet. ``home`` is the cluster's directory; None =
        not on this machine.
        """
        self._clock = clock or SystemClock()
        self._rng = rng or random.Random()
        self._stopped = threading.Event()
        self._pool = RpcPool(plain_hello(), settings or RpcSettings(), self._clock, credentials, SILENT_MS)
        self._master = MasterLink(self._pool, quorum, self._clock, self._rng, self._stopped, home)
        self.tables = Tables(self._master, self._clock, self._stopped)
        self._locations = LocationCache(self.tables, self._clock)
        self.users = Users(self._master)
        self.hosts = Hosts(self._master, self._clock, self._stopped)
        self.replication = Replication(self._master, self._clock, self._stopped, home)

    @classmethod
    def connect(
        cls,
        where: str | Path,
        settings: RpcSettings | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        *,
        secret_file: str | Path | None = None,
        tls_ca: str | Path | None = None,
        tls_certificate: str | Path | None = None,
        budget_ms: float = CONNECT_BUDGET_MS,
    ) -> Self:
        """Connect to the cluster in the directory ``where``, to that of the masters ``host:port[,host:port]``, or to
        that whose coordination store is below a node of ZooKeeper, ``zk://host:port[,host:port]/root``: its masters may
        move.

        ``secret_file`` holds the client's secret; by default it is the clients' secret in the cluster's directory, else
        the file that BOOKKEEPER_SECRET_FILE names. It may be a directory of secrets; then the cluster selects its own.
        ``tls_ca`` (else the directory's settings, else BOOKKEEPER_TLS_CA) turns TLS on and names the signers of the
        cluster's certificates; ``tls_certificate`` (else BOOKKEEPER_TLS_CERTIFICATE) is the client's own certificate
        with its key. For ``budget_ms`` milliseconds the client repeats its search for the leading master, because a
        master may restart. ``settings`` bounds calls (default: the directory's); ``clock`` and ``rng`` are for tests.

        Raises NotFoundError or InvalidInputError for a wrong ``where``, RefusedError for a secret that other users of
        the machine can read, NotAdmittedError for a wrong secret, and UnavailableError, with the reason of each master,
        when none names the leader.
        """
        cluster = _cluster_at(where)
        credentials = client_credentials(cluster.settings, credential_files(secret_file, tls_ca, tls_certificate))
        home = None if cluster.settings is None else cluster.settings.cluster_directory
        rpc = None if cluster.settings is None else cluster.settings.rpc
        client = cls(cluster.quorum, settings or rpc, clock, rng, credentials=credentials, home=home)
        try:
            client._master.wait_for_leader(budget_ms)
        except BaseException:
            client.close()
            raise
        return client

    def cluster_name(self) -> str:
        """The display name of the cluster. Raises UnavailableError when no master names the leader."""
        return self._pool.peer_hello(self._master.find_leader()).cluster_name

    def operations(self) -> Sequence[OperationInfo]:
        """The master's operations of several steps: those under way, and those that failed in the last minutes."""
        operations: Sequence[OperationInfo] = self._master.call("operations")
        return operations

    def writer(self, table: str, *, durability: DurabilityName = "default", **options: Any) -> BatchWriter:
        """A writer for one table; ``options`` are the fields of :class:`WriterOptions`. Raises NotFoundError."""
        merged = replace(WriterOptions(durability=durability), **options)
        return BatchWriter(table, self._locator(table), self._pool, self._clock, self._rng, merged, self._reasons)

    def write_if(
        self,
        table: str,
        mutation: Mutation,
        conditions: Sequence[Condition],
        durability: DurabilityName = "default",
        deadline_ms: float = CONDITIONAL_BUDGET_MS,
    ) -> bool:
        """Write the mutation if all conditions on cells of its row hold; check and write are one step. Conditions come
        from :func:`equals` and :func:`absent`. Returns False, and writes nothing, when one of them does not hold.

        The client tries to reach the row's tserver for ``deadline_ms`` milliseconds. Raises NotFoundError,
        InvalidInputError, ReadOnlyError; ConditionalRefusedError for a replicated table, because a peer could not
        check the same; UnavailableError when no tserver took the call, or when its answer was lost. In the latter case
        ``details["unknown"]`` is set: the mutation may be written, and a scan of the row shows it.
        """
        retry = retrying(self._clock, self._rng, self._stopped, deadline_ms, "a conditional write")
        writer = ConditionalWriter(self._locations.of(table), self._pool, retry, self._clock)
        return writer.write_if(mutation, conditions, durability)

    def scan(
        self,
        table: str,
        start_row: bytes | None = None,
        stop_row: bytes | None = None,
        families: Sequence[bytes] = (),
        columns: Sequence[tuple[bytes, bytes]] = (),
        **options: Any,
    ) -> Scanner:
        """A scan from ``start_row`` (included) to ``stop_row`` (excluded); None = no bound.

        ``families`` and ``columns``, pairs of family and qualifier, select cells; both empty = all. ``options`` are the
        other fields of :class:`ScanRange`: versions, times, the user and its authorizations, the size of pages, and
        ``stale_ms``, with which followers of tables with several replicas answer, too. Raises NotFoundError; for a
        table that was deleted in the last seconds, iterating may raise it instead.
        """
        scan_range = ScanRange(start_row, stop_row, tuple(families), tuple(columns), **options)
        return Scanner(self._locations.of(table), self._pool, self._clock, self._rng, scan_range, self._reasons)

    def _locator(self, table: str) -> Callable[[], TableMap]:
        table_id = self.tables.get(table).table_id
        return lambda: table_map(self.tables.locate(table_id, LOCATE_BUDGET_MS))

    def _reasons(self) -> str:
        """Why tablets are not served before an operator helps, from the leading master; "" if it does not answer."""
        try:
            facts = self._master.call("status", budget_ms=REASONS_BUDGET_MS)
        except BookkeeperError as error:
            LOG.debug("no reasons from the master: %s", error.message)
            return ""
        return "; ".join(dict.fromkeys(text for name, text in sorted(facts.items()) if name.startswith(NEEDS_HELP)))

    def close(self) -> None:
        """Disconnect. A second call does nothing."""
        self._stopped.set()
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def credential_files(
    secret_file: str | Path | None, tls_ca: str | Path | None = None, tls_certificate: str | Path | None = None
) -> CredentialFiles:
    """The files' names as paths."""
    return CredentialFiles(*(None if name is None else Path(name) for name in (secret_file, tls_ca, tls_certificate)))


class _Cluster(NamedTuple):
    """The quorum; and the settings, if the user named a directory."""

    quorum: str
    settings: Settings | None


def _cluster_at(where: str | Path) -> _Cluster:
    if isinstance(where, str) and where.startswith(SCHEME):
        return _Cluster(where, None)
    if isinstance(where, Path) or "/" in where or Path(where).is_dir():
        settings = load_settings(where)
        masters = [settings.master.address]
        if settings.host.cluster:
            masters.insert(0, load_settings(settings.cluster_directory).master.address)
        return _Cluster(",".join(masters), settings)
    if ":" not in where:
        raise NotFoundError(
            f"there is no directory {where}; name the directory of a cluster, its masters HOST:PORT, or its root in "
            "ZooKeeper zk://HOST:PORT/ROOT"
        )
    return _Cluster(where, None)
