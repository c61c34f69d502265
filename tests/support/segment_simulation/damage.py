"""Wrong bytes on the disks of a simulation: what a reader gets, who has been told, and how a sound copy comes.

A host finds wrong bytes when it reads the file, and asks the others for it, as ``tserver.replicas.file_repair`` does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeGuard

from bookkeeper.replicas.messages import Ack, Decline, Reason, Reply
from bookkeeper.replicas.values import Placement, Replica

WRONG = ("?",)
"""The rows that wrong bytes make."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A replica asks another one for a file, because its own copy is damaged."""

    file: str
    placement: Placement


@dataclass(frozen=True, slots=True)
class Copy:
    """The file that was asked for."""

    file: str
    rows: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A host that was asked does not hold the file."""

    file: str


FileMessage = Ask | Copy | Refusal


def is_intact(is_wrong: bool) -> bool:
    """The comparison of a file with its checksum."""
    return not is_wrong


@dataclass(slots=True)
class Disks:
    """Which files have wrong bytes, and who knows it. It does not rely on what the machine has noted."""

    wrong: set[tuple[str, str]] = field(default_factory=set)
    """By replica and file."""
    found: set[tuple[str, str]] = field(default_factory=set)
    """Those that the replica's host has found."""
    told: set[tuple[str, Placement, str]] = field(default_factory=set)
    """By leader: a placement whose copy of a file is damaged, as it said since it last acknowledged the file."""
    links: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """By replica and file: the first name of the same bytes on the host's disk."""
    lies: list[str] = field(default_factory=list)
    """Hosts that took wrong bytes for a file, or that acknowledged a file whose bytes they knew to be wrong."""

    def sound(self, name: str, files: Collection[str]) -> set[str]:
        """Those of a replica's files whose bytes are right."""
        return {file for file in files if (name, file) not in self.wrong}

    def link(self, name: str, file: str, old: tuple[str, str]) -> None:
        """The bytes of a file of one replica are those of another one on the same host, too."""
        self.links[name, file] = self.links[old] = self.links.get(old, old)
        if old in self.wrong:
            self.wrong.add((name, file))

    def spoil(self, name: str, file: str) -> None:
        """The bytes of a file go wrong, under all its names."""
        self.wrong.update(self.names_of(name, file))

    def names_of(self, name: str, file: str) -> list[tuple[str, str]]:
        """All names of the bytes of a file: by replica and file."""
        first = self.links.get((name, file))
        return [(name, file)] if first is None else [place for place, its in self.links.items() if its == first]

    def find(self, name: str, file: str) -> None:
        """The host of a replica finds that a file has wrong bytes."""
        self.wrong.add((name, file))
        self.found.add((name, file))

    def gone(self, name: str, file: str) -> None:
        """A file is deleted, or another one takes its place."""
        self.wrong.discard((name, file))
        self.found.discard((name, file))
        self.links.pop((name, file), None)

    def forget(self, name: str) -> None:
        """All files of a replica are gone."""
        for file in [file for owner, file in self.wrong | self.links.keys() if owner == name]:
            self.gone(name, file)

    def written(self, name: str, file: str, rows: Collection[str]) -> None:
        """A replica has a file on its disk, complete."""
        self.gone(name, file)
        if not set(rows).isdisjoint(WRONG):
            self.lies.append(f"{name} takes wrong bytes for file {file}")

    def counts(self, leader: str, replica: Replica, files: Collection[str]) -> bool:
        """Whether a leader may count a replica as a copy of some files: it has them, and nothing that the leader knows
        says that one of them is damaged. Of the damage of others it knows what they told it.
        """
        if not (replica.files | replica.damaged).issuperset(files):
            return False
        if replica.host == leader:
            return not any((leader, file) in self.found for file in files)
        return not any((leader, replica.placement, file) in self.told for file in files)

    def heard(self, leader: Replica, reply: Reply) -> None:
        """A sender hears what a placement has."""
        entry = leader.entry(reply.segment_id)
        if entry is not None and _is_acknowledgement(reply):
            self.told.difference_update((leader.host, reply.placement, file) for file in entry.segment.list)

    def said(self, replica: Replica, reply: Reply) -> None:
        """A follower says what it has: each file of an acknowledged state, as far as it knows."""
        entry = replica.entry(reply.segment_id)
        if entry is None or replica.is_leader or not _is_acknowledgement(reply):
            return
        wrong = sorted(file for file in entry.segment.list if (replica.host, file) in self.found)
        if wrong:
            self.lies.append(f"{replica.host} acknowledges a state whose file {wrong[0]} it knows to be damaged")


def _is_acknowledgement(reply: Reply) -> TypeGuard[Ack | Decline]:
    return isinstance(reply, Ack) or (isinstance(reply, Decline) and reply.reason is Reason.SEGMENT_EXISTS)
