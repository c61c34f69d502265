"""The rights of callers: every method of the contract has its roles, and nothing is allowed by omission."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from bookkeeper.errors import UnauthorizedError
from bookkeeper.model import StreamKey
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello, ReplicateRequest, SegmentPart, SegmentsOffer
from bookkeeper.rpc.contract.tables import (
    CLIENT_METHODS,
    NAMED_STREAMS,
    PEER_METHODS,
    PROCESS_METHODS,
    SERVICES,
)
from bookkeeper.rpc.trust.rights import Caller, may_call, refuse_call, refuse_foreign_source
from bookkeeper.security.secret import Kind, Secret, new_secret
from tests.support.faults import fault
from tests.support.must_raise import must_raise

CALLS = [(service, method) for service in ("Master", "TServer", "Replay") for method in SERVICES[service]]


@pytest.mark.parametrize("service", ["Master", "TServer", "Replay"])
def test_a_method_that_others_may_call_is_not_for_processes_only(service: str) -> None:
    others = CLIENT_METHODS[service] | PEER_METHODS[service]
    assert others | PROCESS_METHODS[service] == set(SERVICES[service])
    assert not others & PROCESS_METHODS[service]


def test_a_peer_may_only_replicate_and_a_client_may_not_act_as_a_process() -> None:
    assert {call for call in CALLS if may_call("peer", *call)} == {
        ("Master", "hello"),
        ("Master", "leader"),
        ("Master", "resolve_table"),
        ("Master", "pick_tserver"),
        ("Master", "stream_done"),
        ("Master", "root_standings"),
        ("Master", "roots_over"),
        ("Master", "check_in"),
        ("TServer", "hello"),
        ("TServer", "open_stream"),
        ("TServer", "replicate"),
        ("TServer", "offer_segments"),
        ("TServer", "put_segment"),
        ("TServer", "take_segments"),
        ("Replay", "hello"),
    }
    assert {method for service, method in CALLS if service != "Master" and may_call("client", service, method)} == {
        "hello",
        "status",
        "write",
        "write_if",
        "scan",
    }
    assert all(may_call("cluster", *call) for call in CALLS)
    assert not may_call("client", "Master", "nudge")
    assert not may_call("client", "Master", "a_method_of_tomorrow")


def test_the_secret_of_the_monitor_opens_nothing_else() -> None:
    assert not [call for call in CALLS if may_call("monitor", *call)]
    with pytest.raises(UnauthorizedError, match="is for the monitor only"):
        refuse_call("monitor", "Master", "tables", "viewers")


# ---- for whom a caller speaks

OTHERS = StreamKey("i-other", "w/1.wal", "s", "t", 1)
NAMING: dict[tuple[str, str], tuple[Any, ...]] = {
    ("Master", "stream_done"): ([replace(OTHERS, source_instance_id="i-peer"), OTHERS],),
    ("TServer", "open_stream"): (OTHERS,),
    ("TServer", "replicate"): (ReplicateRequest("token", OTHERS, ("i-other",), 0, 0, 1, ()),),
    ("TServer", "offer_segments"): (SegmentsOffer("token", OTHERS, ("i-other",), 1, (), 0, 0, 0, ()),),
    ("TServer", "put_segment"): (SegmentPart("token", OTHERS, 0, 0, b""),),
    ("TServer", "take_segments"): ("token", OTHERS),
}
"""Every method with an argument that names a source, and arguments that name another instance."""

NAMING_NOBODY = {("Master", method) for method in ("leader", "resolve_table", "pick_tserver", "check_in")}
JUDGED_BY_WHAT_CAME = {("Master", method) for method in ("root_standings", "roots_over")}


def test_every_stream_that_a_peer_names_is_checked() -> None:
    methods = {(service, method) for service, names in PEER_METHODS.items() for method in names - {"hello"}}
    assert {*NAMING, *NAMING_NOBODY, *JUDGED_BY_WHAT_CAME} == methods
    assert set(NAMED_STREAMS) == set(NAMING)


def _caller(instance_id: str, secret: Secret | None) -> Caller:
    return Caller(Hello(PROTOCOL_VERSION, instance_id, "peer", "replay"), secret)


def _secret(kind: Kind, holder_instance_id: str) -> Secret:
    return new_secret(kind, "west", "i-west", "peer", 0, holder_instance_id)


@pytest.mark.parametrize(("service", "method"), NAMING)
def test_a_peer_speaks_for_itself_only(service: str, method: str) -> None:
    arguments = NAMING[service, method]
    bound, any_instance = _secret("peer", "i-peer"), _secret("peer", "")
    for caller in (_caller("i-peer", bound), _caller("i-other", bound), _caller("i-peer", any_instance)):
        with must_raise(
            UnauthorizedError,
            "a peer speaks for another instance",
            match="instance i-peer can't speak for instance i-other",
        ):
            refuse_foreign_source(caller, service, method, arguments)
    with pytest.raises(UnauthorizedError):
        refuse_foreign_source(_caller("i-peer", None), service, method, arguments)
    if method != "stream_done":
        refuse_foreign_source(_caller("i-other", None), service, method, arguments)
        refuse_foreign_source(_caller("i-other", _secret("peer", "i-other")), service, method, arguments)


def test_without_its_rule_a_peer_speaks_for_others() -> None:
    with fault("peers-speak-for-others"), pytest.raises(AssertionError, match="a peer speaks for another instance"):
        test_a_peer_speaks_for_itself_only("TServer", "replicate")


def test_processes_of_the_cluster_hand_on_what_others_sent() -> None:
    for (service, method), arguments in NAMING.items():
        refuse_foreign_source(_caller("i-west", _secret("cluster", "")), service, method, arguments)
