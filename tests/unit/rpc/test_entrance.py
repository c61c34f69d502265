"""Admission: a caller proves a secret and has the rights of that secret, and both sides know each other (R23)."""

from __future__ import annotations

import base64
import logging
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.errors import BookkeeperError, CorruptionError, IncompatibleError, NotAdmittedError, UnauthorizedError
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.rpc_pool import UNREACHED, plain_hello, refuse_wrong_instance
from bookkeeper.rpc.rpc_server import RpcServer
from bookkeeper.rpc.trust import handshake
from bookkeeper.rpc.trust.admission import QUIET_MS, RefusalLog
from bookkeeper.rpc.trust.handshake import HEAD, Challenge, Kind
from bookkeeper.security.access import Credentials, Entrance
from bookkeeper.security.secret import Secret, new_secret
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.rpc_peer import SERVER_HELLO, Echo, RawPeer, greeting, pooled, serving, transcript_after

OWN, CLIENT, PEER = (new_secret(kind, "west", "i-west", kind, 0) for kind in ("cluster", "client", "peer"))
OTHER = replace(OWN, key=bytes(32))


@contextmanager
def guarded(*accepted: Secret, handshakes_max: int = 64) -> Iterator[RpcServer]:
    entrance = Entrance(lambda: {known.id: known for known in accepted})
    with serving(Echo(), entrance=entrance, handshakes_max=handshakes_max, handshake_timeout_ms=60_000) as server:
        yield server


def showing(*offers: Secret, demand: bool = True) -> Credentials:
    return Credentials(lambda: offers, demand)


def refusal(server: RpcServer, *offers: Secret, demand: bool = True) -> str:
    """The refusal that a caller with these secrets gets."""
    with (
        pooled(credentials=showing(*offers, demand=demand)) as pool,
        must_raise(NotAdmittedError, "a call is made that had to be refused") as caught,
    ):
        pool.peer_hello(server.address)
    return caught.value.message


def _greeting(*offers: Secret) -> bytes:
    return greeting(*offers, target="i-west", nonce=bytes(32))


# ---- in or out


@pytest.mark.parametrize("offers", [(OWN,), (CLIENT,), (PEER,), (replace(PEER, id="ab" * 8), OWN)])
def test_a_caller_that_proves_a_secret_is_accepted(offers: tuple[Secret, ...]) -> None:
    with guarded(OWN, CLIENT, PEER) as server, pooled(credentials=showing(*offers)) as pool:
        assert pool.peer_hello(server.address) == SERVER_HELLO


def test_a_caller_without_a_secret_gets_the_reason_and_the_next_step() -> None:
    with guarded(OWN) as server, pooled() as pool:
        with pytest.raises(NotAdmittedError) as caught:
            pool.replay(server.address).status()
        assert "\n" not in caught.value.message
        assert f"{server.address} refuses: replay of cluster west admits only callers" in caught.value.message
        assert "--secret-file" in caught.value.message
        assert caught.value.details == {"instance_id": "i-west", UNREACHED: server.address}
        assert f"{PEER.id} of this client is unknown here" in refusal(server, PEER)


def test_a_refusal_is_one_line_in_the_log_with_the_address(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), guarded(OWN) as server, pooled() as pool, pytest.raises(NotAdmittedError):
        pool.replay(server.address).status()
    (line,) = (record.message for record in caplog.records)
    assert line.startswith("127.0.0.1:")
    assert "refused: replay of cluster west admits only callers that prove a secret" in line


@contextmanager
def answering(server: RpcServer, answer: Callable[[Challenge], bytes]) -> Iterator[tuple[RawPeer, bytes]]:
    """A guest who has greeted as if it had the secret and sent this proof; and the proof."""
    guest = RawPeer(server.address)
    guest.send(_greeting(OWN))
    proof = handshake.pack(Kind.PROOF, answer(handshake.read_challenge(guest.receive_message())))
    guest.send(proof)
    yield guest, proof
    guest.close()


def proof_with(key: bytes) -> Callable[[Challenge], bytes]:
    return lambda challenge: handshake.client_proof(key, transcript_after(_greeting(OWN), challenge))


def test_a_wrong_proof_is_refused() -> None:
    with guarded(OWN) as server, answering(server, proof_with(OTHER.key)) as (stranger, _):
        assert stranger.receive_message().kind is Kind.REFUSAL, "a wrong proof is accepted"
        assert stranger.is_closed_by_server()


