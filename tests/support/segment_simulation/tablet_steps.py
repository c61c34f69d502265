"""Steps that change the rows of tablets: joins and leaves, splits and merges, and the end of the old replicas."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from bookkeeper.replicas.instructions import Name
from bookkeeper.replicas.naming import holders_of, settled
from bookkeeper.replicas.placements import (
    Phase,
    Role,
    RowReplica,
    TabletRow,
    join,
    join_finalized,
    left,
    may_finalize_join,
    stage_of,
    voters_of,
)
from bookkeeper.replicas.values import INCOMING_MAX, KeyRange, Placement, ProtocolError, Replica, Stage, Target
from tests.support.segment_simulation.books import Books
from tests.support.segment_simulation.codec import InputError, need, only, read_placement
from tests.support.segment_simulation.play import Args, Play, Reply, is_queued, said, targets_anew
from tests.support.segment_simulation.splitting import (
    closed_at,
    copies_together,
    is_handed_over,
    lacking_targets,
    may_drop_parent,
    merged_row,
    split_begun,
    split_finalized,
    split_in_place,
    successor_replica,
)
from tests.support.segment_simulation.world import Turn, World, host_of, key_of


def _new_replica(play: Play, name: str, tablet: str, placement: Placement, stage: Stage, leader: str | None) -> None:
    world = play.world
    world.replicas[name] = Replica(name, placement, stage, leader=leader, incoming_max=INCOMING_MAX)
    world.tablets[name], world.memory[name], world.read[name] = tablet, [], set()


def step_join(play: Play, args: Args) -> Reply:
    """A new replica joins the tablet of a leader."""
    world, leader = play.world, play.name(args, "leader")
    name = need(args.get("replica"), str, "replica")
    placement = read_placement(args.get("placement", name), "placement")
    tablet = world.tablets[leader]
    books = world.books[tablet]
    if name in world.replicas and world.tablets[name] != tablet:
        raise ProtocolError(f"{name} is a replica of another tablet: name the joiner otherwise")
    row = join(books.row, name, placement)
    if row is not books.row:
        stage = Stage.JOINING if world.rules.p8_joining_stage else Stage.LOADING
        _new_replica(play, name, tablet, placement, stage, leader)
    books.row = row
    targets_anew(world, tablet)
    return {"outcome": "done"}


def step_join_finalize(play: Play, args: Args) -> Reply:
    """The leader makes a joiner a voter, once the joiner has its latest segment."""
    world, leader, name = play.world, play.name(args, "leader"), play.name(args)
    play.running(leader)
    if not world.replicas[leader].is_leader:
        raise ProtocolError(f"{leader} does not lead: only the leader ends a join")
    books = world.books_of(leader)
    joiner = world.replicas[name]
    voters = voters_of(books.row)
    if not may_finalize_join(
        world.replicas[leader], joiner.placement, books.named, voters, books.copies_min, world.rules
    ):
        raise ProtocolError(
            f"{name} lacks the latest segment of {leader}, or the named state: replicate to it first, then name the "
            "latest"
        )
    books.row = join_finalized(books.row, name, joiner.placement)
    if joiner.stage in (Stage.JOINING, Stage.LOADING):
        world.replicas[name] = replace(joiner, stage=stage_of(books.row, name, world.rules) or Stage.LIVE)
    return {"outcome": "done"}


def step_leave(play: Play, args: Args) -> Reply:
    """A replica leaves its tablet, and its files are deleted."""
    world, name = play.world, play.name(args)
    tablet = world.tablets[name]
    books = world.books[tablet]
    books.row = left(books.row, name, books.copies_min)
    _delete(world, name)
    targets_anew(world, tablet)
    return {"outcome": "done"}


def _delete(world: World, name: str) -> None:
    del world.replicas[name], world.tablets[name], world.memory[name], world.read[name]
    world.rows = {place: rows for place, rows in world.rows.items() if place[0] != name}
    world.disks.forget(name)
    world.stopped.discard(name)


def step_split(play: Play, args: Args) -> Reply:
    """The leader begins to split its tablet at a key into children on other replicas."""
    world, name = play.world, play.name(args)
    play.running(name)
    tablet = world.tablets[name]
    books = world.books[tablet]
    at = need(args.get("at"), str, "at")
    if world.rules.terms and (books.row.leader != name or world.replicas[name].led != books.term):
        raise ProtocolError(f"{name} does not lead the newest term of tablet {tablet}: only its leader begins a split")
    row, low, high = split_begun(books.row, world.replicas[name], at)
    for side, key_range in (("low", low), ("high", high)):
        _make_child(play, need(args.get(side), dict, side), key_range, books)
    children = tuple(need(args[side]["tablet"], str, "tablet") for side in ("low", "high"))
    books.row, books.children = row, children
    targets_anew(world, tablet)
    if need(args.get("async", False), bool, "async"):
        _end_split(world, tablet)
    return {"outcome": "done"}


def _make_child(play: Play, given: dict[str, Any], key_range: KeyRange, parent: Books) -> None:
    world = play.world
    only(given, frozenset({"tablet", "replicas"}), "a child")
    tablet = need(given.get("tablet"), str, "tablet of a child")
    names = [need(one, str, "a replica of a child") for one in need(given.get("replicas"), list, "replicas of a child")]
    taken = [one for one in names if one in world.replicas]
    if not names or tablet in world.books or taken:
        raise InputError(f"child {tablet} needs a new name, and new replicas of which the first one leads")
    term = world.next_term(parent.row.tablet)
    found = tuple(RowReplica(one, Placement(one)) for one in names)
    row = TabletRow(tablet, found, names[0], key_range, Phase.LOADING, parent=parent.row.tablet, term=term)
    logs = {term: world.open_log(names[0], tablet)}
    world.books[tablet] = Books(
        row, term, None, logs, copies_min=min(parent.copies_min, len(names)), table=parent.table
    )
    world.acknowledged[tablet] = []
    for one in names:
        _new_replica(play, one, tablet, Placement(one), Stage.LOADING, names[0])
        world.replicas[one] = replace(world.replicas[one], term=term, led=term if one == names[0] else 0)
    targets_anew(world, tablet)


def _end_split(world: World, tablet: str) -> None:
    books = world.books[tablet]
    books.row = split_finalized(books.row)
    for child in books.children:
        row = world.books[child].row
        world.books[child].row = replace(row, phase=Phase.SERVING)
        for one in row.replicas:
            if world.replicas[one.host].stage is Stage.LOADING:
                world.replicas[one.host] = replace(world.replicas[one.host], stage=Stage.LIVE)
    for log in books.logs.values():
        log.is_closed = True
    for one in books.row.replicas:
        if one.host not in world.stopped:
            _begin_unload(world, one.host)
    targets_anew(world, tablet)
    world.settle_imports()


def _begin_unload(world: World, name: str) -> None:
    """A replica reads in the row that its tablet has split."""
    replica = world.replicas[name]
    if world.books_of(name).row.phase is not Phase.SPLIT or replica.stage in (Stage.UNLOAD, Stage.UNLOAD_FINAL):
        return
    world.replicas[name] = replace(replica, stage=Stage.UNLOAD, leader=None)
    if replica.has_memory and world.rules.p9_flush_on_loss:
        world.flush(name, Turn())


def step_split_finalize(play: Play, args: Args) -> Reply:
    """The leader ends a split, once the leaders of the children have what it had when the split began."""
    world, name = play.world, play.name(args)
    tablet = world.tablets[name]
    books = world.books[tablet]
    if not world.replicas[name].is_leader and books.row.phase is not Phase.SPLIT:
        raise ProtocolError(f"{name} does not lead: only the leader ends a split")
    if books.row.phase is Phase.SPLITTING:
        rows = [world.books[child].row for child in books.children]
        leaders = tuple(target.placement for row in rows for target in _leaders_of(row))
        lacking = lacking_targets(world.replicas[name], books.row.split_head, leaders, world.rules)
        if lacking:
            raise ProtocolError(f"{', '.join(lacking)} lack segments of {name}: replicate to them first")
        if world.rules.terms:
            _children_have(world, name, books)
    _end_split(world, tablet)
    return {"outcome": "done"}


def _children_have(world: World, name: str, books: Books) -> None:
    """Refuse the end of a split until the children have their copies of the head and the parent is closed."""
    closed_at(books.row, world.replicas[name], books.named, books.given_up)
    head = world.replicas[name].entry(books.row.split_head)
    named = tuple(settled(world.books[child].row, world.books[child].named) for child in books.children)
    if head is not None and not is_handed_over(Name(head.segment.id, (), head.segment.logs), named):
        raise ProtocolError(
            f"a child of tablet {books.row.tablet} has not named the head: let its leader name it first"
        )


def _leaders_of(row: TabletRow) -> list[Target]:
    return [Target(one.host, one.placement) for one in row.replicas if one.host == row.leader]


def step_unload(play: Play, args: Args) -> Reply:
    """A replica of a tablet that has split hands its segments to the children."""
    name = play.name(args)
    play.running(name)
    turn = Turn(outcome="waits")
    books = play.world.books_of(name)
    _begin_unload(play.world, name)
    play.world.unload(name, books.named if play.world.rules.terms else None, turn, is_queued(args))
    return said(play, turn)


def step_split_in_place(play: Play, args: Args) -> Reply:
    """A tablet whose leader has closed it becomes two on the same hosts, whose files are links."""
    world, name = play.world, play.name(args)
    play.running(name)
    books = world.books_of(name)
    at, low, high = (need(args.get(key), str, key) for key in ("at", "low", "high"))
    if {low, high} & world.books.keys() or low == high:
        raise InputError(f"the children of tablet {books.row.tablet} need new names")
    named = closed_at(books.row, world.replicas[name], books.named, books.given_up)
    holders = holders_of(world.replicas[name], named.state_id, voters_of(books.row), world.rules)
    if len(holders) < books.copies_min:
        raise ProtocolError(f"tablet {books.row.tablet} has {len(holders)} copies of its state: replicate first")
    for row in split_in_place(books.row, at, low, high):
        _succeed(world, row, (books,), named, {})
    _end(world, books)
    return {"outcome": "done"}


def step_merge(play: Play, args: Args) -> Reply:
    """Two neighbours on the same hosts, whose leaders have closed them, become one tablet. Its files are links."""
    world = play.world
    leaders = [play.name(args, side) for side in ("low", "high")]
    tablet = need(args.get("tablet"), str, "tablet")
    if tablet in world.books:
        raise InputError(f"the tablet into which {leaders[0]} and {leaders[1]} merge needs a new name")
    for name in leaders:
        play.running(name)
    low, high = (world.books_of(name) for name in leaders)
    states: list[Name] = []
    held: list[tuple[Placement, ...]] = []
    for name, books in zip(leaders, (low, high), strict=True):
        state = closed_at(books.row, world.replicas[name], books.named, books.given_up)
        states.append(state)
        held.append(holders_of(world.replicas[name], state.state_id, voters_of(books.row), world.rules))
    below, above = (_by_host(books.row) for books in (low, high))
    row = merged_row(below, above, tablet)
    if copies_together(below, above, *held) < low.copies_min:
        raise ProtocolError(f"too few hosts hold both {low.row.tablet} and {high.row.tablet}: replicate first")
    links = {
        (its.row.tablet, file): f"{file}.{its.row.tablet}"
        for its, state in zip((low, high), states, strict=True)
        for file in state.files
    }
    positions = {term: offset for state in states for term, offset in state.logs}
    named = Name(max(state.state_id for state in states), tuple(links.values()), tuple(sorted(positions.items())))
    _succeed(world, row, (low, high), named, links)
    _end(world, low)
    _end(world, high)
    return {"outcome": "done"}


def _by_host(row: TabletRow) -> TabletRow:
    return replace(row, replicas=tuple(replace(one, host=host_of(one.host)) for one in row.replicas))


def _succeed(
    world: World, row: TabletRow, before: tuple[Books, ...], named: Name, links: dict[tuple[str, str], str]
) -> None:
    """Make a tablet in the place of others, with a replica on each host that has files of theirs."""
    hosts = tuple(replace(one, host=f"{host_of(one.host)}/{row.tablet}") for one in row.replicas)
    row = replace(row, replicas=tuple(sorted(hosts, key=lambda one: one.host)))
    term = max(books.term for books in before)
    made = Books(row, term, named, copies_min=before[0].copies_min, table=before[0].table)
    world.books[row.tablet], world.acknowledged[row.tablet] = made, []
    copies = 0
    for one in row.replicas:
        old = [
            (books, held.host)
            for books in before
            for held in books.row.replicas
            if host_of(held.host) == host_of(one.host)
        ]
        copies += one.role is Role.VOTER and all(_is_copy(world, books, name) for books, name in old)
        files: set[str] = set()
        for books, name in old:
            for file in world.replicas[name].files:
                link = links.get((books.row.tablet, file), file)
                if link in named.files:
                    files.add(link)
                    rows = world.rows[name, file]
                    world.rows[one.host, link] = tuple(key for key in rows if row.key_range.has(key_of(key)))
                    world.disks.link(one.host, link, (name, file))
        held = tuple(world.replicas[name] for _, name in old)
        world.replicas[one.host] = successor_replica(held, row, one.host, frozenset(files), world.rules)
        world.tablets[one.host], world.memory[one.host], world.read[one.host] = row.tablet, [], set()
        if old[0][1] in world.stopped:
            world.stopped.add(one.host)
    world.copies[row.tablet, named.state_id] = copies
    targets_anew(world, row.tablet)


def _is_copy(world: World, books: Books, name: str) -> bool:
    """Whether the leader that closed a tablet may count a replica as a copy of its last state."""
    files = books.named.files if books.named is not None else ()
    return world.disks.counts(str(books.row.leader), world.replicas[name], files)


def _end(world: World, books: Books) -> None:
    """Others took the place of a tablet: its leader writes no more; each replica goes when its host reads the row."""
    books.is_gone = True
    for log in books.logs.values():
        log.is_closed = True
    world.release_logs()


def step_retire(play: Play, args: Args) -> Reply:
    """A host deletes a replica of a tablet that is gone, or that has handed all its data to its children."""
    world, name = play.world, play.name(args)
    play.running(name)
    books = world.books_of(name)
    if not books.is_gone:
        if books.row.phase is not Phase.SPLIT:
            raise ProtocolError(f"tablet {books.row.tablet} is {books.row.phase.value}: its replicas stay")
        named = tuple(settled(world.books[child].row, world.books[child].named) for child in books.children)
        if not may_drop_parent(world.replicas[name], books.named, named, world.rules):
            raise ProtocolError(f"{name} still has data that a child lacks: unload it first")
        _end(world, books)
        for child in books.children:
            world.books[child].row = replace(world.books[child].row, parent=None)
    _delete(world, name)
    return {"outcome": "done"}
