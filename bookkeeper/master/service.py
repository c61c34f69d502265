"""The handler of the service ``Master``: each method is a few lines over the parts of a leadership.

Arrives: calls, decoded. Leaves: results, or errors of ``bookkeeper.errors``. Operations that were started survive a
crash: a client that lost its master repeats the call at the next one. A master that does not lead answers ``leader``
only.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from bookkeeper.coordination.config_changes import set_draining
from bookkeeper.coordination.config_tree import ClusterConfig, TableConfig, read_config
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import InvalidInputError, NotLeaderError, NotServingError, UnavailableError
from bookkeeper.master import replication_changes
from bookkeeper.master.cycle.check_ins import answer
from bookkeeper.master.fate.engine import Args
from bookkeeper.master.index.shipments import Report
from bookkeeper.master.index.target_progress import Amount
from bookkeeper.master.leadership import Leadership
from bookkeeper.master.operations.bulk_import import import_args
from bookkeeper.master.operations.clusters import cluster_args
from bookkeeper.master.operations.export import copy_args
from bookkeeper.master.operations.hosts.lost_disks import FORGET_HOST_KIND, forget_host_args
from bookkeeper.master.operations.hosts.replica_moves import MOVE_KIND, able_hosts, check_hosts, move_args
from bookkeeper.master.operations.properties import change_properties_args
from bookkeeper.master.operations.read_only import read_only_args
from bookkeeper.master.operations.split_merge import MERGE_KIND, SPLIT_KIND, add_splits_args, merge_args
from bookkeeper.master.operations.streams import STREAMS_MAX, forget_streams_args
from bookkeeper.master.operations.table_lifecycle import create_table_args, set_groups_args
from bookkeeper.master.operations.user_changes import set_authorizations_args
from bookkeeper.master.queries.queries import table_names
from bookkeeper.master.replication_changes import replication_configs
from bookkeeper.master.replication_report import pending_report, quarantine_report, status_report
from bookkeeper.master.replication_why import why_report
from bookkeeper.master.status_report import leader_facts, operation_infos
from bookkeeper.master.table_compaction import compact
from bookkeeper.model import LocalityGroup, RowRange, StreamKey
from bookkeeper.origins import RootLog
from bookkeeper.rpc.contract.messages import (
    BulkProgress,
    ClusterInfo,
    CompactionTicket,
    CompactRequest,
    CopyRequest,
    FileMark,
    HostInfo,
    ImportRequest,
    OperationInfo,
    QuarantinedRange,
    ReplicationChange,
    ReplicationConfig,
    ReplicationReport,
    RootQuestion,
    RootStanding,
    TableInfo,
    TabletLocation,
    TabletReplicas,
    TableUsage,
    TargetStatus,
    WhyReport,
    WorkReport,
)
from bookkeeper.rpc.dispatch import caller
from bookkeeper.rpc.trust.table_rights import TableRights

FATE_WAIT_MS = 25_000

PROGRESS_MS = 250
"""Longest wait of an answer to a client that waits for an import, an export or a copy: a person may look at it."""
"""ms that a call waits for its operation before the client has to repeat it; less than a client's timeout."""

FLUSH_TRIES_MAX, FLUSH_AGAIN_MS = 20, 200

CONCURRENCY = {
    "create_table": 4,
    "delete_table": 4,
    "set_groups": 4,
    "change_properties": 4,
    "set_read_only": 2,
    "flush_table": 4,
    "set_authorizations": 4,
    "disk_usage": 4,
    "hosts": 2,
    "forget_host": 2,
    "table_replicas": 2,
    "compact_table": 4,
    "add_splits": 4,
    "merge_tablets": 4,
    "import_directory": 4,
    "export_table": 4,
    "import_table": 4,
    "define_cluster": 2,
    "delete_cluster": 2,
    "enable_replication": 4,
    "disable_replication": 4,
    "retry_range": 4,
    "skip_range": 4,
    "replication_mark": 4,
    "replication_pending": 8,
    "replication_why": 4,
}
"""The most calls of each slow method at once, so that threads remain for the fast ones."""


