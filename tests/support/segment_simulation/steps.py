"""The named steps of a simulation. Each takes its arguments in JSON form and returns what it did."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from bookkeeper.replicas.chain import files_of, is_reference_weak, is_referenced, live_chain
from bookkeeper.replicas.events import (
    Adopted,
    Collect,
    Compacted,
    FollowerRun,
    LeaderNamed,
    LeaderRun,
    NameDue,
    OfferOne,
    ReplicateTo,
    Restarted,
)
from bookkeeper.replicas.instructions import Merge, Name, Send, Transit
from bookkeeper.replicas.machine import decide
from bookkeeper.replicas.making import next_id
from bookkeeper.replicas.messages import Accept, Ack, Decline, Failed
from bookkeeper.replicas.naming import settled
from bookkeeper.replicas.placements import Phase, may_lead, start_of, voters_of
from bookkeeper.replicas.values import Placement, ProtocolError, Replica, Stage, has_positions
from tests.support.segment_simulation.books import Books, Import
from tests.support.segment_simulation.codec import InputError, need, only, read_rows, write_file
from tests.support.segment_simulation.damage import Ask, Copy, Refusal
from tests.support.segment_simulation.damage_steps import step_check, step_damage, step_mend
from tests.support.segment_simulation.play import Args, Play, Reply, is_queued, said, targets_anew
from tests.support.segment_simulation.tablet_steps import (
    step_join,
    step_join_finalize,
    step_leave,
    step_merge,
    step_retire,
    step_split,
    step_split_finalize,
    step_split_in_place,
    step_unload,
)
from tests.support.segment_simulation.world import Message, Turn, World, host_of


def step_is_referenced(play: Play, args: Args) -> Reply:
    """Whether a replica's root refers to a segment."""
    name = play.name(args)
    return {"result": is_referenced(play.world.replicas[name], play.segment(args), play.world.rules)}


def step_is_reference_weak(play: Play, args: Args) -> Reply:
    """Whether the reference is weak."""
    name = play.name(args)
    return {"result": is_reference_weak(play.world.replicas[name], play.segment(args), play.world.rules)}


def step_write(play: Play, args: Args) -> Reply:
    """Rows are written at a replica that takes itself for the leader."""
    world, name = play.world, play.name(args)
    play.running(name)
    rows = read_rows(args.get("rows"), "write")
    replica = world.replicas[name]
    if not replica.is_leader or replica.stage is Stage.UNLOAD_FINAL:
        raise ProtocolError(f"{name} does not lead: only the leader takes writes")
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
    turn = Turn()
    if world.suspect(name, files, turn):
        return said(play, turn) | {"outcome": "damaged"}
    rows = [row for file in files for row in world.read_file(name, file)]
    content = tuple(rows) if world.rules.terms else tuple(sorted(set(rows)))
    replica, _ = decide(replica, Compacted(inputs, (str(made),), made), world.rules)
    world.replicas[name] = replica
    world.keep(name, str(made), content)
    return {"outcome": "done", "segment": ids.write(made)}


def step_offer(play: Play, args: Args) -> Reply:
    """One replica offers one segment to another."""
    name, target = play.name(args, "from"), play.name(args, "to")
    play.running(name)
    turn = Turn()
    play.world.happen(name, OfferOne(target, play.segment(args)), turn, is_queued(args))
    done = said(play, turn)
    return done if is_queued(args) else {"reply": turn.offers[0]["reply"]} | done


def step_replicate_to(play: Play, args: Args) -> Reply:
    """The leader serves one target until it has nothing to offer or must wait."""
    name, target = play.name(args), play.name(args, "to")
    play.running(name)
    turn = Turn()
    books = play.world.books_of(name)
    named = settled(books.row, books.named)
    event = ReplicateTo(target, named.state_id if named is not None else None)
    play.world.happen(name, event, turn, is_queued(args))
    return said(play, turn)


def _collect(play: Play, name: str, turn: Turn) -> None:
    """Delete what the books allow (N4)."""
    world, books = play.world, play.world.books_of(name)
    tablet = world.tablets[name]
    running = [one for one, its in world.tablets.items() if its == tablet and one not in world.stopped]
    books.close_given_up({one: world.replicas[one].term for one in running})
    world.release_logs()
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
    play.world.happen(name, FollowerRun(), turn, is_queued(args))
    _collect(play, name, turn)
    return said(play, turn)


def _may_merge(world: World, name: str, turn: Turn) -> bool:
    """Whether a leader can read the segments that it has to merge."""
    _, decision = decide(world.replicas[name], LeaderRun(), world.rules)
    segments = [one.segment for one in decision if isinstance(one, Merge)]
    return not world.suspect(name, {file for segment in segments for file in segment.list}, turn)


