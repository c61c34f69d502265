"""One master process: it serves at its fixed address, campaigns, leads if it can, and ends when its lease does.

A process that loses its lease ends. Its supervisor starts a new one, which campaigns with a new session.
"""

from __future__ import annotations

import logging
import random
import threading

from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_changes import register_instance
from bookkeeper.coordination.config_tree import Instance
from bookkeeper.coordination.coordination_protocol import Coordination, Session
from bookkeeper.coordination.shared_settings import agree_in_session, agree_on_all_settings
from bookkeeper.errors import BookkeeperError, LeaseLostError, TransientError
from bookkeeper.master.leadership import Leadership, assemble
from bookkeeper.master.reign.leader import campaign
from bookkeeper.master.service import CONCURRENCY, MasterService
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.dispatch import ServedService
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.rpc.rpc_server import Binding, RpcServer
from bookkeeper.rpc.trust.table_rights import TableRights
from bookkeeper.security.access import entrance_of, peer_credentials, process_credentials

LOG = logging.getLogger(__name__)

MASTER_KIND = "master"
CAMPAIGN_AGAIN_MS = 100
PUBLISH_AGAIN_MS = 1_000


def binding_of(settings: Settings, port: int | None) -> Binding:
    """The address of a master; with a ``port`` of its own it announces that one."""
    named = settings.master
    if port is not None:
        return Binding(named.host, port, named.announced_host)
    return Binding(named.host, named.port, named.announced_host, named.announced_port)


class MasterProcess:
    """Assembles and runs one master."""

    def __init__(
        self,
        settings: Settings,
        coordination: Coordination,
        table: MetadataTable,
        clock: Clock,
        *,
        port: int | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Bind the address (``port`` other than the settings' for a second master on one machine), open the session.

        Raises OSError when the port is taken, RefusedError when the stores belong to another cluster, or the cluster
        elects leaders in another way or has other settings in common, TransientError.
        """
        own = settings.instance
        hello = Hello(PROTOCOL_VERSION, own.instance_id, own.name, MASTER_KIND)
        register_instance(coordination, Instance(own.instance_id, own.name))
        agree_on_all_settings(coordination, settings)
        self._settings, self._coordination, self._table, self._clock = settings, coordination, table, clock
        self._rng = rng or random.Random()
        entrance = entrance_of(settings)
        self._service = MasterService(coordination, TableRights(entrance.accepted, clock))
        self._server = RpcServer(
            ServedService("Master", self._service, CONCURRENCY),
            hello,
            settings.rpc,
            clock,
            binding=binding_of(settings, port),
            entrance=entrance,
        )
        self._pool = RpcPool(hello, settings.rpc, clock, process_credentials(settings))
        self._peer_pool = RpcPool(hello, settings.rpc, clock, peer_credentials(settings))
        self._session: Session = coordination.open_session(MASTER_KIND, self._server.address)
        agree_in_session(self._session, coordination, settings)
        self._leadership: Leadership | None = None
        self._published: bool | None = None
        """Whether this master led when its address was published; None: it was not."""
        self._publish_ns = 0

    @property
    def address(self) -> str:
        """``host:port`` of its RPC server."""
        return self._server.address

    @property
    def service(self) -> MasterService:
        """The handler of its calls."""
        return self._service

    @property
    def session(self) -> Session:
        """Its own session."""
        return self._session

    @property
    def pool(self) -> RpcPool:
        """Its connections to processes of this cluster."""
        return self._pool

    @property
    def leadership(self) -> Leadership | None:
        """The parts of its reign; None until it leads."""
        return self._leadership

    def run(self, stop: threading.Event) -> None:
        """Serve and campaign until ``stop`` is set. Raises LeaseLostError when the session is over."""
        self._server.start()
        LOG.info("master %s answers at %s", self._session.session_id, self.address)
        try:
            while not self._clock.wait(stop, CAMPAIGN_AGAIN_MS):
                self._session.check()
                self._publish()
                if self._leadership is None:
                    self._try_to_lead()
        finally:
            self._end()

    def _try_to_lead(self) -> None:
        try:
            reign = campaign(self._coordination, self._session)
            if reign is None:
                return
            leadership = assemble(
                self._settings,
                self._coordination,
                self._table,
                self._pool,
                self._peer_pool,
                reign,
                self._clock,
                self._rng,
            )
        except LeaseLostError:
            raise
        except TransientError as error:
            LOG.warning("can't lead yet: %s", error.message)
            return
        LOG.info("master %s leads, epoch %d", self._session.session_id, reign.epoch)
        self._leadership = leadership
        leadership.start()
        self._service.attach(leadership)

    def _publish(self) -> None:
        """Publish the masters when this one is new among them, and when it begins to lead."""
        leads, now_ns = self._leadership is not None, self._clock.boot_ns()
        if self._published is leads or now_ns < self._publish_ns:
            return
        try:
            self._coordination.publish_masters(self._settings.instance.instance_id)
        except LeaseLostError:
            raise
        except BookkeeperError as error:
            LOG.warning("the address of this master is not published yet: %s", error.message)
            self._publish_ns = now_ns + PUBLISH_AGAIN_MS * 1_000_000
        else:
            self._published = leads

    def _end(self) -> None:
        self._service.attach(None)
        if self._leadership is not None:
            self._leadership.stop()
        self._server.stop()
        self._session.close()
        self._pool.close()
        self._peer_pool.close()
