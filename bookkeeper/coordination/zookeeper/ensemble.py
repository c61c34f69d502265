"""The connection to a ZooKeeper ensemble: the one module that uses kazoo.

Every call ends within its time. A read comes behind a sync of the same connection, so it shows what was committed
before it began, whichever server answers. Changes of several nodes are one transaction, which happens or does not; each
of them is conditional, so one that arrives late finds other versions. When the answer to a transaction is lost, the
connection is made anew before anything else is asked: ZooKeeper refuses requests of a session that moved or ended, so
what is read then stays so (:class:`UnknownOutcomeError`).
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    BadVersionError,
    KazooException,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    WriterNotClosedException,
)
from kazoo.exceptions import RuntimeInconsistency as NotReachedError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.states import Callback, KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import CREATOR_ALL_ACL, READ_ACL_UNSAFE
from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.zookeeper.access import Access
from bookkeeper.coordination.zookeeper.url import ZooKeeperUrl
from bookkeeper.errors import RefusedError, UnavailableError
from bookkeeper.runtime.threads import guarded_thread

LOG = logging.getLogger(__name__)
KAZOO_LOG = logging.getLogger(f"{__name__}.kazoo")
KAZOO_LOG.setLevel(logging.ERROR)  # each lost connection is told by the error of the call that needed it

CONNECT_MS = 10_000
"""The first connection may take longer than a call: servers that are gone are tried first, perhaps."""

LOOK_S = 0.02

UNTRUSTED_BYTES_MAX = 65_536
"""Bytes of all answers of a server of another cluster; a few addresses have less than a kilobyte."""

ANY = -1
"""Any version of a node."""


class UnknownOutcomeError(UnavailableError):
    """The answer to a transaction was lost: it may have been committed."""


class NotAsExpectedError(Exception):
    """A transaction changed nothing: a node was there or not there, or had another version. ``index``: the first change
    that found its node otherwise; ``is_missing``: there was none.
    """

    def __init__(self, index: int, *, is_missing: bool) -> None:
        super().__init__(f"change {index}")
        self.index = index
        self.is_missing = is_missing


class Node(Struct, frozen=True):
    """The content of a node, and its version: 0 when it is made."""

    content: bytes
    version: int


class Written(Struct, frozen=True):
    """The version of a node, and the transaction that wrote it."""

    version: int
    zxid: int


class Create(Struct, frozen=True):
    """A node that must not be there. ``is_public``: everybody may read it, whatever user made it."""

    path: str
    content: bytes = b""
    is_public: bool = False


class Write(Struct, frozen=True):
    """A node that must be there at this version."""

    path: str
    content: bytes
    version: int


class Remove(Struct, frozen=True):
    """A node that must be there at this version."""

    path: str
    version: int


class Check(Struct, frozen=True):
    """A node that must be there at this version, and stays as it is."""

    path: str
    version: int = ANY


Change = Create | Write | Remove | Check


def call_limit_ms(settings: CoordinationSettings) -> int:
    """The time limit of a call: a lease has room for several renewals without an answer, each at another server."""
    return max(1_000, settings.session_lease_ms // 5)


class Names(Struct, frozen=True):
    """The names of the nodes in a node, sorted, and how often one was made or removed."""

    names: list[str]
    changes: int


class Watch(Struct):
    """Whether what was read may have changed since, or the connection was lost."""

    client: KazooClient
    has_changed: threading.Event = field(default_factory=threading.Event)

    def note(self, _event: object) -> None:
        """The callback of the watch."""
        self.has_changed.set()

    def is_quiet(self, client: KazooClient) -> bool:
        """Whether what was read is what a server showed last on this connection."""
        return self.client is client and not self.has_changed.is_set()


class Connection(Struct, frozen=True):
    """A client of kazoo, and whether it is connected now. A lost connection is made again by kazoo."""

    client: KazooClient
    live: threading.Event
    refused: threading.Event
    """A server refused the user, which ends kazoo's tries; a server that goes away meanwhile does, too."""

    def is_live_within(self, limit_ms: int) -> bool:
        """Whether it is connected within this time; returns early when it is refused."""
        for _ in range(max(1, int(limit_ms / 1000 / LOOK_S))):
            if self.live.wait(LOOK_S):
                return True
            if self.refused.is_set():
                return False
        return False


