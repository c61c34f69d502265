"""What the processes of one cluster agree on: sessions, the leader, and the shared configuration tree.

Arrives: a process that wants to be known as alive, to lead, or to read and change configuration. Leaves:
sessions with a lease, an epoch for each reign, and configuration values with versions. Survives a crash: the
tree and the epoch counter; sessions of dead processes end when the lease does (or earlier when the
implementation *knows* that the process is gone). Embedded implementation: ``embedded.py``; ZooKeeper later.
Rules: R6, R8, R14 and R15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A process as others see it. ``alive`` False is final: the lease and its margin passed, or the process is gone."""

    session_id: str
    kind: str
    address: str
    alive: bool


@dataclass(frozen=True, slots=True)
class Leader:
    """Who leads: session, address, and the epoch of the reign (strictly rising over all reigns of a store)."""

    session_id: str
    address: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Versioned:
    """A configuration value and its version (1 for a new one)."""

    value: bytes
    version: int


class Session(Protocol):
    """This process's own lease. Renewed by a thread of its own; once lost it never comes back."""

    @property
    def session_id(self) -> str:
        """Unique for ever; usable in a path (letters, digits, dash)."""

    def is_valid(self) -> bool:
        """Cheap check on the boot clock: False as soon as others may believe that this process is dead."""

    def check(self) -> None:
        """Raise LeaseLostError unless :meth:`is_valid`."""

    def close(self) -> None:
        """End the session at once; idempotent."""


class Coordination(Protocol):
    """The coordination store. Thread-safe; raises TransientError when it can't be reached."""

    def open_session(self, kind: str, address: str) -> Session:
        """Register a live process of ``kind`` ("master", "tserver", "replay") answering at ``address`` (host:port)."""

    def sessions(self, kind: str) -> list[SessionInfo]:
        """All sessions of a kind that were not forgotten, dead ones included."""

    def forget_session(self, session_id: str) -> None:
        """Drop a dead session's record (after everything it left was taken care of)."""

    def try_lead(self, session: Session) -> Leader | None:
        """Become the leader if nobody live leads; the epoch rises. None when another one leads."""

    def leader(self) -> Leader | None:
        """The live leader, or None."""

    def raise_epoch(self, session: Session, above: int) -> Leader:
        """Lift the own reign's epoch above ``above`` (rule R8); raises LeaseLostError unless this session leads."""

    def get(self, path: str) -> Versioned | None:
        """A value of the configuration tree, or None."""

    def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        """Set a value and return its new version. ``expected_version`` 0 = must not exist; a mismatch raises
        ConflictError. None = unconditional.
        """

    def delete(self, path: str, expected_version: int | None = None) -> None:
        """Remove a value; no error when there is none."""

    def children(self, prefix: str) -> dict[str, Versioned]:
        """All values whose path starts with ``prefix``, read at one moment."""

    def generation(self) -> int:
        """Counts every change of the tree; equal generations mean equal trees."""

    def number(self, name: str) -> int:
        """A number that only rises, 0 at first. It is no part of the tree, and does not change its generation."""

    def raise_number(self, name: str, least: int) -> None:
        """Lift a number to ``least`` unless it is above; durable on return."""

    def close(self) -> None:
        """End all own sessions and release files or connections."""