def step_leader_gc(play: Play, args: Args) -> Reply:
    """The leader merges what is unreferenced, and deletes what it may."""
    name = play.name(args)
    play.running(name)
    turn = Turn()
    if play.world.may_write(name) and _may_merge(play.world, name, turn):
        play.world.happen(name, LeaderRun(), turn)
    _collect(play, name, turn)
    return said(play, turn)


def step_elect(play: Play, args: Args) -> Reply:
    """The election names a leader. With terms, it seals the logs of earlier terms, and the leader replays them."""
    world, name = play.world, play.name(args, "leader")
    play.running(name)
    books = world.books_of(name)
    if books.is_gone or books.row.phase is Phase.SPLIT:
        raise ProtocolError(f"tablet {books.row.tablet} has split or merged: elect a leader of its successors")
    if not may_lead(world.replicas[name]):
        raise ProtocolError(f"{name} is in {world.replicas[name].stage.value} and can't lead: elect a LIVE replica")
    tablet = world.tablets[name]
    everyone = [one for one in world.replicas if world.tablets[one] == tablet and one not in world.stopped]
    seen_by = play.names(args, "seen_by", everyone)
    if not world.rules.terms:
        books.term = world.next_term(tablet)
        books.row = replace(books.row, leader=name, term=books.term)
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
        log.is_closed = True
        log.file.is_sealed |= log.file is not world.sessions.get(host_of(name))
    own = {term for term in books.given_up if books.logs[term].writer == name}
    books.given_up = {term: covered.get(term, 0) for term in books.given_up.keys() - own}
    books.merged_from.clear()
    books.term = world.next_term(world.tablets[name])
    books.row = replace(books.row, leader=name, term=books.term)
    known = set(world.content_of(name, start.list)) if start is not None else set()
    rows: list[str] = []
    replayed = dict(covered)
    for term, log in sorted(books.logs.items()):
        if term not in books.given_up:
            found = log.rows[covered.get(term, 0) :]
            rows += [row for row in found if not (world.rules.n6_by_origin and row in known)]
            known.update(found)
            replayed[term] = max(replayed.get(term, 0), len(log.rows))
    books.logs[books.term] = world.open_log(name, world.tablets[name])
    world.memory[name] = rows
    world.replicas[name] = replace(world.replicas[name], has_memory=bool(rows), incoming=())
    positions = tuple(sorted(replayed.items()))
    event = LeaderNamed(name, books.term, books.named, positions, books.given_up_positions)
    world.happen(name, event, Turn())
    if books.row.phase is Phase.SPLITTING:
        books.row = replace(books.row, split_head=world.replicas[name].root)
    for tablet in (world.tablets[name], books.row.parent):
        if tablet is not None:
            targets_anew(world, tablet)
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
    world.happen(name, event, turn, is_queued(args))
    return said(play, turn)


def step_crash(play: Play, args: Args) -> Reply:
    """A process dies and comes back: its memory and its transfers are gone."""
    world = play.world
    names = world.on_host_of(play.name(args))
    world.sessions.pop(host_of(names[0]), None)
    for name in names:
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
    world = play.world
    names = world.on_host_of(play.name(args))
    world.sessions.pop(host_of(names[0]), None)
    for name in names:
        _wipe(world, name)
    return {"outcome": "done"}


def _wipe(world: World, name: str) -> None:
    before = world.replicas[name]
    world.rows = {place: rows for place, rows in world.rows.items() if place[0] != name}
    world.disks.forget(name)
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
    for one in (tablet, row.parent):
        if one is not None:
            targets_anew(world, one)


def step_stop(play: Play, args: Args) -> Reply:
    """A process stops and keeps its memory; nothing reaches it."""
    play.world.stopped.update(play.world.on_host_of(play.name(args)))
    return {"outcome": "done"}


def step_resume(play: Play, args: Args) -> Reply:
    """A stopped process goes on."""
    play.world.stopped.difference_update(play.world.on_host_of(play.name(args)))
    return {"outcome": "done"}


def step_partition(play: Play, args: Args) -> Reply:
    """No message passes between replicas of one side and of another."""
    sides = [play.names({"side": side}, "side", []) for side in need(args.get("sides"), list, "sides")]
    for index, side in enumerate(sides):
        for other in sides[index + 1 :]:
            play.world.cut |= {frozenset(map(host_of, (a, b))) for a in side for b in other}
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
    return said(play, turn) | {"delivered": describe(play, message)}


def step_drop(play: Play, args: Args) -> Reply:
    """A message that waits is lost."""
    number, message = _message(play, args)
    del play.world.messages[number]
    turn = Turn()
    play.world.lose(message, turn, queued=True)
    return said(play, turn) | {"dropped": describe(play, message)}


def step_duplicate(play: Play, args: Args) -> Reply:
    """A message that waits is there twice."""
    _, message = _message(play, args)
    world = play.world
    world.sent += 1
    world.messages[world.sent] = message
    return {"outcome": "done", "messages": [world.sent]}


