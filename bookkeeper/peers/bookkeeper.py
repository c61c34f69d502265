"""The replica system ``bookkeeper``: another cluster of this project, over Thrift.

Arrives: messages of one stream. Leaves: ``replicate`` calls to a tserver of the peer. A session finds the tserver in
four steps: any master of the quorum, or any that the quorum's ZooKeeper knows, names the leader; the leader must be of
the expected instance (a name or an address may come to belong to another cluster, R23); the leader picks a tserver; the
tserver opens the stream. The session does this with its first message, and again when a tserver went away or a stream
expired. While no master of the peer answers soon, the session tries the tservers that opened a stream of this host
(``known_tservers``). :class:`RetryLimits` bound the retries of a message. A pipelined message leaves on a connection of
its own, in a thread of its own, and has one try.
Rules: R19, R20 and R23.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from msgspec import Struct, field
from msgspec.structs import replace
from tenacity import RetryCallState, Retrying, retry_if_exception

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.masters import MasterFinder, parse_masters
from bookkeeper.errors import (
    NO_TSERVER,
    BookkeeperError,
    GapError,
    NoAnswerError,
    NotFoundError,
    NoTServerError,
    OtherInstanceError,
    OverloadedError,
    PermanentError,
    StreamExpiredError,
    TableGoneError,
    TransientError,
    UnavailableError,
)
from bookkeeper.model import StreamKey
from bookkeeper.peers.extensions import SegmentTransfer, TransferAnswer
from bookkeeper.peers.known_tservers import KnownTServers
from bookkeeper.peers.protocol import Acked, Message, MessageBlock, Peer, RetryLimits
from bookkeeper.peers.segment_files import SentBytes, is_about_form, missing_parts, offer_of
from bookkeeper.rpc.contract.messages import (
    PROTOCOL_VERSION,
    TAKEN,
    WANTED,
    Hello,
    ReplicateRequest,
    ReplicateResult,
    SourceBlock,
)
from bookkeeper.rpc.contract.services import TServer
from bookkeeper.rpc.rpc_pool import SILENT_MS, UNREACHED, RpcPool
from bookkeeper.security.access import peer_credentials

LOG = logging.getLogger(__name__)

SENDERS_MAX = 16
"""Messages that leave at once, of all streams of a process; one more waits for a thread."""

MASTER_PATIENCE_MS = 500
"""Wait for a master of a peer while a tserver of the peer is known, ms: a stopped process accepts calls, and the lag of
new streams grows meanwhile.
"""

TSERVER_PATIENCE_MS = 2_000
"""Wait for known tservers to open a stream, one after the other, before the master is waited for, ms."""


class BookkeeperSystem(Struct):
    """See :class:`bookkeeper.peers.protocol.ReplicaSystem`. ``settings`` are those of the cluster that sends. All
    sessions share the connections.
    """

    settings: Settings
    clock: Clock = field(default_factory=SystemClock)
    rng: random.Random = field(default_factory=random.Random)
    name: str = "bookkeeper"
    _known: KnownTServers | None = None
    _finder: MasterFinder | None = None
    _pool: RpcPool | None = None
    _senders: ThreadPoolExecutor | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def open(self, peer: Peer, stream: StreamKey, limits: RetryLimits) -> BookkeeperSession:
        """A session that connects with its first message; raises InvalidInputError for a quorum that can't be one."""
        parse_masters(peer.quorum)
        with self._lock:
            if self._pool is None or self._senders is None:
                own = self.settings.instance
                hello = Hello(PROTOCOL_VERSION, own.instance_id, own.name, "replay")
                credentials = peer_credentials(self.settings)
                self._pool = RpcPool(hello, self.settings.rpc, self.clock, credentials, SILENT_MS)
                self._senders = ThreadPoolExecutor(SENDERS_MAX, thread_name_prefix="sender")
            if self._known is None or self._finder is None:
                self._known, self._finder = KnownTServers(self.settings.directory), MasterFinder(self.clock)
            pool = self._pool.of_instance(peer.instance_id)
            part_bytes = self.settings.replay.message_bytes
            return BookkeeperSession(
                pool, self._senders, peer, stream, limits, part_bytes, self.clock, self.rng, self._known, self._finder
            )


