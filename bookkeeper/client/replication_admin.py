"""Administration of replication: peers, targets and their progress, each a call of the leading master."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from bookkeeper.client.master_link import BUDGET_MS, MasterLink
from bookkeeper.clock import Clock
from bookkeeper.config.file import load_settings
from bookkeeper.coordination.masters import normal_quorum
from bookkeeper.errors import BookkeeperError, NotFoundError, RefusedError
from bookkeeper.rpc.contract.messages import (
    ClusterInfo,
    FileMark,
    HostInfo,
    QuarantinedRange,
    ReplicationChange,
    ReplicationConfig,
    ReplicationReport,
    SecretMark,
    TargetStatus,
    WhyReport,
)
from bookkeeper.security.secret import Secret, read_secret
from bookkeeper.security.secret_store import SecretStore

POLL_MS = 100
DEFINE_BUDGET_MS = 3_000
"""Time to reach a new peer, ms: an address that does not answer is most likely mistyped, and a user waits."""

WAIT_LIMIT_MS = 600_000
"""Default time-out of :meth:`Replication.wait`: a peer may be down for minutes."""


class PeerSecret(Struct, frozen=True):
    """A secret for a peer in the cluster's directory, and the previous one."""

    store: SecretStore
    name: str
    previous: Secret | None

    @classmethod
    def install(cls, home: Path | None, name: str, file: Path) -> PeerSecret:
        """Check the file and copy it into the directory ``home``. Raises RefusedError without such a directory."""
        if home is None:
            raise RefusedError(
                f"the secret for {name} must go into this cluster's directory, and it is named by its quorum: name it "
                f"by its directory, or copy the file to DIR/secrets/to/{name}.secret there (mode 600)"
            )
        store = SecretStore(home)
        return cls(store, name, store.keep_for_peer(name, read_secret(file)))

    def undo(self) -> None:
        """Restore the previous secret."""
        if self.previous is None:
            self.store.forget_peer(self.name)
        else:
            self.store.keep_for_peer(self.name, self.previous)


