"""Facts and calls of a hostile process of the cluster: a host that was taken over has the cluster's own secret.

Arrives: what such a process can ask other processes for. Leaves: calls that are right but for what an
:class:`~tests.soak.fuzz.Attacker` changes in them, names with hostile ends, and a decision about calls that the product
does not claim to withstand (docs/design/trust.md). Pure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from bookkeeper.rpc.contract.messages import (
    FileRequest,
    HeldReplicaInfo,
    ReplicaFile,
    ReplicaPlacement,
    SegmentOffer,
    SegmentRecord,
    SegmentTransit,
    StateConfirmation,
    TabletAssignment,
)
from bookkeeper.storage.replicas.file_checks import extended
from bookkeeper.storage.volume.names import tablet_directory

FAR = 1 << 20
"""Epochs until a master has one so high."""

NEVER_MS = 1 << 50
"""A time that does not come."""

LONG = 1_500
"""Elements of a very long list."""

CHECKED = frozenset(
    {
        "tablets",
        "flush_tablet",
        "compact_tablet",
        "split_point",
        "confirm_config",
        "wal_positions",
        "work_reports",
        "replicas",
        "tablet_replica",
        "divide_replica",
        "read_replica",
        "take_replica",
        "publish_replica",
        "segment_transit",
        "replica_content",
        "read_log",
        "list_logs",
        "seal_log",
        "drop_logs",
        "nudge",
    }
)
"""Calls that lose nothing with any arguments: a process checks them, or they only ask."""

CONTENT = b"PAR1" + bytes(64) + b"PAR1"
"""A file that is none, and arrives whole."""

CHECKSUM = extended(0, CONTENT)

SUFFIXES = ("/..", "/../../secrets/cluster.secret", "\x00", "/", ".seal", "x" * 300, "/x" * 600, "\n", "ü")


@dataclass(frozen=True, slots=True)
class Inside:
    """Facts that the processes of a cluster tell one of them. ``disks``: the incarnation of each host; ``held``: the
    replicas of all hosts; ``epoch``: of the present master; ``accepted``: the attacker's offers that wait for content.
    """

    disks: Mapping[str, str]
    held: Sequence[HeldReplicaInfo]
    logs: Sequence[str]
    epoch: int
    accepted: list[SegmentOffer] = field(default_factory=list)


def words_of(inside: Inside, name: str) -> list[str]:
    """Existing names for a field of this name; [] = it is none of the fields that only processes know."""
    tablets = inside.held
    found: Mapping[str, list[str]] = {
        "incarnation": [*inside.disks.values()],
        "host": [*inside.disks],
        "leader": [*inside.disks],
        "placement": [one.placement.placement for one in tablets],
        "directory": [one.directory for one in tablets],
        "source": [one.directory for one in tablets],
        "table_id": [one.extent.table_id for one in tablets],
        "prefix": ["wal/", "wal", "w", "", *(name.rpartition("/")[0] + "/" for name in inside.logs)],
        "after": ["", *inside.logs],
        "session_id": [log.split("/")[1] for log in inside.logs],
    }
    files = [*inside.logs, *(file for one in tablets for file in files_of(one))]
    return files if name in ("name", "names", "file", "files", "retained") else found.get(name, [])


def hostile_end(rng: random.Random, word: str) -> str:
    """The name, with an end that leads elsewhere or is none."""
    return word + rng.choice(SUFFIXES)


def numbers_of(inside: Inside, name: str) -> list[int]:
    """Numbers near those in force for a field of this name."""
    terms = [one.term for one in inside.held]
    states = [one.root for one in inside.held if one.root is not None]
    if name == "epoch":
        return [inside.epoch]
    if name == "term":
        return [*terms, *(term + 1 for term in terms)]
    return [*states, *(state + 1 for state in states)] if name in ("segment_id", "state_id", "base", "included") else []


def files_of(held: HeldReplicaInfo) -> tuple[str, ...]:
    """The files of all states that a host knows."""
    return tuple(file for one in held.segments for file in (*one.segment.retained, *one.segment.files))


def right_call(rng: random.Random, method: str, inside: Inside) -> tuple[Any, ...] | None:
    """Arguments as another process of the cluster would have them; None for other methods."""
    if method in _OF_LOGS and inside.logs:
        return _OF_LOGS[method](rng, rng.choice([*inside.disks.values()]), rng.choice(inside.logs))
    if method in _OF_REPLICAS and inside.held:
        held = rng.choice(inside.held)
        file = rng.choice(files_of(held) or (tablet_directory(held.extent.table_id, held.directory) + "/x.parquet",))
        return _OF_REPLICAS[method](rng, held, file, inside)
    return None


_OF_LOGS: Mapping[str, Callable[[random.Random, str, str], tuple[Any, ...]]] = {
    "read_log": lambda rng, disk, log: (disk, log, rng.choice((0, 1, 1 << 40)), rng.choice((0, 100, 1 << 20))),
    "list_logs": lambda _rng, disk, log: (disk, log.rpartition("/")[0] + "/", ""),
    "seal_log": lambda rng, disk, log: (disk, log, rng.random() < 0.5, rng.choice((0, 5))),
    "drop_logs": lambda rng, disk, log: (disk, (log, log + ".seal") * rng.choice((1, 1, 1, LONG))),
}


def _sender(rng: random.Random, held: HeldReplicaInfo, inside: Inside) -> ReplicaPlacement:
    """A replica of the same tablet, if there is another one."""
    same = [one.placement for one in inside.held if one.directory == held.directory and one is not held]
    return rng.choice(same or [held.placement])


def _next_state(held: HeldReplicaInfo) -> int:
    return (held.root or held.term << 32) + 1


def _own_file(held: HeldReplicaInfo) -> str:
    return f"{tablet_directory(held.extent.table_id, held.directory)}/{_next_state(held)}-fuzz.parquet"


def _offer(rng: random.Random, held: HeldReplicaInfo, file: str, inside: Inside) -> tuple[Any, ...]:
    """An offer of a major whose file no leader has written; it is believed unless its term or a placement is wrong."""
    state, name = _next_state(held), _own_file(held)
    files = rng.choice(((name,), (name,), (name, file)))
    record = SegmentRecord(state, held.root, True, (), files[:1], files[1:], ())
    facts = {name: len(CONTENT), file: 100}
    offered = tuple(ReplicaFile(one, facts[one], CHECKSUM, b'{"records":1}') for one in files)
    sender, receiver, term = _sender(rng, held, inside), held.placement, held.term
    wrong = rng.choice(("term", "sender", "receiver", "disk", "host", *("nothing",) * 6))
    if wrong == "term":
        term -= rng.choice((1, 2))
    elif wrong == "sender":
        sender = replace(sender, placement=f"{sender.placement}-x")
    elif wrong == "receiver":
        receiver = replace(receiver, placement=sender.placement)
    elif wrong == "disk":
        sender = replace(sender, incarnation=receiver.incarnation)
    elif wrong == "host":
        sender = replace(sender, host=_another_host(rng, sender.host, inside))
    offer = SegmentOffer(held.extent, held.directory, term, sender.host, sender, receiver, record, offered, b"{}", 1)
    return (offer,)


def _transit(rng: random.Random, held: HeldReplicaInfo, file: str, inside: Inside) -> tuple[Any, ...]:
    """Content of an offer that was accepted, if there is one."""
    start, content = rng.choice((0, 0, 0, 7)), rng.choice((CONTENT, CONTENT, b"PAR1" * 100_000))
    if inside.accepted and rng.random() < 0.7:
        offer = rng.choice(inside.accepted[-3:])
        name, state = rng.choice(offer.files).name, offer.segment.segment_id
        tablet = offer.extent.table_id, offer.directory
        return (SegmentTransit(*tablet, offer.sender, offer.receiver, state, name, start, content),)
    name, sender = rng.choice((file, _own_file(held))), _sender(rng, held, inside)
    if rng.random() < 0.3:
        sender = replace(sender, host=_another_host(rng, sender.host, inside))
    tablet = held.extent.table_id, held.directory
    return (SegmentTransit(*tablet, sender, held.placement, _next_state(held), name, start, content),)


_OF_REPLICAS: Mapping[str, Callable[[random.Random, HeldReplicaInfo, str, Inside], tuple[Any, ...]]] = {
    "load_tablet": lambda _rng, held, _file, inside: (TabletAssignment(held.extent, held.directory, inside.epoch),),
    "unload_tablet": lambda _rng, held, _file, inside: (held.extent, inside.epoch, False),
    "replicas": lambda rng, held, _file, _inside: (held.extent.table_id, rng.random() < 0.5),
    "tablet_replica": lambda _rng, held, _file, _inside: (held.extent.table_id, held.directory),
    "divide_replica": lambda rng, held, _file, _inside: (held.directory, (held.extent,) * rng.choice((1, 2, 2, LONG))),
    "read_replica": lambda _rng, held, file, _inside: (held.extent.table_id, held.directory, file, 0),
    "take_replica": lambda rng, held, file, _inside: (
        held.extent,
        {f"{file}{number or ''}": file for number in range(rng.choice((1, 1, 1, LONG)))},
    ),
    "publish_replica": lambda _rng, held, _file, _inside: (held.extent,),
    "segment_offer": _offer,
    "segment_transit": _transit,
    "replica_content": lambda rng, held, file, inside: (
        FileRequest(held.extent.table_id, held.directory, _sender(rng, held, inside), file, 100, 7, 0),
    ),
    "confirm_states": lambda rng, held, _file, inside: (
        rng.choice((held.leader or "", _another_host(rng, held.leader or "", inside))),
        (_confirmation(held, rng.choice((1, NEVER_MS))),) * rng.choice((1, 2, LONG)),
    ),
}


def _another_host(rng: random.Random, host: str, inside: Inside) -> str:
    """The name of another host of the cluster, if it has one."""
    return rng.choice(sorted({*inside.disks} - {host}) or [host])


def _confirmation(held: HeldReplicaInfo, as_of_ms: int) -> StateConfirmation:
    table_id = held.extent.table_id
    return StateConfirmation(table_id, held.directory, held.placement, held.term, held.root or 0, as_of_ms)


def poses(method: str, arguments: Sequence[Any], inside: Inside, others: Collection[str]) -> bool:
    """Whether a process that makes this call poses as the master, or as the leader of others' tablet, and is believed.
    ``others``: contains the ids of others' tables.
    """
    if method == "load_tablet":
        return False  # at its epoch the books decide, and at a higher one coordination
    if method == "unload_tablet":
        return bool(arguments[2] and arguments[1] < inside.epoch + FAR)
    placements = {one.placement for one in inside.held}
    if method == "segment_offer":
        offer = arguments[0]
        newest = min((one.term for one in inside.held if one.directory == offer.directory), default=0)
        is_known = offer.sender in placements and offer.receiver in placements
        return offer.extent.table_id in others and is_known and offer.term >= newest
    leads = {(one.directory, one.leader or "") for one in inside.held}
    return any(
        one.table_id in others
        and one.receiver in placements
        and (one.directory, arguments[0]) in leads  # no other host's word counts
        and one.as_of_ms < NEVER_MS
        for one in arguments[1]
    )


POSING = frozenset({"load_tablet", "unload_tablet", "segment_offer", "confirm_states"})
"""Calls of the master and of leaders: see :func:`poses`."""