class BookkeeperSession(Struct):
    """One stream on its way into one table of the peer. ``tserver`` and ``token`` are empty until the stream is open.
    ``part_bytes``: size of the parts in which segment files go out. All sessions of a process share ``known``
    and ``finder``.
    """

    pool: RpcPool
    senders: ThreadPoolExecutor
    peer: Peer
    stream: StreamKey
    limits: RetryLimits
    part_bytes: int
    clock: Clock
    rng: random.Random
    known: KnownTServers
    finder: MasterFinder
    tserver: str = ""
    token: str = ""
    sends: int = 0
    _check: Callable[[], None] | None = None

    def check_when_opened(self, check: Callable[[], None]) -> None:
        """See the protocol's extensions."""
        self._check = check

    def missing_records(self, file: str, message: Message) -> int | None:
        """See the protocol's extensions."""
        stream = replace(self.stream, file=file)
        # A tserver of an earlier version takes what it knows already, or misses the session of another stream.
        token = self.token if stream == self.stream else ""
        request = replace(self._request(message), stream=stream, stream_session=token, confirms=True)
        try:
            return self._tserver().replicate(request).records_missing
        except StreamExpiredError:
            return None

    def ship(self, message: Message) -> Acked:
        """See the protocol."""
        give_up_ns = self.clock.boot_ns() + self.limits.message_timeout_ms * 1_000_000
        return self._retrying(give_up_ns)(self._ship_once, message)

    def start_shipping(self, message: Message) -> InFlightCall:
        """See the protocol."""
        try:
            if not self.token:
                self._open()
        except BookkeeperError as error:
            failed: Future[ReplicateResult] = Future()
            failed.set_exception(error)
            return InFlightCall(self, self.tserver, self.token, failed)
        sent = self.senders.submit(self._tserver().replicate, self._request(message))
        return InFlightCall(self, self.tserver, self.token, sent)

    def transfer_segments(self, transfer: SegmentTransfer, give_up_ns: int) -> TransferAnswer:
        """See the protocol's extensions. A retry goes on behind the bytes that the same tserver of the peer has."""
        sent = SentBytes()
        declined = self._retrying(give_up_ns)(self._transfer_once, transfer, give_up_ns, sent)
        return TransferAnswer(declined, sent.total)

    def _transfer_once(self, transfer: SegmentTransfer, give_up_ns: int, sent: SentBytes) -> str | None:
        if not self.token:
            self._open()
        try:
            answer = self._tserver().offer_segments(offer_of(self.token, self.stream, transfer))
            if answer.state == WANTED:
                self.sends += 1
                received = answer.received_bytes
                for part in missing_parts(self.token, self.stream, transfer, received, self.part_bytes):
                    if self.clock.boot_ns() >= give_up_ns:
                        return "its files take too long"
                    self._tserver().put_segment(part)
                    sent.add(len(part.content))
                answer = self._tserver().take_segments(self.token, self.stream)
        except BookkeeperError as error:
            if is_about_form(error):
                return error.message
            self._leave(error)
            raise
        return None if answer.state == TAKEN else answer.reason

    def close(self) -> None:
        """See the protocol; the peer drops an idle token by itself."""
        self.tserver = self.token = ""

    def _ship_once(self, message: Message) -> Acked:
        if not self.token:
            self._open()
        try:
            with expecting_table(self.peer, self.stream):
                result = self._tserver().replicate(self._request(message))
        except BookkeeperError as error:
            self.sends += went_out(error, self.tserver)
            self._leave(error)
            raise
        self.sends += 1
        return acked_of(result)

    def _request(self, message: Message) -> ReplicateRequest:
        return ReplicateRequest(
            stream_session=self.token,
            stream=self.stream,
            provenance=message.provenance,
            acked_offset=message.acked_offset,
            after_offset=message.after_offset,
            to_offset=message.to_offset,
            blocks=tuple(map(source_block, message.blocks)),
        )

    def _open(self) -> None:
        """Find a tserver, open the stream, and check what the peer has."""
        if self.tserver:
            self._open_at(self.tserver, self._timeout_ms)
        elif not self._open_soon():
            self._open_at(self._pick(self._timeout_ms), self._timeout_ms)
        if self._check is not None:
            try:
                self._check()
            except BookkeeperError as error:
                self.token = ""  # the next message checks again
                self._leave(error)
                raise

    def _open_soon(self) -> bool:
        """Open the stream at the tserver that the peer's master picks, if the master answers soon, or else at a known
        one. False when none is known, or none of them opens it soon; then the master has to be waited for.
        """
        known, patience_ms = self.known.of(self.peer.instance_id), min(MASTER_PATIENCE_MS, self._timeout_ms)
        if not known:
            return False
        started_ns = self.clock.boot_ns()
        if not self.known.is_silent(self.peer.instance_id, started_ns):
            try:
                picked = self._pick(patience_ms)
            except TransientError as error:
                LOG.info("a stream to %s begins at a known tserver, without its master: %s", self.peer.cluster, error)
                if self.clock.boot_ns() - started_ns >= patience_ms * 1_000_000:
                    self.known.note_silence(self.peer.instance_id, self.clock.boot_ns())
            else:
                self._open_at(picked, self._timeout_ms)
                return True
        give_up_ns = self.clock.boot_ns() + TSERVER_PATIENCE_MS * 1_000_000
        for address in known:
            left_ms = (give_up_ns - self.clock.boot_ns()) // 1_000_000
            if left_ms <= 0:
                return False  # an error puts an address last: the next try asks the others
            try:
                self._open_at(address, min(left_ms, self._timeout_ms))
            except BookkeeperError as error:  # another process may be at that address by now
                LOG.info("the known tserver %s of %s opens no stream: %s", address, self.peer.cluster, error)
            else:
                return True
        return False

    def _open_at(self, address: str, timeout_ms: int) -> None:
        """Open the stream at a tserver. The instance is checked after the call: a connection may be new."""
        self.tserver = address
        try:
            with expecting_table(self.peer, self.stream):
                token = self.pool.tserver(address, timeout_ms).open_stream(self.stream)
            expect_instance(self.peer, address, self.pool.peer_hello(address))
        except BookkeeperError as error:
            self._leave(error)
            raise
        self.token = token
        self.known.note(self.peer.instance_id, address)

    def _pick(self, timeout_ms: int) -> str:
        """The tserver that the leader of the peer picks. Each question may take ``timeout_ms``."""
        leader = self._leader(timeout_ms)
        with expecting_table(self.peer, self.stream), expecting_tserver(self.peer, leader):
            picked = self.pool.master(leader, timeout_ms).pick_tserver(self.stream.target_table_id)
        expect_instance(self.peer, leader, self.pool.peer_hello(leader))
        return picked

    def _leader(self, timeout_ms: int) -> str:
        problems, kind = list[str](), UnavailableError
        refusal: PermanentError | None = None
        for master in self.finder.addresses(self.peer.quorum, timeout_ms, self.peer.instance_id):
            try:
                return self.pool.master(master.address, timeout_ms).leader()
            except PermanentError as error:  # the process may have the address of a master that moved
                refusal = refusal or error
            except TransientError as error:
                problems.append(f"{master.address}: {error.message}")
                kind = NoAnswerError if isinstance(error, NoAnswerError) else kind
        if refusal is not None:
            raise refusal
        raise kind(f"no master of {self.peer.cluster} names a leader ({'; '.join(problems)})")

    def _tserver(self) -> TServer:
        return self.pool.tserver(self.tserver, self._timeout_ms)

    @property
    def _timeout_ms(self) -> int:
        return self.limits.message_timeout_ms

    def leave(self, error: BookkeeperError, token: str) -> None:
        """After an error of a message that was sent with ``token``."""
        if self.token == token:
            self._leave(error)

    def _leave(self, error: BookkeeperError) -> None:
        """After an error: stay with a tserver that is only busy, reopen an expired stream, leave any other tserver."""
        if not isinstance(error, OverloadedError | GapError):
            self.token = ""
        if not isinstance(error, OverloadedError | GapError | StreamExpiredError):
            self.known.put_last(self.peer.instance_id, self.tserver)
            self.tserver = ""

    def _retrying(self, give_up_ns: int) -> Retrying:
        return Retrying(
            retry=retry_if_exception(may_retry),
            stop=lambda state: self._is_over(state, give_up_ns),
            wait=self._pause_seconds,
            sleep=self._pause,
            reraise=True,
        )

    def _is_over(self, state: RetryCallState, give_up_ns: int) -> bool:
        return state.attempt_number > self.limits.message_retries or self.clock.boot_ns() >= give_up_ns

    def _pause_seconds(self, state: RetryCallState) -> float:
        limits = self.limits
        ceiling_ms = min(limits.retry_max_ms, limits.retry_base_ms * 2 ** (state.attempt_number - 1))
        return self.rng.uniform(ceiling_ms / 2, ceiling_ms) / 1000

    def _pause(self, seconds: float) -> None:
        self.clock.wait(threading.Event(), seconds * 1000)


