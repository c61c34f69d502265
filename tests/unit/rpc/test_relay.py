"""A relay that passes a handshake on: its added, changed and repeated frames never count, TLS or not (R23)."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bookkeeper.errors import BookkeeperError, InvalidInputError, NotAdmittedError, RefusedError, UnavailableError
from bookkeeper.rpc.frames.envelope import FRAME_HEADER, method_codec
from bookkeeper.rpc.frames.frame_tags import TAG_BYTES
from bookkeeper.rpc.frames.transport import channel_binding
from bookkeeper.rpc.rpc_pool import plain_hello
from bookkeeper.rpc.rpc_server import RpcServer
from bookkeeper.rpc.trust.handshake import Kind
from bookkeeper.security.access import Credentials, Entrance
from bookkeeper.security.secret import Secret, new_secret
from bookkeeper.security.tls import TlsFiles, caller_context, server_context
from tests.support.certificates import Authority
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.relay import Relay, Side
from tests.support.rpc_peer import SERVER_HELLO, Echo, RawPeer, pooled, serving

OWN = new_secret("cluster", "west", "i-west", "processes", 0)
FOR_WEST = new_secret("peer", "west", "i-west", "east", 0)
FOR_NORTH = new_secret("peer", "north", "i-north", "east", 0)


@contextmanager
def guarded(*accepted: Secret, tls: ssl.SSLContext | None = None) -> Iterator[tuple[RpcServer, Echo]]:
    echo = Echo()
    with serving(echo, entrance=Entrance(lambda: {known.id: known for known in accepted}, tls)) as server:
        yield server, echo


def own(tls: ssl.SSLContext | None = None) -> Credentials:
    return Credentials(lambda: (OWN,), True, tls=tls, instance_id="i-west")


# ---- without TLS


def test_a_proxy_that_changes_nothing_is_not_noticed() -> None:
    with guarded(OWN) as (server, _), Relay(server.address) as relay, pooled(credentials=own()) as pool:
        for size in (0, 1, 100_000, 5 << 20):
            assert pool.replay(relay.address).run(bytes(size)) == bytes(size)


def forged(tag: bytes) -> bytes:
    """A call of a sender without a key."""
    call = b"".join(method_codec("Replay", "warm").call(9, (), 1 << 20)) + tag
    return FRAME_HEADER.pack(len(call) - FRAME_HEADER.size) + call[FRAME_HEADER.size :]


CALLS: dict[str, Callable[[bytes], bytes]] = {
    "adds a call": lambda frame: frame + forged(bytes(TAG_BYTES)),
    "adds a call without a tag": lambda frame: frame + forged(b""),
    "adds a call with the tag of another": lambda frame: frame + forged(frame[-TAG_BYTES:]),
    "puts a call in place of another": lambda frame: forged(frame[-TAG_BYTES:]),
    "repeats a call": lambda frame: frame + frame,
}


@pytest.mark.parametrize("meddling", CALLS.values(), ids=CALLS)
def test_nobody_in_between_makes_a_call(meddling: Callable[[bytes], bytes]) -> None:
    seen = []

    def meddle(side: Side, frame: bytes) -> bytes:
        if side == "client":
            seen.append(frame)
        return meddling(frame) if side == "client" and len(seen) == 2 else frame  # the first one is hello

    with guarded(OWN) as (server, echo), pooled(credentials=own()) as pool:
        with Relay(server.address, meddle) as relay:
            try:
                pool.replay(relay.address).warm()
                pool.replay(relay.address).status()
            except UnavailableError:
                pass  # the connection is over
        assert pool.replay(server.address).status() == {"calls": str(echo.calls)}
    assert echo.calls <= 1, "a third party makes a call"


def test_an_answer_that_was_changed_on_its_way_is_none() -> None:
    def meddle(side: Side, frame: bytes) -> bytes:
        return frame.replace(b"true words", b"lies, lies") if side == "server" else frame

    with guarded(OWN) as (server, _), Relay(server.address, meddle) as relay, pooled(credentials=own()) as pool:
        with pytest.raises(UnavailableError) as caught:
            assert pool.replay(relay.address).run(b"true words") == b"true words", "an answer is changed on its way"
        assert "the tag of a frame" in caught.value.message


def test_a_call_that_was_made_too_large_on_its_way_is_none() -> None:
    """The server refuses it by its head: its caller must not be told that its own call was refused."""

    def meddle(side: Side, frame: bytes) -> bytes:
        if side == "server" or b"warm" not in frame:
            return frame
        longer = frame[FRAME_HEADER.size :] + bytes(5 << 20)
        return FRAME_HEADER.pack(len(longer)) + longer

    with guarded(OWN) as (server, _), Relay(server.address, meddle) as relay, pooled(credentials=own()) as pool:
        with pytest.raises(UnavailableError):
            pool.replay(relay.address).warm()
        pool.replay(server.address).warm()


def test_a_call_that_was_left_out_on_its_way_is_noticed() -> None:
    with guarded(OWN) as (server, echo):
        peer = RawPeer(server.address)
        peer.authenticate(OWN)
        peer.send_call("hello", plain_hello())
        assert peer.receive_answer("hello").result == SERVER_HELLO
        peer.call("run", b"left out")
        peer.send_call("warm")
        assert peer.is_closed_by_server()
        peer.close()
    assert echo.calls == 0


def test_a_frame_of_the_largest_size_goes_with_its_tag_too() -> None:
    limit = 1 << 20
    codec = method_codec("Replay", "run")
    calls, answers = (
        sum(map(len, frame)) - FRAME_HEADER.size
        for frame in (codec.call(1, (b"",), limit), codec.success(1, b"", limit))
    )
    with (
        serving(Echo(), entrance=Entrance(lambda: {OWN.id: OWN}), frame_bytes_max=limit) as server,
        pooled(credentials=own(), frame_bytes_max=limit) as pool,
    ):
        data = bytes(limit - max(calls, answers))
        assert pool.replay(server.address).run(data) == data
        with pytest.raises(InvalidInputError, match="more than"):
            pool.replay(server.address).run(data + bytes(abs(calls - answers) + 1))


# ---- who is meant


def east(*offers: Secret) -> Credentials:
    """The credentials that a cluster shows to its peers, at any address."""
    return Credentials(lambda: offers)


def test_only_what_is_meant_for_an_instance_is_offered_to_it() -> None:
    with guarded(FOR_WEST) as (server, _), Relay(server.address) as relay:
        with pooled(credentials=east(FOR_NORTH, FOR_WEST)) as pool:
            pool.peer_hello(relay.address)
        assert relay.offers == [FOR_WEST.id], "a secret is offered to an instance that it is not meant for"
        assert [message.kind for _, message in relay.said] == [
            *(Kind.GREETING, Kind.INSTANCE, Kind.GREETING),
            *(Kind.CHALLENGE, Kind.PROOF, Kind.WELCOME),
        ]


def test_a_caller_that_expects_an_instance_names_it_at_once() -> None:
    with guarded(OWN, FOR_WEST) as (server, _), Relay(server.address) as relay:
        with pooled(credentials=own()) as pool:
            pool.replay(relay.address).status()
        assert [message.kind for _, message in relay.said] == [
            *(Kind.GREETING, Kind.CHALLENGE, Kind.PROOF, Kind.WELCOME)
        ]


def test_an_instance_for_which_there_is_no_secret_is_offered_none() -> None:
    with guarded(FOR_WEST) as (server, _), Relay(server.address) as relay:
        with pooled(credentials=east(FOR_NORTH)) as pool, pytest.raises(BookkeeperError) as caught:
            pool.replay(relay.address).status()
        assert relay.offers == [], "a secret is offered to an instance that it is not meant for"
    assert isinstance(caught.value, NotAdmittedError)
    assert "it is instance i-west, and the secrets of this side are for north (i-north)" in caught.value.message


def test_a_server_refuses_a_caller_that_wants_another_instance() -> None:
    mistaken = Credentials(lambda: (FOR_NORTH,), instance_id="i-north")
    with (
        guarded(FOR_NORTH) as (server, _),
        pooled(credentials=mistaken) as pool,
        must_raise(BookkeeperError, "a server admits a caller that wants another instance") as caught,
    ):
        pool.replay(server.address).status()
    assert isinstance(caught.value, RefusedError)
    assert "replay of cluster west is instance i-west, and the caller wants i-north" in caught.value.message, (
        "a server admits a caller that wants another instance"
    )


def test_what_goes_to_one_peer_goes_to_no_other_that_took_its_address() -> None:
    with guarded(FOR_WEST) as (server, _), Relay(server.address) as relay:
        with pooled(credentials=east(FOR_NORTH, FOR_WEST)) as pool:
            for_north = pool.of_instance("i-north")
            assert for_north is pool.of_instance("i-north")
            with pytest.raises(RefusedError, match="the caller wants i-north"):
                for_north.replay(relay.address).status()
            assert pool.of_instance("i-west").peer_hello(relay.address) == SERVER_HELLO
        assert relay.offers == [FOR_NORTH.id, FOR_WEST.id]


def test_a_server_at_the_address_of_a_peer_that_proves_nothing_gets_no_calls() -> None:
    echo = Echo()
    with fault("any-target-will-do"), serving(echo) as taker, pooled(credentials=east(FOR_NORTH)) as pool:
        for meant in ("i-north", "i-south"):
            with must_raise(BookkeeperError, "a server at the address of a peer gets its calls") as caught:
                pool.of_instance(meant).replay(taker.address).warm()
            assert isinstance(caught.value, RefusedError)
            assert f"says that it is instance i-west (west), and the caller wants {meant}:" in caught.value.message
    assert echo.calls == 0


# ---- with TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("tls") / "ca")


def contexts(files: TlsFiles) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a server and of a caller."""
    server, caller = server_context(files), caller_context(files)
    assert server is not None
    assert caller is not None
    return server, caller


