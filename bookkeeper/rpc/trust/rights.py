"""The methods that the holder of a secret may call, and the source instances that it may name in arguments.

Pure; the contract says who may call a method (``may_call``), and a method about which it says nothing is for processes
of the cluster only. These may call all methods and name any source: a tserver sends the records of other clusters on to
the next one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from bookkeeper.errors import UnauthorizedError
from bookkeeper.rpc.contract.messages import Hello
from bookkeeper.rpc.contract.tables import CLIENT_METHODS, NAMED_STREAMS, PEER_METHODS
from bookkeeper.security.secret import Kind, Secret

METHODS: Mapping[Kind, Mapping[str, frozenset[str]]] = {"peer": PEER_METHODS, "client": CLIENT_METHODS}


class Caller(Struct, frozen=True):
    """The caller of a call: its hello, and the secret that it proved (None: the server asks for none)."""

    hello: Hello
    secret: Secret | None = None

    @property
    def instance_id(self) -> str:
        """The caller's instance: the only one that may use its secret, else the one in its hello."""
        holder = self.secret.holder_instance_id if self.secret is not None else ""
        return holder or self.hello.instance_id

    @property
    def is_process(self) -> bool:
        """Whether the caller proved that it is a process of this cluster."""
        return self.secret is not None and self.secret.kind == "cluster"


def refuse_foreign_source(caller: Caller, service: str, method: str, arguments: Sequence[Any]) -> None:
    """Raise UnauthorizedError when the arguments name another source than the caller's own instance: with another
    instance as the source of a stream, a peer could make this cluster drop that instance's records as duplicates.
    """
    if caller.is_process:
        return
    streams_of = NAMED_STREAMS.get((service, method))
    sources = () if streams_of is None else {stream.source_instance_id for stream in streams_of(arguments)}
    foreign = sorted(source for source in sources if source != caller.instance_id)
    if foreign:
        raise UnauthorizedError(
            f"instance {caller.instance_id or 'none'} can't speak for instance {foreign[0]} ({service}.{method}): "
            "each cluster replicates with a secret of its own"
        )


def may_call(kind: Kind, service: str, method: str) -> bool:
    """Whether the holder of a secret of this kind may call the method; an unlisted method is not allowed."""
    if kind == "cluster":
        return True
    return kind in METHODS and method in METHODS[kind][service]


def refuse_call(kind: Kind, service: str, method: str, peer: str) -> None:
    """Raise UnauthorizedError unless the holder may call the method."""
    if not may_call(kind, service, method):
        use = {
            "peer": "replicates to this cluster only",
            "client": "is a client's, not a process's",
            "monitor": "is for the monitor only",
        }
        raise UnauthorizedError(f"{service}.{method} is not for {peer}: its secret {use[kind]}")
