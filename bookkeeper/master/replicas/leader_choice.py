"""The leaders of tablets with several replicas: questions to hosts about their states, and elections.

Arrives: live sessions with their hosts; tablets without a leader. Leaves: a session for each tablet that a host can
serve, and a problem in words for each other one. Questions go through the lanes of tservers, one at a time for a host;
the repair needs the answers whichever election chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.master.calls.tserver_calls import TServerCalls
from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.replicas.coordinated_election import CoordinatedElection
from bookkeeper.master.replicas.election import LeaderElection, NewestState, candidates, why_nobody
from bookkeeper.master.replicas.held_states import HeldState, HeldStates, TabletKey, tablet_key
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import MetadataTable, Row
from bookkeeper.model import HostIdentity
from bookkeeper.rpc.contract.messages import HeldReplicaInfo


class LeaderChoice(Struct):
    """The elections of one reign. Thread-safe."""

    table: MetadataTable
    calls: TServerCalls
    changed: Callable[[Collection[bytes]], None]
    """Requests the placement of all tablets: a host has said something new."""
    held: HeldStates
    election: LeaderElection
    _version: int | None = None
    """The news with which no host could lead a tablet; None when no tablet waits."""

    @classmethod
    def by_master(
        cls, table: MetadataTable, calls: TServerCalls, changed: Callable[[Collection[bytes]], None]
    ) -> LeaderChoice:
        """The master elects among the answers to its questions."""
        held = HeldStates()
        return cls(table, calls, changed, held, NewestState(held))

    @classmethod
    def by_coordination(
        cls,
        table: MetadataTable,
        calls: TServerCalls,
        changed: Callable[[Collection[bytes]], None],
        coordination: Coordination,
    ) -> LeaderChoice:
        """Hosts stand in the coordination store."""
        return cls(table, calls, changed, HeldStates(), CoordinatedElection(coordination))

    def ask(self, live: Mapping[str, str], hosts: Mapping[str, HostIdentity]) -> None:
        """Ask each live host what it holds. ``live``: session to address; ``hosts``: session to host."""
        sessions = {host.name: session for session, host in hosts.items() if session in live}
        for host in self.held.begin_questions(sessions):
            session = sessions[host]
            if not self.calls.lanes.submit(session, self._question(host, live[session])):
                self.held.end_question(host)

    def _question(self, host: str, address: str) -> Callable[[], None]:
        def ask() -> None:
            try:
                found = self.calls.tservers.at(address).replicas("", False).replicas
                if self.held.answer(host, dict(map(held_of, found))):
                    self.changed(())
            finally:
                self.held.end_question(host)

        return ask

    def choose(
        self, tablet: TabletView, hosts: Mapping[str, HostIdentity], tablets_of: Mapping[str, int], besides: str = ""
    ) -> str | None:
        """The session that is to lead a tablet, other than ``besides``; None when no live host can. ``hosts``: live
        session to host. Raises TransientError.
        """
        sessions = {host.name: (session, host) for session, host in hosts.items() if session != besides}
        key, version = tablet_key(tablet), self.election.version()
        held = self.election.states_of(key, tablet.replicas)
        able = candidates(tablet.replicas, sessions, held, self._named(tablet), tablets_of)
        if able:
            return self.election.choose(key, able).session
        self._version = version
        return None

    def watch(self) -> None:
        """Request a placement when hosts have said something new since no host could lead a tablet. Raises
        TransientError.
        """
        before = self._version
        if before is not None and self.election.version() != before:
            self._version = None
            self.changed(())

    def why_nobody(self, tablet: TabletView, hosts: Mapping[str, HostIdentity]) -> str:
        """Why no live host can lead a tablet. Raises TransientError."""
        sessions = {host.name: (session, host) for session, host in hosts.items()}
        held = self.election.states_of(tablet_key(tablet), tablet.replicas)
        return why_nobody(tablet.replicas, sessions, held, self._named(tablet))

    def _named(self, tablet: TabletView) -> int:
        return named_state(self.table.get(tablet.row, ("tablet",)))


def named_state(row: Row | None) -> int:
    """The state that the books name, 0 = none: the rank of ``tablet:flush`` is its flush id (R1)."""
    cell = None if row is None else row.cells.get(keys.FLUSH)
    return 0 if cell is None else cell.rank


def held_of(info: HeldReplicaInfo) -> tuple[TabletKey, HeldState]:
    """The answer of a host about one replica, by tablet."""
    held = HeldState(
        placement=info.placement.placement,
        incarnation=info.placement.incarnation,
        root=info.root or 0,
        complete=frozenset(info.complete),
        is_leader=info.is_leader,
        size_bytes=info.bytes,
        files=info.files,
        lacking={lag.host: lag.lacking for lag in info.lags},
        damaged=len(info.damaged),
        lacking_bytes={lag.host: lag.bytes for lag in info.lags},
        incoming_bytes=info.incoming_bytes,
    )
    return (info.extent.table_id, info.directory), held
