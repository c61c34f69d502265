"""The operations that split and merge tablets of a table in use.

A crash may come between any two writes: the next master repeats the step with the same values (``split_rules``).
No tserver serves the tablets while they change; clients and peers locate them again.

=======  ============================================================================================================
find     choose the tablets to change next: some to split, or all to merge
gather   with replicas on hosts: wait until the repair has brought the tablets to merge to the same hosts, and enough of
         these hold the data of all; fail when nothing changes for too long. Tablets on their way between hosts and the
         Volume do not merge
serve    flush each tablet with records that are in no segment, while its tserver still serves it; so the tablet is
         away only shortly afterwards. A split with replicas on hosts waits here until enough hosts answer and hold the
         data, and fails when that takes too long
hold     *claim* the tablets (placement leaves them alone), park them in the books, make every live tserver flush and
         drop them, and store a serial and the facts of their rows
write    write the puts and deletes in the order of ``split_rules.Change``
divide   with replicas on hosts: make enough hosts link the files of the tablets for the new ones, so that no byte moves
         and a compaction of one of them takes no file from another one; then the parts of a merge may go
place    wait until these tablets have a tserver again; then find, if there are more to split
=======  ============================================================================================================

A tserver that dies in a flush leaves `log:` cells: the operation returns to *serve*, and the next tserver replays the
logs. A split returns to *serve*, and a merge to *gather*, when a host has died meanwhile. When one dies in *divide*,
the tablets wait for it as long as the repair does. The operation parks a tablet before it makes tservers drop it: a
tserver reads the location before it loads a tablet, so it ignores an older order to load. Rules: R1, R7, R15, R16 and
N3.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, cast

from msgspec import Struct, field

from bookkeeper.config.table_properties import TableProperties, copies_needed, parse_properties
from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.errors import CorruptionError, InvalidInputError, RefusedError, TransientError, UnavailableError
from bookkeeper.master.fate.engine import Args, Call, Done, Failed, Next, Outcome, State, Step, Wait
from bookkeeper.master.index.snapshot import BrokenChainError, TabletView, tablet_view
from bookkeeper.master.index.tablet_replicas import TabletReplica, voters
from bookkeeper.master.operations.context import (
    Context,
    decode_bytes,
    encode_bytes,
    number,
    online_table,
    text,
    texts,
)
from bookkeeper.master.operations.replica_hosts import (
    COPIES_WAIT_MS,
    HostWaits,
    destroyed,
    is_elsewhere,
    live_hosts,
    replicas_wanted,
)
from bookkeeper.master.operations.table_lifecycle import chained_tablets, check_splits, wait_for_tservers
from bookkeeper.master.splits import split_rules
from bookkeeper.master.splits.merge_places import hosts_with_all, why_apart
from bookkeeper.master.splits.split_plan import Splittable, plan_splits, size_of
from bookkeeper.master.splits.split_rules import Change, TabletFacts
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.lost_logs import given_up
from bookkeeper.metadata.metadata_table import Row, RowPut
from bookkeeper.metadata.values import Json, Location
from bookkeeper.model import Extent, RowRange
from bookkeeper.rpc.contract.services import TServer

LOG = logging.getLogger(__name__)

AGAIN_MS = 20
DIVIDE_AGAIN_MS = 200
GATHER_AGAIN_MS = 500
SERVE_AGAIN_MS = 500

SPLIT_KIND, MERGE_KIND, STORE_KIND = "add_splits", "merge_tablets", "change_store"

CLAIMING_KINDS = (SPLIT_KIND, MERGE_KIND, STORE_KIND)
CLAIMING_STEPS = ("hold", "write", "divide", "take", "back", "switch")
"""While an operation is at one of these, placement leaves its tablets alone."""

MERGING_STEPS = ("gather", "serve", *CLAIMING_STEPS)
"""While a merge is at one of these, the repair keeps its tablets on the same hosts."""

FACTS_FAMILIES = ("tablet", "location", "segment", "log", keys.REPLICA_FAMILY)


class PendingOperation(Protocol):
    """A running operation of the engine."""

    @property
    def op(self) -> values.FateOp:
        """Its kind and arguments."""

    @property
    def step(self) -> str:
        """The name of its current step."""

    @property
    def state(self) -> State:
        """The persisted state of its current step."""


def claimed_rows(operations: Iterable[PendingOperation]) -> set[bytes]:
    """The rows that running splits, merges and changes of the store have claimed."""
    return {
        row
        for running in operations
        if running.op.type in CLAIMING_KINDS and running.step in CLAIMING_STEPS
        for row in decode_bytes(cast("list[str]", running.state.get("rows", [])))
    }


def merging_rows(operations: Iterable[PendingOperation]) -> list[list[bytes]]:
    """The rows of the tablets of each running merge."""
    return [
        decode_bytes(texts(running.state, "rows"))
        for running in operations
        if running.op.type == MERGE_KIND and running.step in MERGING_STEPS
    ]


def add_splits_args(name: str, rows: Collection[bytes]) -> Args:
    """Arguments of ``add_splits``. Raises InvalidInputError."""
    if not rows:
        raise InvalidInputError("no split is named; name at least one row")
    check_splits(rows)
    splits: list[Json] = encode_bytes(sorted(set(rows)))
    return {"name": name, "splits": splits}


def merge_args(name: str, rows: RowRange) -> Args:
    """Arguments of ``merge_tablets``. Raises InvalidInputError."""
    if rows.prev_row is not None and rows.end_row is not None and rows.prev_row >= rows.end_row:
        raise InvalidInputError(f"no row lies after {rows.prev_row!r} and up to {rows.end_row!r}; name a later end row")
    return {"name": name, "prev_row": values.encode_row(rows.prev_row), "end_row": values.encode_row(rows.end_row)}


class _TabletChange(Struct, frozen=True):
    """The base of splits and merges, which differ in the steps ``find`` and ``write``."""

    context: Context
    first: str = "find"
    waits: HostWaits = field(default_factory=HostWaits)

    def locks(self, args: Args) -> Collection[str]:
        """One change of a table at a time."""
        return (f"table {text(args, 'name')}",)

    def hold_unless(self, call: Call, why_not: Callable[[Call], str], kind: str, back: str) -> Outcome:
        """See :func:`hold`; when ``why_not`` then finds a reason, the tablets are served again, and the step ``back``
        follows.
        """
        held = hold(self.context, call)
        problem = why_not(call) if isinstance(held, Next) and held.step == "write" else ""
        if not problem:
            return held
        LOG.info("a %s of table %s begins again: %s", kind, text(call.args, "name"), problem)
        report_changes(self.context, call.state)
        return Next(back, call.state)

    def divide(self, call: Call) -> Outcome:
        """See :func:`divide`."""
        waited_ms = self.waits.waited_ms(call.txid, self.context.clock)
        outcome = divide(self.context, call, is_late=waited_ms > self.context.settings.repair_after_ms)
        if not isinstance(outcome, Wait):
            self.waits.end(call.txid)
        return outcome

    def after_placement(self, state: State) -> Outcome:
        """The next step once the tablets of a change have tservers."""
        return Next("find", {name: state[name] for name in ("changes", "handled") if name in state})

    def place(self, call: Call) -> Outcome:
        """Wait for tservers of the changed tablets."""
        return wait_for_tservers(self.context, changed_parts(call.state)) or self.after_placement(call.state)

    def steps_around(self, find: Step, write: Step) -> Mapping[str, Step]:
        """find, serve, hold, write, divide, place; a split may begin again at find."""
        return {
            "find": find,
            "serve": lambda call: serve(self.context, call),
            "hold": lambda call: hold(self.context, call),
            "write": write,
            "divide": self.divide,
            "place": self.place,
        }


class AddSplits(_TabletChange, frozen=True):
    """Splits a table at rows, several tablets at a time; a row that ends a tablet already changes nothing
    (:class:`bookkeeper.master.fate.engine.Operation`).
    """

    @property
    def steps(self) -> Mapping[str, Step]:
        """See :meth:`steps_around`."""
        return {**self.steps_around(self.find, self.write), "serve": self.serve, "hold": self.hold}

    def find(self, call: Call) -> Outcome:
        """The next tablets to split. Raises NotFoundError."""
        table_id = online_table(self.context.config(), text(call.args, "name")).table_id
        handled = cast(int, call.state.get("handled", 0))
        rows = decode_bytes(texts(call.args, "splits"))[handled:]
        plan = plan_splits(tablets_with(self.context, table_id, rows), rows)
        if not plan.tablets:
            return Done()
        ends = [keys.tablet_row(table_id, extent.end_row) for extent, _ in plan.tablets]
        made = [[keys.tablet_row(table_id, row) for row in splits] for _, splits in plan.tablets]
        changed = [row for new, end in zip(made, ends, strict=True) for row in (*new, end)]
        state: State = {"changes": call.state.get("changes", 0), "handled": handled + plan.handled}
        return Next("serve", {**state, "rows": encode_bytes(changed), "ends": encode_bytes(ends)})

    def serve(self, call: Call) -> Outcome:
        """See :func:`serve`; before, wait while too few hosts answer and hold the named state of a tablet. Fails when
        that takes longer than :data:`COPIES_WAIT_MS`: the operation keeps others from the table.
        """
        problem = self._why_few(call)
        if not problem:
            self.waits.end(call.txid)
            return serve(self.context, call)
        if self.waits.waited_ms(call.txid, self.context.clock) <= COPIES_WAIT_MS:
            return Wait(problem, GATHER_AGAIN_MS)
        self.waits.end(call.txid)
        return Failed(UnavailableError(f"{problem}: start these hosts, or repeat the split when others have copies"))

    def hold(self, call: Call) -> Outcome:
        """See :func:`hold`; back to serve if too few hosts are left, because nobody serves the tablets meanwhile."""
        return self.hold_unless(call, self._why_few, "split", "serve")

    def _why_few(self, call: Call) -> str:
        """Why too few hosts hold a tablet to split; empty = enough do, or they are on the Volume."""
        tablets = [tablet_view(row) for row in read_rows(self.context, call) if keys.is_tablet(row)]
        return next(filter(None, why_few(self.context, [[one] for one in tablets if one.replicas])), "")

    def write(self, call: Call) -> Outcome:
        """Split the tablets. The new directories have names of this operation only."""
        changes, serial = number(call.state, "changes"), number(call.state, "serial")
        splits = [keys.parse_tablet_row(row)[1] for row in decode_bytes(texts(call.state, "rows"))]
        found = []
        for index, facts in enumerate(stored_facts(call)):
            inside = [row for row in splits if row is not None and facts.extent.contains(row)]
            new = [row for row in inside if row != facts.extent.end_row]
            found.append(split_rules.split_change(facts, new, serial, f"s-{call.txid}-{changes}-{index}"))
        change = split_rules.one_change(found)
        place_replicas(self.context, change)
        execute(self.context, change)
        state: State = {**call.state, "facts": [], "changes": changes + 1}
        if change.replicas:
            return Next("divide", state)
        report_changes(self.context, call.state)
        return Next("place", state)


class MergeTablets(_TabletChange, frozen=True):
    """Merges the tablets of a row range into one (:class:`bookkeeper.master.fate.engine.Operation`). A single tablet
    does not change.
    """

    @property
    def steps(self) -> Mapping[str, Step]:
        """See :meth:`steps_around`; and gather, between find and serve."""
        return {**self.steps_around(self.find, self.write), "gather": self.gather, "hold": self.hold}

    def find(self, call: Call) -> Outcome:
        """The tablets to merge. Raises NotFoundError."""
        table = online_table(self.context.config(), text(call.args, "name"))
        table_id = table.table_id
        rows = RowRange(decode_row(call.args, "prev_row"), decode_row(call.args, "end_row"))
        found = split_rules.to_merge([tablet.extent for tablet in chained_tablets(self.context, table_id)], rows)
        if len(found) < 2:
            return Done()
        rows_of_all = [keys.tablet_row(table_id, extent.end_row) for extent in found]
        return Next("gather", {"rows": encode_bytes(rows_of_all), "ends": encode_bytes(rows_of_all[-1:])})

    def gather(self, call: Call) -> Outcome:
        """Wait until the tablets are together; those on the Volume are. Fails when the repair takes no step for as long
        as it waits for a host that is away, and a little more: the operation keeps others from the table. Raises
        RefusedError while they are not where their table has them: the operation that moves them waits for this one to
        end.
        """
        tablets = [tablet_view(row) for row in read_rows(self.context, call)]
        table = self.context.config().table(tablets[0].extent.table_id)
        wanted = replicas_wanted(table.properties)
        moving = [tablet for tablet in tablets if is_elsewhere(tablet, wanted)]
        if moving:
            raise RefusedError(
                f"table.replicas of table {table.name} has changed and {len(moving)} of these tablets are not where it "
                f"wants them, first {moving[0].extent}: merge them when they have moved"
            )
        problem = self._why_not_together(call)
        if not problem:
            self.waits.end(call.txid)
            return Next("serve", call.state)
        limit_ms = self.context.settings.repair_after_ms + COPIES_WAIT_MS
        if self.waits.waited_ms(call.txid, self.context.clock, problem) <= limit_ms:
            self.context.hooks.repair()
            return Wait(problem, GATHER_AGAIN_MS)
        self.waits.end(call.txid)
        return Failed(UnavailableError(f"{problem}: start these hosts, or repeat the merge when others have copies"))

    def hold(self, call: Call) -> Outcome:
        """See :func:`hold`; back to gather if the tablets are no longer together."""
        return self.hold_unless(call, self._why_not_together, "merge", "gather")

    def _why_not_together(self, call: Call) -> str:
        """Why the tablets can't merge now: on other hosts, or too few of these hold all of their named states; empty =
        they can.
        """
        tablets = [tablet_view(row) for row in read_rows(self.context, call)]
        if not tablets[0].replicas and not tablets[-1].replicas:
            return ""
        return why_apart(tablets) or next(iter(why_few(self.context, [tablets])))

    def write(self, call: Call) -> Outcome:
        """Merge the tablets. The new directory on hosts has a name of this operation only."""
        facts, serial = stored_facts(call), number(call.state, "serial")
        state: State = {**call.state, "facts": []}
        if not facts[-1].voters:
            execute(self.context, split_rules.merge_change(facts, serial))
            report_changes(self.context, call.state)
            return Next("place", state)
        execute(self.context, split_rules.merge_on_hosts(facts, serial, f"m-{call.txid}"))
        self.context.stores.reign.check()
        gone = split_rules.replicas_of_remnants(read_rows(self.context, call))
        self.context.stores.table.delete(gone, self.context.stores.reign.next_rank())
        return Next("divide", state)


# ---- steps of both


def tablets_with(context: Context, table_id: str, rows: Sequence[bytes]) -> Iterator[Splittable]:
    """The tablets with these rows (ascending), in order, read lazily. Raises BrokenChainError, and RefusedError for
    one that is served without a log.
    """
    stop, index = keys.table_section(table_id)[1], 0
    while index < len(rows):
        found = 0
        for row in context.stores.table.scan(keys.tablet_row(table_id, rows[index]), stop, ("tablet", "segment")):
            if not keys.is_tablet(row):
                continue
            extent, found = tablet_view(row).extent, found + 1
            reason = why_incomplete(row) if extent.contains(rows[index]) else None
            if reason is not None:
                raise RefusedError(reason)
            if not extent.contains(rows[index]):
                if found > 1:
                    break  # a new scan from the row is cheaper than the tablets between
                raise BrokenChainError(f"table {table_id}: no tablet holds row {rows[index]!r}")
            yield Splittable(extent, size_of(row))
            while index < len(rows) and extent.contains(rows[index]):
                index += 1
            if index == len(rows):
                return
        if not found:
            raise BrokenChainError(f"table {table_id}: no tablet holds row {rows[index]!r}")


def changed_parts(state: State) -> list[tuple[bytes, bytes]]:
    """The parts of the table that a change touches; each ends with the row of a tablet from before the change."""
    rows, ends = (decode_bytes(texts(state, name)) for name in ("rows", "ends"))
    starts = [0, *(rows.index(end) + 1 for end in ends[:-1])]
    return [(rows[start], end + b"\x00") for start, end in zip(starts, ends, strict=True)]


def report_changes(context: Context, state: State) -> None:
    """Make the master read the parts of a change again and place their tablets."""
    for part in changed_parts(state):
        context.hooks.tablets_changed(*part)


def read_rows(context: Context, call: Call) -> list[Row]:
    """The operation's rows as they are now, without rows that do not exist yet."""
    found = [context.stores.table.get(row, FACTS_FAMILIES) for row in decode_bytes(texts(call.state, "rows"))]
    return [row for row in found if row is not None]


