"""Commands about replication: clusters, what goes where, and how far it is.

Arrives: names and groups, in the spelling of ACCUMULO-378. Leaves: a call of :mod:`bookkeeper.client`, and what it
answered: for ``replication status`` one row for each file and target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from bookkeeper.errors import NotFoundError
from bookkeeper.rpc.contract.messages import ClusterInfo, ReplicationChange, ReplicationConfig, TargetStatus
from shell import parameters
from shell.failures import WaitTimedOutError
from shell.output import Output, Record
from shell.quarantine_commands import quarantine
from shell.shell_session import Session, in_session

_STATUS_COLUMNS = (
    "table",
    "target",
    "file",
    "state",
    "needed",
    "finished",
    "lag_records",
    "lag_bytes",
    "lag_seconds",
    "phase",
    "next_try_in_ms",
    "last_error",
)


def _cluster_record(cluster: ClusterInfo) -> Record:
    return {"name": cluster.name, "quorum": cluster.quorum, "instance_id": cluster.instance_id}


@click.command()
@click.argument("name")
@click.argument("quorum")
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What its operator made for this cluster with: bookkeeper secret make. A copy is kept in DIR/secrets/to.",
)
@in_session
def definecluster(session: Session, output: Output, name: str, quorum: str, secret_file: Path | None) -> None:
    """Give the cluster whose masters answer at QUORUM (HOST:PORT[,HOST:PORT]) a name here.

    SYSTEM://ADDRESS is a peer of another replica system: parquet:///PATH a directory. The same again is fine, and may
    bring another quorum or secret.
    """
    cluster = session.client.replication.define_cluster(name, quorum, secret_file)
    output.done(f"cluster {name} is instance {cluster.instance_id} at {cluster.quorum}", _cluster_record(cluster))


@click.command()
@click.argument("name", type=parameters.CLUSTER)
@click.argument("quorum")
@in_session
def deletecluster(session: Session, output: Output, name: str, quorum: str) -> None:
    """Forget a cluster to which no table replicates."""
    session.client.replication.delete_cluster(name, quorum)
    output.done(f"cluster {name} deleted", {"name": name, "quorum": quorum})


@click.command()
@in_session
def clusters(session: Session, output: Output) -> None:
    """List the clusters that are defined."""
    rows = [_cluster_record(cluster) for cluster in session.client.replication.clusters()]
    output.records(rows, ("name", "quorum", "instance_id"), "no clusters; definecluster NAME HOST:PORT")


def _targeting(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that both switches share."""
    for option in (
        click.argument("cluster", type=parameters.CLUSTER),
        click.option("--all-loc-groups", "-all-loc-groups", "all_groups", is_flag=True, help="Every locality group."),
        click.option("-lg", "--loc-group", "groups", multiple=True, metavar="LG", help="A locality group; repeatable."),
        click.option("-t", "--table", type=parameters.TABLE, required=True, metavar="TABLE"),
    ):
        command = option(command)
    return command


def _chosen_groups(groups: Sequence[str], all_groups: bool) -> list[str] | None:
    """None means every group."""
    if all_groups == bool(groups):
        raise click.UsageError("give either -lg LG (repeatable) or --all-loc-groups", click.get_current_context())
    return None if all_groups else list(groups)


def _config_record(config: ReplicationConfig) -> Record:
    return {
        "table": config.table,
        "cluster": config.target.cluster,
        "remote_table": config.remote_table,
        "remote_table_id": config.target.remote_table_id,
        "incarnation": config.target.incarnation,
        "groups": list(config.groups),
    }


@click.command()
@_targeting
@click.option("--remote-table", metavar="NAME", help="Its name on the other cluster; the same name if not given.")
@in_session
def enablereplication(
    session: Session,
    output: Output,
    table: str,
    groups: tuple[str, ...],
    all_groups: bool,
    cluster: str,
    remote_table: str | None,
) -> None:
    """Send what is written to TABLE from now on to CLUSTER; when this returns, every tablet server does."""
    chosen = _chosen_groups(groups, all_groups)
    changed = session.client.replication.enable(table, cluster, chosen, remote_table)
    _show_change(output, changed, f"table {table} does not replicate to {cluster}")


