"""The named steps of a simulation. Each takes its arguments in JSON form and returns what it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from bookkeeper.replicas.chain import files_of, is_reference_weak, is_referenced, live_chain
from bookkeeper.replicas.events import (
    Collect,
    Compacted,
    FollowerRun,
    LeaderNamed,
    LeaderRun,
    NameDue,
    OfferOne,
    ReplicateTo,
    Restarted,
    TargetsChanged,
    UnloadRun,
)
from bookkeeper.replicas.instructions import Name, Send, Transit
from bookkeeper.replicas.machine import decide
from bookkeeper.replicas.making import next_id
from bookkeeper.replicas.messages import Accept, Ack, Decline, Failed
from bookkeeper.replicas.placements import (
    Phase,
    RowReplica,
    TabletRow,
    join,
    join_finalized,
    left,
    may_finalize_join,
    may_lead,
    start_of,
    targets_of,
    voters_of,
)
from bookkeeper.replicas.splitting import lacking_targets, split_begun, split_finalized
from bookkeeper.replicas.values import (
    INCOMING_MAX,
    KeyRange,
    Placement,
    ProtocolError,
    Replica,
    Stage,
    Target,
    has_positions,
)
from tests.support.segment_simulation.books import Books, Log
from tests.support.segment_simulation.codec import Codec, InputError, need, only, read_placement, read_rows
from tests.support.segment_simulation.world import Message, Turn, World

Args = dict[str, Any]
Reply = dict[str, Any]


@dataclass(slots=True)
class Play:
    """A world, its JSON form, and the offers that were made so far."""

    world: World
    codec: Codec

    def name(self, args: Args, key: str = "replica") -> str:
        """The replica that a step names."""
        name: str = need(args.get(key), str, key)
        if name not in self.world.replicas:
            raise InputError(f"{key} names {name!r}, which is no replica; there are {', '.join(self.world.replicas)}")
        return name

    def names(self, args: Args, key: str, default: list[str]) -> list[str]:
        """The replicas that a step names."""
        given = args.get(key, default)
        return [self.name({key: one}, key) for one in need(given, list, key)]

    def running(self, name: str) -> None:
        """Refuse a step of a stopped replica."""
        if name in self.world.stopped:
            raise ProtocolError(f"{name} is stopped: resume it first")

    def segment(self, args: Args) -> int:
        """The segment that a step names."""
        return self.codec.ids.read(args.get("segment"), "segment")


def _said(play: Play, turn: Turn) -> Reply:
    """What a turn did, in JSON."""
    ids = play.codec.ids
    said: Reply = {"outcome": turn.outcome}
    if turn.offers:
        said["offers"] = [one | {"segment": ids.write(one["segment"])} for one in turn.offers]
    if turn.merged:
        said["merged"] = [ids.write(one) for one in turn.merged]
    if turn.deleted:
        said["deleted"] = [ids.write(int(one)) for one in turn.deleted]
    if turn.queued:
        said["messages"] = turn.queued
    if turn.named is not None:
        said["named"] = ids.write(turn.named)
    return said


def step_is_referenced(play: Play, args: Args) -> Reply:
    """Whether a replica's root refers to a segment."""
    name = play.name(args)
    return {"result": is_referenced(play.world.replicas[name], play.segment(args), play.world.rules)}


def step_is_reference_weak(play: Play, args: Args) -> Reply:
    """Whether the reference is weak."""
    name = play.name(args)
    return {"result": is_reference_weak(play.world.replicas[name], play.segment(args), play.world.rules)}


def _is_queued(args: Args) -> bool:
    return bool(need(args.get("queued", False), bool, "queued"))


def step_write(play: Play, args: Args) -> Reply:
    """Rows are written at a replica that takes itself for the leader."""
    world, name = play.world, play.name(args)
    play.running(name)
    rows = read_rows(args.get("rows"), "write")
    replica = world.replicas[name]
    if not replica.is_leader or replica.stage is Stage.UNLOAD_FINAL:
        raise ProtocolError(f"{name} does not lead: only the leader takes writes")
    if world.rules.terms and world.log_of(name) is None and replica.led == world.books_of(name).term:
        world.books_of(name).logs[replica.led] = Log(name)
    if not world.may_write(name):
        raise ProtocolError(f"{name} is fenced: a newer term has sealed its log")
    world.append(name, rows)
    world.replicas[name] = replace(replica, has_memory=bool(world.memory[name]))
    world.acknowledged[world.tablets[name]] += rows
    return {"outcome": "acknowledged"}


