"""Commands about hosts and the replicas on them: ``hosts host segments``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from bookkeeper.client.host_admin import MovesLeft
from bookkeeper.rpc.contract.messages import HostInfo, SegmentStanding, TabletReplicas, WaitingFiles
from shell import parameters
from shell.failures import WaitTimedOutError
from shell.output import Output, Record, printable, utc
from shell.progress_line import BYTES, ProgressLine, amount
from shell.shell_session import Session, in_session
from shell.watching import watched

COLUMNS = (
    *("host", "state", "zone", "away_since", "replicas", "joining", "joined", "serves", "bytes", "lacks"),
    *("incarnation", "lost_logs", "problem"),
)


def host_state(host: HostInfo) -> str:
    """One word for people."""
    if host.incarnation is None:
        return "away"
    return "draining" if host.draining else "alive"


def joined_part(host: HostInfo) -> str | None:
    """How much of the joining replicas is here, in percent; None while none joins."""
    if not host.joining:
        return None
    part = host.joined_bytes / host.joining_bytes if host.joining_bytes else 0.0
    return f"{100 * part:.0f} %"


@click.command()
@click.option("-w", "--wait", is_flag=True, help="First wait until no replica joins, moves or leaves.")
@click.option("--timeout", type=parameters.SECONDS, default=600.0, show_default=True, metavar="SECONDS")
@in_session
@watched
def hosts(session: Session, output: Output, wait: bool, timeout: float) -> None:
    """List the hosts: the replicas that each is to hold, how many of them join, the tablets that it serves, its bytes.

    A host is "alive", "away" (no process of it runs), or "draining". Its zone is shown while it lives. Its bytes are
    those of its replicas; "-" when it does not answer. Tablets of tables with one replica count as served, and have no
    replica here. LACKS: the segments that leaders on other hosts have for it; JOINED: the part of the joining replicas
    that is here. LOST LOGS: those on it that tablets go on without, one for each tablet; they come back with the host.
    PROBLEM also names a full disk: writes, flushes or content of other hosts wait for room there; secrets that the host
    lacks and another one has; and a wall clock more than 1 s off that of the master. With --json also the bytes of
    these, the replicas that leave the host, what other hosts lack of the tablets that it leads, the ids of its secrets,
    and its wall clock less that of the master.

    With --wait it first waits until each tablet has as many replicas as its table asks for, no replica joins, and hosts
    that are drained have none; exit code 4 if the time limit comes first.
    """
    if wait:
        wait_for_moves(session, timeout)
    rows: list[Record] = [
        {
            "host": host.name,
            "state": host_state(host),
            "zone": host.zone or None,
            "away_since": utc(host.away_since_ms or 0),
            "replicas": host.replicas,
            "joining": host.joining,
            "leaving": host.leaving or 0,
            "serves": host.leads,
            "bytes": host.bytes,
            "lacks": host.lacking_segments,
            "lacking_bytes": host.lacking_bytes,
            "unsent_segments": host.unsent_segments,
            "unsent_bytes": host.unsent_bytes,
            "joined": joined_part(host),
            "joining_bytes": host.joining_bytes,
            "joined_bytes": host.joined_bytes,
            "address": host.address,
            "incarnation": host.incarnation,
            "lost_logs": host.lost_logs,
            "clock_ahead_ms": host.clock_ahead_ms,
            "secrets": None if host.secrets is None else {mark.file: mark.id for mark in host.secrets},
            "problem": host.problem or None,
        }
        for host in session.client.hosts.list()
    ]
    output.records(rows, COLUMNS, "no hosts")


def wait_for_moves(session: Session, timeout_s: float) -> None:
    """Wait until replicas are where they are to be, with a line about what is left. Raises WaitTimedOutError."""
    with ProgressLine() as line:
        left = session.client.hosts.wait(timeout_s * 1000, lambda found: show_moves(line, found))
    if left.replicas:
        raise WaitTimedOutError(
            f"{amount(left.replicas, 'replicas')} still to join or to leave after {timeout_s:g} s; hosts and tablets "
            "show where: a tablet needs as many hosts as its table has replicas, those of a drained host another one"
        )


def show_moves(line: ProgressLine, left: MovesLeft) -> None:
    """The bytes that joins have left, where they are known; else the replicas."""
    if left.bytes:
        line.show(left.bytes, BYTES)
    elif left.replicas:
        line.show(left.replicas, "replicas")


@click.group()
def host() -> None:
    """Take a host out of use, or back into use."""


@host.command()
@click.argument("name", metavar="HOST")
@in_session
def drain(session: Session, output: Output, name: str) -> None:
    """Give the replicas of a host to other hosts: first the tablets that it leads, then the copies.

    It takes as long as the copies; `hosts` shows how many are left, and `hosts --wait` waits for them. Where no other
    host is free, replicas stay.
    """
    session.client.hosts.drain(name, True)
    output.result(f"host {name} gives its replicas away; hosts shows how many are left", {"host": name})


@host.command()
@click.argument("name", metavar="HOST")
@in_session
def undrain(session: Session, output: Output, name: str) -> None:
    """Let a host that was drained hold replicas again."""
    session.client.hosts.drain(name, False)
    output.result(f"host {name} may hold replicas again", {"host": name})


@host.command()
@click.argument("name", metavar="HOST")
@in_session
def forget(session: Session, output: Output, name: str) -> None:
    """Accept that the disk of a host is lost for ever, with the logs on it. Tablets that wait for these logs, or that
    go on without them, need them no more.

    The records that only these logs had are lost; `tablets` and `segments` name them until then. It is refused while
    the host is alive with that disk.
    """
    session.client.hosts.forget(name)
    output.result(f"the logs on the lost disk of host {name} are forgotten", {"host": name})


def replicas_text(tablet: TabletReplicas) -> str:
    """The hosts of a tablet in a few words: ``*`` marks the leader."""
    words = []
    for one in tablet.replicas:
        notes = [*([] if one.role == "voter" else [one.role]), *([] if one.held is not None else ["nothing held"])]
        mark = "*" if one.leads else ""
        words.append(f"{one.host}{mark} ({', '.join(notes)})" if notes else f"{one.host}{mark}")
    return ", ".join(words)


def host_problems(tablet: TabletReplicas) -> list[str]:
    """The problems of a tablet's hosts, such as a full disk."""
    return [f"{one.host}: {one.problem}" for one in tablet.replicas if one.problem]


