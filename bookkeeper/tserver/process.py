"""One tserver process: the order in which its parts start, and the order in which they end.

Start: bind, lock the host's replicas, open the session, read the configuration, open the first log, serve. A clean end:
accept no more calls, flush every tablet, seal the log, close its cells, end the session; so the next holders of the
tablets have nothing to recover. The end gives up operations that wait for room on a disk or for the books. A clean end
that takes too long becomes a crash, and recovery does the remaining work. A lost lease ends the process at once.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable

from msgspec.structs import replace

from bookkeeper.clock import Clock
from bookkeeper.config.host_id import host_id_of
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.coordination_protocol import Coordination, Session
from bookkeeper.coordination.host_holders import hold_host, node_text, refuse_held
from bookkeeper.coordination.host_starts import count_as_wiped_if_older, count_start
from bookkeeper.coordination.lease_file import read_boot_id
from bookkeeper.coordination.shared_settings import agree_in_session, agree_on_all_settings
from bookkeeper.errors import CorruptionError, RefusedError, TransientError
from bookkeeper.log_homes.log_volume import OwnLogs
from bookkeeper.log_homes.opening import SessionLogs, open_homes, open_logs
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.metadata.values import LogHome
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.dispatch import ServedService
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.rpc.rpc_server import Binding, RpcServer
from bookkeeper.rpc.trust.table_rights import TableRights
from bookkeeper.runtime.process_exit import end_process
from bookkeeper.runtime.session_retries import SessionRetries
from bookkeeper.runtime.threads import Die, start_thread
from bookkeeper.security.access import entrance_of, process_credentials
from bookkeeper.storage.replicas.host_store import HostStore
from bookkeeper.storage.volume.opening import open_volume
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.tserver.assembly import Environment, SharedStores, assemble, replicate_calls
from bookkeeper.tserver.master_notices import MasterLink
from bookkeeper.tserver.parts import Parts
from bookkeeper.tserver.service import TServerService

LOG = logging.getLogger(__name__)

SESSION_KIND = "tserver"
LEASE_CHECK_MS = 100
BOOKS_CLOSE_MS = 5_000
STOP_MAX_MS = 30_000
"""A clean end that takes longer is given up: the tablets are away for as long as it lasts."""


class TServerProcess:
    """Runs one tserver. ``die`` is called when the process must not go on."""

    def __init__(
        self,
        settings: Settings,
        coordination: Coordination,
        metadata: MetadataTable,
        clock: Clock,
        die: Die = end_process,
    ) -> None:
        """Bind an address, open the session, and build the parts. Raises OSError, RefusedError when the cluster elects
        leaders in another way, has other settings in common, or this process has no place for its logs, TransientError.
        """
        agree_on_all_settings(coordination, settings)
        self._clock = clock
        self._die = die
        own = settings.instance
        hello = Hello(PROTOCOL_VERSION, own.instance_id, own.name, SESSION_KIND)
        entrance = entrance_of(settings)
        self._service = TServerService(own.instance_id, TableRights(entrance.accepted, clock))
        self._server = RpcServer(
            ServedService("TServer", self._service, call_limits(settings)),
            hello,
            settings.rpc,
            clock,
            binding=Binding(port=settings.tserver.port, announced_port=settings.tserver.announced_port),
            entrance=entrance,
        )
        self._pool = RpcPool(hello, settings.rpc, clock, process_credentials(settings))
        self._host = open_host(settings)
        self._session = self._open_session(settings, coordination)
        self._ended = threading.Event()
        self._retries = SessionRetries(self._session, clock, random.Random(), self._confirming(settings, coordination))
        self._master = MasterLink(coordination, self._pool, self.session_id, clock, die)
        volume = open_volume(settings)
        self._homes = open_homes(metadata, volume)
        self._session_logs = self._place_of_logs(settings, volume)
        self._session_logs.begin(self._homes)
        self._parts = assemble(
            Environment(
                settings=settings,
                stores=SharedStores(
                    volume=volume,
                    logs=open_logs(volume, self._homes, coordination, self._pool.tserver, clock, own_logs(self._host)),
                    own_logs=self._session_logs.volume,
                    coordination=coordination,
                    metadata=metadata,
                ),
                clock=clock,
                session=self._session,
                address=self.address,
                pool=self._pool,
                master=self._master,
                retries=self._retries,
                die=die,
                host=self._host,
            )
        )

    def _open_session(self, settings: Settings, coordination: Coordination) -> Session:
        """The session, with the host that this process holds. Where hosts share no directory, the tree has which node
        holds it. A start is counted on the disk and in the store. Raises UnavailableError, CorruptionError,
        RefusedError.
        """
        if self._host is None:
            session = coordination.open_session(SESSION_KIND, self._server.address)
            agree_in_session(session, coordination, settings)
            return session
        host_id, node = host_id_of(settings), node_text(read_boot_id(), *self._host.lock_file)
        if host_id:
            refuse_held(coordination, settings.host.name, host_id, node)
        count_as_wiped_if_older(coordination, self._host)
        identity = replace(self._host.identity, zone=settings.host.zone)
        session = coordination.open_session(SESSION_KIND, self._server.address, identity)
        agree_in_session(session, coordination, settings)
        try:
            if host_id:
                hold_host(coordination, settings.host.name, host_id, node, session.session_id)
            count_start(coordination, self._host)
        except BaseException:
            session.close()
            raise
        return session

    def _confirming(self, settings: Settings, coordination: Coordination) -> Callable[[], None]:
        """The look whether others count this process as dead, where they reach no fence of its logs; else nothing."""
        if settings.storage.logs == "shared" or self._host is None:
            return lambda: None
        return lambda: coordination.confirm(self._session)

    def _place_of_logs(self, settings: Settings, volume: Volume) -> SessionLogs:
        """Where this session makes its logs: the setting decides for new sessions only."""
        own = own_logs(self._host)
        if settings.storage.logs == "shared" or own is None:
            return SessionLogs(self.session_id, volume)
        return SessionLogs(self.session_id, own.volume, own.home)

    @property
    def address(self) -> str:
        """``host:port`` where it answers."""
        return self._server.address

    @property
    def session(self) -> Session:
        """Its session."""
        return self._session

    @property
    def session_id(self) -> str:
        """Its session's id."""
        return self._session.session_id

    @property
    def parts(self) -> Parts:
        """Its parts."""
        return self._parts

    def start(self) -> None:
        """Serve."""
        parts = self._parts
        start_thread("lease", self._watch_lease, self._die)
        self._master.start()
        parts.tablets.sorter.start()
        parts.writing.times.start()
        parts.writing.bookkeeper.start()
        parts.tablets.flusher.start()
        parts.tablets.compactor.start()
        parts.tablets.leading.start()
        parts.tablets.late_uses.start()
        parts.receiving.index.start()
        parts.bulk.uploads.start()
        if parts.replicas is not None:
            parts.replicas.start()
        parts.writing.configuration.start()
        self._service.attach(parts)
        LOG.info("session %s serves at %s", self.session_id, self.address)
        self._server.start()

    def stop(self) -> None:
        """End cleanly; unfinished work is left to recovery, and no acknowledged record is lost."""
        parts = self._parts
        LOG.info("session %s ends", self.session_id)
        start_thread("stop", self._watch_stop, self._die)
        self._server.stop()
        self._retries.stop()
        parts.worker.stop()
        parts.writing.configuration.close()
        parts.tablets.compactor.close()
        parts.tablets.flusher.close()
        parts.bulk.receiver.close()
        parts.receiving.receiver.close()
        parts.bulk.uploads.close()
        if parts.replicas is not None:
            parts.replicas.close()
        parts.tablets.loader.unload_all()
        parts.tablets.late_uses.close()
        parts.tablets.leading.close()
        parts.writing.committer.close()
        parts.tablets.sorter.close()
        parts.receiving.index.close()
        parts.writing.bookkeeper.close(BOOKS_CLOSE_MS)
        parts.writing.times.close()
        self._note_end_of_logs()
        self._master.close()
        self._ended.set()
        self._session.close()
        if self._host is not None:
            self._host.close()
        self._pool.close()
        LOG.info("session %s has ended", self.session_id)

    def _note_end_of_logs(self) -> None:
        try:
            self._session_logs.end(self._homes)
        except (OSError, TransientError) as error:
            LOG.warning("session %s ends, and tablets may wait for its host: %s", self.session_id, error)

    def _watch_stop(self) -> None:
        if not self._clock.wait(self._ended, STOP_MAX_MS):
            self._die(f"session {self.session_id} did not end in {STOP_MAX_MS} ms; the rest is left to recovery")

    def _watch_lease(self) -> None:
        while not self._clock.wait(self._ended, LEASE_CHECK_MS):
            if not self._session.is_valid() and not self._ended.is_set():
                self._die(f"session {self.session_id} is over: others may serve its tablets by now")
                return


