"""The operation that moves the tablets of a table between the cluster's Volume and hosts, after a change of
``table.replicas`` from 1 or to 1.

A few tablets at a time; the others are served meanwhile. A crash may come between any two writes: the next master
repeats the step with the same values.

=======  ============================================================================================================
find     choose the next tablets that are not where the table has them, and hosts for their replicas
publish  to the Volume: a host that holds the named state copies each file to the Volume under the same name; when none
         can, the operation ends
serve    flush them, as for a split (:mod:`bookkeeper.master.operations.split_merge`)
hold     claim, park and unload them: no log has records of them, and the books name all that they have
write    to hosts: the replicas, then each file under a name in the tablet's own directory; to the Volume: a host copies
         the files that are new since *publish*; when none can, the tablets stay where they are
take     to hosts: each copies the files from the Volume, until so many hold all of them as the table asks for (N3); a
         host whose disk was destroyed meanwhile copies them to its present one
back     when too few of these hosts can: the books name the files on the Volume again, and the replicas go; the next
         *find* chooses other hosts, or leaves the tablets on the Volume while there are too few
switch   to hosts: the names on the Volume go; to the Volume: the books name the state again, then the replicas go
place    wait until the tablets have a tserver, then find
=======  ============================================================================================================

The books name the state again under a new serial, so a late name of an earlier holder is hidden (R1, N1). The files
that a move leaves behind go by the rules of their place: a host deletes a replica that no row names, and the collector
a file of the Volume that no tablet names. Rules: R1, R4, R7, N3 and N4.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field
from msgspec.structs import replace

from bookkeeper.config.table_properties import copies_needed, parse_properties
from bookkeeper.errors import CorruptionError, RefusedError, TransientError
from bookkeeper.master.fate.engine import Args, Call, Done, Next, Outcome, State, Step, Wait
from bookkeeper.master.index.snapshot import TabletView, tablet_view
from bookkeeper.master.index.tablet_replicas import voters
from bookkeeper.master.operations import split_merge
from bookkeeper.master.operations.context import Context, encode_bytes, number, online_table, text
from bookkeeper.master.operations.replica_hosts import (
    COPIES_WAIT_MS,
    FailedHosts,
    HostWaits,
    decode_hosts,
    destroyed,
    encode_hosts,
    first_replicas,
    hosts_for,
    is_elsewhere,
    live_hosts,
)
from bookkeeper.master.operations.table_lifecycle import wait_for_tservers
from bookkeeper.master.splits import split_rules
from bookkeeper.master.splits.split_rules import Change, TabletFacts
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey, RowPut
from bookkeeper.metadata.values import ReplicaCell
from bookkeeper.model import HostIdentity
from bookkeeper.storage.volume.names import tablet_directory

LOG = logging.getLogger(__name__)

TABLETS_AT_ONCE = 4
COPY_AGAIN_MS = 200


def change_store_args(table: str) -> Args:
    """Arguments of ``change_store``."""
    return {"name": table}


class ChangeStore(Struct, frozen=True):
    """Moves the tablets of one table to where ``table.replicas`` wants them
    (:class:`bookkeeper.master.fate.engine.Operation`).
    """

    context: Context
    first: str = "find"
    waits: HostWaits = field(default_factory=HostWaits)
    failed: FailedHosts = field(default_factory=FailedHosts)
    """Live hosts that could not take copies."""

    def locks(self, args: Args) -> Collection[str]:
        """One change of a table at a time."""
        return (f"table {text(args, 'name')}",)

    @property
    def steps(self) -> Mapping[str, Step]:
        """find, publish, serve, hold, write, take, back, switch, place."""
        return {
            "find": self.find,
            "publish": self.publish,
            "serve": lambda call: split_merge.serve(self.context, call),
            "hold": lambda call: split_merge.hold(self.context, call),
            "write": self.write,
            "take": self.take,
            "back": self.back,
            "switch": self.switch,
            "place": self.place,
        }

    def find(self, call: Call) -> Outcome:
        """The next tablets to move; ends when there is none, or too few hosts live. Raises NotFoundError."""
        table = online_table(self.context.config(), text(call.args, "name"))
        replicas = parse_properties(table.properties).replicas
        rows = self.context.stores.table.scan(
            *keys.table_section(table.table_id), ("tablet", "location", keys.REPLICA_FAMILY)
        )
        elsewhere = [view for view in map(tablet_view, filter(keys.is_tablet, rows)) if is_elsewhere(view, replicas)]
        if not elsewhere:
            return Done()
        try:
            hosts = encode_hosts(self._hosts(replicas)) if replicas > 1 else []
        except RefusedError as error:
            LOG.info("the tablets of table %s stay on the Volume for now: %s", table.name, error.message)
            return Done()
        chosen = encode_bytes([view.row for view in elsewhere[:TABLETS_AT_ONCE]])
        return Next(
            "serve" if replicas > 1 else "publish",
            {
                "rows": chosen,
                "ends": chosen,
                "replicas": replicas,
                "hosts": hosts,
                "changes": call.state.get("changes", 0),
            },
        )

    def publish(self, call: Call) -> Outcome:
        """Make hosts copy the files to the Volume while the tablets are served: what comes later is little."""
        problem = self._publish_all(self._views(call))
        if problem and not self._gives_up(call):
            return Wait(problem, COPY_AGAIN_MS)
        self.waits.end(call.txid)
        if not problem:
            return Next("serve", call.state)
        LOG.info("the tablets of table %s stay on hosts for now: %s", text(call.args, "name"), problem)
        return Done()

    def write(self, call: Call) -> Outcome:
        """To hosts, let the books have the tablets there; to the Volume, make hosts copy the last files."""
        facts, views = split_merge.stored_facts(call), self._views(call)
        if not is_to_hosts(call.state):
            problem = self._publish_all(views)
            if problem and not self._gives_up(call):
                return Wait(problem, COPY_AGAIN_MS)
            self.waits.end(call.txid)
            return self._moved(call) if problem else Next("switch", call.state)
        changes = [self._change(found, views[found.row], call) for found in facts]
        self._place_replicas(call)
        for change in changes:
            split_merge.execute(self.context, before_copies(change))
        return Next("take", call.state)

    def take(self, call: Call) -> Outcome:
        """Make the hosts copy the files from the Volume."""
        self._replace_disks(self._views(call).values())
        facts, views = split_merge.stored_facts(call), self._views(call)
        lacking = [copies for found in facts if (copies := self._take(found, views[found.row])).problem]
        if not lacking:  # N3: each file has its copies there
            self.waits.end(call.txid)
            return Next("switch", call.state)
        can_come = all(copies.can_come for copies in lacking)
        limit_ms = self.context.settings.repair_after_ms if can_come else COPIES_WAIT_MS
        reason = "for copies" if can_come else "for hosts"
        if self.waits.waited_ms(call.txid, self.context.clock, reason) <= limit_ms:
            return Wait(f"{len(lacking)} tablets have too few copies: {lacking[0].problem}", COPY_AGAIN_MS)
        LOG.warning("%d tablets stay on the Volume for now: %s", len(facts), lacking[0].problem)
        self.waits.end(call.txid)
        for copies in lacking if can_come else ():  # else a live host may only be slow
            self.failed.add(copies.failed, self.context.clock, self.context.settings.repair_after_ms)
        serial = split_rules.next_serial(split_merge.read_rows(self.context, call))
        return Next("back", {**call.state, "serial": serial})

    def back(self, call: Call) -> Outcome:
        """Let the books have the tablets on the Volume, as before."""
        views = self._views(call)
        for found in split_merge.stored_facts(call):
            own = tablet_directory(found.extent.table_id, views[found.row].directory)
            change = split_rules.store_change_back(found, number(call.state, "serial"), own)
            split_merge.execute(self.context, change)
        self._remove_replicas(views)
        return self._moved(call)

    def switch(self, call: Call) -> Outcome:
        """The other place has all files: let the books have the tablets there alone."""
        views = self._views(call)
        for found in split_merge.stored_facts(call):
            change = self._change(found, views[found.row], call)
            rest = replace(change, rows=(), first=()) if is_to_hosts(call.state) else before_copies(change)
            split_merge.execute(self.context, rest)
        if not is_to_hosts(call.state):
            self._remove_replicas(views)
        return self._moved(call)

    def place(self, call: Call) -> Outcome:
        """Wait for tservers of the tablets."""
        waiting = wait_for_tservers(self.context, split_merge.changed_parts(call.state))
        return waiting or Next("find", {"changes": number(call.state, "changes") + 1})

    # ---- parts of steps

    def _moved(self, call: Call) -> Outcome:
        split_merge.report_changes(self.context, call.state)
        self.context.hooks.wake()  # a cycle asks the hosts what they hold now, and elections need the answer
        return Next("place", {**call.state, "facts": []})

    def _hosts(self, replicas: int) -> list[HostIdentity]:
        """Hosts for the replicas. Raises RefusedError when there are too few that live and did not fail lately."""
        hosts, failed = hosts_for(self.context, replicas), self.failed.names(self.context.clock)
        able = [host for host in hosts if host.name not in failed]
        if len(able) < replicas:
            raise RefusedError(
                f"table.replicas is {replicas}, and {', '.join(sorted(failed))} could not copy files lately: the log "
                "of the master says why"
            )
        return able

    def _publish_all(self, views: Mapping[bytes, TabletView]) -> str:
        """Make hosts copy the files of tablets to the Volume; returns why some are not there, empty when all are."""
        problems = [problem for view in views.values() if (problem := self._publish(view))]
        return "" if not problems else f"{len(problems)} tablets are not on the Volume: {problems[0]}"

    def _gives_up(self, call: Call) -> bool:
        """Whether the operation has waited for the Volume for too long."""
        return self.waits.waited_ms(call.txid, self.context.clock) > COPIES_WAIT_MS

    def _views(self, call: Call) -> dict[bytes, TabletView]:
        rows = split_merge.read_rows(self.context, call)
        return {row.key: tablet_view(row) for row in rows if keys.is_tablet(row)}

    def _change(self, facts: TabletFacts, view: TabletView, call: Call) -> Change:
        own = tablet_directory(facts.extent.table_id, view.directory) if is_to_hosts(call.state) else None
        return split_rules.store_change(facts, number(call.state, "serial"), own)

    def _place_replicas(self, call: Call) -> None:
        reign, rows = self.context.stores.reign, [facts.row for facts in split_merge.stored_facts(call)]
        operation = f"{call.txid}-{number(call.state, 'changes')}"
        reign.check()
        puts = first_replicas(rows, decode_hosts(call.state), number(call.state, "replicas"), operation)
        self.context.stores.table.put(puts, reign.next_rank())

    def _replace_disks(self, views: Iterable[TabletView]) -> None:
        """A replica whose disk was destroyed begins anew on the present disk of its host: the Volume has the files."""
        reign, sessions = self.context.stores.reign, self.context.tservers.sessions()
        live = live_hosts(sessions)
        for view in views:
            for one in destroyed(view.replicas, sessions):
                LOG.info("tablet %s: host %s begins anew, its disk was destroyed", view.extent, one.host)
                reign.check()
                rank = reign.next_rank()
                cell = ReplicaCell(f"p{rank:x}", live[one.host].incarnation, one.cell.role)
                self.context.stores.table.put([RowPut(view.row, {keys.replica_column(one.host): cell.encode()})], rank)

    def _remove_replicas(self, views: Mapping[bytes, TabletView]) -> None:
        """In one call for all cells: no row ever has some of its replicas."""
        reign = self.context.stores.reign
        reign.check()
        for view in views.values():
            cells = [CellKey(view.row, keys.replica_column(one.host)) for one in view.replicas]
            if cells:
                self.context.stores.table.delete(cells, reign.next_rank())

    def _take(self, facts: TabletFacts, view: TabletView) -> Copies:
        """Make the voters of a tablet copy its files."""
        directory = tablet_directory(facts.extent.table_id, view.directory)
        files = {split_rules.own_name(name, directory): name for name in facts.segments}
        wanted = {one.host for one in voters(view.replicas)}
        properties = parse_properties(self.context.config().table(facts.extent.table_id).properties)
        needed, live, reasons = copies_needed(properties, len(wanted)), self._live(wanted), []
        failed = set(live)
        for host, address in live.items():
            try:
                if self.context.tservers.at(address).take_replica(facts.extent, files):
                    failed.discard(host)
            except (TransientError, CorruptionError) as error:
                reasons.append(f"{host}: {error.message}")
        copies, why = len(live) - len(failed), "; ".join(reasons) or "the others are away"
        problem = "" if copies >= needed else f"{facts.extent} has {copies} of {needed}, start its hosts ({why})"
        return Copies(problem, frozenset(failed), can_come=len(live) >= needed)

    def _publish(self, view: TabletView) -> str:
        """Make one host copy the files of a tablet to the Volume; returns why none has, empty when one has."""
        reasons = []
        for host, address in self._live({one.host for one in voters(view.replicas)}).items():
            try:
                if self.context.tservers.at(address).publish_replica(view.extent):
                    return ""
                reasons.append(f"{host} lacks files of the named state")
            except (TransientError, CorruptionError) as error:
                reasons.append(f"{host}: {error.message}")
        return "" if not view.replicas else f"{view.extent}: {'; '.join(reasons) or 'its hosts are away'}"

    def _live(self, hosts: Collection[str]) -> dict[str, str]:
        """The live ones of these hosts, with their addresses."""
        return {
            info.host.name: info.address
            for info in self.context.tservers.sessions()
            if info.alive and info.host is not None and info.host.name in hosts
        }


class Copies(Struct, frozen=True):
    """The copies of a tablet on hosts. ``problem``: why there are too few, empty if there are enough; ``failed``: live
    hosts without all files; ``can_come``: whether enough hosts live.
    """

    problem: str
    failed: frozenset[str]
    can_come: bool


def before_copies(change: Change) -> Change:
    """The part of a change that comes before the copies: the row still has the names of the files to copy."""
    return replace(change, deletes=())


def is_to_hosts(state: State) -> bool:
    """Whether the tablets of an operation move to hosts."""
    return number(state, "replicas") > 1
