"""TLS on a port: both sides are checked, a caller without TLS gets an error, and the handshake and all frames go
through it.
"""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.config.file import new_settings
from bookkeeper.errors import (
    BookkeeperError,
    IncompatibleError,
    InvalidInputError,
    NotAdmittedError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from bookkeeper.rpc.address import parse_address
from bookkeeper.rpc.rpc_server import RpcServer
from bookkeeper.rpc.trust import handshake
from bookkeeper.security.access import Credentials, Entrance
from bookkeeper.security.secret import new_secret
from bookkeeper.security.tls import TlsFiles, caller_context, server_context, tls_files
from tests.support.certificates import Authority, tls_overrides
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.rpc_peer import Echo, RawPeer, greeting, pooled, serving
from tests.support.tservers import wait_until

OWN = new_secret("cluster", "west", "i-west", "processes", 0)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module")
def files(authority: Authority) -> TlsFiles:
    return authority.sign("west")


@contextmanager
def secured(files: TlsFiles, threads_max: int = 2, handshake_timeout_ms: int = 30_000) -> Iterator[RpcServer]:
    entrance = Entrance(lambda: {OWN.id: OWN}, server_context(files))
    with serving(
        Echo(), entrance=entrance, threads_max=threads_max, handshake_timeout_ms=handshake_timeout_ms
    ) as server:
        yield server


def showing(files: TlsFiles | None) -> Credentials:
    return Credentials(lambda: (OWN,), True, tls=caller_context(files))


def refusal(address: str, files: TlsFiles | None) -> BookkeeperError:
    with (
        pooled(credentials=showing(files)) as pool,
        must_raise(BookkeeperError, "a call is made that TLS had to refuse") as caught,
    ):
        pool.replay(address).status()
    assert "\n" not in caught.value.message
    assert address in caught.value.message
    return caught.value


@pytest.mark.parametrize("size", [0, 1, 16_384, 65_536, 1 << 20, (20 << 20) + 1])
def test_frames_of_any_size_go_and_come_back(files: TlsFiles, size: int) -> None:
    data = bytes(range(256)) * (size // 256) + bytes(size % 256)
    with secured(files) as server, pooled(credentials=showing(TlsFiles(files.ca))) as pool:
        for _ in range(3):
            assert pool.replay(server.address).run(data) == data
        assert len(pool._idle[server.address]) == 1, "a connection is used again"


def test_half_sent_tls_holds_no_thread(files: TlsFiles) -> None:
    with secured(files, threads_max=1) as server, pooled(credentials=showing(files)) as pool:
        guests = [RawPeer(server.address) for _ in range(8)]
        for guest in guests:
            guest.send(b"\x16\x03\x01\x02")
        assert pool.replay(server.address).run(b"x") == b"x"
        for guest in guests:
            guest.close()


def test_a_certificate_of_another_ca_or_for_another_address_is_not_believed(
    authority: Authority, files: TlsFiles, tmp_path: Path
) -> None:
    stranger = Authority.make(tmp_path / "other")
    elsewhere = authority.sign("elsewhere", "DNS:example.org")
    with secured(files) as server:
        error = refusal(server.address, TlsFiles(stranger.ca))
        assert isinstance(error, NotAdmittedError)
        assert "shows an invalid certificate" in error.message
    with secured(elsewhere) as server:
        error = refusal(server.address, TlsFiles(authority.ca))
        assert isinstance(error, NotAdmittedError)
        assert "it must name the address" in error.message


def test_without_its_rule_any_certificate_is_believed(authority: Authority, files: TlsFiles, tmp_path: Path) -> None:
    with fault("any-certificate-will-do"), pytest.raises(AssertionError, match="a call is made that TLS had to refuse"):
        test_a_certificate_of_another_ca_or_for_another_address_is_not_believed(authority, files, tmp_path)


def test_callers_show_a_certificate_where_asked(authority: Authority, files: TlsFiles, tmp_path: Path) -> None:
    stranger = Authority.make(tmp_path / "other").sign("spy")
    asking = replace(files, clients_certified=True)
    with secured(asking) as server:
        with pooled(credentials=showing(authority.sign("client", "DNS:anywhere"))) as pool:
            assert pool.replay(server.address).run(b"x") == b"x"
        for own in (TlsFiles(files.ca), replace(stranger, ca=files.ca)):
            error = refusal(server.address, own)
            assert isinstance(error, NotAdmittedError | UnavailableError)


def test_a_caller_without_tls_gets_an_error_that_says_so(files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    with secured(files) as server, caplog.at_level(logging.WARNING):
        error = refusal(server.address, None)
        assert isinstance(error, IncompatibleError)
        assert "speaks TLS only: name the CA" in error.message
        browser = RawPeer(server.address)
        browser.send(b"GET / HTTP/1.1\r\n\r\n")
        assert browser.read_all().startswith(b"HTTP/1.1 400")
        browser.close()
    assert sum("refused" in record.message for record in caplog.records) == 2


def test_a_tls_caller_at_a_plain_port_gets_an_error_that_says_so(files: TlsFiles) -> None:
    with serving(Echo()) as server:
        error = refusal(server.address, files)
    assert isinstance(error, IncompatibleError)
    assert "does not speak TLS as this side does" in error.message


def test_older_tls_is_refused(files: TlsFiles, caplog: pytest.LogCaptureFixture) -> None:
    context = ssl.create_default_context(cafile=str(files.ca))
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with secured(files) as server, caplog.at_level(logging.WARNING):
        target = parse_address(server.address)
        plain = socket.create_connection((target.host, target.port))
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(plain, server_hostname=target.host)
        plain.close()
    assert any("TLS failed" in record.message for record in caplog.records)


def test_tls_does_not_take_the_place_of_the_secret(files: TlsFiles) -> None:
    with secured(files) as server:
        nothing = Credentials(tls=caller_context(files))
        with pooled(credentials=nothing) as pool, pytest.raises(NotAdmittedError, match="admits only callers"):
            pool.replay(server.address).status()
        peer = RawPeer(server.address)
        peer.sock = ssl.create_default_context(cafile=str(files.ca)).wrap_socket(peer.sock, server_hostname="127.0.0.1")
        peer.send(greeting(target="i-west"))
        assert peer.receive_message().kind is handshake.Kind.REFUSAL
        assert peer.is_closed_by_server()
        peer.close()


def test_half_a_tls_handshake_ends_at_its_time(files: TlsFiles) -> None:
    with secured(files, handshake_timeout_ms=300) as server:
        for start in (b"", b"\x16", b"\x16\x03\x01\x01\x00"):
            guest = RawPeer(server.address)
            guest.send(start)
            assert guest.is_closed_by_server()
            guest.close()
        with pooled(credentials=showing(files)) as pool:
            wait_until(lambda: pool.replay(server.address).run(b"x") == b"x", "a handshake in time")


# ---- files


def test_files_are_named_with_what_is_wrong(files: TlsFiles, authority: Authority, tmp_path: Path) -> None:
    assert files.key is not None
    with pytest.raises(NotFoundError, match="nowhere"):
        server_context(replace(files, ca=tmp_path / "nowhere.pem"))
    with pytest.raises(InvalidInputError, match="holds no CA"):
        caller_context(TlsFiles(files.key))
    with pytest.raises(InvalidInputError, match="can't be used for TLS"):
        server_context(replace(files, key=authority.sign("another").key))
    open_key = tmp_path / "open.key"
    open_key.write_bytes(files.key.read_bytes())
    open_key.chmod(0o644)
    with pytest.raises(RefusedError, match="chmod 600"):
        server_context(replace(files, key=open_key))


def test_a_client_may_have_certificate_and_key_in_one_file(files: TlsFiles, tmp_path: Path) -> None:
    assert files.key is not None
    assert files.certificate is not None
    both = tmp_path / "both.pem"
    both.write_bytes(files.certificate.read_bytes() + files.key.read_bytes())
    both.chmod(0o600)
    asking = replace(files, clients_certified=True)
    with secured(asking) as server, pooled(credentials=showing(TlsFiles(files.ca, both))) as pool:
        assert pool.replay(server.address).run(b"x") == b"x"


def test_settings_name_all_files_or_none(tmp_path: Path, files: TlsFiles) -> None:
    assert tls_files(new_settings(tmp_path, "west")) is None
    settings = new_settings(tmp_path, "west", overrides=tls_overrides(files, "certified"))
    assert tls_files(settings) == replace(files, clients_certified=True)
    named = new_settings(
        tmp_path,
        "west",
        overrides={"security.tls_certificate": "c.pem", "security.tls_key": "k.pem", "security.tls_ca": "ca.pem"},
    )
    assert tls_files(named) == TlsFiles(tmp_path / "ca.pem", tmp_path / "c.pem", tmp_path / "k.pem")
    with pytest.raises(InvalidInputError, match="go together"):
        new_settings(tmp_path, "west", overrides={"security.tls_certificate": "c.pem"})
