"""Answers about hosts and replicas: the rows of the books, beside what each live host says at this moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set

from msgspec import Struct, field
from msgspec.structs import replace

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.config.table_properties import parse_properties
from bookkeeper.coordination.config_tree import ClusterConfig, TableConfig
from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.errors import BookkeeperError, NotFoundError
from bookkeeper.master.calls.tservers import TServers
from bookkeeper.master.index.snapshot import TabletView, tablet_view
from bookkeeper.master.index.tablet_index import TabletIndex
from bookkeeper.master.queries.host_comparison import ClockOffset, lacking_secrets
from bookkeeper.master.queries.replica_report import Answer, HostSums, NamedFiles, answer_of, tablet_standing
from bookkeeper.master.replicas.away_hosts import AwayHosts
from bookkeeper.master.replicas.leader_choice import named_state
from bookkeeper.metadata import keys
from bookkeeper.metadata.lost_logs import given_up
from bookkeeper.metadata.metadata_table import MetadataTable, Row
from bookkeeper.metadata.values import FlushState, LogHome
from bookkeeper.rpc.contract.messages import HeldReplicas, HostInfo, SecretMark, TabletReplicas
from bookkeeper.rpc.contract.services import TServer

FAMILIES = ("tablet", "location", keys.REPLICA_FAMILY)

AWAY = "the host is away"
WAITS_FOR_A_HOST = "the next cycle of the master chooses a host for it"


class HostReport(Struct, frozen=True):
    """What a host says about itself: its replicas, its secrets (None = nothing), its clock."""

    answer: Answer
    secrets: tuple[SecretMark, ...] | None = None
    offset: ClockOffset | None = None

    def added_to(self, info: HostInfo, lacking: str) -> HostInfo:
        """The host with this report; ``lacking``: the secrets that it lacks, in words."""
        clock = "" if self.offset is None else self.offset.warning
        problem = "; ".join(filter(None, (info.problem, lacking, clock)))
        ahead_ms = None if self.offset is None else self.offset.ahead_ms
        return replace(info, problem=problem, clock_ahead_ms=ahead_ms, secrets=self.secrets)


Question = Callable[[TServer], HeldReplicas]
"""The call with which a host is asked."""


class HostQueries(Struct, frozen=True):
    """The queries of one reign. Thread-safe."""

    table: MetadataTable
    tservers: TServers
    read_config: Callable[[], ClusterConfig]
    away: AwayHosts
    tablets: Callable[[], TabletIndex]
    """The tablets of the master's latest cycle, which find the row of a directory; the books may have others since."""
    problems: Mapping[bytes, str] = field(default_factory=dict)
    """By row, why a tablet can't be served."""
    warnings: Mapping[bytes, str] = field(default_factory=dict)
    """By row, what a tablet lacks or waits for though it is served, such as acknowledged records."""
    leaving: Mapping[bytes, Set[str]] = field(default_factory=dict)
    """By row, the hosts whose replica votes no more and goes."""
    clock: Clock = field(default_factory=SystemClock)

    def hosts(self) -> list[HostInfo]:
        """Every host that has joined, has a session or is named by a row; by name."""
        config, live = self.read_config(), self._live()
        of_session = {info.session_id: name for name, info in live.items()}
        lost: Counter[str] = Counter()
        views = []
        for row in self.table.scan(keys.TABLETS_START, keys.TABLETS_STOP, FAMILIES):
            if keys.is_tablet(row):
                views.append(tablet_view(row))
                lost.update(LogHome.decode(cell.value).host for cell in given_up(row).values())
        names = sorted({*config.hosts, *live, *lost, *(one.host for view in views for one in view.replicas)})
        reports = {name: self._report(live.get(name)) for name in names}
        answers = {name: report.answer for name, report in reports.items()}
        logs = Counter(home.host for home in self._homes().values())
        for name in names:
            if name not in live and logs[name]:
                answers[name] = None, f"{AWAY}, and the logs of {logs[name]} sessions wait for it: start it"
        sums = HostSums()
        for view in views:
            sums.add(view, of_session.get(view.session or ""), answers, self.leaving.get(view.row, frozenset()))
        since_ms = self.away.since_ms
        lacking = lacking_secrets({name: one.secrets for name, one in reports.items() if one.secrets is not None})
        found = []
        for name in names:
            info = host_info(name, live.get(name), config, sums, answers[name], lost[name], since_ms.get(name))
            found.append(reports[name].added_to(info, lacking.get(name, "")))
        return found

    def check_host(self, name: str) -> None:
        """Raises NotFoundError for a name that no host of the cluster has."""
        known = {*self.read_config().hosts, *self._live()}
        if name not in known:
            raise NotFoundError(f"no host {name}; the hosts are {', '.join(sorted(known))}")

    def replicas(self, table_id: str, with_segments: bool) -> list[TabletReplicas]:
        """The replicas of each tablet of a table, in order; none of a tablet with one. Raises NotFoundError."""
        table = self.read_config().table(table_id)
        rows = [row for row in self.table.scan(*keys.table_section(table_id), FAMILIES) if keys.is_tablet(row)]
        return self._standings(table, rows, lambda host: host.replicas(table_id, with_segments))

    def tablet(self, table_id: str, directory: str) -> TabletReplicas:
        """The replicas and segments of the tablet in this directory. Raises NotFoundError."""
        table = self.read_config().table(table_id)
        row = self._known_row(table_id, directory) or self._searched_row(table_id, directory)
        if row is None:
            raise NotFoundError(f"table {table.name} has no tablet {directory} (any more): list its tablets again")
        (found,) = self._standings(table, [row], lambda host: host.tablet_replica(table_id, directory))
        return found

    def _known_row(self, table_id: str, directory: str) -> Row | None:
        """The row of a tablet that was in this directory in the latest cycle, if it still is."""
        tablets = self.tablets()
        for key in tablets.between(*keys.table_section(table_id)):
            view = tablets.get(key)
            if view is not None and view.directory == directory:
                row = self.table.get(key, FAMILIES)
                return row if row is not None and is_in(row, directory) else None
        return None

    def _searched_row(self, table_id: str, directory: str) -> Row | None:
        """The row of a tablet that is new in this directory: among all rows of the table."""
        rows = self.table.scan(*keys.table_section(table_id), FAMILIES)
        return next((row for row in rows if is_in(row, directory)), None)

    def _standings(self, table: TableConfig, rows: Sequence[Row], ask: Question) -> list[TabletReplicas]:
        properties, live = parse_properties(table.properties), self._live()
        views = [tablet_view(row) for row in rows]
        names = {one.host for view in views for one in view.replicas}
        answers = {name: self._ask(live.get(name), ask) for name in sorted(names)}
        sessions = {name: info.session_id for name, info in live.items()}
        alive = {info.session_id for info in self.tservers.sessions() if info.alive}

        def problem(view: TabletView) -> str:
            is_served = not view.replicas and view.session in alive
            return "" if is_served else self.problems.get(view.row, WAITS_FOR_A_HOST)

        return [
            tablet_standing(
                view,
                named_files(row),
                properties.copies_needed,
                properties.replicas,
                sessions,
                answers,
                problem(view),
                tuple(given_up(row)),
                self.warnings.get(row.key),
                self.leaving.get(row.key, frozenset()),
            )
            for view, row in zip(views, rows, strict=True)
        ]

    def _homes(self) -> Mapping[str, LogHome]:
        return {} if self.tservers.homes is None else self.tservers.homes.all()

    def _live(self) -> dict[str, SessionInfo]:
        return {info.host.name: info for info in self.tservers.sessions() if info.alive and info.host is not None}

    def _report(self, info: SessionInfo | None) -> HostReport:
        """All that a host says about itself."""
        if info is None:
            return HostReport((None, AWAY))
        before_ms, before_ns = self.clock.wall_ms(), self.clock.boot_ns()
        try:
            held = self.tservers.at(info.address).replicas("", False)
        except BookkeeperError as error:
            return HostReport((None, error.message))
        call_ms = (self.clock.boot_ns() - before_ns) // 1_000_000
        offset = None if held.wall_ms is None else ClockOffset.measured(before_ms, call_ms, held.wall_ms)
        return HostReport(answer_of(held), held.secrets, offset)

    def _ask(self, info: SessionInfo | None, ask: Question) -> Answer:
        """The answer of a host, or the reason why there is none."""
        if info is None:
            return None, AWAY
        try:
            held = ask(self.tservers.at(info.address))
        except BookkeeperError as error:
            return None, error.message
        return answer_of(held)


