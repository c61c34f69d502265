"""The kinds of FATE operations of a master, by name."""

from __future__ import annotations

from collections.abc import Mapping

from bookkeeper.master.fate.engine import Operation
from bookkeeper.master.operations.bulk_import import ImportDirectory
from bookkeeper.master.operations.clusters import DefineCluster, DeleteCluster
from bookkeeper.master.operations.context import Context
from bookkeeper.master.operations.export import ExportTable, ImportTable
from bookkeeper.master.operations.hosts.change_store import ChangeStore
from bookkeeper.master.operations.hosts.lost_disks import FORGET_HOST_KIND, ForgetHost
from bookkeeper.master.operations.hosts.replica_moves import MOVE_KIND, MoveReplicas
from bookkeeper.master.operations.properties import ChangeProperties
from bookkeeper.master.operations.quarantine import RetryRange, SkipRange
from bookkeeper.master.operations.read_only import SetReadOnly
from bookkeeper.master.operations.replicated_tables import DisableReplication, EnableReplication
from bookkeeper.master.operations.split_merge import MERGE_KIND, SPLIT_KIND, STORE_KIND, AddSplits, MergeTablets
from bookkeeper.master.operations.streams import ForgetStreams, StreamDone
from bookkeeper.master.operations.table_lifecycle import CreateTable, DeleteTable, SetGroups
from bookkeeper.master.operations.user_changes import SetAuthorizations
from bookkeeper.master.origins.end_origins import END_KIND, EndRoots, ForgetRoots


def all_operations(context: Context) -> Mapping[str, Operation]:
    """Every kind that the engine executes; the master's cycle executes `replicate_file`."""
    return {
        "create_table": CreateTable(context),
        "delete_table": DeleteTable(context),
        "set_groups": SetGroups(context),
        "change_properties": ChangeProperties(context),
        "import_directory": ImportDirectory(context),
        "export_table": ExportTable(context),
        "import_table": ImportTable(context),
        "set_read_only": SetReadOnly(context),
        "set_authorizations": SetAuthorizations(context),
        FORGET_HOST_KIND: ForgetHost(context),
        SPLIT_KIND: AddSplits(context),
        STORE_KIND: ChangeStore(context),
        MERGE_KIND: MergeTablets(context),
        MOVE_KIND: MoveReplicas(context),
        "define_cluster": DefineCluster(context),
        "delete_cluster": DeleteCluster(context),
        "enable_replication": EnableReplication(context),
        "disable_replication": DisableReplication(context),
        "retry_range": RetryRange(context),
        "skip_range": SkipRange(context),
        "stream_done": StreamDone(context),
        "forget_streams": ForgetStreams(context),
        END_KIND: EndRoots(context),
        "forget_roots": ForgetRoots(context),
    }