def open_host(settings: Settings) -> HostStore | None:
    """The replicas of this directory, locked for this process. None, with a line in the log, while another process of
    the directory has the lock and when the incarnation is damaged: this tserver then holds no replicas, and it serves
    tables with one replica. Raises UnavailableError, and RefusedError when there is no common Volume: such a tserver
    has no place for its logs then.
    """
    try:
        return HostStore.open(settings.replicas_dir, settings.host.name)
    except (RefusedError, CorruptionError) as error:
        if settings.storage.volume == "none":
            raise RefusedError(
                f"{error.message}; without the host's disk this tserver has no place for its logs, because all hosts "
                "reach none (storage.volume = none)"
            ) from error
        level = logging.INFO if isinstance(error, RefusedError) else logging.ERROR
        LOG.log(level, "this tserver holds no replicas: %s", error.message)
    return None


def own_logs(host: HostStore | None) -> OwnLogs | None:
    """The disk of the host that this process holds."""
    return None if host is None else OwnLogs(LogHome(host.identity.name, host.identity.incarnation), host.volume)


def call_limits(settings: Settings) -> dict[str, int]:
    """Calls of a method that run at the same time; the others share all threads."""
    eighth = max(1, settings.rpc.threads_max // 8)
    return {"replicate": replicate_calls(settings), "offer_segments": eighth, "take_segments": eighth}
