"""What goes through the commit thread: writes and barriers; replicated ranges are in ``replicated_apply``.

Arrives: requests that RPC threads have decoded, checked and routed. Leaves: drafts for the group committer, and
answers once they are as durable as asked. Survives a crash: what was answered (L1). The commit
thread only judges duplicates, numbers, stamps and applies; whatever can be done before or after is done elsewhere.
Rules: R13 and R14.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Protocol, TypeVar, cast

from bookkeeper.errors import BookkeeperError, ConflictError, UnavailableError
from bookkeeper.model import Extent, StreamKey
from bookkeeper.origins import RootLog
from bookkeeper.storage.wal import DraftBlock, Durability, PlacedBlock, Seal, Submission
from bookkeeper.tserver.tablets.block_targets import ConfigView, TableView
from bookkeeper.tserver.tablets.tablet import ServedTablet, Share, Undo
from bookkeeper.tserver.tablets.tablet_flushes import FlushPoint
from bookkeeper.tserver.write import write_guards
from bookkeeper.tserver.write.replicated_apply import Applied, ReceivedRange, ReplicatedApply
from bookkeeper.tserver.write.request_dedup import NO_ATTEMPT, Attempt
from bookkeeper.tserver.write.write_context import WriteContext

T = TypeVar("T")


class Committer(Protocol):
    """What submissions need of the group committer."""

    @property
    def wal_uri(self) -> str:
        """The log that the group at hand goes to."""

    def submit(self, submission: Submission, *, begins_group: bool = ...) -> Future[object]:
        """Queue a submission."""

    def roll(self, timeout_ms: float = ...) -> Seal | None:
        """Seal the log and go on with a new one."""


def wait_for(future: Future[T], timeout_ms: float, what: str) -> T:
    """The answer of a submission; raises its error, or UnavailableError when it is late (it may still happen)."""
    try:
        return future.result(timeout_ms / 1000)
    except FutureTimeoutError:
        raise UnavailableError(f"{what} was not durable within {timeout_ms:.0f} ms: it may be so later") from None


# ---- writes


class ClientWrite:
    """A user's write to one or several tablets. Answers the extents that were not served any more."""

    def __init__(
        self,
        context: WriteContext,
        shares: Sequence[tuple[ServedTablet, Share]],
        durability: Durability | None,
        attempt: Attempt = NO_ATTEMPT,
    ) -> None:
        """``durability`` None: as the properties of the tables say, the strongest of them."""
        self._attempt = attempt
        self.durability = durability or Durability.NONE
        self._asked = durability
        self.approx_bytes = sum(int(share.batch.nbytes) for _, share in shares)
        self._context = context
        self._shares = shares
        self._staged: list[tuple[ServedTablet, Undo]] = []
        self._refused: list[Extent] = []

    def prepare(self, next_offset: int) -> list[DraftBlock]:
        """See :class:`Submission`. Raises NotFoundError, RefusedError, and ConflictError when the client has sent this
        again already.
        """
        for tablet, _ in self._shares:
            if not self._context.attempts.admit(self._attempt, tablet.extent):
                raise ConflictError(f"attempt {self._attempt.number} comes after a later one of the same writer")
        open_shares = [(tablet, share) for tablet, share in self._shares if tablet.accepting]
        self._refused = [tablet.extent for tablet, _ in self._shares if not tablet.accepting]
        moments = [self._context.moment(tablet.extent.table_id, next_offset) for tablet, _ in open_shares]
        for (tablet, _), moment in zip(open_shares, moments, strict=True):
            write_guards.refuse_read_only(moment.view)
            write_guards.refuse_exhausted(tablet.extent, tablet.next_seq)
        if self._asked is None:
            self.durability = max((durability_of(moment.view) for moment in moments), default=Durability.NONE)
        unlogged = self.durability is Durability.NONE and not any(moment.view.block_targets for moment in moments)
        drafts = []
        for (tablet, share), moment in zip(open_shares, moments, strict=True):
            staged = tablet.stage_unlogged(share, moment.now_ms) if unlogged else tablet.stage(share, moment)
            drafts.append(staged[0])
            self._staged.append((tablet, staged[1]))
        return drafts

    def applied(self, blocks: list[PlacedBlock]) -> list[Extent]:
        """See :class:`Submission`."""
        for (tablet, _), block in zip(self._staged, blocks, strict=True):
            tablet.apply(block)
        return self._refused

    def failed(self, error: BookkeeperError) -> None:
        """See :class:`Submission`."""
        del error
        for tablet, undo in reversed(self._staged):
            tablet.take_back(undo)


def durability_of(view: TableView) -> Durability:
    """What a write gets that does not ask."""
    return Durability.parse(view.properties.durability)


# ---- barriers


class _Barrier:
    """A submission without records: answered when everything submitted before is as durable as it asks."""

    durability = Durability.SYNC
    approx_bytes = 0

    def prepare(self, next_offset: int) -> list[DraftBlock]:
        """See :class:`Submission`."""
        del next_offset
        self.cross()
        return []

    def cross(self) -> None:
        """Runs in a commit thread, between what was submitted before and after."""

    def applied(self, blocks: list[PlacedBlock]) -> object:
        """See :class:`Submission`."""
        del blocks
        return None

    def failed(self, error: BookkeeperError) -> None:
        """See :class:`Submission`; what a barrier changes is not taken back unless it says so."""


class SyncBarrier(_Barrier):
    """Everything submitted before is synced."""


