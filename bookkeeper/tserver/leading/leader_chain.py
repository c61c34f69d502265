"""One tablet that this host leads: the states that it makes, and the logs that wait until a state is named.

The machine (``bookkeeper.replicas``) decides, and the manifest is durable before a decision is followed. Ids of states
are those of the machine: the term in the upper bits, then a counter. A new state's id is fixed under the lock of this
module, because a target that declines out of order makes the machine add a major (P1).

Positions in logs (N1) are counted in the sequence numbers of the tablet: all records that a term has replayed or
written are numbered in one order, and a flush has all of them up to its last one. Rules: R1, R4, N1, N2, N3 and P11.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from bookkeeper.bulk.booked_segment import segment_entry
from bookkeeper.config.table_properties import TableProperties, copies_needed
from bookkeeper.errors import UnavailableError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Column, RowPut
from bookkeeper.metadata.values import FlushState
from bookkeeper.replicas.chain import live_chain
from bookkeeper.replicas.events import Compacted, Event, Flushed, LeaderNamed, NameDue, ReplyArrived, TargetsChanged
from bookkeeper.replicas.instructions import Decision, Name
from bookkeeper.replicas.making import may_forget_deletes, next_id
from bookkeeper.replicas.messages import Decline, Reason
from bookkeeper.replicas.placements import RowReplica
from bookkeeper.replicas.progress import TargetProgress, progress
from bookkeeper.replicas.rules import CORRECTED
from bookkeeper.replicas.values import Positions, Replica, term_of
from bookkeeper.storage.replicas.file_checks import held_file
from bookkeeper.storage.replicas.manifest import HeldFile
from bookkeeper.storage.tablet.segments.segment_format import SegmentRef
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.tserver.leading.tablet_replicas import targets_on, voters_in
from bookkeeper.tserver.replicas.held_replica import HeldReplica
from bookkeeper.tserver.tablets import tablet_segments
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.tablets.tablet_flushes import FlushPoint


def positions_of(serial: int, last_seq: int) -> Positions:
    """The tablet's records that a state of this term has: all up to a sequence number."""
    return ((serial, last_seq),)


def taken_terms(replica: Replica) -> tuple[int, ...]:
    """For each target, the term of the newest state that it has acknowledged (P17); 0 for none."""
    return tuple(
        max((term_of(entry.segment.id) for entry in replica.entries if target.placement in entry.acked), default=0)
        for target in replica.targets
    )


