"""The answers of live hosts about the replicas that they hold. The latest answer of each host counts.

An answer may be old: states are only added to a placement until the books name a later one, so an old answer names too
few states, never too many.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.index.tablet_replicas import TabletReplica


class HeldState(Struct, frozen=True):
    """One replica on a host's disk. ``root`` is its newest state, 0 without one; ``complete`` are the states of which
    it has each file; ``lacking``: what a leader says about each other host, in segments that it has not acknowledged,
    and ``lacking_bytes`` in bytes; ``incoming_bytes``: of segments under way to it. A change of bytes alone changes no
    plan. ``damaged``: files that it gets again from another host.
    """

    placement: str
    incarnation: str
    root: int
    complete: frozenset[int]
    is_leader: bool = False
    size_bytes: int = 0
    files: int = 0
    lacking: Mapping[str, int] = field(default_factory=dict)
    lacking_bytes: Mapping[str, int] = field(default_factory=dict)
    incoming_bytes: int = 0
    damaged: int = 0

    def has(self, state: int) -> bool:
        """Whether a tablet can be served from that state here; every replica has the empty state 0."""
        return state == 0 or state in self.complete


TabletKey = tuple[str, str]
"""Table and directory of a tablet."""


def tablet_key(view: TabletView) -> TabletKey:
    """The key of a tablet: what it has on every host."""
    return view.extent.table_id, view.directory


class HeldStates(Struct):
    """The latest answers by host. Thread-safe."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _answers: dict[str, Mapping[TabletKey, HeldState]] = field(default_factory=dict)
    _asking: set[str] = field(default_factory=set)
    _version: int = 0

    @property
    def version(self) -> int:
        """Counts the answers that differed from the one before."""
        return self._version

    def begin_questions(self, hosts: Collection[str]) -> list[str]:
        """Forget hosts that live no more; returns the live ones without an open question, which the caller asks now."""
        with self._lock:
            for host in [host for host in self._answers if host not in hosts]:
                del self._answers[host]
            silent = [host for host in hosts if host not in self._asking]
            self._asking.update(silent)
        return silent

    def end_question(self, host: str) -> None:
        """A question is over, with or without an answer."""
        with self._lock:
            self._asking.discard(host)

    def answer(self, host: str, held: Mapping[TabletKey, HeldState]) -> bool:
        """A host says what it holds; returns whether that differs from its answer before."""
        with self._lock:
            before = self._answers.get(host)
            self._answers[host] = dict(held)
            changed = before is None or (before != held and _without_bytes(before) != _without_bytes(held))
            self._version += changed
        return changed

    def of_host(self, host: str) -> Mapping[TabletKey, HeldState] | None:
        """All that a host holds; None before its first answer."""
        with self._lock:
            return self._answers.get(host)

    def of_tablet(self, key: TabletKey, replicas: Iterable[TabletReplica]) -> dict[str, HeldState]:
        """The states on the hosts of a row, under its placements and incarnations; others hold nothing of it."""
        with self._lock:
            found = {replica.host: self._answers.get(replica.host, {}).get(key) for replica in replicas}
        return {
            replica.host: held
            for replica in replicas
            if (held := found[replica.host]) is not None and is_of(held, replica)
        }


def _without_bytes(held: Mapping[TabletKey, HeldState]) -> dict[TabletKey, HeldState]:
    """The states without the bytes that are missing or under way, on which no plan depends."""
    return {key: replace(state, lacking_bytes={}, incoming_bytes=0) for key, state in held.items()}


def is_of(held: HeldState, replica: TabletReplica) -> bool:
    """Whether what a host holds is the replica that the row names: an earlier placement, or one on a disk that was
    wiped since, is not (E-52, P10).
    """
    return (held.placement, held.incarnation) == (replica.cell.placement, replica.cell.incarnation)