class Replication:
    """``client.replication``: peers, targets and their progress.

    A *target* is a pair of a table here and a table at a peer. Every method raises the master's error, or
    UnavailableError when no master answers for 30 seconds (3 for :meth:`define_cluster`).
    """

    def __init__(self, master: MasterLink, clock: Clock, stopped: threading.Event, home: Path | None = None) -> None:
        """``home`` is the cluster's directory with the secrets for its peers; None = not on this machine."""
        self._master = master
        self._home = home
        self._clock = clock
        self._stopped = stopped

    def define_cluster(self, name: str, quorum: str, secret_file: str | Path | None = None) -> ClusterInfo:
        """Define a peer with its name on this cluster. ``quorum`` is ``host:port[,host:port]`` for a cluster,
        or ``zk://host:port[,host:port]/root`` where it keeps its coordination store, and ``SYSTEM://ADDRESS`` for a
        peer of another replica system. ``secret_file`` is the secret that the peer's
        operator made for this cluster; a copy goes into this cluster's directory. A second call with the same name may
        change quorum and secret, never the instance (rule R23).

        Raises InvalidInputError; ExistsError when the name means another instance, or the instance has another name;
        NotAdmittedError when the peer wants another secret; UnavailableError when it does not answer; RefusedError when
        it is this cluster, when the client can't write into this cluster's directory, or when another host with a
        directory of its own lives and lacks the secret.
        """
        arguments = (name, normal_quorum(quorum))
        if secret_file is None:
            return self._define(arguments)
        installed = PeerSecret.install(self._home, name, Path(secret_file))
        try:
            self._refuse_lacking(installed)
            defined = self._define(arguments)
        except BookkeeperError:
            installed.undo()
            raise
        return defined

    def _refuse_lacking(self, installed: PeerSecret) -> None:
        """Raise RefusedError when other hosts lack the secret, whose directories this client does not reach."""
        if load_settings(installed.store.home).storage.volume != "none":
            return
        path = installed.store.file_to(installed.name)
        wanted = SecretMark(str(path.relative_to(installed.store.directory)), read_secret(path).id)
        hosts: Sequence[HostInfo] = self._master.call("hosts")
        lacking = [host.name for host in hosts if host.secrets is not None and wanted not in host.secrets]
        if lacking:
            raise RefusedError(
                f"{', '.join(lacking)} {'lacks' if len(lacking) == 1 else 'lack'} the secret {wanted.id} for "
                f"{installed.name}: copy its file there to DIR/secrets/{wanted.file}, mode 600, and repeat the command"
            )

    def _define(self, arguments: tuple[str, str]) -> ClusterInfo:
        defined: ClusterInfo = self._master.call("define_cluster", *arguments, budget_ms=DEFINE_BUDGET_MS)
        return defined

    def delete_cluster(self, name: str, quorum: str) -> None:
        """Forget a peer, and its secret if this client can reach the cluster's directory. Raises NotFoundError, and
        RefusedError while a table replicates to it.
        """
        self._master.call("delete_cluster", name, normal_quorum(quorum), settled_by=NotFoundError)
        if self._home is not None:
            SecretStore(self._home).forget_peer(name)

    def clusters(self) -> Sequence[ClusterInfo]:
        """The defined peers."""
        clusters: Sequence[ClusterInfo] = self._master.call("clusters")
        return clusters

    def enable(
        self, table: str, cluster: str, groups: Sequence[str] | None = None, remote_table: str | None = None
    ) -> ReplicationChange:
        """Replicate each record that is written to the table after this call returns, and none that was acknowledged
        before this call (rules R13 and R14). ``groups`` None = all locality groups, ``remote_table`` None = the table
        of the same name.

        Returns the targets of the table, with a warning when the table holds records that the peer does not get. Raises
        NotFoundError for a table, group or peer that does not exist, on either side; RefusedError, UnauthorizedError
        when the peer does not take the table.
        """
        arguments = (table, list(groups or ()), cluster, remote_table or table)
        changed: ReplicationChange = self._master.call("enable_replication", *arguments)
        return changed

    def disable(self, table: str, cluster: str, groups: Sequence[str] | None = None) -> ReplicationChange:
        """Stop replicating; ``groups`` None = all locality groups. A record that is written after this call returns is
        not sent (rule R14). Returns the targets that the table has left, with a warning when records still waited for
        the peer; they are not sent either. Raises NotFoundError.
        """
        arguments = (table, list(groups or ()), cluster)
        changed: ReplicationChange = self._master.call("disable_replication", *arguments)
        return changed

    def config(self) -> Sequence[ReplicationConfig]:
        """All targets that are configured."""
        targets: Sequence[ReplicationConfig] = self._master.call("replication_config")
        return targets

    def status(self, table: str = "") -> Sequence[TargetStatus]:
        """The targets of :meth:`report`. Raises NotReadyError."""
        return self.report(table).targets

    def report(self, table: str = "") -> ReplicationReport:
        """The state of each log file for each target until the file is removed, and the age of this information;
        ``table`` "" = all tables. Raises NotFoundError, and NotReadyError when the leading master has not read the
        books within 30 seconds.
        """
        report: ReplicationReport = self._master.call("replication_status", table)
        return report

    def why(self, about: str = "") -> WhyReport:
        """The cause of each wait, with the next step. ``about``: a table, a peer, a log or the end of its name; "" =
        everything. Raises NotFoundError.
        """
        report: WhyReport = self._master.call("replication_why", about)
        return report

    def quarantine(self, table: str = "") -> Sequence[QuarantinedRange]:
        """Ranges of records that fail permanently: those that block their queue, and those that an operator holds;
        ``table`` "" = of all tables. Raises NotFoundError, NotReadyError.
        """
        ranges: Sequence[QuarantinedRange] = self._master.call("quarantine", table)
        return ranges

    def hold_range(self, range_id: str) -> QuarantinedRange:
        """Take a blocking range out of its queue, so that the queue goes on. The range and its file are retained.
        Raises NotFoundError.
        """
        quarantined: QuarantinedRange = self._master.call("hold_range", range_id)
        return quarantined

    def retry_range(self, range_id: str) -> bool:
        """Ship a held range, behind the records that have overtaken it. Returns True for a range that blocks its
        queue: it is shipped at once, at its position. Raises NotFoundError, PermanentError when it fails
        again, UnavailableError.
        """
        blocking = any(found.range_id == range_id and found.state == "blocking" for found in self.quarantine())
        self._master.call("retry_range", range_id, settled_by=NotFoundError)
        return blocking

    def skip_range(self, range_id: str) -> None:
        """Skip a range for good: its target never gets these records. Raises NotFoundError, UnavailableError."""
        self._master.call("skip_range", range_id, settled_by=NotFoundError)

    def mark(self, table: str) -> Sequence[FileMark]:
        """The ends of the table's logs, for :meth:`pending` and :meth:`wait`. Every record up to them is durable on
        return. Raises NotFoundError.
        """
        marks: Sequence[FileMark] = self._master.call("replication_mark", table)
        return marks

    def pending(self, marks: Sequence[FileMark], table: str, cluster: str = "") -> Sequence[TargetStatus]:
        """The targets that lack a record up to ``marks``; ``cluster`` "" = of all peers. Raises NotFoundError."""
        return self._pending(marks, table, cluster, BUDGET_MS)

    def _pending(self, marks: Sequence[FileMark], table: str, cluster: str, budget_ms: float) -> Sequence[TargetStatus]:
        pending: Sequence[TargetStatus] = self._master.call(
            "replication_pending", list(marks), table, cluster, budget_ms=budget_ms
        )
        return pending

    def wait(
        self,
        table: str,
        cluster: str = "",
        *,
        marks: Sequence[FileMark] | None = None,
        timeout_ms: float = WAIT_LIMIT_MS,
        progress: Callable[[Sequence[TargetStatus]], None] | None = None,
    ) -> Sequence[TargetStatus]:
        """Wait until each record that was written before this call (or is within ``marks``) is replicated. Later writes
        do not count. Waits for ``timeout_ms`` milliseconds at most and returns the targets that still lack records: an
        empty sequence is success. Calls ``progress`` with these targets ten times a second. Raises NotFoundError, also
        when the table is replicated to none of these clusters, or is not any more; UnavailableError.
        """
        deadline_ns = self._clock.boot_ns() + int(timeout_ms * 1e6)
        ends = self.mark(table) if marks is None else marks
        while True:
            budget_ms = max(BUDGET_MS, (deadline_ns - self._clock.boot_ns()) / 1e6)
            pending = self._pending(ends, table, cluster, budget_ms)
            if progress is not None:
                progress(pending)
            if not pending or self._clock.boot_ns() >= deadline_ns or self._clock.wait(self._stopped, POLL_MS):
                return pending