def step_flush(play: Play, args: Args) -> Reply:
    """A replica writes its memory into a segment."""
    world, name = play.world, play.name(args)
    play.running(name)
    if not world.replicas[name].has_memory:
        return {"outcome": "nothing to flush"}
    if not (world.replicas[name].is_leader or world.rules.p9_flush_on_loss):
        raise ProtocolError(f"{name} does not lead: only the leader makes segments")
    given = play.codec.ids.read_or_none(args.get("id"), "id")
    if given is not None and world.replicas[name].entry(given) is not None:
        raise ProtocolError(f"{name} has a segment {args['id']} already: an id is unique for ever")
    made = world.flush(name, Turn(), given)
    return {"outcome": "done", "segment": play.codec.ids.write(made)}


def step_compact(play: Play, args: Args) -> Reply:
    """The leader folds segments into a major."""
    world, name = play.world, play.name(args)
    play.running(name)
    replica = world.replicas[name]
    ids = play.codec.ids
    live = live_chain(replica, world.rules)
    inputs = tuple(segment.id for segment in live)
    if "inputs" in args:
        inputs = tuple(ids.read(one, "inputs") for one in need(args["inputs"], list, "inputs"))
    given = ids.read_or_none(args.get("id"), "id")
    made = next_id(replica) if given is None else given
    folded = [segment for segment in live if segment.id in inputs]
    files = [file for segment in reversed(folded) for file in segment.files]
    if folded and folded[-1].is_major:
        files[:0] = folded[-1].retained
    rows = world.content_of(name, tuple(files))
    content = tuple(rows) if world.rules.terms else tuple(sorted(set(rows)))
    replica, _ = decide(replica, Compacted(inputs, (str(made),), made), world.rules)
    world.replicas[name] = replica
    world.rows[name, str(made)] = content
    return {"outcome": "done", "segment": ids.write(made)}


def step_offer(play: Play, args: Args) -> Reply:
    """One replica offers one segment to another."""
    name, target = play.name(args, "from"), play.name(args, "to")
    play.running(name)
    turn = Turn()
    play.world.happen(name, OfferOne(target, play.segment(args)), turn, _is_queued(args))
    said = _said(play, turn)
    return said if _is_queued(args) else {"reply": turn.offers[0]["reply"]} | said


def step_replicate_to(play: Play, args: Args) -> Reply:
    """The leader serves one target until it has nothing to offer or must wait."""
    name, target = play.name(args), play.name(args, "to")
    play.running(name)
    turn = Turn()
    play.world.happen(name, ReplicateTo(target), turn, _is_queued(args))
    return _said(play, turn)


def _collect(play: Play, name: str, turn: Turn) -> None:
    """Delete what the books allow (N4)."""
    world, books = play.world, play.world.books_of(name)
    tablet = world.tablets[name]
    running = [one for one, its in world.tablets.items() if its == tablet and one not in world.stopped]
    books.close_given_up({one: world.replicas[one].term for one in running})
    books.release()
    if not world.rules.n4_books_release and not world.rules.terms:
        return
    named = books.named
    event = Collect(
        named.state_id if named else None,
        named.files if named else (),
        frozenset(world.read[name]),
        frozenset(books.given_up),
    )
    world.happen(name, event, turn)


def step_follower_run(play: Play, args: Args) -> Reply:
    """A follower deletes what it may, and pushes what its leader has not acknowledged."""
    name = play.name(args)
    play.running(name)
    turn = Turn()
    play.world.happen(name, FollowerRun(), turn, _is_queued(args))
    _collect(play, name, turn)
    return _said(play, turn)