class Ensemble:
    """A connection below the root of ``access``. Thread-safe."""

    def __init__(self, access: Access, clock: Clock, call_ms: int) -> None:
        """Connect. Each call ends within twice ``call_ms``. Raises UnavailableError when no server answers in time,
        RefusedError when the user is refused.
        """
        self._access = access
        self._url = access.url
        self._clock = clock
        self._call_ms = call_ms
        self._connecting = threading.Lock()
        self._is_admitted = False
        self._watched: dict[str, tuple[Watch, Node | None]] = {}
        self._watched_lists: dict[str, tuple[Watch, Names]] = {}
        self._connection = self._connected(0)
        self._live_ns = clock.boot_ns()
        """When the connection was found live."""
        if not self._connection.is_live_within(CONNECT_MS) or self._connection.refused.is_set():
            error = self._silent(self._connection, CONNECT_MS)
            self.close()
            raise error

    def at(self, *parts: str) -> str:
        """The path of a node below the root."""
        return "/".join((self._url.root, *parts))

    def read(self, *paths: str) -> list[Node | None]:
        """The nodes now, None for one that is not there; each is read after the one before. Raises UnavailableError."""
        if not paths:
            return []
        client, until_ns = self._live()
        client.sync_async(self._url.root)
        asked = [client.get_async(path) for path in paths]
        return [self._node(one, until_ns) for one in asked]

    @property
    def newest_zxid(self) -> int:
        """The newest transaction that an answer has named. ZooKeeper has committed it, and all before it. It never goes
        back: a connection takes no server that is behind it.
        """
        return int(self._connection.client.last_zxid)

    def written(self, *paths: str, is_synced: bool = False) -> list[Written | None]:
        """The last writes of nodes, as :meth:`read`. ``is_synced``: as they were at :meth:`watched` or later."""
        if not paths:
            return []
        client, until_ns = self._live()
        if not is_synced:
            client.sync_async(self._url.root)
        asked = [client.exists_async(path) for path in paths]
        found = [self._answer(one, until_ns) for one in asked]
        return [None if stat is None else Written(int(stat.version), int(stat.mzxid)) for stat in found]

    def watched(self, nodes: Sequence[str] = (), lists: Sequence[str] = ()) -> tuple[list[Node | None], list[Names]]:
        """Nodes as :meth:`read` shows them, and the names in nodes. While none of them changes, this costs a sync.
        Raises as :meth:`names`.

        A server tells of a change before it answers a sync that came after it, and kazoo calls back in that order. So
        a watch that was not called by then has nothing to tell.
        """
        client, until_ns = self._live()
        self._answer(client.sync_async(self._url.root), until_ns)
        told = threading.Event()
        client.handler.dispatch_callback(Callback("watch", told.set, ()))
        if not told.wait(self._left_s(until_ns)):
            raise UnavailableError(f"{self._url}: the connection was closed")
        return (
            [self._watched_node(client, path, until_ns) for path in nodes],
            [self._watched_list(client, path, until_ns) for path in lists],
        )

    def has_news(self, nodes: Sequence[str] = (), lists: Sequence[str] = ()) -> bool:
        """Whether a server has told of a change since :meth:`watched`, or nothing was read; this asks nobody."""
        client = self._connection.client
        known = [*map(self._watched.get, nodes), *map(self._watched_lists.get, lists)]
        return any(one is None or not one[0].is_quiet(client) for one in known)

    def _watched_node(self, client: KazooClient, path: str, until_ns: int) -> Node | None:
        known = self._watched.get(path)
        if known is not None and known[0].is_quiet(client):
            return known[1]
        watch = Watch(client)
        is_there, asked = client.exists_async(path, watch=watch.note), client.get_async(path)
        self._answer(is_there, until_ns)
        found = self._node(asked, until_ns)
        self._watched[path] = watch, found
        return found

    def _watched_list(self, client: KazooClient, path: str, until_ns: int) -> Names:
        known = self._watched_lists.get(path)
        if known is not None and known[0].is_quiet(client):
            return known[1]
        watch = Watch(client)
        try:
            names, stat = self._answer(client.get_children_async(path, watch=watch.note, include_data=True), until_ns)
        except NoNodeError as error:
            raise self._gone(path) from error
        found = Names(sorted(names), int(stat.cversion))
        self._watched_lists[path] = watch, found
        return found

    def names(self, path: str) -> list[str]:
        """The names of the nodes in a node, sorted. Raises UnavailableError, also when it is not there."""
        client, until_ns = self._live()
        client.sync_async(self._url.root)
        try:
            return sorted(self._answer(client.get_children_async(path), until_ns))
        except NoNodeError as error:
            raise self._gone(path) from error

    def _gone(self, path: str) -> UnavailableError:
        return UnavailableError(f"{self._url}: {path} is gone; restore the coordination store")

    def commit(self, *changes: Change) -> list[int]:
        """Make all changes, or none; returns the versions of the nodes afterwards (removed and checked ones: 0). Raises
        NotAsExpectedError, UnknownOutcomeError, UnavailableError when nothing was sent.
        """
        client, until_ns = self._live()
        transaction = client.transaction()
        for change in changes:
            match change:
                case Create(path, content, is_public):
                    transaction.create(path, content, acl_of(client, is_public))
                case Write(path, content, version):
                    transaction.set_data(path, content, version)
                case Remove(path, version):
                    transaction.delete(path, version)
                case Check(path, version):
                    transaction.check(path, version)
        try:
            results = transaction.commit_async().get(timeout=self._left_s(until_ns))
        except AuthFailedError as error:
            raise self._refused(self._call_ms) from error
        except (KazooException, KazooTimeoutError) as error:
            self._connect_again(client)
            raise UnknownOutcomeError(f"{self._url} did not answer a change: {reason_of(error)}") from error
        return self._versions_of(results)

    def close(self) -> None:
        """Close the connection."""
        close(self._connection.client)

    def _connected(self, seen_zxid: int) -> Connection:
        """A new client. It takes no server that is behind ``seen_zxid``, so what is read never goes back."""
        client = new_client(self._access, self._call_ms)
        client.last_zxid = seen_zxid
        refused = threading.Event()

        def note(_state: str) -> None:  # in kazoo's thread; its state says "closed" a moment later
            if client.client_state == KeeperState.AUTH_FAILED:
                refused.set()

        client.add_listener(note)
        return Connection(client, client.start_async(), refused)

    def _live(self) -> tuple[KazooClient, int]:
        """The client, once it is connected, and the end of the call. What is asked without a connection waits in kazoo
        without a limit.
        """
        connection = self._connection
        if connection.refused.is_set():
            self._connect_again(connection.client)
            connection = self._connection
        is_live, now_ns = connection.is_live_within(self._call_ms), self._clock.boot_ns()
        if is_live:
            self._live_ns = now_ns
            return connection.client, now_ns + self._call_ms * 1_000_000
        if now_ns - self._live_ns > CONNECT_MS * 1_000_000:  # kazoo's thread may have died
            self._live_ns = now_ns
            self._connect_again(connection.client)
        raise self._silent(connection, self._call_ms)

    def _silent(self, connection: Connection, limit_ms: int) -> UnavailableError | RefusedError:
        """Why there is no connection."""
        if connection.refused.is_set():
            return self._refused(limit_ms)
        return self._away(limit_ms)

    def _refused(self, limit_ms: int) -> UnavailableError | RefusedError:
        """Once the user was admitted, a refusal is a server that went away meanwhile."""
        if self._is_admitted:
            return self._away(limit_ms)
        return RefusedError(
            f"{self._url} refuses the user {self._access.user!r}: correct coordination.user, or the password in "
            "secrets/zookeeper.password"
        )

    def _away(self, limit_ms: int) -> UnavailableError:
        return UnavailableError(
            f"no server of {self._url} answers within {limit_ms} ms: start ZooKeeper, or correct coordination.url"
            + (" and coordination.tls_ca" if self._access.tls else "")
        )

    def _connect_again(self, lost: KazooClient) -> None:
        """End a client with all that waits in it, beside this call, and connect a new one, to any server."""
        with self._connecting:
            if self._connection.client is not lost:
                return
            guarded_thread("zookeeper-end", lambda: close(lost)).start()
            self._connection = self._connected(lost.last_zxid)

    def _left_s(self, until_ns: int) -> float:
        return max(0.0, (until_ns - self._clock.boot_ns()) / 1e9)

    def _node(self, asked: Any, until_ns: int) -> Node | None:
        try:
            content, stat = self._answer(asked, until_ns)
        except NoNodeError:
            return None
        return Node(content, int(stat.version))

    def _answer(self, asked: Any, until_ns: int) -> Any:
        try:
            answer = asked.get(timeout=self._left_s(until_ns))
        except NoNodeError:
            raise
        except NoAuthError as error:
            raise self._not_allowed() from error
        except AuthFailedError as error:
            raise self._refused(self._call_ms) from error
        except (KazooException, KazooTimeoutError) as error:
            if self._connection.refused.is_set():
                raise self._refused(self._call_ms) from error
            raise UnavailableError(f"{self._url} does not answer: {reason_of(error)}") from error
        self._is_admitted = True
        return answer

    def _versions_of(self, results: Sequence[Any]) -> list[int]:
        if any(isinstance(result, NoAuthError) for result in results):
            raise self._not_allowed()
        return versions_of(results)

    def _not_allowed(self) -> RefusedError:
        who = f"the user {self._access.user!r}" if self._access.user else "clients without a user"
        return RefusedError(f"{self._url} is closed to {who}: set coordination.user to the user that made this root")


