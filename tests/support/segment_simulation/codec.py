"""The JSON form of a world: what the runner reads and writes.

An id may be a number or a word. Words are numbered as they are met, so ids by words have an order, too.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from bookkeeper.replicas.placements import Phase, Role, RowReplica, TabletRow
from bookkeeper.replicas.rules import CORRECTED, LITERAL, Rules, SkippedRows
from bookkeeper.replicas.values import (
    INCOMING_MAX,
    Entry,
    Incoming,
    KeyRange,
    Placement,
    Positions,
    Replica,
    Segment,
    Stage,
    Step,
    Target,
)
from tests.support.segment_simulation.books import Books, Peer
from tests.support.segment_simulation.world import World

FIRST_TERM = 1
"""The term of a replica that names none. So the ids that a leader makes are above all ids that are words."""

RULE_SETS = {"literal": LITERAL, "corrected": CORRECTED}
REPLICA_KEYS = frozenset(
    {
        *("tablet", "placement", "stage", "root", "leader", "term", "segments", "memory"),
        *("incoming", "incoming_limit", "targets", "stopped", "files", "damaged", "wrong"),
    }
)
SEGMENT_KEYS = frozenset(["id", "base", "major", "included", "rows", "acks", "retained", "logs"])
INPUT_KEYS = frozenset(
    ["rules", "switches", "max_segment_history", "copies_min", "replicas", "steps", "logs_on_hosts", "peer"]
)


class InputError(Exception):
    """The input is not what the page describes."""


def need(value: Any, kind: type, what: str) -> Any:
    """The value, if it is of this kind."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise InputError(f"{what} must be {_KINDS[kind]}, not {value!r}")
    return value


_KINDS = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "a whole number",
    bool: "true or false",
}


def only(given: dict[str, Any], known: frozenset[str], what: str) -> None:
    """Refuse keys that nobody reads."""
    unknown = sorted(given.keys() - known)
    if unknown:
        raise InputError(f"{what} has no key {unknown[0]!r}; it has {', '.join(sorted(known))}")


class Ids:
    """Ids in JSON and in the machine: numbers are themselves, words get numbers in the order of their first use."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._words: dict[int, str] = {}

    def read(self, given: Any, what: str) -> int:
        """The machine's id."""
        if isinstance(given, str) and given:
            if given not in self._numbers:
                number = len(self._numbers) + 1
                self._numbers[given], self._words[number] = number, given
            return self._numbers[given]
        if isinstance(given, int) and not isinstance(given, bool) and given > 0:
            return given
        raise InputError(f"{what} must be a word or a number above 0, not {given!r}")

    def read_or_none(self, given: Any, what: str) -> int | None:
        """The machine's id, or None for null."""
        return None if given is None else self.read(given, what)

    def write(self, given: int | None) -> int | str | None:
        """The id in JSON."""
        return None if given is None else self._words.get(given, given)


def write_file(ids: Ids, file: str) -> int | str | None:
    """A file in JSON: the id of the segment that brought it; a link of a merge also names the tablet it came from."""
    number, dot, tablets = file.partition(".")
    written = ids.write(int(number))
    return f"{written}.{tablets}" if dot else written


def read_file(ids: Ids, given: Any, what: str) -> str:
    """The file as :func:`write_file` wrote it."""
    if not isinstance(given, str):
        return str(ids.read(given, what))
    name, dot, tablets = given.partition(".")
    number = ids.read(int(name) if name.isdecimal() else name, what)
    return f"{number}{dot}{tablets}"


def read_placement(given: Any, what: str) -> Placement:
    """``P`` or ``P#2``: the incarnation of the disk is 1 if it is not said."""
    text = need(given, str, what)
    name, mark, incarnation = text.partition("#")
    if not name or (mark and not incarnation.isdecimal()):
        raise InputError(f"{what} must be a placement such as 'p1' or 'p1#2', not {given!r}")
    return Placement(name, str(int(incarnation)) if mark else "1")


def write_placement(placement: Placement) -> str:
    """The placement as :func:`read_placement` takes it."""
    return placement.id if placement.incarnation == "1" else f"{placement.id}#{placement.incarnation}"