class MasterService:
    """Handler of the service ``Master``."""

    def __init__(self, coordination: Coordination, rights: TableRights | None = None) -> None:
        """``rights``: the tables that a peer may replicate to; None = every table."""
        self._coordination = coordination
        self._rights = rights or TableRights()
        self._leadership: Leadership | None = None
        self._monitor_url: Callable[[], str] = lambda: ""

    def publish_monitor(self, url: Callable[[], str]) -> None:
        """Set the source of the monitor's address; ``url`` returns "" until the monitor serves."""
        self._monitor_url = url

    def monitor_url(self) -> str:
        """Address of this master's own monitor, "" when it has none."""
        return self._monitor_url()

    def attach(self, leadership: Leadership | None) -> None:
        """Set the leadership that answers calls; None: this master does not lead."""
        self._leadership = leadership

    @property
    def _lead(self) -> Leadership:
        leadership = self._leadership
        if leadership is None or not leadership.reign.is_valid():
            raise NotLeaderError("this master does not lead: ask it for the leader's address")
        return leadership

    def _config(self) -> ClusterConfig:
        return read_config(self._coordination)

    # ---- all callers

    def leader(self) -> str:
        """``host:port`` of the leading master. Raises UnavailableError when none leads now."""
        leader = self._coordination.leader()
        if leader is None:
            raise UnavailableError("no master of this cluster leads now; try again in a moment")
        return leader.address

    def status(self) -> Mapping[str, str]:
        """Facts for operators, by name."""
        return leader_facts(self._lead, self.monitor_url())

    def tables(self) -> Sequence[TableInfo]:
        """All tables, by name."""
        self._lead.reign.check()
        return [table_info(table) for table in sorted(self._config().tables.values(), key=lambda table: table.name)]

    def locate(self, table_id: str) -> Sequence[TabletLocation]:
        """See :meth:`Queries.locate`."""
        return self._lead.queries.locate(table_id)

    def locate_tablet(self, table_id: str, row: bytes) -> TabletLocation:
        """See :meth:`Queries.locate_tablet`."""
        return self._lead.queries.locate_tablet(table_id, row)

    # ---- administration

    def create_table(
        self, name: str, splits: Sequence[bytes], groups: Sequence[LocalityGroup], properties: Mapping[str, str]
    ) -> TableInfo:
        """Returns when the table exists and, if any tserver lives, its tablets are assigned."""
        args = create_table_args(name, splits, groups, properties)
        self._lead.fate.run("create_table", args, FATE_WAIT_MS)
        return table_info(self._config().table_named(name))

    def delete_table(self, name: str) -> None:
        """Returns when the books hold no row of the table."""
        self._lead.fate.run("delete_table", {"name": name}, FATE_WAIT_MS)

    def set_groups(self, name: str, groups: Sequence[LocalityGroup]) -> None:
        """Returns when the groups are in force."""
        self._lead.fate.run("set_groups", set_groups_args(name, groups), FATE_WAIT_MS)

    def change_properties(self, name: str, changes: Mapping[str, str], removals: Sequence[str]) -> TableInfo:
        """Returns when they are in force."""
        args = change_properties_args(name, changes, removals)
        self._lead.fate.run("change_properties", args, FATE_WAIT_MS)
        return table_info(self._config().table_named(name))

    def set_read_only(self, read_only: bool) -> None:
        """Returns when every tserver refuses users' writes to any table, or accepts them again (rule R14)."""
        self._lead.fate.run("set_read_only", read_only_args(read_only), FATE_WAIT_MS)

    def is_read_only(self) -> bool:
        """Whether the whole cluster is read-only; a single table has a property for it."""
        self._lead.reign.check()
        return self._config().read_only

    def flush_table(self, name: str) -> None:
        """Returns when all earlier writes are in segments. Raises UnavailableError if a tablet can't be flushed."""
        lead = self._lead
        table_id = self._config().table_named(name).table_id
        never = threading.Event()
        left = {location.extent for location in lead.queries.locate(table_id)}
        problem = "a tablet is not assigned to a tserver"
        for _ in range(FLUSH_TRIES_MAX):
            for location in lead.queries.locate(table_id):
                if location.address is None or location.extent not in left:
                    continue
                try:
                    lead.tservers.at(location.address).flush_tablet(location.extent)
                    left.discard(location.extent)
                except (NotServingError, UnavailableError) as error:
                    problem = error.message
            if not left:
                return
            lead.clock.wait(never, FLUSH_AGAIN_MS)
        raise UnavailableError(f"{len(left)} tablets of table {name} are not flushed: {problem}; try again")

    def compact_table(self, request: CompactRequest) -> Sequence[CompactionTicket]:
        """See :func:`compact`. Returns at once."""
        lead = self._lead
        table_id = self._config().table_named(request.table).table_id
        return compact(request, lead.queries.locate(table_id), lead.tservers.at)

    def import_directory(self, request: ImportRequest) -> BulkProgress:
        """Returns when every tablet has its part, or after ``PROGRESS_MS`` with what is left."""
        return self._progress("import_directory", import_args(request))

    def export_table(self, request: CopyRequest) -> BulkProgress:
        """Returns when the manifest is written, or after ``PROGRESS_MS`` with what is left."""
        return self._progress("export_table", copy_args(request))

    def import_table(self, request: CopyRequest) -> BulkProgress:
        """Returns when the table can be used, or after ``PROGRESS_MS`` with what is left."""
        return self._progress("import_table", copy_args(request))

    def _progress(self, kind: str, args: Args) -> BulkProgress:
        fate = self._lead.fate
        running = fate.submit(kind, args)
        if not fate.is_over(running, PROGRESS_MS):
            return BulkProgress(False, 0, running.left, running.unit)
        return BulkProgress(True, cast(int, fate.wait(running, FATE_WAIT_MS)))

    def hosts(self) -> Sequence[HostInfo]:
        """See :meth:`HostQueries.hosts`."""
        return self._lead.hosts.hosts()

    def drain_host(self, name: str, draining: bool) -> None:
        """Returns when the host is marked; the repair then moves its replicas. Raises NotFoundError."""
        lead = self._lead
        lead.hosts.check_host(name)
        lead.reign.check()
        set_draining(self._coordination, name, draining)
        lead.cycle.event_queue.ask_full()

    def forget_host(self, name: str) -> None:
        """Returns when no tablet needs a log of the host's lost disk. Raises NotFoundError, RefusedError."""
        tservers = self._lead.tservers
        homes = {} if tservers.homes is None else tservers.homes.all()
        args = forget_host_args(name, homes, tservers.sessions())
        self._lead.fate.run(FORGET_HOST_KIND, args, FATE_WAIT_MS)

    def table_replicas(self, table_id: str, with_segments: bool) -> Sequence[TabletReplicas]:
        """See :meth:`HostQueries.replicas`."""
        return self._lead.hosts.replicas(table_id, with_segments)

    def disk_usage(self, tables: Sequence[str]) -> Sequence[TableUsage]:
        """See :meth:`Queries.disk_usage`."""
        return self._lead.queries.disk_usage(tables)

    def set_authorizations(self, user: str, authorizations: Sequence[str]) -> None:
        """Returns when they are in force."""
        args = set_authorizations_args(user, authorizations)
        self._lead.fate.run("set_authorizations", args, FATE_WAIT_MS)

    def authorizations(self, user: str) -> Sequence[str]:
        """The authorizations of a user."""
        self._lead.reign.check()
        return self._config().users.get(user, ())

    def add_splits(self, name: str, rows: Sequence[bytes], onto: Sequence[str]) -> None:
        """Returns when a tablet ends at each of these rows and, if any tserver lives, all tablets are assigned. With
        ``onto``, their move to these hosts has begun then.
        """
        if onto:
            config = self._config()
            check_hosts(config.table_named(name), onto, able_hosts(self._lead.tservers.sessions(), config))
        self._lead.fate.run(SPLIT_KIND, add_splits_args(name, rows), FATE_WAIT_MS)
        if onto:
            self._lead.fate.submit(MOVE_KIND, move_args(name, rows, onto))

    def merge_tablets(self, name: str, rows: RowRange) -> None:
        """Returns when the tablets with rows in ``rows`` are one tablet and, if any tserver lives, it is assigned."""
        self._lead.fate.run(MERGE_KIND, merge_args(name, rows), FATE_WAIT_MS)

    def operations(self) -> Sequence[OperationInfo]:
        """Running operations and those that failed recently, in order of their start."""
        self._lead.reign.check()
        return operation_infos(self._lead)

    def clusters(self) -> Sequence[ClusterInfo]:
        """All defined peers, by alias."""
        self._lead.reign.check()
        peers = sorted(self._config().clusters.values(), key=lambda peer: peer.alias)
        return [ClusterInfo(peer.alias, peer.quorum, peer.instance_id) for peer in peers]

    def define_cluster(self, name: str, quorum: str) -> ClusterInfo:
        """Read the peer's identity and add it to the configuration."""
        self._lead.fate.run("define_cluster", cluster_args(name, quorum), FATE_WAIT_MS)
        peer = self._config().cluster(name)
        return ClusterInfo(peer.alias, peer.quorum, peer.instance_id)

    def delete_cluster(self, name: str, quorum: str) -> None:
        """Remove a peer that no table replicates to."""
        self._lead.fate.run("delete_cluster", cluster_args(name, quorum), FATE_WAIT_MS)

    def enable_replication(
        self, table: str, groups: Sequence[str], cluster: str, remote_table: str
    ) -> ReplicationChange:
        """See :func:`replication_changes.enable`."""
        return replication_changes.enable(self._lead, table, groups, cluster, remote_table, FATE_WAIT_MS)

    def disable_replication(self, table: str, groups: Sequence[str], cluster: str) -> ReplicationChange:
        """See :func:`replication_changes.disable`."""
        return replication_changes.disable(self._lead, table, groups, cluster, FATE_WAIT_MS)

    def replication_config(self) -> Sequence[ReplicationConfig]:
        """All targets of all tables."""
        self._lead.reign.check()
        return replication_configs(sorted(self._config().tables.values(), key=lambda table: table.name))

    def replication_status(self, table: str) -> ReplicationReport:
        """See :func:`status_report`."""
        return status_report(self._lead, self._config(), table)

    def replication_why(self, about: str) -> WhyReport:
        """See :func:`why_report`."""
        return why_report(self._lead, self._config(), about)

    def quarantine(self, table: str) -> Sequence[QuarantinedRange]:
        """See :func:`quarantine_report`."""
        return quarantine_report(self._lead, self._config(), table)

    def hold_range(self, range_id: str) -> QuarantinedRange:
        """See :meth:`QuarantineAdmin.hold`."""
        return self._lead.quarantine.hold(range_id, table_names(self._config().tables.values()))

    def retry_range(self, range_id: str) -> None:
        """See :meth:`QuarantineAdmin.retry`."""
        self._lead.quarantine.retry(range_id, FATE_WAIT_MS)

    def skip_range(self, range_id: str) -> None:
        """See :meth:`QuarantineAdmin.skip`."""
        self._lead.quarantine.skip(range_id, FATE_WAIT_MS)

    def replication_mark(self, table: str) -> Sequence[FileMark]:
        """See :meth:`Queries.mark`."""
        return self._lead.queries.mark(table)

    def replication_pending(self, marks: Sequence[FileMark], table: str, cluster: str) -> Sequence[TargetStatus]:
        """See :func:`pending_report`."""
        return pending_report(self._lead, self._config(), marks, table, cluster)

    # ---- other clusters

    def resolve_table(self, name: str) -> str:
        """The id of a table. Raises NotFoundError, UnauthorizedError."""
        self._lead.reign.check()
        self._rights.check_name(caller(), name)
        return self._config().table_named(name).table_id

    def pick_tserver(self, table_id: str) -> str:
        """See :meth:`Queries.pick_tserver`. Raises UnauthorizedError."""
        lead = self._lead
        self._rights.check_id(caller(), table_id, self._name_of)
        return lead.queries.pick_tserver(table_id)

    def _name_of(self, table_id: str) -> str | None:
        table = self._config().tables.get(table_id)
        return None if table is None else table.name

    def stream_done(self, streams: Sequence[StreamKey]) -> None:
        """Rule R20: the caller will never send these streams of its own again. Returns once the books have it."""
        lead = self._lead
        for first in range(0, len(streams), STREAMS_MAX):
            lead.fate.submit("forget_streams", forget_streams_args(streams[first : first + STREAMS_MAX]))

    def root_standings(self, route: Sequence[str], questions: Sequence[RootQuestion]) -> Sequence[RootStanding]:
        """See :meth:`OriginService.standings`."""
        lead = self._lead
        return lead.origins.service.standings(route, questions, self._asking(lead))

    def roots_over(self, route: Sequence[str], logs: Sequence[RootLog]) -> None:
        """See :meth:`OriginService.over`."""
        lead = self._lead
        lead.origins.service.over(route, logs, self._asking(lead))

    def check_in(self, known: int, number: int) -> int:
        """See :func:`bookkeeper.master.cycle.check_ins.answer`."""
        asking = self._asking(self._lead)
        if asking is None:
            raise InvalidInputError("only another cluster can check in here")
        return answer(self._coordination, asking, known, number)

    def _asking(self, lead: Leadership) -> str | None:
        """The instance that calls; None = this cluster."""
        asking = caller()
        if asking is None or asking.is_process or asking.instance_id == lead.settings.instance.instance_id:
            return None
        return asking.instance_id

    # ---- own tservers

    def nudge(self, session_id: str) -> None:
        """A tserver has new records to replicate."""
        self._lead.cycle.event_queue.nudge(session_id)

    def report_work(self, session_id: str, reports: Sequence[WorkReport]) -> None:
        """A worker reports its progress. Reports of runs are dropped: their operations ask for them."""
        self._lead.cycle.event_queue.report(
            map(report_of(session_id), (report for report in reports if not report.run_id))
        )

    def report_replay(self, session_id: str, problem: str) -> None:
        """See :meth:`ProcessWatch.note_replay`."""
        self._lead.watches.processes.note_replay(session_id, problem)


def report_of(session_id: str) -> Callable[[WorkReport], Report]:
    """A function that converts the reports of one session into the master's form."""

    def convert(report: WorkReport) -> Report:
        return Report(
            session=session_id,
            txid=report.txid,
            file=report.file.encode(),
            target=report.target,
            finished=report.finished_offset,
            records=report.records,
            sent_bytes=report.bytes,
            resends=report.resends,
            error=report.error,
            error_transient=report.error_transient,
            error_code=report.error_code,
            failed=report.failed,
            share=Amount(report.share_records, report.share_bytes),
            failed_at=report.failed_at or "",
        )

    return convert


def table_info(table: TableConfig) -> TableInfo:
    """A table as a message of the wire contract."""
    return TableInfo(table.table_id, table.name, table.state, table.groups, table.properties)
