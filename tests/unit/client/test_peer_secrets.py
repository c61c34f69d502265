"""A peer is defined when each host has the secret for it: hosts on several machines have directories of their own."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from bookkeeper.client.master_link import MasterLink
from bookkeeper.client.replication_admin import Replication
from bookkeeper.clock import SystemClock
from bookkeeper.config.file import new_settings, write_settings
from bookkeeper.errors import RefusedError
from bookkeeper.rpc.contract.messages import ClusterInfo, HostInfo, SecretMark
from bookkeeper.security.secret import new_secret, write_secret
from bookkeeper.security.secret_store import SecretStore
from tests.support.faults import fault
from tests.support.machines_settings import ON_MACHINES
from tests.support.must_raise import must_raise

SECRET = new_secret("peer", "east", "i-east", "west", 7, "i-west")
MARK = SecretMark("to/east.secret", SECRET.id)
HOST = HostInfo("host1", "d", "127.0.0.1:1", False, 0, 0, 0, 0, secrets=(MARK,))


class Master:
    """The calls of a leading master, by name."""

    def __init__(self, *hosts: HostInfo) -> None:
        self.hosts, self.called = hosts, list[str]()

    def call(self, method: str, *_arguments: Any, **_options: Any) -> Any:
        self.called.append(method)
        return self.hosts if method == "hosts" else ClusterInfo("east", "127.0.0.1:2", "i-east")


def replication(home: Path, master: Master, *, on_machines: bool = True) -> Replication:
    write_settings(new_settings(home, "west", overrides=ON_MACHINES if on_machines else {}))
    return Replication(cast("MasterLink", master), SystemClock(), threading.Event(), home)


def secret_file(place: Path) -> Path:
    write_secret(place / "east.secret", SECRET)
    return place / "east.secret"


def a_peer_needs_its_secret_on_each_host(place: Path) -> None:
    other = replace(HOST, name="host2", secrets=(SecretMark("to/east.secret", "aa"),))
    master = Master(HOST, other, replace(HOST, name="host3", secrets=()), replace(HOST, name="host4", secrets=None))
    words = f"host2, host3 lack the secret {SECRET.id} for east: copy its file there to DIR/secrets/to/east.secret"
    with must_raise(RefusedError, "a peer is defined that one host alone reaches", match=words):
        replication(place / "west", master).define_cluster("east", "127.0.0.1:2", secret_file(place))
    assert master.called == ["hosts"]
    assert not SecretStore(place / "west").presented(), "a refused command leaves the secret behind"


def test_a_peer_needs_its_secret_on_each_host(tmp_path: Path) -> None:
    a_peer_needs_its_secret_on_each_host(tmp_path)


def test_without_the_look_one_host_alone_reaches_it(tmp_path: Path) -> None:
    with fault("peer-secret-on-one-host"), pytest.raises(AssertionError, match="that one host alone reaches"):
        a_peer_needs_its_secret_on_each_host(tmp_path)


@pytest.mark.parametrize("on_machines", [True, False])
def test_it_is_defined_when_they_have_it_or_share_a_directory(tmp_path: Path, on_machines: bool) -> None:
    master = Master(HOST, HOST) if on_machines else Master()
    west = replication(tmp_path / "west", master, on_machines=on_machines)
    west.define_cluster("east", "127.0.0.1:2", secret_file(tmp_path))
    assert master.called == ["hosts"] * on_machines + ["define_cluster"]
    assert [one.id for one in SecretStore(tmp_path / "west").presented()] == [SECRET.id]
