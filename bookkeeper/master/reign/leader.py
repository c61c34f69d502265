"""Leadership: the campaign for it, the ranks of a reign, and its end.

Arrives: the coordination store and this process's session. Leaves: a :class:`Reign` with an epoch above all earlier
ones and ranks that rise with every call. The epoch is in the coordination store. The next leader's epoch is higher, so
late writes of a deposed leader have lower ranks and lose. Rules: R1, R7 and R8.
"""

from __future__ import annotations

import threading

from bookkeeper.coordination.coordination_protocol import Coordination, Leader, Session
from bookkeeper.errors import LeaseLostError, TransientError
from bookkeeper.metadata import keys

NUMBER_MAX = 2**32 - 1
"""Highest number within an epoch; then the epoch is raised."""


class RankAboveError(TransientError):
    """The books hold a rank above this reign's (rule R8). The epoch was raised: repeat the decision."""

    code = "rank_above"


class Reign:
    """The time during which this process leads. Thread-safe.

    Every value that a master writes gets its own rank from :meth:`next_rank`, which keeps rule R1 without a read.
    """

    def __init__(self, coordination: Coordination, session: Session, leader: Leader) -> None:
        self._coordination = coordination
        self._session = session
        self._lock = threading.Lock()
        self._leader = leader
        self._number = 0

    @property
    def session_id(self) -> str:
        """The leading session."""
        return self._leader.session_id

    @property
    def epoch(self) -> int:
        """The reign's epoch; it may rise within a reign (rule R8)."""
        return self._leader.epoch

    def is_valid(self) -> bool:
        """Whether no other process can lead yet; cheap."""
        return self._session.is_valid()

    def check(self) -> None:
        """Raise LeaseLostError unless this process may still lead. Call it before every write, delete and call."""
        self._session.check()

    def next_rank(self) -> int:
        """A new rank: above all ranks of this reign and of earlier ones. Raises LeaseLostError, TransientError."""
        self.check()
        with self._lock:
            if self._number >= NUMBER_MAX:
                self._raise_to(self._leader.epoch)
            self._number += 1
            return keys.master_rank(self._leader.epoch, self._number)

    def observe(self, rank: int) -> None:
        """Rule R8: a rank above all that this reign has given out means that the epoch counter started again, or went
        back: then another reign had the same epoch. This raises the epoch above the rank's, and RankAboveError: the
        rank hides the values that this reign wrote before, so repeat the decision.

        Raises LeaseLostError if a later leader wrote the rank, because then this process does not lead.
        """
        epoch, number = keys.split_master_rank(rank)
        with self._lock:
            if epoch < self._leader.epoch or (epoch == self._leader.epoch and number <= self._number):
                return
            self._raise_to(epoch)
        raise RankAboveError(f"the books hold epoch {epoch}; this reign now has epoch {self._leader.epoch}: read again")

    def _raise_to(self, above: int) -> None:
        raised = self._coordination.raise_epoch(self._session, above)
        if raised.session_id != self._session.session_id:
            raise LeaseLostError(f"session {raised.session_id} leads now")
        self._leader = raised
        self._number = 0


def campaign(coordination: Coordination, session: Session) -> Reign | None:
    """Try once to lead; None while another session leads. Raises LeaseLostError or TransientError."""
    leader = coordination.try_lead(session)
    if leader is None or leader.session_id != session.session_id:
        return None
    return Reign(coordination, session, leader)