def why_incomplete(row: Row) -> str | None:
    """Why the borders of a tablet can't change now: it is served without a log. The tail of the log names the tablet by
    its present rows.
    """
    logs = given_up(row)
    if not logs:
        return None
    return (
        f"tablet {tablet_view(row).extent} is served without {next(iter(logs))}: start the host of this log, or accept "
        "its loss with host forget"
    )


def serve(context: Context, call: Call) -> Outcome:
    """Flush each tablet that needs a log; wait until a tserver serves the tablet. A given-up log of it comes first."""
    tablets = [row for row in read_rows(context, call) if keys.is_tablet(row)]
    lost = [reason for row in tablets if (reason := why_incomplete(row)) is not None]
    if lost:
        return Wait(lost[0], SERVE_AGAIN_MS)
    unflushed = [tablet_view(row) for row in tablets if not split_rules.is_quiet(row)]
    problems = (
        context.tservers.flush([(tablet.extent, tablet.session or "") for tablet in unflushed]) if unflushed else []
    )
    if problems:
        report_changes(context, call.state)
        return Wait(f"{len(problems)} tablets have records to be recovered or flushed: {problems[0]}", AGAIN_MS)
    return Next("hold", call.state)


def hold(context: Context, call: Call) -> Outcome:
    """Park the tablets, make every live tserver drop them, and store the facts of their rows."""
    claimed = decode_bytes(texts(call.state, "rows"))
    context.hooks.let_go(claimed)
    park(context, read_rows(context, call))
    extents = [tablet_view(row).extent for row in read_rows(context, call) if keys.is_tablet(row)]
    problems = unload_tablets(context, extents)
    if problems:
        return Wait(f"waiting for tservers to unload tablets: {'; '.join(problems)}", AGAIN_MS)
    rows = read_rows(context, call)
    tablets = [row for row in rows if keys.is_tablet(row)]
    if not all(map(split_rules.is_quiet, tablets)):
        return Next("serve", call.state)
    stale = split_rules.stale_uses(row for row in rows if not keys.is_tablet(row))
    if stale:
        context.stores.reign.check()
        context.stores.table.purge(stale)
    facts = [split_rules.facts_of(row) for row in tablets]
    return Next(
        "write", {**call.state, "serial": split_rules.next_serial(rows), "facts": split_rules.encode_facts(facts)}
    )