def test_a_servers_own_proof_lets_nobody_in() -> None:
    with guarded(OWN) as server, answering(server, lambda challenge: challenge.proof) as (mirror, _):
        assert mirror.receive_message().kind is Kind.REFUSAL, "a server accepts its own proof"


def test_what_was_overheard_once_lets_nobody_in() -> None:
    with guarded(OWN) as server, answering(server, proof_with(OWN.key)) as (heard, proof):
        assert heard.receive_message().kind is Kind.WELCOME
        again = RawPeer(server.address)
        again.send(_greeting(OWN) + proof)
        answers = [again.receive_message().kind]
        if answers == [Kind.CHALLENGE]:
            answers.append(again.receive_message().kind)
        assert answers[-1] is Kind.REFUSAL, "a server accepts an overheard proof"
        again.close()


def test_nothing_is_called_before_the_handshake_is_over() -> None:
    echo = Echo()
    with serving(echo, entrance=Entrance(lambda: {OWN.id: OWN})) as server:
        for first in (b"", _greeting(OWN), _greeting(), greeting()):
            rude = RawPeer(server.address)
            rude.send(first)
            rude.send_call("hello", plain_hello())
            rude.send_call("warm")
            assert not first or not _is_answered(rude), "a call is answered before the handshake is over"
            assert rude.is_closed_by_server()
            rude.close()
    assert echo.calls == 0


def _is_answered(rude: RawPeer) -> bool:
    """Whether the server answers a hello; its answers to the handshake come first."""
    try:
        rude.receive_message()
        rude.receive_answer("hello")
    except (ConnectionResetError, CorruptionError):
        return False
    return True


# ---- the other side is who it should be


def test_a_server_without_the_secret_is_not_spoken_to() -> None:
    with guarded(OTHER) as server, pooled(credentials=showing(OWN)) as pool:
        with pytest.raises(BookkeeperError) as caught:
            pool.replay(server.address).status()
        said = f"it does not have secret {OWN.id}"
        assert said in caught.value.message, "a server that has no secret is spoken to"
        assert isinstance(caught.value, NotAdmittedError)
    with serving(Echo()) as server:
        assert "it proves no secret" in refusal(server, OWN)


def test_a_peer_can_not_stand_for_another_one() -> None:
    elsewhere = new_secret("peer", "north", "i-north", "west", 0)
    proved = r"says that it is instance i-west \(west\), and proved the secret of"
    with must_raise(NotAdmittedError, "a call is made that had to be refused", match=proved):
        refuse_wrong_instance(SERVER_HELLO, elsewhere, (elsewhere,))
    with serving(Echo()) as server:
        assert "does not prove its secret" in refusal(server, PEER, demand=False)


def test_a_secret_of_one_instance_serves_no_other() -> None:
    bound = replace(PEER, holder_instance_id="i-east")
    north = Hello(PROTOCOL_VERSION, "i-north", "north", "master")
    with guarded(bound) as server:
        with pooled(replace(north, instance_id="i-east"), showing(bound)) as pool:
            assert pool.peer_hello(server.address) == SERVER_HELLO
        with (
            pooled(north, showing(bound)) as pool,
            must_raise(NotAdmittedError, "a secret serves another instance", match="was made for peer"),
        ):
            pool.peer_hello(server.address)


def test_a_role_is_the_same_in_handshake_and_hello() -> None:
    with serving(Echo()) as server:
        liar = RawPeer(server.address)
        liar.do_handshake()
        liar.send_call("hello", plain_hello("tserver"))
        assert isinstance(liar.receive_answer("hello").error, NotAdmittedError)
        assert liar.is_closed_by_server()
        liar.close()


def test_a_connection_with_a_removed_secret_ends() -> None:
    known = {OWN.id: OWN, CLIENT.id: CLIENT}
    with (
        serving(Echo(), entrance=Entrance(lambda: dict(known))) as server,
        pooled(credentials=showing(CLIENT)) as turned_away,
        pooled(credentials=showing(OWN)) as staying,
    ):
        for pool in (turned_away, staying):
            pool.replay(server.address).status()
        del known[CLIENT.id]
        (channel,) = turned_away._idle[server.address]
        assert _eventually(channel.is_stale), "a secret that is forgotten stays in use"
        with pytest.raises(NotAdmittedError):
            turned_away.replay(server.address).status()
        (channel,) = staying._idle[server.address]
        assert not channel.is_stale()