def test_a_relay_with_a_certificate_of_its_own_gets_no_proof_that_holds(authority: Authority) -> None:
    west, spy = contexts(authority.sign("west")), contexts(authority.sign("spy"))

    def meddle(side: Side, frame: bytes) -> bytes:
        return frame + forged(b"") if side == "client" else frame

    with (
        guarded(OWN, tls=west[0]) as (server, echo),
        Relay(server.address, meddle, spy) as relay,
        pooled(credentials=own(west[1])) as pool,
    ):
        with must_raise(BookkeeperError, "a caller believes a proof from another channel") as caught:
            pool.replay(relay.address).status()
        assert isinstance(caught.value, NotAdmittedError), "a caller believes a proof from another channel"
        assert "a third party relays the connection" in caught.value.message
        assert echo.calls == 0
        assert pool.replay(server.address).status() == {"calls": "0"}


def test_a_server_takes_no_proof_that_came_another_way(authority: Authority) -> None:
    west, spy = contexts(authority.sign("west")), contexts(authority.sign("spy"))
    with (
        fault("callers-believe-any-proof"),
        guarded(OWN, tls=west[0]) as (server, _),
        Relay(server.address, tls=spy) as relay,
        pooled(credentials=own(west[1])) as pool,
    ):
        with must_raise(BookkeeperError, "a server takes a proof from another channel") as caught:
            pool.replay(relay.address).status()
        assert isinstance(caught.value, NotAdmittedError)
        assert f"the proof for secret {OWN.id} is wrong" in caught.value.message