def step_adopt(play: Play, args: Args) -> Reply:
    """A leader takes the files of an import. The same import has the same rows, however often it is offered."""
    world, name = play.world, play.name(args)
    play.running(name)
    number = need(args.get("import"), int, "import")
    rows = tuple(read_rows(args.get("rows"), "adopt"))
    if not world.may_write(name) or world.books_of(name).row.parent is not None:
        raise ProtocolError(f"{name} is fenced, or its tablet still takes the data of another: offer the import again")
    replica = world.replicas[name]
    made = next_id(replica)
    after, _ = decide(replica, Adopted(number, (str(made),), made), world.rules)
    world.replicas[name] = after
    world.imports.setdefault(number, Import(rows))
    if after is replica:
        return {"outcome": "has it"}
    world.keep(name, str(made), rows)
    return {"outcome": "done", "segment": play.codec.ids.write(made)}


def step_ship(play: Play, args: Args) -> Reply:
    """A peer gets what it lacks of the logs of a tablet, as far as they are durable, and imports that are named."""
    world = play.world
    tablet = need(args.get("tablet"), str, "tablet")
    if tablet not in world.books:
        raise InputError(f"there is no tablet {tablet!r}; there are {', '.join(world.books)}")
    books = world.books[tablet]
    peer = world.peer
    if peer is None:
        raise InputError('the input has no peer: add "peer": true')
    before = len(peer.rows)
    named = {} if books.named is None else dict(books.named.logs)
    for term, log in books.logs.items():
        if term not in books.given_up:
            end = (
                len(log.rows)
                if books.is_gone
                else world.shippable(len(log.rows), named.get(term, 0), world.logs_on_hosts)
            )
            for row in log.rows[peer.offsets.get((tablet, term), 0) : end]:
                peer.take(row, row in log.merged)
            peer.offsets[tablet, term] = max(end, peer.offsets.get((tablet, term), 0))
    for number, one in world.imports.items():
        if one.is_named and number not in peer.imports:
            peer.imports.add(number)
            for row in one.rows:
                peer.take(row, has_origin=True)
    return {"outcome": "done", "shipped": peer.rows[before:]}


def step_read(play: Play, args: Args) -> Reply:
    """A page begins to read all files of a replica's root, or ends with ``"end": true``."""
    world, name = play.world, play.name(args)
    replica = world.replicas[name]
    if need(args.get("end", False), bool, "end"):
        world.read[name].clear()
        return {"outcome": "done"}
    files, turn = files_of(replica, replica.root, world.rules), Turn()
    if world.suspect(name, files, turn):
        return said(play, turn) | {"outcome": "damaged"}
    world.read[name].update(files)
    return {"outcome": "done"}


def describe(play: Play, message: Message) -> Reply:
    """A message in JSON."""
    ids = play.codec.ids
    told: Reply = {"from": message.sender, "to": message.target}
    match message.body:
        case Send(offer=offer):
            told |= {"kind": "SEGMENT_OFFER", "segment": ids.write(offer.segment.id)}
        case Transit(segment=segment):
            told |= {"kind": "SEGMENT_TRANSIT", "segment": ids.write(segment.id)}
        case Accept(segment_id=segment_id):
            told |= {"kind": "SEGMENT_ACCEPT", "segment": ids.write(segment_id)}
        case Decline(segment_id=segment_id, reason=reason):
            told |= {"kind": "SEGMENT_DECLINE", "segment": ids.write(segment_id), "reason": reason.value}
        case Ack(segment_id=segment_id):
            told |= {"kind": "SEGMENT_ACK", "segment": ids.write(segment_id)}
        case Failed(segment_id=segment_id):
            told |= {"kind": "ERROR", "segment": ids.write(segment_id)}
        case Name(state_id=state_id):
            told |= {"kind": "NAME", "segment": ids.write(state_id)}
        case Ask(file=file):
            told |= {"kind": "FILE_REQUEST", "file": write_file(ids, file)}
        case Copy(file=file):
            told |= {"kind": "FILE_CONTENT", "file": write_file(ids, file)}
        case Refusal(file=file):
            told |= {"kind": "FILE_REFUSED", "file": write_file(ids, file)}
    return told


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
    "split_in_place": (step_split_in_place, frozenset({"replica", "at", "low", "high"})),
    "merge": (step_merge, frozenset({"low", "high", "tablet"})),
    "retire": (step_retire, frozenset({"replica"})),
    "adopt": (step_adopt, frozenset({"replica", "import", "rows"})),
    "ship": (step_ship, frozenset({"tablet"})),
    "unload": (step_unload, frozenset({"replica", "queued"})),
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
    "damage": (step_damage, frozenset({"replica", "file"})),
    "check": (step_check, frozenset({"replica"})),
    "mend": (step_mend, frozenset({"replica", "from", "queued"})),
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