class InFlightCall(Struct):
    """A pipelined message, see the protocol's extensions. It changes the session only in :meth:`wait`."""

    session: BookkeeperSession
    tserver: str
    token: str
    sent: Future[ReplicateResult]
    sends: int = 0

    def wait(self) -> Acked:
        """See the protocol."""
        try:
            with expecting_table(self.session.peer, self.session.stream):
                result = self.sent.result()
        except BookkeeperError as error:
            self.sends = int(bool(self.token) and went_out(error, self.tserver))
            self.session.leave(error, self.token)
            raise
        self.sends = 1
        return acked_of(result)


@contextmanager
def expecting_table(peer: Peer, stream: StreamKey) -> Iterator[None]:
    """Turn NotFoundError into TableGoneError: the peer has no table of the stream. Ids of tables are never used again,
    so the table does not come back by itself.
    """
    try:
        yield
    except NotFoundError as error:
        raise TableGoneError(f"{peer.cluster} has no table {stream.target_table_id}: {error.message}") from error


@contextmanager
def expecting_tserver(peer: Peer, leader: str) -> Iterator[None]:
    """Turn a master's answer that no tserver of its cluster lives into NoTServerError."""
    try:
        yield
    except UnavailableError as error:
        if NO_TSERVER not in error.details:
            raise
        text = f"the master of {peer.cluster} answers at {leader}, and no tablet server of {peer.cluster} is alive"
        raise NoTServerError(text, error.details) from error