def test_both_ends_see_the_same_binding_and_no_two_connections_do(authority: Authority) -> None:
    served, calling = contexts(authority.sign("west"))
    served.num_tickets = 2  # a server of ours gives none, so nobody resumes; a binding would hold all the same
    first, session = _bindings(served, calling, None)
    again, resumed = _bindings(served, calling, session)
    assert (session.has_ticket, len(set(first)), len(set(again))) == (True, 1, 1)
    assert first[0] != again[0]
    assert len(first[0]) >= 32
    assert resumed is not None


def _bindings(
    served: ssl.SSLContext, calling: ssl.SSLContext, session: ssl.SSLSession | None
) -> tuple[list[bytes], ssl.SSLSession]:
    """The channel bindings of server and caller, and the session to resume."""
    found: list[bytes] = []
    here, there = socket.socketpair()

    def serve() -> None:
        with served.wrap_socket(there, server_side=True) as secured:
            found.append(channel_binding(secured))
            secured.sendall(b"x")
            secured.recv(1)

    thread = threading.Thread(target=serve)
    thread.start()
    with calling.wrap_socket(here, server_hostname="127.0.0.1", session=session) as secured:
        assert secured.recv(1) == b"x"
        assert secured.session_reused is (session is not None)
        found.append(channel_binding(secured))
        kept = secured.session
        secured.sendall(b"y")
        thread.join()
    assert kept is not None
    return found, kept


def test_a_connection_without_tls_has_no_binding() -> None:
    with socket.socket() as sock:
        assert channel_binding(sock) == b""


# ---- switches


Law = Callable[[Authority], None]

LAWS: list[tuple[str, Law, str]] = [
    (
        "tags-are-not-verified",
        lambda _: test_nobody_in_between_makes_a_call(CALLS["adds a call"]),
        "a third party makes a call",
    ),
    (
        "tags-are-not-verified",
        lambda _: test_an_answer_that_was_changed_on_its_way_is_none(),
        "an answer is changed on its way",
    ),
    (
        "frames-have-no-numbers",
        lambda _: test_nobody_in_between_makes_a_call(CALLS["repeats a call"]),
        "a third party makes a call",
    ),
    (
        "everything-is-offered",
        lambda _: test_only_what_is_meant_for_an_instance_is_offered_to_it(),
        "that it is not meant for",
    ),
    (
        "everything-is-offered",
        lambda _: test_an_instance_for_which_there_is_no_secret_is_offered_none(),
        "that it is not meant for",
    ),
    (
        "any-instance-will-do",
        lambda _: test_a_server_at_the_address_of_a_peer_that_proves_nothing_gets_no_calls(),
        "a server at the address of a peer gets its calls",
    ),
    (
        "any-target-will-do",
        lambda _: test_a_server_refuses_a_caller_that_wants_another_instance(),
        "admits a caller that wants another instance",
    ),
    (
        "proofs-hold-on-any-channel",
        test_a_relay_with_a_certificate_of_its_own_gets_no_proof_that_holds,
        "a caller believes a proof from another channel",
    ),
    (
        "proofs-hold-on-any-channel",
        test_a_server_takes_no_proof_that_came_another_way,
        "a server takes a proof from another channel",
    ),
]


@pytest.mark.parametrize(("name", "law", "says"), LAWS)
def test_without_its_rule_a_law_of_the_way_is_red(name: str, law: Law, says: str, authority: Authority) -> None:
    with fault(name), pytest.raises(AssertionError, match=says):
        law(authority)
