"""Who may call what: every method of the contract is somebody's, and nothing is allowed by omission."""

from __future__ import annotations

import pytest

from bookkeeper.errors import UnauthorizedError
from bookkeeper.rpc.rights import CLIENT_METHODS, EVERYBODY, PEER_METHODS, PROCESS_METHODS, may_call, refuse_call
from bookkeeper.rpc.schema import load_contract


@pytest.mark.parametrize("service", ["Master", "TServer", "Replay"])
def test_every_method_is_somebodys_and_there_are_no_others(service: str) -> None:
    named = CLIENT_METHODS[service] | PEER_METHODS[service] | PROCESS_METHODS[service] | EVERYBODY
    assert named == set(load_contract().services[service])
    assert not PROCESS_METHODS[service] & (CLIENT_METHODS[service] | PEER_METHODS[service])


def test_a_peer_may_only_replicate_and_a_client_may_not_act_as_a_process() -> None:
    calls = [(service, method) for service, methods in load_contract().services.items() for method in methods]
    calls = [call for call in calls if call[0] != "Node"]
    peers = {call for call in calls if may_call("peer", *call)} - {(s, m) for s, m in calls if m in EVERYBODY}
    assert peers == {
        ("Master", "leader"),
        ("Master", "resolve_table"),
        ("Master", "pick_tserver"),
        ("Master", "stream_done"),
        ("Master", "root_standings"),
        ("Master", "roots_over"),
        ("TServer", "open_stream"),
        ("TServer", "replicate"),
        ("TServer", "offer_segments"),
        ("TServer", "put_segment"),
        ("TServer", "take_segments"),
    }
    assert all(may_call("cluster", *call) for call in calls)
    for call in (("TServer", "load_tablet"), ("TServer", "replicate"), ("Master", "nudge"), ("Replay", "run")):
        assert not may_call("client", *call)
    assert not may_call("client", "Master", "a_method_of_tomorrow")


def test_the_secret_of_the_monitor_opens_nothing_else() -> None:
    calls = [(service, method) for service, methods in load_contract().services.items() for method in methods]
    assert not [call for call in calls if may_call("monitor", *call)]
    with pytest.raises(UnauthorizedError, match="is for the monitor only"):
        refuse_call("monitor", "Master", "tables", "viewers")