def read_rules(given: dict[str, Any]) -> Rules:
    """The rule set, with what is switched off in it."""
    name = need(given.get("rules", "literal"), str, "rules")
    if name not in RULE_SETS:
        raise InputError(f"rules must be 'literal' or 'corrected', not {name!r}")
    rules = RULE_SETS[name]
    if "max_segment_history" in given:
        limit = need(given["max_segment_history"], int, "max_segment_history")
        if limit < 0:
            raise InputError(f"max_segment_history must not be below 0, not {limit}")
        rules = replace(rules, max_history=limit)
    known = {name: getattr(rules, name) for name in Rules.__struct_fields__}
    changed: dict[str, Any] = {}
    for switch, value in need(given.get("switches", {}), dict, "switches").items():
        if isinstance(known.get(switch), SkippedRows):
            if value not in [one.value for one in SkippedRows]:
                raise InputError(f"switch {switch} must be 'nowhere', 'chain' or 'list', not {value!r}")
            changed[switch] = SkippedRows(value)
        elif isinstance(known.get(switch), bool):
            changed[switch] = need(value, bool, f"switch {switch}")
        else:
            raise InputError(f"there is no switch {switch!r}")
    return replace(rules, **changed)


def read_rows(given: Any, what: str) -> list[str]:
    """A list of rows, each ``KEY=VALUE`` or only a key."""
    return [need(row, str, f"a row of {what}") for row in need(given, list, what)]


def read_positions(given: Any, what: str) -> Positions:
    """Offsets by the term of a log."""
    for term, offset in need(given, dict, what).items():
        need(offset, int, f"an offset of {what}")
        if not term.removeprefix("-").isdecimal():
            raise InputError(f"{what} must name logs by the number of their term, not {term!r}")
    return tuple(sorted((int(term), offset) for term, offset in given.items()))


