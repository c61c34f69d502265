"""The methods that the holder of a secret may call, and the source instances that it may name in arguments.

Pure; a method that is not in these tables is not allowed. A test compares the tables with the contract. Processes of
the cluster may call all methods and name any source: a tserver sends the records of other clusters on to the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from bookkeeper.errors import UnauthorizedError
from bookkeeper.rpc.contract.messages import Hello
from bookkeeper.security.secret import Kind, Secret

UNRESTRICTED_METHODS = frozenset({"hello"})

PEER_METHODS = {
    "Master": frozenset({"leader", "resolve_table", "pick_tserver", "stream_done", "root_standings", "roots_over"}),
    "TServer": frozenset({"open_stream", "replicate", "offer_segments", "put_segment", "take_segments"}),
    "Replay": frozenset[str](),
}

CLIENT_METHODS = {
    "Master": frozenset(
        {
            "status",
            "leader",
            "tables",
            "locate",
            "locate_tablet",
            "create_table",
            "delete_table",
            "set_groups",
            "change_properties",
            "set_read_only",
            "is_read_only",
            "flush_table",
            "compact_table",
            "import_directory",
            "export_table",
            "import_table",
            "drain_host",
            "forget_host",
            "table_replicas",
            "disk_usage",
            "set_authorizations",
            "authorizations",
            "add_splits",
            "merge_tablets",
            "hosts",
            "operations",
            "clusters",
            "define_cluster",
            "delete_cluster",
            "enable_replication",
            "disable_replication",
            "replication_config",
            "replication_status",
            "quarantine",
            "hold_range",
            "retry_range",
            "skip_range",
            "replication_mark",
            "replication_pending",
        }
    ),
    "TServer": frozenset({"status", "write", "write_if", "scan"}),
    "Replay": frozenset({"status"}),
}
"""A status contains tables, rows and paths, so peers may not read it."""

METHODS: Mapping[Kind, Mapping[str, frozenset[str]]] = {"peer": PEER_METHODS, "client": CLIENT_METHODS}

PROCESS_METHODS = {
    "Master": frozenset({"nudge", "report_work"}),
    "TServer": frozenset(
        {
            "load_tablet",
            "unload_tablet",
            "tablets",
            "flush_tablet",
            "compact_tablet",
            "split_point",
            "adopt_segments",
            "confirm_config",
            "wal_positions",
            "assign_work",
            "work_reports",
            "forget_streams",
            "forget_roots",
            "apply_replicated",
            "confirm_states",
            "replicas",
            "tablet_replica",
            "divide_replica",
            "read_replica",
            "take_replica",
            "publish_replica",
            "segment_offer",
            "segment_transit",
            "replica_content",
            "read_log",
            "list_logs",
            "seal_log",
            "drop_logs",
        }
    ),
    "Replay": frozenset({"warm", "run"}),
}


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


Sources = Callable[[Sequence[Any]], Iterable[str]]
"""Maps the arguments of a call to the instances that they name as a source."""


def _no_sources(_arguments: Sequence[Any]) -> Iterable[str]:
    return ()


def _checked_by_master(_arguments: Sequence[Any]) -> Iterable[str]:
    """Relays ask about logs of other clusters: ``master.origins.origin_service`` checks whether they sent records of
    them.
    """
    return ()


def _stream_of_first(arguments: Sequence[Any]) -> Iterable[str]:
    return (arguments[0].stream.source_instance_id,)


SOURCES: Mapping[tuple[str, str], Sources] = {
    ("Master", "leader"): _no_sources,
    ("Master", "resolve_table"): _no_sources,
    ("Master", "pick_tserver"): _no_sources,
    ("Master", "stream_done"): lambda arguments: {stream.source_instance_id for stream in arguments[0]},
    ("Master", "root_standings"): _checked_by_master,
    ("Master", "roots_over"): _checked_by_master,
    ("TServer", "open_stream"): lambda arguments: (arguments[0].source_instance_id,),
    ("TServer", "replicate"): _stream_of_first,
    ("TServer", "offer_segments"): _stream_of_first,
    ("TServer", "put_segment"): _stream_of_first,
    ("TServer", "take_segments"): lambda arguments: (arguments[1].source_instance_id,),
}
"""The sources of every method that a peer may call. A peer may name only its own instance: with another instance as the
source of a stream it could make this cluster drop that instance's records as duplicates.
"""


def is_own_instance(caller: Caller, source: str) -> bool:
    """Whether the source is the caller's own instance."""
    return source == caller.instance_id


def refuse_foreign_source(caller: Caller, service: str, method: str, arguments: Sequence[Any]) -> None:
    """Raise UnauthorizedError when the arguments name another source than the caller's own instance."""
    if caller.is_process:
        return
    sources = SOURCES.get((service, method), _no_sources)(arguments)
    foreign = sorted(source for source in sources if not is_own_instance(caller, source))
    if foreign:
        raise UnauthorizedError(
            f"instance {caller.instance_id or 'none'} can't speak for instance {foreign[0]} ({service}.{method}): "
            "each cluster replicates with a secret of its own"
        )


def may_call(kind: Kind, service: str, method: str) -> bool:
    """Whether the holder of a secret of this kind may call the method; an unlisted method is not allowed."""
    if kind == "cluster":
        return True
    return kind in METHODS and (method in UNRESTRICTED_METHODS or method in METHODS[kind][service])


def refuse_call(kind: Kind, service: str, method: str, peer: str) -> None:
    """Raise UnauthorizedError unless the holder may call the method."""
    if not may_call(kind, service, method):
        use = {
            "peer": "replicates to this cluster only",
            "client": "is a client's, not a process's",
            "monitor": "is for the monitor only",
        }
        raise UnauthorizedError(f"{service}.{method} is not for {peer}: its secret {use[kind]}")