@click.command()
@_targeting
@in_session
def disablereplication(
    session: Session, output: Output, table: str, groups: tuple[str, ...], all_groups: bool, cluster: str
) -> None:
    """Stop sending; what is left of the table's targets there is shown."""
    changed = session.client.replication.disable(table, cluster, _chosen_groups(groups, all_groups))
    _show_change(output, changed, f"table {table} does not replicate to {cluster} any more")


def _show_change(output: Output, changed: ReplicationChange, empty: str) -> None:
    rows = [_config_record(target) for target in changed.targets]
    if not output.as_json:
        rows = [{**row, "groups": row["groups"] or "all"} for row in rows]
    output.records(rows, ("table", "cluster", "remote_table", "groups", "incarnation"), empty)
    for warning in changed.warnings:
        output.warning(warning, {})


@click.group()
def replication() -> None:
    """How far replication is."""


@replication.command()
@click.argument("table", type=parameters.TABLE, required=False)
@in_session
def status(session: Session, output: Output, table: str | None) -> None:
    """One row for each file and target: state, needed, finished, lag, phase, next try, last error."""
    report = session.client.replication.report(table or "")
    rows = [_status_record(found) for found in report.targets]
    if not output.as_json:
        rows = [{**row, "file": _short_file(str(row["file"]))} for row in rows]
    if report.problem:
        output.warning(report.problem, {"age_ms": report.age_ms})
    output.records(rows, _STATUS_COLUMNS, "nothing is to be replicated")


def _status_record(found: TargetStatus) -> Record:
    return {
        "table": found.table,
        "target": f"{found.target.cluster}:{found.target.remote_table_id}",
        "file": found.file,
        "state": found.state,
        "needed": found.needed,
        "finished": found.finished,
        "lag_records": found.lag_records,
        "lag_bytes": found.lag_bytes,
        "lag_seconds": found.lag_seconds,
        "phase": found.phase,
        "next_try_in_ms": found.next_try_in_ms,
        "last_error": found.last_error,
        "cluster": found.target.cluster,
        "remote_table_id": found.target.remote_table_id,
        "incarnation": found.target.incarnation,
        "groups": list(found.groups),
        "worker": found.worker,
        "records_shipped": found.records_shipped,
        "bytes_shipped": found.bytes_shipped,
        "resends": found.resends,
    }


def _short_file(uri: str) -> str:
    """The last two parts: the session that wrote the file, and its number."""
    return "/".join(uri.rsplit("/", 2)[-2:])


@replication.command()
@click.argument("table", type=parameters.TABLE)
@click.option("--cluster", type=parameters.CLUSTER, default="", metavar="NAME", help="Wait for this one only.")
@click.option("--timeout", type=parameters.SECONDS, default=600.0, show_default=True, metavar="SECONDS")
@in_session
def wait(session: Session, output: Output, table: str, cluster: str, timeout: float) -> None:
    """Wait until everything written to TABLE before this call is replicated, whatever is written meanwhile.

    Exit code 4 when the time is over before that.
    """
    if cluster and cluster not in {known.name for known in session.client.replication.clusters()}:
        raise NotFoundError(f"no cluster {cluster}; clusters lists all clusters")
    left = session.client.replication.wait(table, cluster, timeout_ms=timeout * 1000)
    if left:
        records = sum(found.lag_records for found in left)
        reason = next((f": {found.last_error}" for found in left if found.last_error), "")
        raise WaitTimedOutError(
            f"table {table}: {len(left)} files with up to {records} records are not replicated after {timeout:g} s"
            f"{reason}; see: replication status {table}"
        )
    output.done(f"table {table} is replicated", {"table": table, "replicated": True})


replication.add_command(quarantine)

COMMANDS = (definecluster, deletecluster, clusters, enablereplication, disablereplication, replication)
