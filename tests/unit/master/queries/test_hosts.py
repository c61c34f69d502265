"""Hosts as an administrator sees them: all names for ever, and of the live sessions those that hold a host."""

from __future__ import annotations

from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.master.queries.hosts import host_infos
from bookkeeper.model import HostIdentity
from bookkeeper.rpc.contract.messages import HostInfo


def session(number: int, host: HostIdentity | None, alive: bool = True) -> SessionInfo:
    return SessionInfo(f"tserver-{number}", "tserver", f"127.0.0.1:{number}", alive, host)


def test_every_name_is_listed_in_order_and_only_a_live_session_holds_a_host() -> None:
    sessions = [
        session(1, HostIdentity("host1", "a")),
        session(2, None),
        session(3, HostIdentity("host10", "old"), alive=False),
        session(4, HostIdentity("host2", "b")),
    ]
    tablets = {"tserver-1": 3, "tserver-2": 5, "tserver-3": 7}
    assert host_infos(["host10", "host3", "host1"], sessions, tablets) == [
        HostInfo("host1", "a", ("127.0.0.1:1",), 3),
        HostInfo("host2", "b", ("127.0.0.1:4",), 0),
        HostInfo("host3", None, (), 0),
        HostInfo("host10", None, (), 0),
    ]