def step_leader_gc(play: Play, args: Args) -> Reply:
    """The leader merges what is unreferenced, and deletes what it may."""
    name = play.name(args)
    play.running(name)
    turn = Turn()
    if play.world.may_write(name):
        play.world.happen(name, LeaderRun(), turn)
    _collect(play, name, turn)
    return _said(play, turn)


def step_elect(play: Play, args: Args) -> Reply:
    """The election names a leader. With terms, it seals the logs of earlier terms, and the leader replays them."""
    world, name = play.world, play.name(args, "leader")
    play.running(name)
    books = world.books_of(name)
    if not may_lead(world.replicas[name]):
        raise ProtocolError(f"{name} is in {world.replicas[name].stage.value} and can't lead: elect a LIVE replica")
    tablet = world.tablets[name]
    everyone = [one for one in world.replicas if world.tablets[one] == tablet and one not in world.stopped]
    seen_by = play.names(args, "seen_by", everyone)
    if not world.rules.terms:
        books.term += 1
        books.row = replace(books.row, leader=name)
        for one in dict.fromkeys(seen_by):
            world.happen(one, LeaderNamed(name, books.term), Turn())
        return {"outcome": "done"}
    return _begin_term(play, name, books, need(args.get("give_up", False), bool, "give_up"))


def _begin_term(play: Play, name: str, books: Books, gives_up: bool) -> Reply:
    world = play.world
    start = start_of(world.replicas[name], books.named, world.rules)
    covered = dict(start.logs) if start is not None else {}
    if gives_up:
        _give_up(play, name, books, covered)
    for log in books.logs.values():
        log.is_sealed = True
    own = {term for term in books.given_up if books.logs[term].writer == name}
    books.given_up = {term: covered.get(term, 0) for term in books.given_up.keys() - own}
    books.merged_from.clear()
    books.term += 1
    books.row = replace(books.row, leader=name)
    known = set(world.content_of(name, start.list)) if start is not None else set()
    rows: list[str] = []
    replayed = dict(covered)
    for term, log in sorted(books.logs.items()):
        if term not in books.given_up:
            found = log.rows[covered.get(term, 0) :]
            rows += [row for row in found if not (world.rules.n6_by_origin and row in known)]
            known.update(found)
            replayed[term] = max(replayed.get(term, 0), len(log.rows))
    books.logs[books.term] = Log(name)
    world.memory[name] = rows
    world.replicas[name] = replace(world.replicas[name], has_memory=bool(rows), incoming=())
    positions = tuple(sorted(replayed.items()))
    event = LeaderNamed(name, books.term, books.named, positions, books.given_up_positions)
    world.happen(name, event, Turn())
    return {"outcome": "done", "term": books.term, "replayed": rows}


def _give_up(play: Play, name: str, books: Books, covered: dict[int, int]) -> None:
    """Give up the log of the last term, whose host is away; the host finds the tail when it comes back."""
    world = play.world
    log = books.logs.get(books.term)
    if log is None or log.writer == name or world.can_reach(log.writer, name):
        raise ProtocolError("only the log of a leader that is away can be given up: stop it or cut it off first")
    writer = world.replicas[log.writer]
    if world.tablets[log.writer] != world.tablets[name] or writer.led != books.term:
        raise ProtocolError(f"{log.writer} no longer has the log of term {books.term}")
    books.given_up[books.term] = covered.get(books.term, 0)
    books.once_given_up.add(books.term)
    if not writer.has_memory:
        entry = writer.entry(writer.root)
        held = dict(entry.segment.logs) if entry is not None else {}
        tail = log.rows[held.get(books.term, 0) :]
        world.memory[log.writer] = list(tail)
        world.replicas[log.writer] = replace(writer, has_memory=bool(tail))


def step_name(play: Play, args: Args) -> Reply:
    """A leader writes its newest state that may be named into the books."""
    world, name = play.world, play.name(args)
    play.running(name)
    books = world.books_of(name)
    turn = Turn()
    named_id = books.named.state_id if books.named else None
    event = NameDue(voters_of(books.row), books.copies_min, named_id)
    world.happen(name, event, turn, _is_queued(args))
    return _said(play, turn)


