"""The term of a leader: this host may lead a tablet, and its term begins (N5).

The start is the state that the books name; what the host holds beyond it is in the logs that the load replays (N6). The
term begins with a major without files, which followers take whatever their root is, and deposed senders get INVALID.
The term is the serial of the load, so two leaders never share one. Rules: R1, N1, N5 and N6.
"""

from __future__ import annotations

from bookkeeper.errors import RefusedError, unavailable
from bookkeeper.replicas.events import LeaderNamed, Wrote
from bookkeeper.replicas.instructions import Name
from bookkeeper.replicas.values import Stage, state_id, term_of
from bookkeeper.storage.replicas.manifest import ReplicaKey
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.tserver.leading.leader_chain import LeaderChain, positions_of
from bookkeeper.tserver.leading.led_tablets import LedTablets
from bookkeeper.tserver.leading.tablet_replicas import check_complete, own_replica, targets_on
from bookkeeper.tserver.replicas.held_replica import HeldReplica
from bookkeeper.tserver.replicas.held_replicas import HeldReplicas
from bookkeeper.tserver.tablets.load_plan import Recovered, TabletRow
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_segments import merged_state


class Candidacy:
    """A tablet that this host may lead; its term has not begun."""

    def __init__(self, row: TabletRow, held: HeldReplica, volume: Volume, led: LedTablets) -> None:
        self._row = row
        self._held = held
        self._volume = volume
        self._led = led

    @property
    def volume(self) -> Volume:
        """The files of this host."""
        return self._volume

    def begin(self, tablet: ServedTablet, recovered: Recovered) -> None:
        """Begin the term of a loaded tablet, behind all that it has replayed. Raises RefusedError when the host has
        heard of a newer term, UnavailableError.
        """
        held, row = self._held, self._row
        first = state_id(tablet.serial, 0)
        compacted = 0 if row.flush is None else row.flush.compacted
        states = {first: merged_state(row.flush, first, tablet.data.segments, compacted).encode()}
        named = None
        if row.flush is not None:
            states[row.flush.flush_id] = row.flush.encode()
            named = Name(
                row.flush.flush_id, row.flush.segments, positions_of(term_of(row.flush.flush_id), row.flush.last_seq)
            )
        if tablet.data.memory_records:
            held.apply(Wrote())
        replayed = positions_of(tablet.serial, recovered.next_seq - 1)
        held.apply(LeaderNamed(held.replica.host, tablet.serial, named, replayed), (), states)
        chain = LeaderChain(tablet, held, self._volume, row.replicas, row.flush)
        if not chain.leads:
            raise RefusedError(f"tablet {row.extent} has a newer leader: read its location again")
        held.add_reader(tablet.data.names_in_use)
        self._led.add(chain)


class Terms:
    """Decides which tablets this host may lead."""

    def __init__(self, held: HeldReplicas | None, led: LedTablets) -> None:
        """``held`` None: another process of the host's directory holds its replicas."""
        self._held = held
        self._led = led

    def candidacy(self, row: TabletRow) -> Candidacy | None:
        """None for a tablet without replicas. Raises RefusedError with the reason why this host can't lead the tablet,
        CorruptionError for a damaged manifest, UnavailableError.
        """
        if not row.replicas:
            return None
        if self._held is None:
            raise RefusedError(
                f"tablet {row.extent} has replicas, and this process holds none: assign it to the process that holds "
                "the replicas of its host"
            )
        host = self._held.host
        own = own_replica(row.replicas, row.extent, host)
        key = ReplicaKey(row.extent.table_id, row.directory)
        targets = targets_on(row.replicas, row.extent, host.name)
        held = self._held.open(key, row.extent, own.placement.id, Stage.LIVE, targets)
        named = () if row.flush is None else row.flush.segments
        check_complete(named, held.replica.files, row.extent, host.name)
        try:
            held.delete_unlisted()
        except OSError as error:
            raise unavailable(
                f"files of an interrupted flush of tablet {row.extent} can't be removed", error
            ) from error
        return Candidacy(row, held, self._held.store.volume, self._led)
