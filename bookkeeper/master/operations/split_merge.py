"""Splitting and merging tablets, on a table that is being written and replicated.

Arrives: a table, rows at which tablets end from now on, or a range of rows in which no tablet ends any more. Leaves:
other tablets over the same data. Cut after any step, or between any two writes of one: the next master goes on, and
what it writes is the same (``split_rules`` says why each write may be cut). The tablets that change are away meanwhile:
clients and other clusters are told to locate them again, and nothing that was acknowledged depends on them.

=======  ============================================================================================================
find     which tablets change next: some that are split, or all that are merged
serve    whoever holds records that are in no segment has to be alive to flush them: so each such tablet is flushed
         while it is served, which is also why it is away only shortly afterwards
hold     *claimed* from here: placement leaves them alone. Park them in the books, let every live tserver flush and drop
         them, write down the facts of their rows
write    take a serial, then write, in the order of ``borders.Change``
place    wait until these tablets have a tserver again, any one; then find, if there are more to split
=======  ============================================================================================================

A tserver that dies while it flushes leaves `log:` cells behind: then it is back to *serve*, and the next one replays
them. Parking comes before dropping: who loads a tablet looks there, so a load that was ordered before can't come after.
Rules: R1, R7, R15 and R16.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from bookkeeper.errors import InvalidInputError
from bookkeeper.master.fate.engine import Args, Call, Done, Next, Outcome, State, Step, Wait
from bookkeeper.master.index.snapshot import BrokenChainError, tablet_view
from bookkeeper.master.operations.context import (
    Context,
    decode_bytes,
    encode_bytes,
    number,
    online_table,
    text,
    texts,
)
from bookkeeper.master.operations.table_lifecycle import chained_tablets, check_splits, wait_for_homes
from bookkeeper.master.splits import split_rules
from bookkeeper.master.splits.split_plan import Splittable, plan_splits, size_of
from bookkeeper.master.splits.split_rules import Change, TabletFacts
from bookkeeper.metadata import keys, values
from bookkeeper.metadata.metadata_table import Row, RowPut
from bookkeeper.metadata.values import Json, Location
from bookkeeper.model import Extent, RowRange
from bookkeeper.rpc.contract.services import TServer

AGAIN_MS = 20

SPLIT_KIND, MERGE_KIND = "add_splits", "merge_tablets"

CLAIMING_STEPS = ("hold", "write")
"""While an operation is at one of these, placement leaves its tablets alone."""

FACTS_FAMILIES = ("tablet", "location", "segment", "log")


class Underway(Protocol):
    """An operation under way, as the engine shows it."""

    @property
    def op(self) -> values.FateOp:
        """What it is to do."""

    @property
    def step(self) -> str:
        """Where it is."""

    @property
    def state(self) -> State:
        """What it needs to go on."""


def claimed_rows(operations: Iterable[Underway]) -> set[bytes]:
    """The rows that splits and merges under way have claimed."""
    return {
        row
        for running in operations
        if running.op.type in (SPLIT_KIND, MERGE_KIND) and running.step in CLAIMING_STEPS
        for row in decode_bytes(cast("list[str]", running.state.get("rows", [])))
    }


def add_splits_args(name: str, rows: Collection[bytes]) -> Args:
    """Arguments of ``add_splits``. Raises InvalidInputError."""
    if not rows:
        raise InvalidInputError("at least one split has to be named")
    check_splits(rows)
    splits: list[Json] = encode_bytes(sorted(set(rows)))
    return {"name": name, "splits": splits}


def merge_args(name: str, rows: RowRange) -> Args:
    """Arguments of ``merge_tablets``. Raises InvalidInputError."""
    if rows.prev_row is not None and rows.end_row is not None and rows.prev_row >= rows.end_row:
        raise InvalidInputError(f"no row lies after {rows.prev_row!r} and not after {rows.end_row!r}")
    return {"name": name, "prev_row": values.encode_row(rows.prev_row), "end_row": values.encode_row(rows.end_row)}


@dataclass(frozen=True, slots=True)
class _BorderChange:
    """What splits and merges share: all but which tablets change, and what is written of them."""

    context: Context
    first: str = "find"

    def locks(self, args: Args) -> Collection[str]:
        """One change of a table at a time."""
        return (f"table {text(args, 'name')}",)

    def placed(self, state: State) -> Outcome:
        """What comes when the tablets of a change have tservers."""
        return Next("find", {name: state[name] for name in ("changes", "handled") if name in state})

    def steps_around(self, find: Step, write: Step) -> Mapping[str, Step]:
        """find, serve, hold, write, perhaps again; place."""
        return {
            "find": find,
            "serve": lambda call: serve(self.context, call),
            "hold": lambda call: hold(self.context, call),
            "write": write,
            "place": lambda call: wait_for_homes(self.context, changed_parts(call.state)) or self.placed(call.state),
        }


@dataclass(frozen=True, slots=True)
class AddSplits(_BorderChange):
    """See :class:`bookkeeper.master.fate.engine.Operation`. Some tablets after the other; borders that exist stay."""

    @property
    def steps(self) -> Mapping[str, Step]:
        """See :meth:`steps_around`."""
        return self.steps_around(self.find, self.write)

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

    def write(self, call: Call) -> Outcome:
        """Part the tablets. Directories have names of this operation, which no other has."""
        changes, serial = number(call.state, "changes"), number(call.state, "serial")
        splits = [keys.parse_tablet_row(row)[1] for row in decode_bytes(texts(call.state, "rows"))]
        found = []
        for place, facts in enumerate(planned(call)):
            inside = [row for row in splits if row is not None and facts.extent.contains(row)]
            new = [row for row in inside if row != facts.extent.end_row]
            found.append(split_rules.split_change(facts, new, serial, f"s-{call.txid}-{changes}-{place}"))
        execute(self.context, split_rules.one_change(found))
        tell_of(self.context, call.state)
        return Next("place", {**call.state, "facts": [], "changes": changes + 1})


@dataclass(frozen=True, slots=True)
class MergeTablets(_BorderChange):
    """See :class:`bookkeeper.master.fate.engine.Operation`. Nothing happens when there is one tablet already."""

    @property
    def steps(self) -> Mapping[str, Step]:
        """See :meth:`steps_around`."""
        return self.steps_around(self.find, self.write)

    def find(self, call: Call) -> Outcome:
        """The tablets to merge. Raises NotFoundError."""
        table_id = online_table(self.context.config(), text(call.args, "name")).table_id
        rows = RowRange(decode_row(call.args, "prev_row"), decode_row(call.args, "end_row"))
        found = split_rules.to_merge([tablet.extent for tablet in chained_tablets(self.context, table_id)], rows)
        if len(found) < 2:
            return Done()
        rows_of_all = [keys.tablet_row(table_id, extent.end_row) for extent in found]
        return Next("serve", {"rows": encode_bytes(rows_of_all), "ends": encode_bytes(rows_of_all[-1:])})

    def write(self, call: Call) -> Outcome:
        """Make them one."""
        execute(self.context, split_rules.merge_change(planned(call), number(call.state, "serial")))
        tell_of(self.context, call.state)
        return Next("place", {**call.state, "facts": []})


# ---- steps of both


def tablets_with(context: Context, table_id: str, rows: Sequence[bytes]) -> Iterator[Splittable]:
    """The tablets that hold these rows (ascending), in order, each read when asked for. Raises BrokenChainError."""
    stop, place = keys.table_section(table_id)[1], 0
    while place < len(rows):
        found = 0
        for row in context.stores.table.scan(keys.tablet_row(table_id, rows[place]), stop, ("tablet", "segment")):
            if not keys.is_tablet(row):
                continue
            extent, found = tablet_view(row).extent, found + 1
            if not extent.contains(rows[place]):
                if found > 1:
                    break  # it is farther away than a few tablets
                raise BrokenChainError(f"table {table_id}: no tablet holds row {rows[place]!r}")
            yield Splittable(extent, size_of(row))
            while place < len(rows) and extent.contains(rows[place]):
                place += 1
            if place == len(rows):
                return
        if not found:
            raise BrokenChainError(f"table {table_id}: no tablet holds row {rows[place]!r}")


def changed_parts(state: State) -> list[tuple[bytes, bytes]]:
    """The parts of the table that a change is about: each ends with the row of a tablet that was there before."""
    rows, ends = (decode_bytes(texts(state, name)) for name in ("rows", "ends"))
    starts = [0, *(rows.index(end) + 1 for end in ends[:-1])]
    return [(rows[start], end + b"\x00") for start, end in zip(starts, ends, strict=True)]


def tell_of(context: Context, state: State) -> None:
    """The tablets of a change are other ones now: let them be placed."""
    for part in changed_parts(state):
        context.hooks.tablets_changed(*part)


def held_rows(context: Context, call: Call) -> list[Row]:
    """The rows that the operation is about, as they are now; those that do not exist yet are left out."""
    found = [context.stores.table.get(row, FACTS_FAMILIES) for row in decode_bytes(texts(call.state, "rows"))]
    return [row for row in found if row is not None]


def serve(context: Context, call: Call) -> Outcome:
    """Flush each tablet that needs a log; wait until somebody serves it who can do that."""
    loud = [
        tablet_view(row) for row in held_rows(context, call) if keys.is_tablet(row) and not split_rules.is_quiet(row)
    ]
    problems = context.tservers.flush([(tablet.extent, tablet.session or "") for tablet in loud]) if loud else []
    if problems:
        tell_of(context, call.state)
        return Wait(f"{len(problems)} tablets have records to be recovered or flushed: {problems[0]}", AGAIN_MS)
    return Next("hold", call.state)


def hold(context: Context, call: Call) -> Outcome:
    """Park the tablets, let everybody drop them, and write down what their rows say."""
    claimed = decode_bytes(texts(call.state, "rows"))
    context.hooks.let_go(claimed)
    park(context, held_rows(context, call))
    extents = [tablet_view(row).extent for row in held_rows(context, call) if keys.is_tablet(row)]
    problems = let_tservers_go(context, extents)
    if problems:
        return Wait(f"waiting for tservers to let go of tablets: {'; '.join(problems)}", AGAIN_MS)
    rows = held_rows(context, call)
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
    """From here on nobody can load these tablets (rule R7); the books remember who had them."""
    puts = []
    for row in rows:
        location = row.cells.get(keys.LOCATION)
        assigned = None if location is None else Location.decode(location.value)
        if assigned is not None and not assigned.is_parked:
            puts.append(RowPut(row.key, {keys.LOCATION: Location(assigned.session, "").encode()}))
    if puts:
        context.stores.table.put(puts, context.stores.reign.next_rank())


def let_tservers_go(context: Context, extents: Sequence[Extent]) -> list[str]:
    """Every live tserver flushes and drops the tablets if it has them, or is about to; what went wrong, a line each."""
    epoch = context.stores.reign.epoch

    def let_go(tserver: TServer) -> None:
        for extent in extents:
            tserver.unload_tablet(extent, epoch, False)

    return context.tservers.for_each_live(let_go)


def planned(call: Call) -> list[TabletFacts]:
    """The facts that were written down."""
    return split_rules.decode_facts(cast("list[dict[str, Json]]", call.state["facts"]))


def execute(context: Context, change: Change) -> None:
    """Make a change. Each write may be repeated, and be cut from the next."""
    for write in split_rules.in_order(change):
        context.stores.reign.check()
        if write.puts:
            context.stores.table.put(write.puts, write.rank)
        if write.deletes:
            context.stores.table.delete(write.deletes, write.rank)


def decode_row(args: Args, name: str) -> bytes | None:
    """A row argument, None for no border."""
    return values.decode_row(cast("str | None", args[name]))
