"""The position of a tablet's next record: its sequence number, its server time, its log, and the log before (R24).

*Staged* state runs ahead of *applied* state by at most two groups of commits. ``FlushState`` and block headers survive
a crash, and ``load_plan`` rebuilds this state from them. Only the commit thread changes it.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from bookkeeper.metadata.values import FlushState
from bookkeeper.storage.wal.blocks.block_pb2 import Predecessor
from bookkeeper.tserver.tablets.load_plan import Recovered
from bookkeeper.tserver.tablets.wal_order import WalPosition, predecessors


class Staged(Struct, frozen=True):
    """The staged state: the next sequence number, the latest server time, the log of the latest draft ("": several or
    none).
    """

    next_seq: int
    last_time_ms: int
    wal_name: str


class WriteState:
    """The write state of one tablet."""

    def __init__(self, recovered: Recovered) -> None:
        self._last_wals = recovered.last_wals
        self._applied_seq = recovered.next_seq - 1
        self._least_time_ms = 0
        self._staged = Staged(recovered.next_seq, recovered.last_time_ms, only_wal(recovered.last_wals))

    @property
    def staged(self) -> Staged:
        """The staged state as it is now: :meth:`take_back` restores it."""
        return self._staged

    @property
    def applied_seq(self) -> int:
        """The sequence number of the last applied record."""
        return self._applied_seq

    @property
    def last_wals(self) -> tuple[WalPosition, ...]:
        """The position of the last applied record, or those of the tablets that were merged into this one."""
        return self._last_wals

    def predecessors_in(
        self, wal_name: str, in_order: Callable[[tuple[WalPosition, ...]], tuple[WalPosition, ...]]
    ) -> list[Predecessor]:
        """Rule R24: the predecessors of the tablet's first block in a log; a later block has none. Groups do not span
        logs, so ``last_wals`` is exact. ``in_order`` leaves out those in given-up logs.
        """
        if self._staged.wal_name == wal_name:
            return []
        before = predecessors(in_order(self._last_wals), wal_name)
        return [Predecessor(file=last.file, offset=last.offset) for last in before]

    def note_time(self, time_ms: int) -> None:
        """A merged record has this server time: later ones have no earlier one."""
        self._least_time_ms = max(self._least_time_ms, time_ms)

    @property
    def last_time_ms(self) -> int:
        """The latest server time of a record, staged or merged."""
        return max(self._staged.last_time_ms, self._least_time_ms)

    def stage(self, records: int, time_ms: int, wal_name: str | None) -> None:
        """A draft takes this many sequence numbers; ``wal_name`` None: no log will have it."""
        before = self._staged
        self._staged = Staged(before.next_seq + records, time_ms, before.wal_name if wal_name is None else wal_name)

    def take_back(self, before: Staged) -> None:
        """The group of a draft failed: restore the state before it."""
        self._staged = before

    def applied(self, last_seq: int, last_wal: WalPosition | None) -> None:
        """The staged records up to ``last_seq`` are durable; ``last_wal`` None: no log has them."""
        self._applied_seq = last_seq
        if last_wal is not None:
            self._last_wals = (last_wal,)

    def follow(self, state: FlushState) -> None:
        """Go on behind a state that an import wrote."""
        self._last_wals = tuple(WalPosition(*last) for last in state.last_wals)
        self._applied_seq = state.last_seq
        self._staged = Staged(state.last_seq + 1, self._staged.last_time_ms, only_wal(self._last_wals))


def only_wal(last_wals: tuple[WalPosition, ...]) -> str:
    """The log of the last record; "" for none, or several."""
    return last_wals[0].file if len(last_wals) == 1 else ""
