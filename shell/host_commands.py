"""Commands about hosts and the replicas on them: ``hosts host segments``."""

from __future__ import annotations

from collections.abc import Iterator

import click

from bookkeeper.rpc.contract.host_messages import HostInfo, TabletReplicas
from bookkeeper.rpc.contract.replica_messages import HeldSegment
from shell import parameters
from shell.output import Output, Record, printable
from shell.shell_session import Session, in_session


def host_state(host: HostInfo) -> str:
    """One word for people."""
    if host.incarnation is None:
        return "away"
    return "draining" if host.draining else "alive"


@click.command()
@in_session
def hosts(session: Session, output: Output) -> None:
    """List the hosts: the replicas that each is to hold, how many of them join, the tablets that it serves, its bytes.

    A host is "alive", "away" (no process of it runs), or "draining". Its bytes are those of its replicas; "-" when it
    does not answer. Tablets of tables with one replica count as served, and have no replica here.
    """
    rows: list[Record] = [
        {
            "host": host.name,
            "state": host_state(host),
            "replicas": host.replicas,
            "joining": host.joining,
            "serves": host.leads,
            "bytes": host.bytes,
            "address": host.address,
            "incarnation": host.incarnation,
            "problem": host.problem or None,
        }
        for host in session.client.hosts.list()
    ]
    columns = ("host", "state", "replicas", "joining", "serves", "bytes", "incarnation", "problem")
    output.records(rows, columns, "no hosts")


@click.group()
def host() -> None:
    """Take a host out of use, or back into use."""


@host.command()
@click.argument("name", metavar="HOST")
@in_session
def drain(session: Session, output: Output, name: str) -> None:
    """Give the replicas of a host to other hosts: first the tablets that it leads, then the copies.

    It takes as long as the copies; `hosts` shows how many are left. Where no other host is free, replicas stay.
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


def replicas_text(tablet: TabletReplicas) -> str:
    """The hosts of a tablet in a few words: ``*`` marks the leader."""
    words = []
    for one in tablet.replicas:
        notes = [*([] if one.role == "voter" else [one.role]), *([] if one.held is not None else ["nothing held"])]
        mark = "*" if one.leads else ""
        words.append(f"{one.host}{mark} ({', '.join(notes)})" if notes else f"{one.host}{mark}")
    return ", ".join(words)


def segment_note(segment_id: int, tablet: TabletReplicas, holders: int) -> str:
    """The reason why a segment waits."""
    if segment_id == tablet.named:
        return "named by the books"
    if segment_id < tablet.named:
        return "older than the named state: its files go when no newer state lists them"
    if holders < tablet.copies_needed:
        return f"to be named: {holders} of {tablet.copies_needed} copies are there"
    return "to be named"


def segment_records(tablet: TabletReplicas) -> Iterator[Record]:
    """The segments that any host has of a tablet, oldest first."""
    found: dict[int, dict[str, HeldSegment]] = {}
    for one in tablet.replicas:
        for held in () if one.held is None else one.held.segments:
            found.setdefault(held.segment.segment_id, {})[one.host] = held
    damaged = {one.host: set(one.held.damaged) for one in tablet.replicas if one.held is not None}
    voters = {one.host for one in tablet.replicas if one.role == "voter"}
    through = tablet.extent.end_row
    for segment_id, holders in sorted(found.items()):
        complete = sorted(host for host, held in holders.items() if held.is_complete)
        segment = next(iter(holders.values())).segment
        yield {
            "through": None if through is None else printable(through),
            "segment": segment_id,
            "base": segment.base,
            "major": segment.is_major,
            "files": len(segment.files),
            "retained": len(segment.retained),
            "held_by": complete,
            "damaged_on": sorted(
                host
                for host, held in holders.items()
                if damaged[host].intersection((*held.segment.files, *held.segment.retained))
            ),
            "waits_for": segment_note(segment_id, tablet, len(voters.intersection(complete))),
        }


@click.command()
@click.argument("table", type=parameters.TABLE)
@click.option("-r", "--row", type=parameters.row, metavar="ROW", help="Only the tablet of this row.")
@in_session
def segments(session: Session, output: Output, table: str, row: bytes | None) -> None:
    """List the segments of a table's tablets on hosts: the chain of each tablet, the hosts that hold each state with
    all its files, and what it waits for.

    Tables with one replica have none: their segments lie on the cluster's Volume.
    """
    table_id = session.client.tables.get(table).table_id
    tablets = session.client.hosts.replicas(table_id, with_segments=True)
    wanted = [tablet for tablet in tablets if row is None or tablet.extent.contains(row)]
    rows = [record for tablet in wanted for record in segment_records(tablet)]
    columns = ("through", "segment", "base", "major", "files", "retained", "held_by", "damaged_on", "waits_for")
    output.records(rows, columns, "no segments on hosts")


COMMANDS = (hosts, host, segments)