class LeaderChain:
    """Thread-safe. Flushes and compactions come with the tablet's flush lock held."""

    def __init__(
        self,
        tablet: ServedTablet,
        held: HeldReplica,
        volume: Volume,
        replicas: Sequence[RowReplica],
        named: FlushState | None,
    ) -> None:
        """``volume``: of this host. ``replicas``: those of the tablet's row. ``named``: the state from which the term
        began.
        """
        self._tablet = tablet
        self._held = held
        self._volume = volume
        self._replicas = tuple(replicas)
        self._named_id = None if named is None else named.flush_id
        self._booked = frozenset(() if named is None else named.segments)
        """The files of the named state: these have cells."""
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._progress: tuple[Replica, Mapping[str, TargetProgress]] | None = None
        self._root_seq: tuple[bytes, int] | None = None
        self._unnamed_logs: list[tuple[int, Mapping[str, int]]] = []
        """States, each with the logs that it makes unneeded; their cells go when a state at or above it is named."""
        self._unnamed_cells: list[tuple[int, Mapping[Column, bytes]]] = []
        """States, each with more cells that come into the row with its name, or with that of a later one."""

    # ---- facts

    @property
    def tablet(self) -> ServedTablet:
        """The tablet."""
        return self._tablet

    @property
    def held(self) -> HeldReplica:
        """Its replica on this host."""
        return self._held

    @property
    def volume(self) -> Volume:
        """The files of this host."""
        return self._volume

    @property
    def replica(self) -> Replica:
        """The machine's state at this moment."""
        return self._held.replica

    @property
    def replicas(self) -> tuple[RowReplica, ...]:
        """Those that the tablet's row named when it was last read."""
        return self._replicas

    @property
    def named_id(self) -> int | None:
        """The newest state of this tablet that the books name, as this leader knows it."""
        return self._named_id

    @property
    def progress(self) -> Mapping[str, TargetProgress]:
        """By host, what each target lacks; computed once for each change of the replica, because lanes often ask."""
        replica, known = self.replica, self._progress
        if known is None or known[0] is not replica:
            known = self._progress = replica, {one.host: one for one in progress(replica, CORRECTED)}
        return known[1]

    @property
    def is_named(self) -> bool:
        """Whether the books name the newest state, and no log waits."""
        return self.replica.root == self._named_id and not self._unnamed_logs

    @property
    def leads(self) -> bool:
        """Whether this host still takes itself for the leader of the tablet's term."""
        replica = self.replica
        return replica.is_leader and replica.led == self._tablet.serial

    def complete_state(self) -> int | None:
        """The newest state, if it has every record of the tablet; None while memory or a given-up log has one that it
        lacks.
        """
        if self._tablet.given_up.awaits_tails:
            return None
        last_seq = self._tablet.next_seq - 1
        manifest = self._held.manifest
        root = manifest.replica.root
        raw = None if root is None else manifest.states.get(root)
        return root if raw is not None and self._last_seq_of(raw) >= last_seq else None

    def _last_seq_of(self, raw: bytes) -> int:
        """Of the newest state; read once for each state, because each lane asks every two seconds."""
        known = self._root_seq
        if known is None or known[0] is not raw:
            known = self._root_seq = raw, FlushState.decode(raw).last_seq
        return known[1]

    def may_forget_deletes(self) -> bool:
        """Rule P17: whether a compaction may drop deletes."""
        replica = self.replica
        return may_forget_deletes(replica, taken_terms(replica), self._tablet.given_up.awaits_tails, CORRECTED)

    # ---- new states

    def flushed(self, point: FlushPoint, segments: Sequence[SegmentRef]) -> None:
        """Add the segments of a flush, durable here, and the state behind it. A retry changes nothing. Raises
        UnavailableError.
        """
        files = self._held_files(segments)
        with self._lock:
            self._check_leads()
            if files and all(file.name in self.replica.files for file in files):
                return
            state_id = next_id(self.replica)
            state = replace(point.state, flush_id=state_id)
            event = Flushed(
                tuple(file.name for file in files), positions_of(self._tablet.serial, state.last_seq), state_id
            )
            self._held.apply(event, files, {state_id: state.encode()})
            point.segments_written(segments, state)
            self._unnamed_logs.append((state_id, dict(point.logs)))
            self._tablet.flushes.retain_logs(point.logs)

    def merged(self, inputs: set[str], written: Sequence[SegmentRef], compacted: int) -> None:
        """Let the written segments take the place of the inputs, durable here. The base is the root of this moment, so
        what was flushed meanwhile stays in the list (P11). Raises UnavailableError.
        """
        files = self._held_files(written)
        with self._lock:
            self._check_leads()
            replica, tablet = self.replica, self._tablet
            state_id = next_id(replica)
            left = [ref for ref in tablet.data.segments if ref.name not in inputs]
            state = tablet_segments.merged_state(tablet.flushes.state, state_id, [*left, *written], compacted)
            event = Compacted(
                tuple(segment.id for segment in live_chain(replica, CORRECTED)),
                tuple(file.name for file in files),
                state_id,
                tuple(sorted(inputs)),
            )
            self._held.apply(event, files, {state_id: state.encode()})
            tablet.segments_replaced(inputs, written, state)

    def adopted(self, segments: Sequence[SegmentRef], state: FlushState, cells: Mapping[Column, bytes]) -> FlushState:
        """Add the segments of an import, durable here, and the state behind it; the tablet takes no writes, and nothing
        of it is in memory. ``cells`` of the row come into the books with the state's name. Returns the state with its
        id. Raises UnavailableError.
        """
        files = self._held_files(segments)
        with self._lock:
            self._check_leads()
            state_id = next_id(self.replica)
            made = replace(state, flush_id=state_id)
            event = Flushed(
                tuple(file.name for file in files), positions_of(self._tablet.serial, made.last_seq), state_id
            )
            self._held.apply(event, files, {state_id: made.encode()})
            self._unnamed_cells.append((state_id, dict(cells)))
            return made

    def _held_files(self, segments: Sequence[SegmentRef]) -> list[HeldFile]:
        return [held_file(self._volume, ref.name, segment_entry(ref).encode()) for ref in segments]

    def _check_leads(self) -> None:
        if not self.leads:
            raise UnavailableError(f"tablet {self._tablet.extent} has a newer leader: its records are in the logs")

    # ---- other events

    def apply(self, event: Event) -> Decision:
        """See :meth:`HeldReplica.apply`. A major without files that the machine adds (P1) has the state of its base."""
        with self._lock:
            return self._held.apply(event, (), self._state_of_major(event))

    def _state_of_major(self, event: Event) -> Mapping[int, bytes]:
        reply = event.reply if isinstance(event, ReplyArrived) else None
        replica = self.replica
        if not isinstance(reply, Decline) or reply.reason is not Reason.OUT_OF_ORDER or replica.root is None:
            return {}
        state_id = next_id(replica)
        return {state_id: replace(self._state(replica.root), flush_id=state_id).encode()}

    def _state(self, state_id: int) -> FlushState:
        return FlushState.decode(self._held.manifest.states[state_id])

    def placed(self, replicas: Sequence[RowReplica]) -> bool:
        """The tablet's row names these replicas now; returns whether that is new. Raises UnavailableError."""
        with self._lock:
            if tuple(replicas) == self._replicas:
                return False
            self._held.apply(TargetsChanged(targets_on(replicas, self._tablet.extent, self.replica.host)))
            self._replicas = tuple(replicas)
            return True

    def end(self) -> None:
        """Lead no longer: no state is made or named from here on. Raises UnavailableError."""
        with self._lock:
            self._held.apply(LeaderNamed(None, self._tablet.serial))
            self._changed.notify_all()

    # ---- names

    def due_name(self, properties: TableProperties) -> Name | None:
        """The state to name now, by what this leader knows of the row (N1, N3); None for none. ``properties``: of the
        tablet's table.
        """
        voters = voters_in(self._replicas)
        event = NameDue(voters, copies_needed(properties, len(voters)), self._named_id)
        for one in self.apply(event):
            if isinstance(one, Name):
                return one
        return None

    def name_put(self, name: Name) -> RowPut:
        """The row put that names a state: ``tablet:flush``, cells of the files that have none, and those of imports."""
        manifest = self._held.manifest
        cells: dict[Column, bytes] = {
            keys.segment_column(file): manifest.files[file].entry for file in name.files if file not in self._booked
        }
        for state_id, more in self._unnamed_cells:
            if state_id <= name.state_id:
                cells.update(more)
        cells[keys.FLUSH] = manifest.states[name.state_id]
        return RowPut(self._tablet.row, cells)

    def named(self, name: Name) -> frozenset[str]:
        """The books name this state now. Returns the files that the state before had and this one has not."""
        with self._lock:
            dead = self._booked - set(name.files)
            self._named_id = name.state_id
            self._booked = frozenset(name.files)
            self._unnamed_cells = [one for one in self._unnamed_cells if one[0] > name.state_id]
            self._changed.notify_all()
            return dead

    def logs_due(self) -> list[tuple[int, Mapping[str, int]]]:
        """Logs whose cells may go because a named state has their records."""
        with self._lock:
            named = self._named_id
            return [one for one in self._unnamed_logs if named is not None and one[0] <= named]

    def logs_gone(self, state_id: int) -> None:
        """The cells of this state's logs, and of those before it, are deleted."""
        with self._lock:
            self._unnamed_logs = [one for one in self._unnamed_logs if one[0] > state_id]
            left: dict[str, int] = {}
            for _, logs in self._unnamed_logs:
                left |= logs
            self._tablet.flushes.release_logs(left)
            self._changed.notify_all()

    def wait_named(self, patience_ms: float) -> bool:
        """Wait until the newest state is named, or the patience is over; returns whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_named or not self.leads, patience_ms / 1000) and self.is_named