def _targets_anew(world: World, tablet: str) -> None:
    """All running replicas learn the row of their tablet."""
    books = world.books[tablet]
    children = tuple(world.books[child].row for child in books.children)
    for one in books.row.replicas:
        targets = targets_of(books.row, children, one.host, world.rules)
        world.replicas[one.host], _ = decide(world.replicas[one.host], TargetsChanged(targets), world.rules)


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
    _targets_anew(world, tablet)
    return {"outcome": "done"}


def step_join_finalize(play: Play, args: Args) -> Reply:
    """The leader makes a joiner a voter, once the joiner has its latest segment."""
    world, leader, name = play.world, play.name(args, "leader"), play.name(args)
    play.running(leader)
    if not world.replicas[leader].is_leader:
        raise ProtocolError(f"{leader} does not lead: only the leader ends a join")
    books = world.books_of(leader)
    joiner = world.replicas[name]
    if not may_finalize_join(world.replicas[leader], joiner.placement, world.rules):
        raise ProtocolError(f"{name} lacks the latest segment of {leader}: replicate to it first")
    books.row = join_finalized(books.row, name, joiner.placement)
    if joiner.stage in (Stage.JOINING, Stage.LOADING):
        world.replicas[name] = replace(joiner, stage=Stage.LIVE)
    return {"outcome": "done"}


def step_leave(play: Play, args: Args) -> Reply:
    """A replica leaves its tablet, and its files are deleted."""
    world, name = play.world, play.name(args)
    tablet = world.tablets[name]
    books = world.books[tablet]
    books.row = left(books.row, name, books.copies_min)
    del world.replicas[name], world.tablets[name], world.memory[name], world.read[name]
    world.rows = {place: rows for place, rows in world.rows.items() if place[0] != name}
    world.stopped.discard(name)
    _targets_anew(world, tablet)
    return {"outcome": "done"}


def step_split(play: Play, args: Args) -> Reply:
    """The leader begins to split its tablet at a key into children on other replicas."""
    world, name = play.world, play.name(args)
    play.running(name)
    tablet = world.tablets[name]
    books = world.books[tablet]
    at = need(args.get("at"), str, "at")
    row, low, high = split_begun(books.row, world.replicas[name], at)
    for side, key_range in (("low", low), ("high", high)):
        _make_child(play, need(args.get(side), dict, side), key_range, books)
    children = tuple(need(args[side]["tablet"], str, "tablet") for side in ("low", "high"))
    books.row, books.children = row, children
    _targets_anew(world, tablet)
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
    row = TabletRow(tablet, tuple(RowReplica(one, Placement(one)) for one in names), names[0], key_range, Phase.LOADING)
    term = parent.term + 1
    world.books[tablet] = Books(row, term, logs={term: Log(names[0])}, copies_min=min(parent.copies_min, len(names)))
    world.acknowledged[tablet] = []
    for one in names:
        _new_replica(play, one, tablet, Placement(one), Stage.LOADING, names[0])
        world.replicas[one] = replace(world.replicas[one], term=term, led=term if one == names[0] else 0)
    _targets_anew(world, tablet)


def _end_split(world: World, tablet: str) -> None:
    books = world.books[tablet]
    books.row = split_finalized(books.row)
    for child in books.children:
        row = world.books[child].row
        world.books[child].row = replace(row, phase=Phase.SERVING)
        for one in row.replicas:
            world.replicas[one.host] = replace(world.replicas[one.host], stage=Stage.LIVE)
    for one in books.row.replicas:
        replica = world.replicas[one.host]
        if replica.stage is not Stage.UNLOAD_FINAL:
            world.replicas[one.host] = replace(replica, stage=Stage.UNLOAD, leader=None)
        if replica.has_memory and world.rules.p9_flush_on_loss:
            world.flush(one.host, Turn())
    _targets_anew(world, tablet)


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
    _end_split(world, tablet)
    return {"outcome": "done"}


def _leaders_of(row: TabletRow) -> list[Target]:
    return [Target(one.host, one.placement) for one in row.replicas if one.host == row.leader]


