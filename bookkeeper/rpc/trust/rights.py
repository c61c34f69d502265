"""What the holder of a secret may call, and for whom it may speak: nothing that is not named here is allowed.

Arrives: a caller, a method and its arguments. Leaves: a verdict; pure. A test holds the tables to the contract.
Processes of the cluster may call everything, and speak for other clusters: a tserver hands their records on to others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bookkeeper.errors import UnauthorizedError
from bookkeeper.rpc.contract.messages import Hello
from bookkeeper.security.secret import Kind, Secret

EVERYBODY = frozenset({"hello"})

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
            "disk_usage",
            "set_authorizations",
            "authorizations",
            "add_splits",
            "merge_tablets",
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
"""A status names tables, rows and paths, so it is nothing for peers."""

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
            "adopt_segments",
            "confirm_config",
            "wal_positions",
            "assign_work",
            "work_reports",
            "forget_streams",
            "forget_roots",
            "apply_replicated",
        }
    ),
    "Replay": frozenset({"warm", "run"}),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who makes a call: what it said of itself, and the secret that it proved (None: it was asked for none)."""

    hello: Hello
    secret: Secret | None = None

    @property
    def instance_id(self) -> str:
        """The instance that it is: the only one that may use its secret, or else the one that it says."""
        proven = self.secret.holder_instance_id if self.secret is not None else ""
        return proven or self.hello.instance_id

    @property
    def is_process(self) -> bool:
        """Whether it has proven to be a process of this cluster."""
        return self.secret is not None and self.secret.kind == "cluster"


Sources = Callable[[Sequence[Any]], Iterable[str]]
"""From the arguments of a call to the instances that it names as the source of something."""


def _names_nobody(_arguments: Sequence[Any]) -> Iterable[str]:
    return ()


def _by_what_came(_arguments: Sequence[Any]) -> Iterable[str]:
    """Relays speak of logs of others: ``master.root_desk`` judges them by what they have brought."""
    return ()


def _of_first(arguments: Sequence[Any]) -> Iterable[str]:
    return (arguments[0].stream.source_instance_id,)


SOURCES: Mapping[tuple[str, str], Sources] = {
    ("Master", "leader"): _names_nobody,
    ("Master", "resolve_table"): _names_nobody,
    ("Master", "pick_tserver"): _names_nobody,
    ("Master", "stream_done"): lambda arguments: {stream.source_instance_id for stream in arguments[0]},
    ("Master", "root_standings"): _by_what_came,
    ("Master", "roots_over"): _by_what_came,
    ("TServer", "open_stream"): lambda arguments: (arguments[0].source_instance_id,),
    ("TServer", "replicate"): _of_first,
    ("TServer", "offer_segments"): _of_first,
    ("TServer", "put_segment"): _of_first,
    ("TServer", "take_segments"): lambda arguments: (arguments[1].source_instance_id,),
}
"""Of every method that a peer may call. A peer speaks for itself only: whoever could name another one as the source of
a stream would make this cluster take that one's records for known.
"""


def is_itself(caller: Caller, source: str) -> bool:
    """Whether the source that a caller names is its own instance."""
    return source == caller.instance_id


def refuse_foreign_source(caller: Caller, service: str, method: str, arguments: Sequence[Any]) -> None:
    """Raise UnauthorizedError when a caller names another instance than its own as the source of something."""
    if caller.is_process:
        return
    named = SOURCES.get((service, method), _names_nobody)(arguments)
    strange = sorted(source for source in named if not is_itself(caller, source))
    if strange:
        raise UnauthorizedError(
            f"instance {caller.instance_id or 'none'} can't speak for instance {strange[0]} ({service}.{method}): "
            "each cluster replicates with a secret of its own"
        )


def may_call(kind: Kind, service: str, method: str) -> bool:
    """Whether the holder of a secret of this kind may call the method; what nobody has named is not allowed."""
    if kind == "cluster":
        return True
    return kind in METHODS and (method in EVERYBODY or method in METHODS[kind][service])


def refuse_call(kind: Kind, service: str, method: str, peer: str) -> None:
    """Raise UnauthorizedError unless the holder may call the method."""
    if not may_call(kind, service, method):
        what = {
            "peer": "replicates to this cluster only",
            "client": "is a client's, not a process's",
            "monitor": "is for the monitor only",
        }
        raise UnauthorizedError(f"{service}.{method} is not for {peer}: its secret {what[kind]}")