class Codec:
    """Reads a world from JSON and writes it in the same form."""

    def __init__(self) -> None:
        self.ids = Ids()

    def read(self, given: dict[str, Any]) -> World:
        """The world of an input."""
        only(given, INPUT_KEYS, "the input")
        world = World(read_rules(given))
        world.logs_on_hosts = need(given.get("logs_on_hosts", False), bool, "logs_on_hosts")
        world.peer = Peer() if need(given.get("peer", False), bool, "peer") else None
        replicas = need(given.get("replicas"), dict, "replicas")
        for name, one in replicas.items():
            self._read_replica(world, name, need(one, dict, f"replica {name}"))
        copies_min = need(given.get("copies_min", 2), int, "copies_min")
        for tablet in sorted(set(world.tablets.values())):
            self._make_books(world, tablet, copies_min)
        for name, one in replicas.items():
            self._read_targets(world, name, one)
        return world

    def _read_replica(self, world: World, name: str, given: dict[str, Any]) -> None:
        what = f"replica {name}"
        only(given, REPLICA_KEYS, what)
        world.tablets[name] = need(given.get("tablet", "t"), str, f"tablet of {what}")
        entries = [
            self._read_entry(world, name, one) for one in need(given.get("segments", []), list, f"{what}: segments")
        ]
        for file, rows in need(given.get("files", {}), dict, f"files of {what}").items():
            world.rows[name, read_file(self.ids, file, what)] = tuple(read_rows(rows, f"file {file} of {what}"))
        damaged = self._read_damage(world, name, given)
        memory = read_rows(given.get("memory", []), f"memory of {what}")
        leader = given.get("leader")
        term = need(given.get("term", FIRST_TERM), int, f"term of {what}")
        if term < 0 or (leader == name and term < FIRST_TERM):
            raise InputError(f"term of {what} must be at least {FIRST_TERM} for a leader, and not below 0, not {term}")
        stage = need(given.get("stage", "LIVE"), str, f"stage of {what}")
        if stage not in Stage.__members__:
            raise InputError(f"stage of {what} must be one of {', '.join(Stage.__members__)}, not {stage!r}")
        root = self.ids.read_or_none(given.get("root"), f"root of {what}")
        world.replicas[name] = Replica(
            host=name,
            placement=read_placement(given.get("placement", name), f"placement of {what}"),
            stage=Stage[stage],
            root=root,
            entries=tuple(entries),
            files=frozenset(file for (owner, file) in world.rows if owner == name) - damaged,
            damaged=damaged,
            leader=None if leader is None else need(leader, str, f"leader of {what}"),
            term=term,
            led=term,
            made=len(entries) if leader == name else 0,
            has_memory=bool(memory),
            incoming=tuple(self._read_incoming(one, what) for one in need(given.get("incoming", []), list, what)),
            incoming_max=need(given.get("incoming_limit", INCOMING_MAX), int, f"incoming_limit of {what}"),
        )
        world.memory[name], world.read[name] = memory, set()
        if need(given.get("stopped", False), bool, f"stopped of {what}"):
            world.stopped.add(name)

    def _read_damage(self, world: World, name: str, given: dict[str, Any]) -> frozenset[str]:
        """The files that the replica knows to be damaged; others have wrong bytes, too."""
        found: dict[str, frozenset[str]] = {}
        for key in ("damaged", "wrong"):
            files = need(given.get(key, []), list, f"{key} of replica {name}")
            found[key] = frozenset(read_file(self.ids, file, f"a {key} file of replica {name}") for file in files)
            for file in sorted(found[key]):
                if (name, file) not in world.rows:
                    raise InputError(f"replica {name} has no {key} file {write_file(self.ids, file)}: list it, too")
                world.disks.wrong.add((name, file))
        for file in found["damaged"]:
            world.disks.find(name, file)
        return found["damaged"]

    def _read_segment(self, given: dict[str, Any], what: str) -> Segment:
        only(given, SEGMENT_KEYS, f"a segment of {what}")
        segment_id = self.ids.read(given.get("id"), f"id of a segment of {what}")
        label = f"segment {given['id']} of {what}"
        has_file = given.get("rows") is not None
        return Segment(
            id=segment_id,
            base=self.ids.read_or_none(given.get("base"), f"base of {label}"),
            is_major=need(given.get("major", False), bool, f"major of {label}"),
            included=tuple(
                self.ids.read(one, f"included of {label}") for one in need(given.get("included", []), list, label)
            ),
            files=(str(segment_id),) if has_file else (),
            retained=tuple(
                read_file(self.ids, one, f"retained of {label}") for one in need(given.get("retained", []), list, label)
            ),
            logs=read_positions(given.get("logs", {}), f"logs of {label}"),
        )

    def _read_entry(self, world: World, name: str, given: Any) -> Entry:
        one = need(given, dict, f"a segment of replica {name}")
        segment = self._read_segment(one, f"replica {name}")
        for file in segment.files:
            world.rows[name, file] = tuple(read_rows(one["rows"], f"segment {one['id']} of {name}"))
        for file in segment.retained:
            world.rows.setdefault((name, file), ())
        acks = need(one.get("acks", []), list, f"acks of segment {one['id']} of {name}")
        return Entry(segment, frozenset(read_placement(ack, f"an ack of segment {one['id']}") for ack in acks))

    def _read_incoming(self, given: Any, what: str) -> Incoming:
        if isinstance(given, dict):
            only(given, frozenset({"segment", "from", "step"}), f"a transfer of {what}")
            step = given.get("step", "fast-forward")
            if step not in [one.value for one in Step]:
                raise InputError(f"step of a transfer of {what} must be 'fast-forward' or 'merge', not {step!r}")
            sender = need(given.get("from", ""), str, f"sender of a transfer of {what}")
            segment = self.ids.read(given.get("segment"), f"a transfer of {what}")
            return Incoming(Segment(segment, None), sender, Step(step))
        return Incoming(Segment(self.ids.read(given, f"a transfer of {what}"), None), "", Step.FAST_FORWARD)

    def _make_books(self, world: World, tablet: str, copies_min: int) -> None:
        named = [name for name, its in world.tablets.items() if its == tablet]
        believed = [world.replicas[name].leader for name in named if world.replicas[name].is_leader]
        term = max(world.replicas[name].term for name in named)
        row = TabletRow(
            tablet,
            tuple(
                RowReplica(
                    name,
                    world.replicas[name].placement,
                    Role.JOINING if world.replicas[name].stage is Stage.JOINING else Role.VOTER,
                )
                for name in named
            ),
            leader=believed[0] if believed else None,
            phase=Phase.LOADING if all(world.replicas[n].stage is Stage.LOADING for n in named) else Phase.SERVING,
            term=term,
        )
        books = world.books[tablet] = Books(row, term, copies_min=copies_min, table=tablet)
        for name in named:
            replica = world.replicas[name]
            if replica.is_leader and world.rules.terms:
                log = books.logs[replica.led] = world.open_log(name, tablet)
                log.rows, log.is_closed = list(world.memory[name]), replica.led < term
        world.acknowledged[tablet] = []

    def _read_targets(self, world: World, name: str, given: dict[str, Any]) -> None:
        tablet = world.tablets[name]
        others = [other for other, its in world.tablets.items() if its == tablet and other != name]
        targets = [Target(other, world.replicas[other].placement) for other in others]
        if "targets" in given:
            targets = []
            for one in need(given["targets"], list, f"targets of {name}"):
                targets.append(self._read_target(world, name, one))
        world.replicas[name] = replace(world.replicas[name], targets=tuple(targets))

    def _read_target(self, world: World, name: str, given: Any) -> Target:
        if isinstance(given, str):
            given = {"replica": given}
        only(need(given, dict, f"a target of {name}"), frozenset({"replica", "placement", "begin", "end"}), "a target")
        other = need(given.get("replica"), str, f"a target of {name}")
        if other not in world.replicas:
            raise InputError(f"replica {name} has the target {other!r}, which is no replica of the input")
        placement = world.replicas[other].placement
        if "placement" in given:
            placement = read_placement(given["placement"], f"placement of target {other}")
        ends = [given.get(key) for key in ("begin", "end")]
        begin, end = (None if one is None else need(one, str, f"a border of target {other}") for one in ends)
        key_range = KeyRange(begin, end) if {"begin", "end"} & given.keys() else None
        return Target(other, placement, key_range)

    # ---- back to JSON

    def write(self, world: World) -> dict[str, Any]:
        """The replicas in the form of the input."""
        return {name: self._write_replica(world, name) for name in world.replicas}

    def _write_replica(self, world: World, name: str) -> dict[str, Any]:
        replica = world.replicas[name]
        return {
            "tablet": world.tablets[name],
            "placement": write_placement(replica.placement),
            "stage": replica.stage.value,
            "root": self.ids.write(replica.root),
            "leader": replica.leader,
            "term": replica.term,
            "segments": [self._write_entry(world, name, entry) for entry in replica.entries],
            "memory": list(world.memory[name]),
            "incoming": [
                {"segment": self.ids.write(one.segment.id), "from": one.sender, "step": one.step.value}
                for one in replica.incoming
            ],
            "incoming_limit": replica.incoming_max,
            "targets": [_write_target(target) for target in replica.targets],
            "stopped": name in world.stopped,
        } | self._write_files(world, name)

    def _write_files(self, world: World, name: str) -> dict[str, Any]:
        """The files on the disk that no listed segment brings, and those with wrong bytes."""
        replica = world.replicas[name]
        shown = {file for entry in replica.entries for file in entry.segment.files}
        hidden = sorted((replica.files | replica.damaged) - shown)
        files = {str(write_file(self.ids, file)): list(world.rows.get((name, file), ())) for file in hidden}
        wrong = sorted(file for file in replica.files if (name, file) in world.disks.wrong)
        written = {
            "files": files,
            "damaged": [write_file(self.ids, file) for file in sorted(replica.damaged)],
            "wrong": [write_file(self.ids, file) for file in wrong],
        }
        return {key: value for key, value in written.items() if value}

    def _write_entry(self, world: World, name: str, entry: Entry) -> dict[str, Any]:
        segment = entry.segment
        written: dict[str, Any] = {
            "id": self.ids.write(segment.id),
            "base": self.ids.write(segment.base),
            "major": segment.is_major,
            "included": [self.ids.write(one) for one in segment.included],
            "rows": list(world.rows.get((name, segment.files[0]), ())) if segment.files else None,
            "acks": [write_placement(ack) for ack in sorted(entry.acked)],
        }
        if segment.retained:
            written["retained"] = [write_file(self.ids, file) for file in segment.retained]
        if segment.logs:
            written["logs"] = {str(term): offset for term, offset in segment.logs}
        return written


def _write_target(target: Target) -> dict[str, Any]:
    written: dict[str, Any] = {"replica": target.host, "placement": write_placement(target.placement)}
    if target.key_range is not None:
        written |= {"begin": target.key_range.begin, "end": target.key_range.end}
    return written
