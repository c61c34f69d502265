"""The caller's side of the commit threads: submit, and wait for the answer."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TypeVar

from bookkeeper.errors import UnavailableError
from bookkeeper.tserver.commit.group_committer import GroupCommitter
from bookkeeper.tserver.commit.submission import Submission
from bookkeeper.tserver.write.control_submissions import FlushSubmission
from bookkeeper.tserver.write.write_context import WriteContext

T = TypeVar("T")


def wait_for(future: Future[T], timeout_ms: float, request: str) -> T:
    """The answer of a submission; raises its error, or UnavailableError when there is no answer in time."""
    try:
        return future.result(timeout_ms / 1000)
    except FutureTimeoutError:
        text = f"{request} had no answer within {timeout_ms:.0f} ms, and may still be applied"
        raise UnavailableError(text) from None


class CommitPath:
    """Submits and waits. ``timeout_ms`` bounds each wait."""

    def __init__(self, committer: GroupCommitter, context: WriteContext, timeout_ms: float) -> None:
        self.context = context
        self._committer = committer
        self._timeout_ms = timeout_ms

    @property
    def wal_name(self) -> str:
        """The log that the next group goes to."""
        return self._committer.wal_name

    @property
    def is_full(self) -> bool:
        """Whether writes are refused for lack of disk."""
        return self._committer.is_full

    def judge(self, submission: Submission, request: str = "a conditional write") -> object:
        """Commit a submission that reads before it writes: when it is prepared, all earlier submissions are applied."""
        return wait_for(self._committer.submit(submission, begins_group=True), self._timeout_ms, request)

    def submit(self, submission: Submission) -> Future[object]:
        """Submit without waiting; the future has the answer of the submission."""
        return self._committer.submit(submission)

    def wait_for(self, future: Future[T], request: str) -> T:
        """The answer of :meth:`submit`, or of a future that depends on one. Raises its error, and UnavailableError,
        which names ``request``, when it takes too long.
        """
        return wait_for(future, self._timeout_ms, request)

    def commit(self, submission: Submission) -> object:
        """Commit a control submission; returns its answer when everything before it is applied."""
        return wait_for(
            self._committer.submit(submission), self._timeout_ms, "a change of a tablet or of the configuration"
        )

    def begin_flush(self, submission: FlushSubmission) -> None:
        """Begin a flush: its point has everything submitted before, and nothing submitted after."""
        wait_for(self._committer.submit(submission, begins_group=True), self._timeout_ms, "the beginning of a flush")

    def settle(self) -> None:
        """Wait for operations that began under an earlier configuration (R14). Raises UnavailableError."""
        self.context.config_barrier.settle(self._timeout_ms)

    def roll(self) -> None:
        """Seal the log and go on with a new one; everything submitted before is in the old one. Raises
        TransientError.
        """
        self._committer.roll(self._timeout_ms)
