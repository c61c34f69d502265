"""A real cluster: every port asks for a secret, no process prints one, and a hostile caller delays no other."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from bookkeeper.client import Client, Mutation
from bookkeeper.config.sections import RpcSettings
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import NotAdmittedError, UnauthorizedError
from bookkeeper.rpc.frames.frame_tags import TAG_BYTES
from bookkeeper.rpc.rpc_pool import RpcPool, plain_hello
from bookkeeper.rpc.trust import handshake
from bookkeeper.security.access import SECRET_FILE_VARIABLE, client_credentials, file_credentials
from bookkeeper.security.secret import read_secret
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.security.viewers import cookie_of, token_of
from shell.failures import ExitCode
from tests.support.cluster import Cluster
from tests.support.monitor_scene import read
from tests.support.rpc_peer import RawPeer, greeting
from tests.support.shell import quick

pytestmark = pytest.mark.integration


def _addresses(cluster: Cluster) -> dict[str, str]:
    """Service to address, of one process each."""
    coordination = open_coordination(cluster.settings)
    try:
        found = {"Master": cluster.quorum}
        for kind, service in (("tserver", "TServer"), ("replay", "Replay")):
            found[service] = next(s.address for s in coordination.sessions(kind) if s.alive)
        return found
    finally:
        coordination.close()


def _process(cluster: Cluster, role: str) -> psutil.Process:
    return psutil.Process(cluster.pid(role))


def _processes(cluster: Cluster) -> Iterator[psutil.Process]:
    others = {"known_tservers", "machine", "seen_store"}
    roles = {file.stem for file in (cluster.directory / "run").glob("*.json")} - others
    for role in sorted(roles):
        process = _process(cluster, role)
        yield process
        yield from process.children(recursive=True)


def _keys(cluster: Cluster) -> list[bytes]:
    found = [read_secret(path) for path in (cluster.directory / "secrets").rglob("*.secret")]
    keys = [secret.key for secret in found]
    assert len(keys) >= 3
    shown = [made(secret).encode() for secret in found for made in (token_of, cookie_of)]
    return [form for key in keys for form in (key, base64.b64encode(key), key.hex().encode())] + shown


def test_every_service_of_a_cluster_refuses_whoever_shows_nothing(west: Cluster) -> None:
    pool = RpcPool(plain_hello(), RpcSettings())
    for service, address in _addresses(west).items():
        with pytest.raises(NotAdmittedError, match=f"{address} refuses: .* admits only callers that prove a secret"):
            pool.call(address, service, "status")
    pool.close()


def _ports(process: psutil.Process) -> set[int]:
    return {c.laddr.port for c in process.net_connections("tcp") if c.status == psutil.CONN_LISTEN}


def test_every_port_that_a_process_listens_at_asks_for_a_secret(west: Cluster) -> None:
    ports = {port for role in ("master", "tserver1", "tserver2") for port in _ports(_process(west, role))}
    replay = int(_addresses(west)["Replay"].rpartition(":")[2])
    assert replay in _ports(_process(west, "replay")), "its other ports are Spark's, which has secrets of its own"
    assert len(ports - {west.settings.monitor.port}) == 3
    for port in ports - {west.settings.monitor.port} | {replay}:
        peer = RawPeer(f"127.0.0.1:{port}")
        peer.send(greeting(target=west.settings.instance.instance_id))
        code, _, _ = handshake.read_refusal(peer.receive_message())
        assert code == "not_admitted"
        peer.close()


def test_a_client_does_not_act_as_a_process(west: Cluster) -> None:
    pool = RpcPool(plain_hello(), RpcSettings(), None, client_credentials(west.settings))
    address = _addresses(west)["TServer"]
    with pytest.raises(UnauthorizedError, match="its secret is a client's"):
        pool.call(address, "TServer", "tablets")
    pool.close()


def test_a_peers_secret_reads_nothing(west: Cluster) -> None:
    make = ("secret", "make", str(west.directory), "spy")
    assert quick(*make, "--any-instance").code == quick(*make, "--tables", "t").code == ExitCode.USAGE
    made = quick(*make, "--any-instance", "--tables", "t", "--json")
    assert (made.code, json.loads(made.out)["tables"]) == (ExitCode.OK, ["t"])
    change = ("secret", "tables", str(west.directory), "spy")
    changed = quick(*change, "--add", "u,v", "--remove", "t", "--json")
    assert (changed.code, json.loads(changed.out)["tables"]) == (ExitCode.OK, ["u", "v"])
    assert quick(*change).code == quick(*change, "--set", "t", "--add", "u").code == ExitCode.USAGE
    assert json.loads(quick(*change, "--all-tables", "--json").out)["tables"] == ["(all)"]
    assert quick(*change, "--add", "t").code == ExitCode.USAGE
    assert quick(*change, "--set", "").out == "spy may replicate to no table of west\n"
    relays = ("secret", "relays", str(west.directory), "spy")
    assert quick(*relays, "--set", "").code == ExitCode.USAGE, "it is for any instance"
    assert quick(*make, "--any-instance", "--all-tables", "--relays", "spy").code == ExitCode.USAGE
    (shown,) = (west.directory / "secrets" / "from").glob("spy.secret")
    pool = RpcPool(plain_hello(), RpcSettings(), None, file_credentials(shown))
    assert pool.master(west.quorum).leader() == west.quorum
    with pytest.raises(UnauthorizedError, match=r"Master\.tables is not for spy"):
        pool.master(west.quorum).tables()
    pool.close()
    assert quick("secret", "forget", str(west.directory), "spy", "--all").code == ExitCode.OK


def test_r22_an_operator_names_the_clusters_that_a_peer_relays(west: Cluster) -> None:
    home, north = str(west.directory), "6f6b2a3c-8f2e-4d55-9f0d-2a8e6c0c1a11"
    make = ("secret", "make", home)
    assert quick(*make, "north", "--instance", north, "--tables", "t").code == ExitCode.OK
    between = quick(*make, "between", "--instance", "i-between", "--tables", "t", "--relays", "north", "--json")
    assert json.loads(between.out)["relays"] == [north]
    relays = ("secret", "relays", home, "between")
    assert quick(*relays, "--set", "").out == "between relays records of no other cluster to west\n"
    assert quick(*relays, "--add", north).out == f"between relays records of {north} to west\n"
    assert "there is no secret for nroth" in quick(*relays, "--add", "nroth").err
    assert quick(*relays, "--add", "north", "--set", "").code == ExitCode.USAGE
    for name in ("between", "north"):
        assert quick("secret", "forget", home, name, "--all").code == ExitCode.OK


def test_the_shell_says_in_one_line_why_it_is_not_let_in(west: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_FILE_VARIABLE)
    answer = quick("shell", west.quorum, "tables")
    assert (answer.code, answer.out, answer.err.count("\n")) == (ExitCode.FAILED, "", 1)
    assert answer.err.startswith(
        f"error: {west.quorum} refuses: master of cluster west admits only callers that prove a secret"
    )
    assert "--secret-file" in answer.err
    secret = str(west.directory / "secrets" / "client.secret")
    assert quick("shell", "--secret-file", secret, west.quorum, "tables").code == ExitCode.OK
    monkeypatch.setenv(SECRET_FILE_VARIABLE, secret)
    assert quick("shell", west.quorum, "tables").code == ExitCode.OK


def test_keys_are_in_no_file_no_output_no_argument_and_no_environment(west: Cluster) -> None:
    keys = _keys(west)
    with pytest.raises(NotAdmittedError):
        RpcPool(plain_hello(), RpcSettings()).master(west.quorum).tables()
    token, url = token_of(SecretStore(west.directory).own("monitor")), f"http://127.0.0.1:{west.settings.monitor.port}"
    for address, shown in ((f"{url}/?token={token}", ""), (f"{url}/tables", token), (f"{url}/?token=x{token}", "")):
        read(address, shown)
    texts = {"repr": repr((west.settings, west.client, client_credentials(west.settings))).encode()}
    home, secrets = str(west.directory), [west.directory / "secrets" / below for below in ("", "from", "to")]
    for words in (
        ("config", "show", home, "--all"),
        ("secret", "list", home, "--json"),
        ("shell", home, "replication", "status", "--json"),
        ("shell", home, "clusters", "--json"),
    ):
        answer = quick(*words)
        texts[" ".join(words)] = (answer.out + answer.err).encode()
    for process in _processes(west):
        with contextlib.suppress(psutil.NoSuchProcess):  # tasks come and go
            texts[f"{process.pid}"] = " ".join([*process.cmdline(), *process.environ().values()]).encode()
    for place, _, names in os.walk(west.directory):
        for path in (Path(place, name) for name in names if Path(place) not in secrets):
            with contextlib.suppress(FileNotFoundError):  # and so do files
                if not path.is_socket():
                    texts[str(path)] = path.read_bytes()
    found = [name for name, text in texts.items() if any(key in text for key in keys)]
    assert not found
    for path in (west.directory / "secrets").rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


# ---- bad input on the ports of a cluster that is at work

GARBAGE = [b"\x00" * 64, b"\xff" * 64, os.urandom(4096), b"GET / HTTP/1.1\r\n\r\n", struct.pack(">i", 2**31 - 1)]


def test_garbage_oversized_half_sent_and_slow_frames_hold_up_nobody(west: Cluster) -> None:
    west.client.tables.create("beset")
    limit = west.settings.rpc.frame_bytes_max
    addresses = _addresses(west)
    strangers: list[RawPeer] = []
    for address in addresses.values():
        for raw in GARBAGE:
            strangers.append(RawPeer(address))
            strangers[-1].send(raw)
        for guest in range(2 * west.settings.rpc.handshakes_max):
            strangers.append(RawPeer(address))
            strangers[-1].send(handshake.MAGIC[: guest % 4])
    inside = [admitted(west, address) for address in addresses.values() for _ in range(3)]
    for number, peer in enumerate(inside):
        half = peer.call("hello", plain_hello(), service="Master")[:-1]
        peer.send(
            (struct.pack(">i", limit + TAG_BYTES + 1), half, struct.pack(">i", limit)[: 1 + number % 3])[number % 3]
        )
    with Client.connect(west.directory) as client, client.writer("beset") as writer:
        for number in range(50):
            writer.add(Mutation(b"%04d" % number).put(b"f", b"q", b"v"))
            writer.flush()
    assert len(list(west.client.scan("beset").cells())) == 50
    for peer in inside[::3]:
        assert peer.is_closed_by_server(), "an oversized frame is refused by its header"
    for peer in (*strangers, *inside):
        peer.close()
    assert west.client.tables.get("beset").name == "beset"
    west.client.tables.delete("beset")


def admitted(cluster: Cluster, address: str) -> RawPeer:
    """A socket that was let in with the cluster's own secret, and then does what a test wants."""
    secret = read_secret(cluster.directory / "secrets" / "cluster.secret")
    peer = RawPeer(address)
    peer.authenticate(secret)
    return peer