def with_lost_logs(segment: SegmentStanding, tablet: TabletReplicas) -> str:
    """The reason why a segment waits; of the named state also the logs that the tablet is served without."""
    if segment.segment_id != tablet.named or not tablet.lost_logs:
        return segment.waits_for
    return f"{segment.waits_for}; without the tail of {', '.join(tablet.lost_logs)}"


def segment_records(tablet: TabletReplicas) -> Iterator[Record]:
    """The segments that any host has of a tablet, oldest first; then the files that wait to be deleted, by reason, and
    those that are damaged.
    """
    end_row = tablet.extent.end_row
    through = {"through": None if end_row is None else printable(end_row)}
    for one in tablet.segments:
        yield through | {
            "segment": one.segment_id,
            "base": one.base,
            "major": one.is_major,
            "files": one.files,
            "bytes": one.bytes,
            "retained": one.retained,
            "held_by": list(one.held_by),
            "acked_by": list(one.acked_by),
            "waits_for": with_lost_logs(one, tablet),
        }
    reasons: dict[str, dict[str, WaitingFiles]] = {}
    for replica in tablet.replicas:
        for waiting in replica.waiting:
            reasons.setdefault(waiting.reason, {})[replica.host] = waiting
    for reason, hosts in sorted(reasons.items()):
        yield through | {
            "segment": None,
            "base": None,
            "major": None,
            "files": len({name for waiting in hosts.values() for name in waiting.names}),
            "bytes": sum(waiting.bytes for waiting in hosts.values()),
            "retained": None,
            "held_by": sorted(hosts),
            "acked_by": [],
            "waits_for": f"deletion: {reason}",
        }
    yield from damage_records(tablet, through)


def damage_records(tablet: TabletReplicas, through: Record) -> Iterator[Record]:
    """The files that are damaged on hosts of a tablet, one record for all."""
    damaged = {one.host: one.held.damaged for one in tablet.replicas if one.held is not None and one.held.damaged}
    if damaged:
        yield {
            **through,
            "segment": None,
            "base": None,
            "major": None,
            "files": len({name for names in damaged.values() for name in names}),
            "bytes": None,
            "retained": None,
            "held_by": sorted(damaged),
            "acked_by": [],
            "waits_for": "a sound copy of another host: the files are damaged",
        }


@click.command()
@click.argument("table", type=parameters.TABLE)
@click.option("-r", "--row", type=parameters.row, metavar="ROW", help="Only the tablet of this row.")
@in_session
def segments(session: Session, output: Output, table: str, row: bytes | None) -> None:
    """List the segments of a table's tablets on hosts: the chain of each tablet, the hosts that hold each state with
    all its files, those that told the leader so, and what it waits for.

    Rows without a segment are files that wait to be deleted on these hosts, and the reason. Tables with one replica
    have no segments here: theirs lie on the cluster's Volume.
    """
    table_id = session.client.tables.get(table).table_id
    tablets = session.client.hosts.replicas(table_id, with_segments=True)
    wanted = [tablet for tablet in tablets if row is None or tablet.extent.contains(row)]
    rows = [record for tablet in wanted for record in segment_records(tablet)]
    columns = (
        "through",
        "segment",
        "base",
        "major",
        "files",
        "bytes",
        "retained",
        "held_by",
        "acked_by",
        "waits_for",
    )
    output.records(rows, columns, "no segments on hosts")
