"""The rows of the books about replicas beside what hosts say: sums of each host, and the state of one tablet. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set

from msgspec import Struct, field
from msgspec.structs import replace

from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.index.tablet_replicas import TabletReplica
from bookkeeper.metadata.values import JOINING
from bookkeeper.rpc.contract.messages import (
    HeldReplicaInfo,
    HeldReplicas,
    HeldSegment,
    ReplicaStanding,
    SegmentStanding,
    TabletReplicas,
    UnlistedFile,
    WaitingFiles,
)

LEAVING = "leaving"
"""The role of a replica that votes no more, and goes once enough others have the tablet."""

TabletKey = tuple[str, str]
"""Table and directory of a tablet."""

Answer = tuple[Mapping[TabletKey, HeldReplicaInfo] | None, str]
"""The replicas of a host by tablet, or None; and a problem in words."""


def key_of(view: TabletView) -> TabletKey:
    """The key of a tablet on every host."""
    return view.extent.table_id, view.directory


def answer_of(held: HeldReplicas) -> Answer:
    """The answer of a host."""
    found = {(info.extent.table_id, info.directory): info for info in held.replicas}
    files = sum(len(info.damaged) for info in held.replicas)
    problems = [f"{files} damaged files, which other hosts are asked for"] if files else []
    disk = [held.disk_problem] if held.disk_problem else []
    return found, "; ".join([*disk, *held.damaged.values(), *problems])


class NamedFiles(Struct, frozen=True):
    """The state that the books name, 0 = none, and its files."""

    state_id: int = 0
    files: frozenset[str] = frozenset()


# ---- one tablet


def tablet_standing(
    view: TabletView,
    named: NamedFiles,
    copies_needed: int,
    wanted: int,
    sessions: Mapping[str, str],
    answers: Mapping[str, Answer],
    problem: str,
    lost_logs: tuple[str, ...] = (),
    warning: str | None = None,
    leaving: Set[str] = frozenset(),
) -> TabletReplicas:
    """The replicas of a row. ``sessions``: of live hosts, by name; ``problem``: why no host leads it; ``lost_logs``:
    those that it is served without; ``warning``: what it lacks or waits for though it is served; ``leaving``: the hosts
    whose replica votes no more and goes.
    """
    standings = [
        as_leaving(found) if found.host in leaving and found.role == JOINING else found
        for found in (standing(view, one, sessions, answers[one.host], named) for one in view.replicas)
    ]
    segments = segment_standings(standings, named.state_id, copies_needed)
    return TabletReplicas(
        view.extent,
        named.state_id,
        copies_needed,
        tuple(without_segments(one) for one in standings),
        view.directory,
        wanted,
        "" if any(one.leads for one in standings) else problem,
        tuple(segments),
        lost_logs,
        warning,
    )


def standing(
    view: TabletView, replica: TabletReplica, sessions: Mapping[str, str], answer: Answer, named: NamedFiles
) -> ReplicaStanding:
    """A replica of a row, beside what its host says."""
    held, problem = answer
    leads = view.session is not None and sessions.get(replica.host) == view.session
    cell = replica.cell
    found = None if held is None else held_for(replica, held.get(key_of(view)))
    if held is not None and found is None and not problem:
        problem = "the host holds nothing of it"
    waiting = () if found is None else waiting_files(found, named)
    return ReplicaStanding(replica.host, cell.placement, cell.role, leads, found, problem, waiting)


def as_leaving(found: ReplicaStanding) -> ReplicaStanding:
    """A replica whose cell is that of one that joins, and which goes."""
    return replace(found, role=LEAVING)


def held_for(replica: TabletReplica, info: HeldReplicaInfo | None) -> HeldReplicaInfo | None:
    """The replica on a host, if it is the placement of the row; None for another placement, or one on a wiped disk."""
    if info is None:
        return None
    placed = info.placement
    is_same = (placed.placement, placed.incarnation) == (replica.cell.placement, replica.cell.incarnation)
    return info if is_same else None


def without_segments(found: ReplicaStanding) -> ReplicaStanding:
    """The same replica; its segments are in those of the tablet, and its unlisted files in ``waiting``."""
    if found.held is None:
        return found
    return replace(found, held=replace(found.held, segments=(), unlisted=()))


# ---- segments of a tablet


def segment_standings(replicas: Sequence[ReplicaStanding], named_id: int, copies_needed: int) -> list[SegmentStanding]:
    """The segments that any host has of a tablet, oldest first."""
    found: dict[int, dict[str, HeldSegment]] = {}
    for one in replicas:
        for held in () if one.held is None else one.held.segments:
            found.setdefault(held.segment.segment_id, {})[one.host] = held
    voters = {one.host for one in replicas if one.role == "voter"}
    leader = next((one.host for one in replicas if one.leads), "")
    standings = []
    for segment_id, holders in sorted(found.items()):
        complete = sorted(host for host, held in holders.items() if held.is_complete)
        segment = next(iter(holders.values())).segment
        acked = () if leader not in holders else holders[leader].acked
        standings.append(
            SegmentStanding(
                segment_id,
                segment.base,
                segment.is_major,
                len(segment.files),
                max(held.bytes for held in holders.values()),
                len(segment.retained),
                tuple(complete),
                tuple(sorted(one.host for one in acked)),
                segment_note(segment_id, named_id, len(voters.intersection(complete)), copies_needed),
            )
        )
    return standings


def segment_note(segment_id: int, named_id: int, copies: int, copies_needed: int) -> str:
    """The reason why a segment waits."""
    if segment_id == named_id:
        return "named by the books"
    if segment_id < named_id:
        return "older than the named state: its files go when no newer state lists them"
    if copies < copies_needed:
        return f"to be named: {copies} of {copies_needed} copies are there"
    return "to be named"


# ---- files that wait to be deleted


def waiting_files(info: HeldReplicaInfo, named: NamedFiles) -> tuple[WaitingFiles, ...]:
    """The files that the newest state of a replica does not list, by the reason why they are still there (N4)."""
    later = {
        name: held.segment.segment_id
        for held in info.segments
        if held.segment.segment_id > named.state_id
        for name in (*held.segment.files, *held.segment.retained)
    }
    by_reason: dict[str, list[UnlistedFile]] = {}
    for file in info.unlisted:
        by_reason.setdefault(deletion_reason(file, named, later), []).append(file)
    return tuple(
        WaitingFiles(reason, tuple(file.name for file in files), sum(file.bytes for file in files))
        for reason, files in sorted(by_reason.items())
    )


def deletion_reason(file: UnlistedFile, named: NamedFiles, later: Mapping[str, int]) -> str:
    """Why a host may not delete a file yet. ``later``: by file, a state above the named one that lists it."""
    if not named.state_id:
        return "the books name no state yet"
    if file.name in named.files:
        return f"the books name state {named.state_id}, which lists them; they go when a newer state is named"
    if file.name in later:
        return f"state {later[file.name]}, which may be named next, lists them"
    if file.in_use:
        return "a reader, a copy or a segment under way uses them"
    return "nothing needs them: the collector deletes them within two minutes"


# ---- the sums of hosts


class HostSums(Struct):
    """Sums over tablets, by host."""

    replicas: Counter[str] = field(default_factory=Counter)
    joining: Counter[str] = field(default_factory=Counter)
    leaving: Counter[str] = field(default_factory=Counter)
    leads: Counter[str] = field(default_factory=Counter)
    lacking_segments: Counter[str] = field(default_factory=Counter)
    lacking_bytes: Counter[str] = field(default_factory=Counter)
    unsent_segments: Counter[str] = field(default_factory=Counter)
    unsent_bytes: Counter[str] = field(default_factory=Counter)
    joining_bytes: Counter[str] = field(default_factory=Counter)
    joined_bytes: Counter[str] = field(default_factory=Counter)

    def add(
        self, view: TabletView, leader: str | None, answers: Mapping[str, Answer], leaving: Set[str] = frozenset()
    ) -> None:
        """Count a tablet. ``leader``: the host that serves it; ``leaving``: the hosts whose replica goes."""
        key = key_of(view)
        found = {one.host: (answers[one.host][0] or {}).get(key) for one in view.replicas}
        held = {one.host: info for one in view.replicas if (info := held_for(one, found[one.host])) is not None}
        self.replicas.update(one.host for one in view.replicas)
        self.leaving.update(one.host for one in view.replicas if not one.is_voter and one.host in leaving)
        self.joining.update(one.host for one in view.replicas if not one.is_voter and one.host not in leaving)
        if leader is None:
            return
        self.leads[leader] += 1
        lags = held[leader].lags if leader in held else ()
        for lag in lags:
            self.lacking_segments[lag.host] += lag.lacking
            self.lacking_bytes[lag.host] += lag.bytes
            self.unsent_segments[leader] += lag.lacking
            self.unsent_bytes[leader] += lag.bytes
        to_come = {lag.host: lag.bytes for lag in lags}
        for one in view.replicas:
            if not one.is_voter and one.host in to_come and one.host not in leaving:
                here = held.get(one.host)
                durable, incoming = (0, 0) if here is None else (here.bytes, here.incoming_bytes)
                self.joining_bytes[one.host] += durable + to_come[one.host]
                self.joined_bytes[one.host] += durable + min(incoming, to_come[one.host])
