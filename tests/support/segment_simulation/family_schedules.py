"""Random schedules of tablets that split, merge and move, share logs, take imports, and have a peer behind them.

A schedule writes its steps in the runner's JSON form, so the runner plays a failing one again.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from bookkeeper.replicas.placements import Phase, Role
from bookkeeper.replicas.rules import CORRECTED, Rules
from tests.support.segment_simulation.books import Books
from tests.support.segment_simulation.checker import BrokenError, Checker
from tests.support.segment_simulation.codec import Codec, InputError
from tests.support.segment_simulation.disk_deeds import DISK_WEIGHTS, DiskDeeds
from tests.support.segment_simulation.play import Play
from tests.support.segment_simulation.schedules import switches_of
from tests.support.segment_simulation.steps import take
from tests.support.segment_simulation.world import host_of

HOSTS = ("a", "b", "c", "d")
TABLES = ("t", "u")
KEYS = tuple(f"k{number}" for number in range(8))
LENGTH = 300
ROUNDS = 12
"""Turns that everybody gets at rest."""
TABLETS_MAX = 5

WEIGHTS = {
    "write": 40,
    "flush": 10,
    "compact": 3,
    "replicate": 40,
    "replicate_queued": 6,
    "run": 14,
    "gc": 8,
    "name": 20,
    "name_queued": 2,
    "close": 10,
    "deliver": 26,
    "drop": 2,
    "duplicate": 2,
    "elect": 3,
    "recover": 10,
    "give_up": 1,
    "stop": 2,
    "resume": 5,
    "crash": 1,
    "wipe": 1,
    "partition": 2,
    "heal": 4,
    "join": 3,
    "join_finalize": 8,
    "leave": 3,
    "read": 2,
    "split_in_place": 5,
    "split_away": 5,
    "split_finalize": 8,
    "unload": 10,
    "retire": 10,
    "merge": 8,
    "adopt": 4,
    "ship": 6,
    **DISK_WEIGHTS,
}
DEEDS = tuple(WEIGHTS)
CUMULATIVE = [sum(list(WEIGHTS.values())[: i + 1]) for i in range(len(WEIGHTS))]


def start_of_world(logs_on_hosts: bool) -> dict[str, Any]:
    """Two tables of one tablet each, on the same three hosts. Nobody leads."""
    replicas = {f"{host}/{table}": {"tablet": table, "term": 0} for table in TABLES for host in HOSTS[:3]}
    given = {"rules": "corrected", "copies_min": 2, "replicas": replicas, "peer": True, "steps": []}
    return given | ({"logs_on_hosts": True} if logs_on_hosts else {})


@dataclass(slots=True)
class FamilySchedule(DiskDeeds):
    """One random schedule."""

    seed: int
    rules: Rules = CORRECTED
    length: int = LENGTH
    steps: list[dict[str, Any]] = field(default_factory=list)
    play: Play = field(init=False)
    checker: Checker = field(init=False)
    rng: random.Random = field(init=False)
    written: int = 0
    made: int = 0
    imports: dict[int, tuple[str, str]] = field(default_factory=dict)
    """By import: its table and its row."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        codec = Codec()
        world = codec.read(start_of_world(self.seed % 2 == 1))
        world.rules = self.rules
        self.play = Play(world, codec)
        self.checker = Checker(world)

    def do(self, kind: str, **args: Any) -> dict[str, Any]:
        """Do one step and write it down."""
        step = {"step": kind, **args}
        self.steps.append(step)
        try:
            return take(self.play, step)
        except InputError:
            self.steps.pop()
            raise

    def run(self) -> None:
        """Faults, then rest. Raises BrokenError."""
        for table in TABLES:
            self.do("elect", leader=f"{self.rng.choice(HOSTS[:3])}/{table}")
        for _ in range(self.length):
            (deed,) = self.rng.choices(DEEDS, cum_weights=CUMULATIVE)
            getattr(self, f"_do_{deed}")()
            self.checker.after_step()
        self.rest()

    def as_input(self) -> dict[str, Any]:
        """The schedule in the runner's form."""
        start = start_of_world(self.play.world.logs_on_hosts)
        return start | {"switches": switches_of(self.rules), "steps": self.steps}

    # ---- choices

    def _living(self) -> list[str]:
        return [tablet for tablet, books in self.play.world.books.items() if not books.is_gone]

    def _leader(self, tablet: str | None = None) -> str | None:
        """A running replica that takes itself for the leader, perhaps of a tablet that is gone."""
        found = [name for name in self._running(tablet) if self.play.world.replicas[name].is_leader]
        return self.rng.choice(found) if found else None

    def _books(self, name: str) -> Books:
        return self.play.world.books_of(name)

    def _serving(self) -> list[str]:
        return [tablet for tablet in self._living() if self.play.world.books[tablet].row.phase is Phase.SERVING]

    def _new_tablet(self, table: str) -> str:
        self.made += 1
        return f"{table}{self.made}"

    # ---- users and leaders

    def _do_write(self) -> None:
        leader = self._leader()
        if leader is not None:
            rows = []
            key_range = self._books(leader).row.key_range
            for key in self.rng.choices([key for key in KEYS if key_range.has(key)], k=self.rng.randint(1, 3)):
                self.written += 1
                rows.append(f"{key}={self.written}")
            self.do("write", replica=leader, rows=rows)

    def _do_flush(self) -> None:
        leader = self._leader()
        if leader is not None:
            self.do("flush", replica=leader)

    def _do_compact(self) -> None:
        leader = self._leader()
        if leader is not None and self.play.world.replicas[leader].root is not None:
            self.do("compact", replica=leader)

    def _do_replicate(self, queued: bool = False) -> None:
        leader = self._leader()
        others = [one.host for one in self.play.world.replicas[leader].targets] if leader is not None else []
        others = [one for one in others if one in self.play.world.replicas]
        if others:
            args = {"queued": True} if queued else {}
            self.do("replicate_to", replica=leader, to=self.rng.choice(others), **args)

    def _do_replicate_queued(self) -> None:
        self._do_replicate(queued=True)

    def _do_run(self) -> None:
        running = self._running()
        if running:
            name = self.rng.choice(running)
            replica = self.play.world.replicas[name]
            if not replica.is_leader and any(one.host == replica.leader for one in replica.targets):
                self.do("follower_run", replica=name, **({"queued": True} if self.rng.random() < 0.3 else {}))

    def _do_gc(self) -> None:
        leader = self._leader()
        if leader is not None:
            self.do("leader_gc", replica=leader)

    def _do_name(self, queued: bool = False) -> None:
        leader = self._leader()
        if leader is not None:
            self.do("name", replica=leader, **({"queued": True} if queued else {}))

    def _do_name_queued(self) -> None:
        self._do_name(queued=True)

    def _do_close(self) -> None:
        """Flush, replicate and name, as before a split or a merge."""
        leader = self._leader()
        if leader is not None:
            self._close(leader)

    def _close(self, leader: str) -> None:
        self.do("flush", replica=leader)
        for target in self.play.world.replicas[leader].targets:
            if target.host in self.play.world.replicas:
                self.do("replicate_to", replica=leader, to=target.host)
        self.do("name", replica=leader)

    def _do_adopt(self) -> None:
        waiting = [number for number in self.imports if not self._is_named(number)]
        if waiting and self.rng.random() < 0.5:
            self._adopt(self.rng.choice(waiting))
            return
        number = len(self.imports) + 1
        self.imports[number] = (self.rng.choice(TABLES), f"{self.rng.choice(KEYS)}=i{number}")
        self._adopt(number)

    def _is_named(self, number: int) -> bool:
        one = self.play.world.imports.get(number)
        return one is not None and one.is_named

    def _adopt(self, number: int) -> None:
        table, row = self.imports[number]
        for tablet in self._living():
            books = self.play.world.books[tablet]
            leader = self._leader(tablet)
            if books.table == table and books.row.key_range.has(row[:2]) and leader is not None:
                self.do("adopt", replica=leader, **{"import": number, "rows": [row]})
                return

    def _do_ship(self) -> None:
        self.do("ship", tablet=self.rng.choice(list(self.play.world.books)))

    def _do_read(self) -> None:
        self.do("read", replica=self.rng.choice(self._names), end=self.rng.random() < 0.5)

    # ---- the network

    def _some_message(self) -> int | None:
        waiting = list(self.play.world.messages)
        return self.rng.choice(waiting) if waiting else None

    def _do_deliver(self) -> None:
        number = self._some_message()
        if number is not None:
            self.do("deliver", message=number)

    def _do_drop(self) -> None:
        number = self._some_message()
        if number is not None:
            self.do("drop", message=number)

    def _do_duplicate(self) -> None:
        number = self._some_message()
        if number is not None:
            self.do("duplicate", message=number)

    def _do_partition(self) -> None:
        alone = self.rng.choice(HOSTS)
        sides = [[one for one in self._names if (host_of(one) == alone) is is_alone] for is_alone in (True, False)]
        self.do("partition", sides=sides)

    def _do_heal(self) -> None:
        if self.play.world.cut:
            self.do("heal")

    # ---- accidents

    def _do_elect(self) -> None:
        running = [name for name in self._running() if not self._books(name).is_gone]
        if running:
            self.do("elect", leader=self.rng.choice(running))

    def _do_recover(self) -> None:
        """The election of a tablet whose leader is away or was fenced with another tablet of its session."""
        world = self.play.world
        for tablet in self._living():
            running = self._running(tablet)
            if running and not any(world.replicas[one].is_leader and world.may_write(one) for one in running):
                self.do("elect", leader=self.rng.choice(running))

    def _do_give_up(self) -> None:
        tablet = self.rng.choice(self._living())
        books = self.play.world.books[tablet]
        log = books.logs.get(books.term)
        if log is None or log.writer not in self._names:
            return
        running = [name for name in self._running(tablet) if name != log.writer]
        if running and not self._has_wrong(log.writer):
            self.do("elect", leader=self.rng.choice(running), give_up=True)

    def _do_stop(self) -> None:
        if not self.play.world.stopped:
            self.do("stop", replica=self.rng.choice(self._names))

    def _do_resume(self) -> None:
        if self.play.world.stopped:
            self.do("resume", replica=min(self.play.world.stopped))

    def _do_crash(self) -> None:
        self.do("crash", replica=self.rng.choice(self._names))

    def _may_lose(self, name: str, copies: int) -> bool:
        """Whether a replica may be lost: so many others hold each named file, and no given-up tail is only there."""
        books = self._books(name)
        if books.is_gone:
            return True
        voters = [one.host for one in books.row.replicas if one.role is Role.VOTER and one.host != name]
        others = [self._sound(one) for one in voters]
        if books.given_up or not others or self._leaves_wrong(name):
            return False
        return all(sum(file in held for held in others) >= copies for file in self._named_files(self._tablet(name)))

    def _tablet(self, name: str) -> str:
        return self.play.world.tablets[name]

    def _do_wipe(self) -> None:
        name = self.rng.choice(self._names)
        if all(self._may_lose(one, 1) for one in self.play.world.on_host_of(name)):
            self.do("wipe", replica=name)

    # ---- the operator

    def _do_join(self) -> None:
        tablet = self.rng.choice(self._living())
        leader = self._leader(tablet)
        row = self.play.world.books[tablet].row
        stopped = {host_of(one) for one in self.play.world.stopped}
        free = [host for host in HOSTS if f"{host}/{tablet}" not in self._names and host not in stopped]
        if leader is not None and free and row.phase in (Phase.SERVING, Phase.SPLITTING):
            name = f"{free[0]}/{tablet}"
            self.do("join", replica=name, leader=leader, placement=f"{name}.{len(self.steps)}")

    def _do_join_finalize(self) -> None:
        tablet = self.rng.choice(self._living())
        leader = self._leader(tablet)
        joining = [one.host for one in self.play.world.books[tablet].row.replicas if one.role is Role.JOINING]
        if leader is not None and joining:
            self.do("join_finalize", replica=joining[0], leader=leader)

    def _do_leave(self) -> None:
        name = self.rng.choice(self._names)
        row = self._books(name).row
        voters = sum(one.role is Role.VOTER for one in row.replicas)
        is_free = not self.play.world.replicas[name].is_leader and row.leader != name and voters > 2
        if row.phase is Phase.SERVING and not self._books(name).is_gone and is_free and self._may_lose(name, 2):
            self.do("leave", replica=name)

    def _split_key(self, tablet: str) -> str | None:
        key_range = self.play.world.books[tablet].row.key_range
        keys = [key for key in KEYS[1:] if key_range.has(key) and key != key_range.begin]
        return self.rng.choice(keys) if keys and len(self._living()) < TABLETS_MAX else None

    def _do_split_in_place(self) -> None:
        tablet = self.rng.choice(self._living())
        leader, key = self._leader(tablet), self._split_key(tablet)
        if leader is not None and key is not None:
            self._close(leader)
            table = self.play.world.books[tablet].table
            low, high = self._new_tablet(table), self._new_tablet(table)
            self.do("split_in_place", replica=leader, at=key, low=low, high=high)

    def _do_split_away(self) -> None:
        tablet = self.rng.choice(self._living())
        leader, key = self._leader(tablet), self._split_key(tablet)
        hosts = [host for host in HOSTS if host not in {host_of(one) for one in self.play.world.stopped}]
        if leader is not None and key is not None and len(hosts) > 2:
            children = []
            for _ in range(2):
                child = self._new_tablet(self.play.world.books[tablet].table)
                names = [f"{host}/{child}" for host in self.rng.sample(hosts, self.rng.randint(2, 3))]
                children.append({"tablet": child, "replicas": names})
            self.do("split", replica=leader, at=key, low=children[0], high=children[1])

    def _do_split_finalize(self) -> None:
        splitting = [one for one in self._living() if self.play.world.books[one].row.phase is Phase.SPLITTING]
        leader = self._leader(self.rng.choice(splitting)) if splitting else None
        if leader is not None:
            if self.rng.random() < 0.5:
                self._close(leader)
                for child in self._books(leader).children:
                    of_child = self._leader(child)
                    if of_child is not None:
                        self._close(of_child)
            self.do("split_finalize", replica=leader)

    def _do_unload(self) -> None:
        old = [one for one in self._running() if self._books(one).row.phase is Phase.SPLIT]
        if old:
            name = self.rng.choice(old)
            if not self._books(name).is_gone:
                self.do("unload", replica=name, **({"queued": True} if self.rng.random() < 0.3 else {}))

    def _do_retire(self) -> None:
        old = [one for one in self._running() if self._books(one).is_gone or self._books(one).row.phase is Phase.SPLIT]
        if old:
            self.do("retire", replica=self.rng.choice(old))

    def _do_merge(self) -> None:
        serving = {tablet: self.play.world.books[tablet] for tablet in self._serving()}
        pairs = [
            (low, high)
            for low, below in serving.items()
            for high, above in serving.items()
            if below.table == above.table and below.row.key_range.end == above.row.key_range.begin is not None
        ]
        if pairs:
            low, high = self.rng.choice(pairs)
            leaders = self._leader(low), self._leader(high)
            if leaders[0] is not None and leaders[1] is not None:
                self._close(leaders[0])
                self._close(leaders[1])
                merged = self._new_tablet(serving[low].table)
                self.do("merge", low=leaders[0], high=leaders[1], tablet=merged)

    # ---- rest

    def rest(self) -> None:
        """All faults end, leaders are elected, and everybody gets turns."""
        world = self.play.world
        self.do("heal")
        while world.stopped:
            self.do("resume", replica=min(world.stopped))
        for number in sorted(world.messages):
            self.do("drop", message=number)
        for name in self._names:
            self.do("read", replica=name, end=True)
        self._check_all()
        for _ in range(ROUNDS):
            for tablet in list(world.books):
                self._one_turn(tablet)
                self.checker.after_step()
        self.checker.at_rest()

    def _one_turn(self, tablet: str) -> None:
        books = self.play.world.books[tablet]
        self._mend_all(tablet)
        if books.is_gone or books.row.phase is Phase.SPLIT:
            for name in self._running(tablet):
                if not books.is_gone:
                    self.do("unload", replica=name)
                self.do("retire", replica=name)
        else:
            self._serve(tablet, books)
        self.do("ship", tablet=tablet)

    def _serve(self, tablet: str, books: Books) -> None:
        leader = self._led_by(tablet, books)
        for number in self.imports:
            if not self._is_named(number) and self.imports[number][0] == books.table:
                self._adopt(number)
        self._close(leader)
        for one in books.row.replicas:
            if one.host != leader:
                if self.play.world.replicas[one.host].leader is not None:
                    self.do("follower_run", replica=one.host)
                if one.role is Role.JOINING:
                    self.do("join_finalize", replica=one.host, leader=leader)
        self.do("name", replica=leader)
        self.do("leader_gc", replica=leader)
        if books.row.phase is Phase.SPLITTING:
            self.do("split_finalize", replica=leader)

    def _led_by(self, tablet: str, books: Books) -> str:
        world = self.play.world
        leader = books.row.leader
        replica = world.replicas.get(str(leader))
        if replica is not None and replica.is_leader and not replica.damaged and world.may_write(replica.host):
            return replica.host
        for name in [one.host for one in books.row.replicas]:
            if self.do("elect", leader=name)["outcome"] == "done":
                return name
        raise BrokenError(f"no replica of tablet {tablet} can lead: none holds the named state")