def step_unload(play: Play, args: Args) -> Reply:
    """A replica of a tablet that has split hands its segments to the children."""
    name = play.name(args)
    play.running(name)
    turn = Turn(outcome="waits")
    play.world.happen(name, UnloadRun(), turn, _is_queued(args))
    return _said(play, turn)


def step_crash(play: Play, args: Args) -> Reply:
    """A process dies and comes back: its memory and its transfers are gone."""
    world, name = play.world, play.name(args)
    world.memory[name] = []
    world.happen(name, Restarted(), Turn())
    _recover_tail(world, name)
    return {"outcome": "done"}


def _recover_tail(world: World, name: str) -> None:
    """A host whose log was given up finds the tail of it on its disk."""
    books, replica = world.books_of(name), world.replicas[name]
    log = books.logs.get(replica.led)
    if replica.led not in books.given_up or log is None or log.writer != name:
        return
    entry = replica.entry(replica.root)
    held = dict(entry.segment.logs) if entry is not None else {}
    tail = log.rows[held.get(replica.led, 0) :]
    if has_positions(tuple(held.items()), ((replica.led, len(log.rows)),)):
        return
    world.memory[name] = list(tail)
    world.replicas[name] = replace(replica, has_memory=bool(tail))


def step_wipe(play: Play, args: Args) -> Reply:
    """A process dies and comes back with an empty disk, under the next incarnation."""
    world, name = play.world, play.name(args)
    before = world.replicas[name]
    world.rows = {place: rows for place, rows in world.rows.items() if place[0] != name}
    world.memory[name], world.read[name] = [], set()
    placement = Placement(before.placement.id, str(int(before.placement.incarnation) + 1))
    leader = None if world.rules.terms and before.is_leader else before.leader
    world.replicas[name] = Replica(
        name, placement, before.stage, leader=leader, term=before.term, incoming_max=before.incoming_max
    )
    tablet = world.tablets[name]
    row = world.books[tablet].row
    found = tuple(replace(one, placement=placement) if one.host == name else one for one in row.replicas)
    world.books[tablet].row = replace(row, replicas=found)
    _targets_anew(world, tablet)
    return {"outcome": "done"}


def step_stop(play: Play, args: Args) -> Reply:
    """A process stops and keeps its memory; nothing reaches it."""
    play.world.stopped.add(play.name(args))
    return {"outcome": "done"}


def step_resume(play: Play, args: Args) -> Reply:
    """A stopped process goes on."""
    play.world.stopped.discard(play.name(args))
    return {"outcome": "done"}


def step_partition(play: Play, args: Args) -> Reply:
    """No message passes between replicas of one side and of another."""
    sides = [play.names({"side": side}, "side", []) for side in need(args.get("sides"), list, "sides")]
    for index, side in enumerate(sides):
        for other in sides[index + 1 :]:
            play.world.cut |= {frozenset((a, b)) for a in side for b in other if a != b}
    return {"outcome": "done"}


def step_heal(play: Play, args: Args) -> Reply:  # noqa: ARG001
    """All messages pass again."""
    play.world.cut.clear()
    return {"outcome": "done"}


def _message(play: Play, args: Args) -> tuple[int, Message]:
    number = need(args.get("message"), int, "message")
    if number not in play.world.messages:
        raise InputError(f"there is no message {number}; there are {sorted(play.world.messages)}")
    return number, play.world.messages[number]


def step_deliver(play: Play, args: Args) -> Reply:
    """A message that waits arrives; what follows from it waits, too."""
    number, message = _message(play, args)
    del play.world.messages[number]
    turn = Turn()
    play.world.deliver(message, turn, queued=True)
    return _said(play, turn) | {"delivered": describe(play, message)}


def step_drop(play: Play, args: Args) -> Reply:
    """A message that waits is lost."""
    number, message = _message(play, args)
    del play.world.messages[number]
    turn = Turn()
    play.world.lose(message, turn, queued=True)
    return _said(play, turn) | {"dropped": describe(play, message)}


def step_duplicate(play: Play, args: Args) -> Reply:
    """A message that waits is there twice."""
    _, message = _message(play, args)
    world = play.world
    world.sent += 1
    world.messages[world.sent] = message
    return {"outcome": "done", "messages": [world.sent]}