def acl_of(client: KazooClient, is_public: bool) -> list[Any] | None:
    """Who may open a new node; None: as the client's default says."""
    return [*client.default_acl, *READ_ACL_UNSAFE] if is_public and client.default_acl else None


class UntrustedSocket(socket.socket):
    """A connection to a server that may be anybody's: it takes no more than an honest answer has."""

    left_bytes = UNTRUSTED_BYTES_MAX

    def recv(self, size: int, flags: int = 0) -> bytes:
        """See :meth:`socket.socket.recv`. Raises OSError when the server sends more."""
        if not self.left_bytes:
            raise OSError("the server sends more than it was asked for")
        received = super().recv(min(size, self.left_bytes), flags)
        self.left_bytes -= len(received)
        return received


class UntrustedHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Kazoo's handler, for servers that may be anybody's. Without the bound a server could fill this process's memory;
    without :meth:`cut` it could keep a thread for ever, because it chooses how long kazoo waits for it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._connections: list[UntrustedSocket] = []
        self._is_over = False

    def create_connection(self, *arguments: Any, **named: Any) -> UntrustedSocket:
        """A connection. Raises OSError, also when all is over."""
        made = super().create_connection(*arguments, **named)
        timeout_s = made.gettimeout()
        connection = UntrustedSocket(fileno=made.detach())
        connection.settimeout(timeout_s)
        self._connections.append(connection)
        if self._is_over:
            connection.close()
            raise OSError("nothing is asked any more")
        return connection

    def spawn(self, func: Callable[..., object], *arguments: Any, **named: Any) -> threading.Thread:
        """A thread of kazoo. Answers that make no sense end it; the caller gets no answer then."""

        def contained() -> None:
            try:
                func(*arguments, **named)
            except Exception:
                LOG.info("a server sent what is no answer of ZooKeeper", exc_info=True)

        thread: threading.Thread = super().spawn(contained)
        return thread

    def cut(self) -> None:
        """End all connections, whatever their servers do."""
        self._is_over = True
        for connection in self._connections:
            with suppress(OSError):  # it has ended
                connection.shutdown(socket.SHUT_RDWR)