def is_in(row: Row, directory: str) -> bool:
    """Whether a row is that of the tablet in a directory."""
    return keys.is_tablet(row) and tablet_view(row).directory == directory


def named_files(row: Row) -> NamedFiles:
    """The state that a row names, with its files."""
    cell = row.cells.get(keys.FLUSH)
    if cell is None:
        return NamedFiles()
    return NamedFiles(named_state(row), frozenset(FlushState.decode(cell.value).segments))


def host_info(
    name: str,
    info: SessionInfo | None,
    config: ClusterConfig,
    sums: HostSums,
    answer: Answer,
    lost_logs: int,
    away_since_ms: int | None,
) -> HostInfo:
    """One host: its session (None while it is away), its sums, its answer, its logs that tablets go on without, and
    since when it is away.
    """
    held, problem = answer
    return HostInfo(
        name,
        None if info is None or info.host is None else info.host.incarnation,
        None if info is None else info.address,
        name in config.draining,
        sums.replicas[name],
        sums.joining[name],
        sums.leads[name],
        None if held is None else sum(one.bytes for one in held.values()),
        problem,
        None if info is None or info.host is None else info.host.zone,
        away_since_ms if info is None else None,
        sums.lacking_segments[name],
        sums.lacking_bytes[name],
        sums.unsent_segments[name],
        sums.unsent_bytes[name],
        sums.joining_bytes[name],
        sums.joined_bytes[name],
        lost_logs,
        sums.leaving[name],
    )
