"""The protocol of the coordination store: sessions, the leader, elections, and the shared configuration tree.

A session has a lease, a reign has an epoch, and a configuration value has a version. The tree and the epoch survive a
crash. The session of a dead process ends with its lease, or earlier when the store detects that the process is gone;
its candidacies end with it. ``embedded`` implements the protocol. Rules: R6, R8, R14 and R15.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec import Struct

from bookkeeper.errors import RefusedError
from bookkeeper.model import HostIdentity


class SessionInfo(Struct, frozen=True):
    """The session of another process. ``alive`` False is final: lease and margin passed, or the process is gone."""

    session_id: str
    kind: str
    address: str
    alive: bool
    host: HostIdentity | None = None
    """Of a tserver the host whose lock it holds, of a replay process that of its directory, with an empty incarnation;
    None for every other process."""
    silent_ms: int = 0
    """Of a live session: ms since its process renewed the lease, once that is half a lease or more; 0 = it renews."""


class Leader(Struct, frozen=True):
    """The leader's session and address, and the epoch of its reign (strictly rising over all reigns of a store)."""

    session_id: str
    address: str
    epoch: int


class Versioned(Struct, frozen=True):
    """A configuration value and its version (1 for a new one)."""

    value: bytes
    version: int


class Candidacy(Struct, frozen=True):
    """A live session that stands in an election. ``order`` is higher for each later candidacy of the store."""

    session_id: str
    order: int
    value: bytes


class Session(Protocol):
    """The lease of this process, which a thread renews. A lost lease never becomes valid again."""

    @property
    def session_id(self) -> str:
        """The id, which no other session ever gets; usable in a path (letters, digits, dash)."""

    def is_valid(self) -> bool:
        """Cheap check on the boot clock: False before another process counts this one as dead."""

    def check(self) -> None:
        """Raise LeaseLostError unless :meth:`is_valid`."""

    def close(self) -> None:
        """End the session at once; idempotent."""


class Coordination(Protocol):
    """The coordination store. Thread-safe; raises TransientError when it can't be reached."""

    def open_session(self, kind: str, address: str, host: HostIdentity | None = None) -> Session:
        """Register a live process of ``kind`` ("master", "tserver", "replay") answering at ``address`` (host:port), and
        the ``host`` to which it belongs; a tserver that holds the lock of its disk names the incarnation.
        """

    def sessions(self, *kinds: str) -> list[SessionInfo]:
        """All sessions of these kinds that were not forgotten, dead ones included."""

    def has_session_news(self) -> bool:
        """Whether a session may have begun or ended since the last :meth:`sessions`, or its lease may be over by now;
        asks no other machine.
        """

    def confirm(self, session: Session) -> None:
        """Raise LeaseLostError unless no other process counted this session as dead at a moment within the call. The
        lease alone does not say so on a machine that was paused together with its clock.
        """

    def forget_session(self, session_id: str) -> None:
        """Remove a dead session's record; call it last, after the cleanup for the session."""

    def try_lead(self, session: Session) -> Leader | None:
        """Become the leader, with a higher epoch, unless a live session leads. None when another one leads, or led a
        moment ago: try again.
        """

    def leader(self) -> Leader | None:
        """The live leader, or None."""

    def raise_epoch(self, session: Session, above: int) -> Leader:
        """Raise the epoch of this reign above ``above`` (rule R8); raises LeaseLostError unless this session leads."""

    def campaign(self, session: Session, candidacies: Mapping[str, bytes]) -> None:
        """Stand in exactly these elections, with these values, until the session ends. A candidacy that stays keeps its
        place in the order, also with another value. Raises LeaseLostError.
        """

    def candidates(self) -> dict[str, list[Candidacy]]:
        """The candidacies of live sessions by election, each in their order, read at one moment."""

    def candidates_version(self) -> int:
        """Counts the changes of candidacies that were noticed; equal versions mean equal candidacies."""

    def get(self, path: str) -> Versioned | None:
        """A value of the configuration tree, or None."""

    def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        """Set a value and return its new version. ``expected_version`` 0 = must not exist; a mismatch raises
        ConflictError. None = unconditional.
        """

    def delete(self, path: str, expected_version: int | None = None) -> None:
        """Remove a value; no error when there is none."""

    def put_while_idle(self, values: Mapping[str, bytes]) -> None:
        """Set values in one step, while no session is alive. Raises RefusedError with the sessions that are. A process
        that opens a session and then reads the tree has either prevented the change, or sees it.
        """

    def children(self, prefix: str) -> dict[str, Versioned]:
        """All values whose path starts with ``prefix``, read at one moment."""

    def tree(self) -> tuple[int, dict[str, Versioned]]:
        """The generation and all values, read at one moment."""

    def generation(self) -> int:
        """Counts every change of the tree; equal generations mean equal trees."""

    def settled_generation(self) -> int:
        """The generation, with every change that was made before this call. :meth:`generation` may miss one that
        another process made, where a server lags behind the others and does not know it. Raises LeaseLostError.
        """

    def number(self, name: str) -> int:
        """A number outside of the tree and its generation, which only rises; 0 at first."""

    def raise_number(self, name: str, least: int) -> None:
        """Raise a number to ``least`` unless it is higher; durable on return."""

    def publish_masters(self, instance_id: str) -> None:
        """Tell those who can't open the store where the masters of this instance answer that are alive now. A store on
        one machine tells nobody. Raises LeaseLostError when the session of this process is over.
        """

    def close(self) -> None:
        """End all sessions of this object and release files or connections."""


def refuse_alive(sessions: Iterable[SessionInfo]) -> None:
    """Raise RefusedError when one of the sessions is alive."""
    if running := [info.session_id for info in sessions if info.alive]:
        raise RefusedError(f"{', '.join(running)} run with the former settings: stop all hosts first")