def _eventually(holds: Callable[[], bool], limit_s: float = 5) -> bool:
    never, deadline_ns = threading.Event(), SystemClock().boot_ns() + int(limit_s * 1e9)
    while not holds():
        if SystemClock().boot_ns() > deadline_ns:
            return False
        never.wait(0.02)
    return True


# ---- rights


def test_a_secret_gives_the_rights_of_its_kind() -> None:
    with guarded(OWN, CLIENT, PEER) as server:
        for known in (CLIENT, PEER):
            with pooled(credentials=showing(known)) as pool:
                with must_raise(
                    UnauthorizedError, "a secret gives rights of another kind", match=r"Replay\.run is not for"
                ):
                    pool.replay(server.address).run(b"x")
                if known is CLIENT:
                    assert pool.replay(server.address).status() == {"calls": "0"}
                else:
                    with pytest.raises(UnauthorizedError):
                        pool.replay(server.address).status()
        with pooled(credentials=showing(OWN)) as pool:
            assert pool.replay(server.address).run(b"x") == b"x"


# ---- versions and strangers


@pytest.mark.parametrize(("other", "step"), [(PROTOCOL_VERSION + 1, "upgrade it"), (3, "upgrade this side")])
def test_another_version_is_told_both_versions(other: int, step: str) -> None:
    with guarded(OWN) as server:
        guest = RawPeer(server.address)
        raw = _greeting(OWN)
        guest.send(HEAD.pack(handshake.MAGIC, other, Kind.GREETING, len(raw) - HEAD.size) + raw[HEAD.size :])
        answer = guest.receive_message()
        assert answer.kind is Kind.REFUSAL, "another version is spoken with"
        code, text, _ = handshake.read_refusal(answer)
        assert (code, guest.is_closed_by_server()) == ("incompatible", True)
        assert f"speaks protocol {PROTOCOL_VERSION}, not {other}; {step}" in text
        guest.close()


@pytest.mark.parametrize("other", [PROTOCOL_VERSION + 1, 3])
@pytest.mark.parametrize("kind", [Kind.CHALLENGE, Kind.REFUSAL])
def test_a_caller_tells_that_the_server_has_another_version(kind: Kind, other: int) -> None:
    refusal = f'{{"code": "incompatible", "message": "speaks {other}, not {PROTOCOL_VERSION}"}}'
    body = bytes(72) if kind is Kind.CHALLENGE else refusal.encode()
    with socket.create_server(("127.0.0.1", 0)) as listener, pooled() as pool:
        listener.settimeout(30)
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def meet() -> BookkeeperError:
            with pytest.raises(IncompatibleError) as caught:
                pool.replay(address).status()
            return caught.value

        with _answering(listener, handshake.pack(kind, body, other)):
            told = meet().message
    assert address in told
    assert str(other) in told
    assert str(PROTOCOL_VERSION) in told


@contextmanager
def _answering(listener: socket.socket, raw: bytes) -> Iterator[None]:
    def answer() -> None:
        peer, _ = listener.accept()
        with peer:
            peer.recv(4096)
            peer.sendall(raw)

    thread = threading.Thread(target=answer)
    thread.start()
    yield
    thread.join()


def test_connections_of_another_protocol_get_an_answer_in_it() -> None:
    with guarded(OWN) as server:
        browser = RawPeer(server.address)
        browser.send(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = browser.read_all()
        assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"tablet-bookkeeper" in answer
        old = RawPeer(server.address)
        old.send_call("hello", plain_hello())
        refusal = old.receive_answer("hello").error
        assert isinstance(refusal, IncompatibleError)
        assert f"protocol {PROTOCOL_VERSION}" in refusal.message
        tls = RawPeer(server.address)
        tls.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32))
        assert tls.read_all() == struct.pack(">BHHBB", 21, 0x303, 2, 2, 70)
        for stranger in (browser, old, tls):
            stranger.close()


def test_a_caller_without_a_secret_writes_no_lines_of_its_own_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), guarded(OWN) as server:
        forger = RawPeer(server.address)
        forger.send(greeting(role="x\nWARNING all is well"))
        assert forger.receive_message().kind is Kind.REFUSAL
        forger.close()
    assert not [record for record in caplog.records if "all is well" in record.message]