def source_block(block: MessageBlock) -> SourceBlock:
    """A block as the wire has it."""
    return SourceBlock(
        block.first_offset,
        block.last_offset,
        block.records,
        block.record_count,
        block.min_row,
        block.max_row,
        block.origins,
    )


def acked_of(result: ReplicateResult) -> Acked:
    """The peer's answer."""
    return Acked(result.acked_offset, result.records_applied, result.records_dropped)


def may_retry(error: BaseException) -> bool:
    """Transient errors are tried again within a message; a gap is not: the sender has to read again (R19). Nor is
    silence: each try takes seconds, and the status would not know.
    """
    return isinstance(error, TransientError) and not isinstance(error, GapError | NoAnswerError)


def went_out(error: BookkeeperError, address: str) -> bool:
    """Whether a call that failed had a connection to ``address``."""
    return error.details.get(UNREACHED) != address


def expect_instance(peer: Peer, address: str, hello: Hello) -> None:
    """Raise OtherInstanceError unless the process that answered belongs to the expected cluster (R23)."""
    if hello.instance_id != peer.instance_id:
        raise OtherInstanceError(
            f"{address} belongs to {hello.cluster_name or 'an unnamed cluster'} ({hello.instance_id or 'no id'}), and "
            f"{peer.cluster} was defined as {peer.instance_id}; delete the cluster and define it again if "
            "it was replaced on purpose"
        )