def step_read(play: Play, args: Args) -> Reply:
    """A page begins to read all files of a replica's root, or ends with ``"end": true``."""
    world, name = play.world, play.name(args)
    replica = world.replicas[name]
    if need(args.get("end", False), bool, "end"):
        world.read[name].clear()
    else:
        world.read[name].update(files_of(replica, replica.root, world.rules))
    return {"outcome": "done"}


def describe(play: Play, message: Message) -> Reply:
    """A message in JSON."""
    ids = play.codec.ids
    said: Reply = {"from": message.sender, "to": message.target}
    match message.body:
        case Send(offer=offer):
            said |= {"kind": "SEGMENT_OFFER", "segment": ids.write(offer.segment.id)}
        case Transit(segment=segment):
            said |= {"kind": "SEGMENT_TRANSIT", "segment": ids.write(segment.id)}
        case Accept(segment_id=segment_id):
            said |= {"kind": "SEGMENT_ACCEPT", "segment": ids.write(segment_id)}
        case Decline(segment_id=segment_id, reason=reason):
            said |= {"kind": "SEGMENT_DECLINE", "segment": ids.write(segment_id), "reason": reason.value}
        case Ack(segment_id=segment_id):
            said |= {"kind": "SEGMENT_ACK", "segment": ids.write(segment_id)}
        case Failed(segment_id=segment_id):
            said |= {"kind": "ERROR", "segment": ids.write(segment_id)}
        case Name(state_id=state_id):
            said |= {"kind": "NAME", "segment": ids.write(state_id)}
    return said


STEPS: dict[str, tuple[Callable[[Play, Args], Reply], frozenset[str]]] = {
    "is_referenced": (step_is_referenced, frozenset({"replica", "segment"})),
    "is_reference_weak": (step_is_reference_weak, frozenset({"replica", "segment"})),
    "offer": (step_offer, frozenset({"from", "to", "segment", "queued"})),
    "replicate_to": (step_replicate_to, frozenset({"replica", "to", "queued"})),
    "follower_run": (step_follower_run, frozenset({"replica", "queued"})),
    "leader_gc": (step_leader_gc, frozenset({"replica"})),
    "write": (step_write, frozenset({"replica", "rows"})),
    "flush": (step_flush, frozenset({"replica", "id"})),
    "compact": (step_compact, frozenset({"replica", "id", "inputs"})),
    "elect": (step_elect, frozenset({"leader", "seen_by", "give_up"})),
    "name": (step_name, frozenset({"replica", "queued"})),
    "join": (step_join, frozenset({"replica", "leader", "placement"})),
    "join_finalize": (step_join_finalize, frozenset({"replica", "leader"})),
    "leave": (step_leave, frozenset({"replica"})),
    "split": (step_split, frozenset({"replica", "at", "low", "high", "async"})),
    "split_finalize": (step_split_finalize, frozenset({"replica"})),
    "unload": (step_unload, frozenset({"replica"})),
    "crash": (step_crash, frozenset({"replica"})),
    "wipe": (step_wipe, frozenset({"replica"})),
    "stop": (step_stop, frozenset({"replica"})),
    "resume": (step_resume, frozenset({"replica"})),
    "partition": (step_partition, frozenset({"sides"})),
    "heal": (step_heal, frozenset()),
    "deliver": (step_deliver, frozenset({"message"})),
    "drop": (step_drop, frozenset({"message"})),
    "duplicate": (step_duplicate, frozenset({"message"})),
    "read": (step_read, frozenset({"replica", "end"})),
}
"""Each step with the arguments that it takes."""


def take(play: Play, step: Args) -> Reply:
    """Do one step. A refusal of the machine is an answer; InputError: the step is not one of the page."""
    kind = step.get("step")
    if not isinstance(kind, str) or kind not in STEPS:
        raise InputError(f"there is no step {kind!r}; there are {', '.join(STEPS)}")
    do, known = STEPS[kind]
    only(step, known | {"step"}, f"step {kind}")
    try:
        return do(play, step)
    except ProtocolError as refused:
        return {"outcome": "refused", "reason": refused.message}
