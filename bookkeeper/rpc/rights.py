"""What the holder of a secret may call: by the kind of the secret, and nothing that is not named here.

Arrives: a kind and a method. Leaves: a verdict; pure. A test holds the tables to the contract. Processes of the cluster
may call everything.
"""

from __future__ import annotations

from collections.abc import Mapping

from bookkeeper.errors import UnauthorizedError
from bookkeeper.security.secret import Kind

EVERYBODY = frozenset({"hello", "status"})

PEER_METHODS = {
    "Master": frozenset({"leader", "resolve_table", "pick_tserver", "stream_done", "root_standings", "roots_over"}),
    "TServer": frozenset({"open_stream", "replicate", "offer_segments", "put_segment", "take_segments"}),
    "Replay": frozenset[str](),
}

CLIENT_METHODS = {
    "Master": frozenset(
        {
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
    "TServer": frozenset({"write", "write_if", "scan"}),
    "Replay": frozenset[str](),
}

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
