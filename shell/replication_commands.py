"""Commands about replication: peers, targets of tables, progress.

Names of commands and options are those of ACCUMULO-378.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import structs

from bookkeeper.errors import NotFoundError
from bookkeeper.model import TargetKey
from bookkeeper.rpc.contract.messages import ClusterInfo, ReplicationChange, ReplicationConfig, TargetStatus
from shell import parameters
from shell.failures import WaitTimedOutError
from shell.output import Output, Record
from shell.progress_line import ProgressLine
from shell.quarantine_commands import quarantine
from shell.shell_session import Session, in_session
from shell.watching import watched
from shell.why_command import why

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
    "cause",
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
    help="The secret that the peer's operator made with: bookkeeper secret make. A copy goes to DIR/secrets/to.",
)
@in_session
def definecluster(session: Session, output: Output, name: str, quorum: str, secret_file: Path | None) -> None:
    """Name a peer: the cluster with its masters at QUORUM.

    QUORUM is HOST:PORT[,HOST:PORT], the masters; or [zk://]HOST:PORT[,HOST:PORT]/ROOT, the ZooKeeper servers that know
    them, and the node of the cluster there; or SYSTEM://ADDRESS, a peer of another replica system, such as a directory,
    parquet:///PATH. Repeat the command to change the quorum or the secret.
    """
    cluster = session.client.replication.define_cluster(name, quorum, secret_file)
    output.result(f"cluster {name} is instance {cluster.instance_id} at {cluster.quorum}", _cluster_record(cluster))


@click.command()
@click.argument("name", type=parameters.CLUSTER)
@click.argument("quorum")
@in_session
def deletecluster(session: Session, output: Output, name: str, quorum: str) -> None:
    """Remove a peer to which no table replicates."""
    session.client.replication.delete_cluster(name, quorum)
    output.result(f"cluster {name} deleted", {"name": name, "quorum": quorum})


@click.command()
@in_session
def clusters(session: Session, output: Output) -> None:
    """List the clusters that are defined."""
    rows = [_cluster_record(cluster) for cluster in session.client.replication.clusters()]
    output.records(rows, ("name", "quorum", "instance_id"), "no clusters; definecluster NAME HOST:PORT")


def _targeting(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that enable and disable share."""
    for option in (
        click.argument("cluster", type=parameters.CLUSTER),
        click.option("--all-loc-groups", "-all-loc-groups", "all_groups", is_flag=True, help="Every locality group."),
        click.option("-lg", "--loc-group", "groups", multiple=True, metavar="LG", help="A locality group; repeatable."),
        click.option("-t", "--table", type=parameters.TABLE, required=True, metavar="TABLE"),
    ):
        command = option(command)
    return command


def _chosen_groups(groups: Sequence[str], all_groups: bool) -> list[str] | None:
    """The groups of the options; None = every group. Raises UsageError without a choice, and for both."""
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
@click.option("--remote-table", metavar="NAME", help="Name of the table on the peer; default: the same name.")
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
    """Send records written to TABLE from now on to CLUSTER; on return every tablet server does so."""
    chosen = _chosen_groups(groups, all_groups)
    changed = session.client.replication.enable(table, cluster, chosen, remote_table)
    _show_change(output, changed, f"table {table} does not replicate to {cluster}")


@click.command()
@_targeting
@in_session
def disablereplication(
    session: Session, output: Output, table: str, groups: tuple[str, ...], all_groups: bool, cluster: str
) -> None:
    """Stop sending groups of TABLE to CLUSTER; print the table's remaining targets there."""
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
    """Show the progress of replication, wait for it, and release blocked records."""


@replication.command()
@click.argument("table", type=parameters.TABLE, required=False)
@in_session
@watched
def status(session: Session, output: Output, table: str | None) -> None:
    """Print a row for each log file and target: offsets, lag, phase, cause, next try, last error.

    The causes are those of `replication why`, which has the next step of each.
    A target is CLUSTER:TABLE-ID. Where replication was disabled and enabled again, the rows of an earlier incarnation
    have its number behind it.
    """
    report = session.client.replication.report(table or "")
    rows = [_status_record(found) for found in report.targets]
    if not output.as_json:
        names = target_names([found.target for found in report.targets])
        # The last two parts of the name: the session that wrote the file, and its number.
        rows = [
            {
                **row,
                "target": name,
                "file": "/".join(str(row["file"]).rsplit("/", 2)[-2:]),
                "cause": cause_text(found.cause, found.root_cause),
            }
            for row, name, found in zip(rows, names, report.targets, strict=True)
        ]
    if report.problem:
        output.warning(report.problem, {"age_ms": report.age_ms})
    output.records(rows, _STATUS_COLUMNS, "no record waits for replication")


def cause_text(cause: str | None, root_cause: str | None) -> str | None:
    """A cause; of a file behind others with that of the file that all wait for."""
    return cause if root_cause is None else f"{cause} ({root_cause})"


def target_names(targets: Sequence[TargetKey]) -> list[str]:
    """CLUSTER:TABLE-ID of each target; with the incarnation, where one of the others has a later one."""
    newest: dict[TargetKey, int] = {}
    for target in targets:
        place = structs.replace(target, incarnation=0)
        newest[place] = max(target.incarnation, newest.get(place, 0))
    return [
        f"{target.cluster}:{target.remote_table_id}"
        + (f"#{target.incarnation}" if target.incarnation < newest[structs.replace(target, incarnation=0)] else "")
        for target in targets
    ]


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
        "cause": found.cause,
        "root_cause": found.root_cause,
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


@replication.command()
@click.argument("table", type=parameters.TABLE)
@click.option("--cluster", type=parameters.CLUSTER, default="", metavar="NAME", help="Wait only for this peer.")
@click.option("--timeout", type=parameters.SECONDS, default=600.0, show_default=True, metavar="SECONDS")
@in_session
def wait(session: Session, output: Output, table: str, cluster: str, timeout: float) -> None:
    """Wait until the peers have all records written to TABLE before this call; later writes don't count.

    Exit code 4 if the time limit comes first, 1 if TABLE is replicated to no peer, or to none any more.
    """
    if cluster and cluster not in {peer.name for peer in session.client.replication.clusters()}:
        raise NotFoundError(f"no cluster {cluster}; clusters lists all clusters")
    targets = [one.target.cluster for one in session.client.replication.config() if one.table == table]
    peers = sorted({name for name in targets if cluster in ("", name)})
    with ProgressLine("records") as line:
        left = session.client.replication.wait(
            table,
            cluster,
            timeout_ms=timeout * 1000,
            progress=lambda found: line.show(sum(one.lag_records for one in found)),
        )
    if left:
        records = sum(found.lag_records for found in left)
        reason = next((f": {found.last_error}" for found in left if found.last_error), "")
        raise WaitTimedOutError(
            f"table {table}: {len(left)} files with up to {records} records are not replicated after {timeout:g} s"
            f"{reason}; see: replication why {table}"
        )
    text = f"table {table} is replicated to {', '.join(peers)}"
    output.result(text, {"table": table, "replicated": True, "peers": peers})


replication.add_command(quarantine)
replication.add_command(why)