def park(context: Context, rows: Iterable[Row]) -> None:
    """Write locations that no tserver loads (rule R7); they keep the session of the last tserver."""
    puts = []
    for row in rows:
        location = row.cells.get(keys.LOCATION)
        assigned = None if location is None else Location.decode(location.value)
        if assigned is not None and not assigned.is_parked:
            puts.append(RowPut(row.key, {keys.LOCATION: Location(assigned.session, "").encode()}))
    if puts:
        context.stores.table.put(puts, context.stores.reign.next_rank())


def unload_tablets(context: Context, extents: Sequence[Extent]) -> list[str]:
    """Make every live tserver flush and drop the tablets that it has or is loading; one line for each problem."""
    epoch = context.stores.reign.epoch

    def unload(tserver: TServer) -> None:
        for extent in extents:
            tserver.unload_tablet(extent, epoch, False)

    return context.tservers.for_each_live(unload)


def stored_facts(call: Call) -> list[TabletFacts]:
    """The facts that the step ``hold`` has stored."""
    return split_rules.decode_facts(cast("list[dict[str, Json]]", call.state["facts"]))


def place_replicas(context: Context, change: Change) -> None:
    """Write the replicas of new tablets, before these are tablets."""
    if change.replicas:
        context.stores.reign.check()
        context.stores.table.put(change.replicas, context.stores.reign.next_rank())