def read_public(url: ZooKeeperUrl, part: str, limit_ms: int) -> bytes:
    """The content of a node below a root of any cluster, as everybody may read it, by a connection that ends with this
    call. It waits ``limit_ms`` for the connection, and as long for an answer. Raises UnavailableError.
    """
    handler, servers = UntrustedHandler(), url.servers.split(",")
    client = new_client(Access(url), limit_ms // (1 + len(servers)), handler)  # servers that are gone may come first
    limit_s = limit_ms / 1000
    try:
        if not client.start_async().wait(limit_s):
            raise UnavailableError(
                f"no server of {url} answers within {limit_ms} ms: correct the addresses, or start that ZooKeeper; it "
                "must take clients without a user and without TLS"
            )
        client.sync_async(url.root)
        asked, root = client.get_async(f"{url.root}/{part}"), client.exists_async(url.root)
        try:
            content, _ = asked.get(timeout=limit_s)
        except NoNodeError as error:
            raise missing(url, part, is_root_there(root, limit_s)) from error
    except NoAuthError as error:
        raise UnavailableError(
            f"{url} does not let everybody read its node {part!r}: give it the right world:anyone:r, or delete it and "
            "restart the masters of that cluster, or name them HOST:PORT instead"
        ) from error
    except (KazooException, KazooTimeoutError) as error:
        raise UnavailableError(f"{url} does not answer: {reason_of(error)}") from error
    finally:
        guarded_thread("zookeeper-end", lambda: end(client, handler)).start()
    assert isinstance(content, bytes)
    return content


def is_root_there(asked: Any, limit_s: float) -> bool:
    """Whether a root exists that may be closed to this client."""
    try:
        return asked.get(timeout=limit_s) is not None
    except NoAuthError:
        return True


def missing(url: ZooKeeperUrl, part: str, has_root: bool) -> UnavailableError:
    """A node that everybody may read is not there."""
    if not has_root:
        return UnavailableError(f"ZooKeeper at {url.servers} has no node {url.root}: correct the root")
    return UnavailableError(
        f"{url} has no node {part!r}: its cluster has not started yet, or is of an earlier version; start it with this "
        "version, or name its masters HOST:PORT instead"
    )


def end(client: KazooClient, handler: UntrustedHandler) -> None:
    """End a client. It says no goodbye: kazoo would wait for the answer as long as the server chose."""
    handler.cut()
    close(client)


def versions_of(results: Sequence[Any]) -> list[int]:
    """Raises NotAsExpectedError."""
    for index, result in enumerate(results):
        if isinstance(result, BadVersionError | NoNodeError | NodeExistsError):
            raise NotAsExpectedError(index, is_missing=isinstance(result, NoNodeError))
    for result in results:
        if isinstance(result, Exception) and not isinstance(result, RolledBackError | NotReachedError):
            raise UnavailableError(f"ZooKeeper refuses a change: {reason_of(result)}")
    return [int(getattr(result, "version", 0)) for result in results]


def reason_of(error: BaseException) -> str:
    """Kazoo's errors often have no text."""
    return str(error) or type(error).__name__


class StoreHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Kazoo's handler, for a store on several servers. A server gets its share of the time of a call to take the
    connection, so that the others are tried within that time: a machine without power refuses none. With TLS, several
    answers may come in one record, and all but the first are in no socket then.
    """

    def __init__(self, servers: int) -> None:
        super().__init__()
        self._servers = servers

    def create_connection(self, *arguments: Any, timeout: float, **named: Any) -> socket.socket:
        """A connection. Raises OSError."""
        made: socket.socket = super().create_connection(*arguments, timeout=timeout / self._servers, **named)
        return made

    def select(self, readers: Sequence[Any], *others: Any) -> Any:
        """See :func:`select.select`."""
        buffered = [reader for reader in readers if isinstance(reader, ssl.SSLSocket) and reader.pending()]
        return (buffered, [], []) if buffered else super().select(readers, *others)


def new_client(access: Access, call_ms: int, handler: SequentialThreadingHandler | None = None) -> KazooClient:
    """A client that is not connected yet, and tries for ever once it is started, all servers for ``call_ms``. Nothing
    rests on the time-out of its session in ZooKeeper: the store has no ephemeral nodes.
    """
    options: dict[str, Any] = {"handler": handler or StoreHandler(access.url.servers.count(",") + 1)}
    if access.user:
        named = {"mechanism": "DIGEST-MD5", "username": access.user, "password": access.password}
        options |= {"sasl_options": named, "default_acl": CREATOR_ALL_ACL}
    if access.tls is not None:
        files = {"ca": access.tls.ca, "certfile": access.tls.certificate, "keyfile": access.tls.key}
        options |= {"use_ssl": True, "verify_certs": True, "check_hostname": True}
        options |= {name: str(path) for name, path in files.items() if path is not None}
    never_ends = KazooRetry(max_tries=-1, delay=0.05, max_delay=1.0, backoff=2)
    return KazooClient(access.url.servers, call_ms / 1000, connection_retry=never_ends, logger=KAZOO_LOG, **options)


def close(client: KazooClient) -> None:
    """End a client, connected or not."""
    try:
        client.stop()
    except WriterNotClosedException as error:  # its thread waits for a name server, and ends after that
        LOG.warning("a connection to ZooKeeper could not be ended yet: %s", error)
        return
    client.close()