class ConfigBarrier(_Barrier):
    """Rule R14: every block that is prepared from here on carries the stamps of this generation, or of a later one."""

    durability = Durability.LOG

    def __init__(self, context: WriteContext, view: ConfigView) -> None:
        self._context = context
        self._view = view

    def cross(self) -> None:
        """Put the configuration in force, unless a later one is."""
        if self._view.generation > self._context.view.generation:
            self._context.view = self._view


class FlushBarrier(_Barrier):
    """Begin a flush of a tablet; everything in it is synced when this is answered, so no peer can lack it (R15).

    To be submitted so that it begins a group: what was written and not applied yet would keep the ``log:`` cell that is
    deleted with the flush.
    """

    def __init__(
        self, context: WriteContext, tablet: ServedTablet, release: Callable[[tuple[str, bytes | None]], None]
    ) -> None:
        """``release``: what the tablet appends from now on is a first use of its log again."""
        self._context = context
        self._tablet = tablet
        self._release = release
        self._point: FlushPoint | None = None

    def cross(self) -> None:
        """Set the point: all that was submitted before is applied, nothing that comes after."""
        self._point = self._tablet.begin_flush(self._context.wal_uri(), self._context.clock.boot_ns())
        self._release(self._tablet.key)

    def applied(self, blocks: list[PlacedBlock]) -> FlushPoint | None:
        """See :class:`Submission`."""
        del blocks
        return self._point


class CloseTablet(_Barrier):
    """The tablet takes no more writes; those submitted before are applied when this is answered."""

    durability = Durability.LOG

    def __init__(self, tablet: ServedTablet) -> None:
        self._tablet = tablet

    def cross(self) -> None:
        """Turn away what is submitted later."""
        self._tablet.stop_accepting()

    def failed(self, error: BookkeeperError) -> None:
        """Take writes again."""
        del error
        self._tablet.accept_again()


class ForgetStreams(_Barrier):
    """Rule R20: these streams are over for good; their high-waters go from every tablet."""

    durability = Durability.LOG

    def __init__(self, tablets: Sequence[ServedTablet], streams: Sequence[StreamKey]) -> None:
        self._tablets = tablets
        self._streams = streams

    def applied(self, blocks: list[PlacedBlock]) -> object:
        """See :class:`Submission`."""
        del blocks
        for tablet in self._tablets:
            for stream in self._streams:
                tablet.received.forget_stream(stream)
        return None


class ForgetRoots(_Barrier):
    """Rule R22: nothing of these logs is under way anywhere; what is held of them goes from every tablet."""

    durability = Durability.LOG

    def __init__(self, tablets: Sequence[ServedTablet], logs: Collection[RootLog]) -> None:
        self._tablets = tablets
        self._logs = logs

    def applied(self, blocks: list[PlacedBlock]) -> object:
        """See :class:`Submission`."""
        del blocks
        for tablet in self._tablets:
            tablet.received.forget_roots(self._logs)
        return None


class CommitPath:
    """Submits and waits. ``timeout_ms`` bounds each wait."""

    def __init__(self, committer: Committer, context: WriteContext, timeout_ms: float) -> None:
        self.context = context
        self._committer = committer
        self._timeout_ms = timeout_ms
        context.wal_uri = lambda: committer.wal_uri

    def write(
        self,
        shares: Sequence[tuple[ServedTablet, Share]],
        durability: Durability | None,
        attempt: Attempt = NO_ATTEMPT,
    ) -> list[Extent]:
        """Commit a user's write (durability None: the tables'); returns the extents that were not served. Raises
        TransientError, NotFoundError, ReadOnlyError, ConflictError.
        """
        future = self._committer.submit(ClientWrite(self.context, shares, durability, attempt))
        return cast("list[Extent]", wait_for(future, self._timeout_ms, "a write"))

    def judge(self, submission: Submission) -> object:
        """Commit what decides by what it reads: all that was submitted before is applied when it is prepared."""
        return wait_for(self._committer.submit(submission, begins_group=True), self._timeout_ms, "a conditional write")

    def receive(self, tablet: ServedTablet, received: ReceivedRange, forgets: int) -> Future[Applied]:
        """Submit a replicated range, see :class:`ReplicatedApply`; the future has its answer."""
        future = self._committer.submit(ReplicatedApply(self.context, tablet, received, forgets))
        return cast("Future[Applied]", future)

    def wait_applied(self, future: Future[Applied]) -> Applied:
        """The answer of :meth:`receive`."""
        return wait_for(future, self._timeout_ms, "a replicated range")

    def wait_proven(self, proven: Future[int]) -> int:
        """What a replicated range has proved; raises TransientError when it takes too long."""
        return wait_for(proven, self._timeout_ms, "the range in front of this one")

    def cross(self, barrier: Submission) -> object:
        """Put a barrier through; returns its answer when everything before is done."""
        return wait_for(self._committer.submit(barrier), self._timeout_ms, "a barrier")

    def begin_flush(self, barrier: FlushBarrier) -> None:
        """Put a flush's barrier through: what was submitted before is in its point, what comes after is not."""
        wait_for(self._committer.submit(barrier, begins_group=True), self._timeout_ms, "the beginning of a flush")

    def settle(self) -> None:
        """Wait for what was begun under an earlier configuration (R14). Raises UnavailableError."""
        self.context.config_barrier.settle(self._timeout_ms)

    def roll(self) -> None:
        """Seal the log and go on with a new one; what was submitted before is in the old one. Raises TransientError."""
        try:
            self._committer.roll(self._timeout_ms)
        except TimeoutError:
            raise UnavailableError(f"the log was not rolled within {self._timeout_ms:.0f} ms") from None