def why_few(context: Context, groups: Sequence[Sequence[TabletView]]) -> list[str]:
    """For each group of tablets of a table on the same hosts: why fewer hosts than the table asks for copies answer now
    and hold the named states of the whole group; empty = enough do.
    """
    if not groups:
        return []
    table_id = groups[0][0].extent.table_id
    placed = {one.host for tablets in groups for one in voters(tablets[0].replicas)}
    held, reasons = {}, []
    for info in context.tservers.sessions():
        if info.alive and info.host is not None and info.host.name in placed:
            try:
                held[info.host.name] = context.tservers.at(info.address).replicas(table_id, False).replicas
            except TransientError as error:
                reasons.append(f"{info.host.name}: {error.message}")
    properties = parse_properties(context.config().table(table_id).properties)
    problems = []
    for tablets in groups:
        found, wanted = hosts_with_all(tablets, held), copies_needed(properties, len(voters(tablets[0].replicas)))
        what = f"all {len(tablets)} tablets" if len(tablets) > 1 else f"tablet {tablets[0].extent}"
        who = "; ".join([", ".join(found) or "none", *reasons])
        said = f"{len(found)} of {wanted} hosts hold the data of {what} ({who})"
        problems.append("" if len(found) >= wanted else said)
    return problems


def divide(context: Context, call: Call, *, is_late: bool) -> Outcome:
    """Make the hosts of the new tablets link their files, until so many have all of them as the table asks for copies,
    or as can have them (:func:`within_reach`). A host that is away gets them later, from the leaders of the new
    tablets. ``is_late``: no host that is away now is waited for, as for the repair.
    """
    rows = [tablet_view(row) for row in read_rows(context, call) if keys.is_tablet(row)]
    table_id, ends = rows[0].extent.table_id, set(decode_bytes(texts(call.state, "ends")))
    properties = parse_properties(context.config().table(table_id).properties)
    problems: list[str] = []
    children: list[TabletView] = []
    for view in rows:
        children.append(view)
        if view.row in ends:
            problems += divide_tablet(context, view.directory, children, properties, is_late=is_late)
            children = []
    if problems:
        return Wait(f"{len(problems)} tablets have too few copies: {problems[0]}", DIVIDE_AGAIN_MS)
    for row in (row.key for row in read_rows(context, call) if keys.PARTS in row.cells):
        linked = split_rules.parts_linked(row, number(call.state, "serial"))
        context.stores.reign.check()
        context.stores.table.delete(linked.deletes, linked.rank)
    report_changes(context, call.state)
    context.hooks.wake()  # a cycle asks the hosts what they hold now, and elections need the answer
    return Next("place", call.state)