# ---- many strangers


def test_silent_connections_take_no_place_from_others() -> None:
    with guarded(OWN, handshakes_max=4) as server, pooled(credentials=showing(OWN)) as pool:
        silent = [RawPeer(server.address) for _ in range(12)]
        for number, stranger in enumerate(silent):
            stranger.send(_greeting(OWN)[:number])
        assert pool.replay(server.address).run(b"x") == b"x"
        silent += [RawPeer(server.address) for _ in range(5)]
        assert pool.replay(server.address).run(b"y") == b"y"
        for stranger in silent[:12]:
            stranger.sock.settimeout(5)
            assert stranger.is_closed_by_server(), "a silent guest keeps its place"
        for stranger in silent:
            stranger.close()


class _Hour(SystemClock):
    now_ns = 3_600_000_000_000

    def boot_ns(self) -> int:
        return self.now_ns


def test_a_caller_without_a_secret_that_tries_on_and_on_does_not_fill_the_log() -> None:
    said: list[str] = []
    clock = _Hour()
    log = RefusalLog(clock, said.append)
    for port in range(1_000):
        log.refused(f"10.0.0.7:{port}", "not_admitted", f"secret {port} is not known")
    log.refused("10.0.0.8:1", "not_admitted", "no secret")
    log.refused("10.0.0.7:1", "late", "another reason")
    assert len(said) == 3, "a stranger fills the log"
    clock.now_ns += QUIET_MS * 1_000_000
    log.refused("10.0.0.7:9", "not_admitted", "no secret")
    assert said[3] == "10.0.0.7:9: refused: no secret; closed (999 times more from there since the last line)"
    for number in range(5_000):
        log.refused(f"10.1.{number}:1", "not_admitted", "no secret")
    assert len(log._last) <= 1_000


# ---- switches

LAWS: list[tuple[str, Callable[[], None], str]] = [
    ("any-proof-will-do", test_a_wrong_proof_is_refused, "a wrong proof is accepted"),
    ("any-proof-will-do", test_a_server_without_the_secret_is_not_spoken_to, "that has no secret is spoken to"),
    (
        "no-secret-is-required",
        test_nothing_is_called_before_the_handshake_is_over,
        "a call is answered before the handshake is over",
    ),
    ("proofs-are-the-same", test_a_servers_own_proof_lets_nobody_in, "a server accepts its own proof"),
    ("nonces-repeat", test_what_was_overheard_once_lets_nobody_in, "a server accepts an overheard proof"),
    (
        "every-secret-opens-everything",
        test_a_secret_gives_the_rights_of_its_kind,
        "a secret gives rights of another kind",
    ),
    ("any-name-will-do", test_a_peer_can_not_stand_for_another_one, "a call is made that had to be refused"),
    ("secrets-pass-hands", test_a_secret_of_one_instance_serves_no_other, "a secret serves another instance"),
    (
        "forgotten-secrets-stay",
        test_a_connection_with_a_removed_secret_ends,
        "a secret that is forgotten stays in use",
    ),
    (
        "any-version-will-do",
        lambda: test_another_version_is_told_both_versions(3, "upgrade this side"),
        "another version is spoken with",
    ),
    ("silent-connections-stay", test_silent_connections_take_no_place_from_others, "a silent guest keeps its place"),
    (
        "every-refusal-is-logged",
        test_a_caller_without_a_secret_that_tries_on_and_on_does_not_fill_the_log,
        "a stranger fills the log",
    ),
]


@pytest.mark.parametrize(("name", "law", "says"), LAWS)
def test_without_its_rule_a_law_of_the_entrance_is_red(name: str, law: Callable[[], None], says: str) -> None:
    with fault(name), pytest.raises(AssertionError, match=says):
        law()


def test_a_key_shows_nowhere() -> None:
    shown = f"{OWN!r} {Credentials(lambda: (OWN,))!r} {[OWN]}"
    for text in (OWN.key.hex(), repr(OWN.key), base64.b64encode(OWN.key).decode()):
        assert text not in shown
    raw = (
        _greeting(OWN)
        + handshake.server_proof(OWN.key, b"words")
        + handshake.client_proof(OWN.key, b"words")
        + handshake.server_frames_key(OWN.key, b"words")
    )
    assert OWN.key not in raw