def divide_tablet(
    context: Context, source: str, children: Sequence[TabletView], properties: TableProperties, *, is_late: bool
) -> list[str]:
    """Make all live hosts of a divided tablet link its files; one line for each child that has too few copies then."""
    extents, sessions = [child.extent for child in children], context.tservers.sessions()
    voting = {child.extent: {one.host for one in voters(child.replicas)} for child in children}
    silent = {
        child.extent: voting[child.extent] - _hosts(without_hope(child.replicas, sessions, is_late))
        for child in children
    }
    placed = {one.host for child in children for one in child.replicas}
    copies: Counter[Extent] = Counter()
    reasons = []
    for info in sessions:
        if not info.alive or info.host is None or info.host.name not in placed:
            continue
        try:
            made = context.tservers.at(info.address).divide_replica(source, extents)
        except (TransientError, CorruptionError) as error:
            reasons.append(f"{info.host.name}: {error.message}")
        else:
            copies.update(extent for extent in made if info.host.name in voting[extent])
            for hosts in silent.values():
                hosts.discard(info.host.name)
    # A copy that can't come is not waited for: a host whose disk was destroyed, that lacks a file, or that stays away,
    # gets the files from the leader, and one complete copy may lead (N3).
    wanted = {
        extent: max(1, min(copies_needed(properties, len(hosts)), copies[extent] + len(silent[extent])))
        for extent, hosts in voting.items()
    }
    return [
        f"{extent} has {copies[extent]} of {count}, start its hosts ({'; '.join(reasons) or 'the others are away'})"
        for extent, count in wanted.items()
        if copies[extent] < count
    ]


def without_hope(
    replicas: Sequence[TabletReplica], sessions: Collection[SessionInfo], is_late: bool
) -> list[TabletReplica]:
    """The replicas for which nobody waits: their disks are destroyed, or it ``is_late`` and their hosts are away."""
    live = live_hosts(sessions)
    away = [one for one in replicas if one.host not in live] if is_late else []
    return [*destroyed(replicas, sessions), *away]


def _hosts(replicas: Iterable[TabletReplica]) -> set[str]:
    return {one.host for one in replicas}


def execute(context: Context, change: Change) -> None:
    """Execute the writes of a change. A crash may come between two writes, and each write may be repeated."""
    for write in split_rules.in_order(change):
        context.stores.reign.check()
        if write.puts:
            context.stores.table.put(write.puts, write.rank)
        if write.deletes:
            context.stores.table.delete(write.deletes, write.rank)


def decode_row(args: Args, name: str) -> bytes | None:
    """A row argument, None for the beginning or end of the table."""
    return values.decode_row(cast("str | None", args[name]))
