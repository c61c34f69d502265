"""What a tserver may ship of its own logs without the master, and that the master would allow at least as much."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.master.cycle.assigner import barrier_limit, is_passed, next_range
from bookkeeper.master.index.barriers import BARRIERS_MAX, FileBarrier
from bookkeeper.master.index.file_entry import FileEntry, parse_cell
from bookkeeper.master.index.outstanding import Outstanding
from bookkeeper.master.index.target_progress import Progress
from bookkeeper.model import Barrier, TargetKey
from bookkeeper.tserver.shipping.extension import Extension, Known, may_extend
from bookkeeper.tserver.shipping.own_log import OwnLog, OwnLogs
from tests.support.faults import fault
from tests.support.master_values import by_name, scopes, shipping, status_value

TO_EAST, OTHER = TargetKey("east", "r1", "1", 1), TargetKey("east", "r2", "2", 2)
OWN, FOREIGN = "wal/s0/000001.wal", "wal/s1/000001.wal"
LATER = "wal/s0/000002.wal"


def known(*logs: OwnLog, finished: dict[tuple[str, TargetKey], int] | None = None) -> Known:
    """What session s0 knows."""
    own = {log.name: log for log in logs}
    offsets = finished or {}
    return Known(own.get, OwnLogs("s0").is_own, lambda file, target: offsets.get((file, target), 0))


def log(name: str, end: int, *barriers: Barrier, sealed: bool = False, tables: tuple[str, ...] = ("1",)) -> OwnLog:
    """A log of session s0."""
    return OwnLog(name, end, sealed, barriers, frozenset(tables))


# ---- the rule


def test_without_barriers_all_that_is_durable_may_leave() -> None:
    assert may_extend(log(OWN, 9), TO_EAST, 0, known()) == Extension(9)


def waits_for_another_session() -> None:
    barrier = Barrier(4, FOREIGN, 7)
    assert may_extend(log(OWN, 9, barrier), TO_EAST, 3, known()) == Extension(3, barrier), (
        "R24: a record leaves before those that it waits for"
    )


def test_r24_a_log_of_another_session_is_waited_for() -> None:
    waits_for_another_session()


@pytest.mark.parametrize("name", ["own-barriers-are-optional", "unknown-offsets-count-as-finished"])
def test_r24_without_its_rule_it_is_not(name: str) -> None:
    with fault(name), pytest.raises(AssertionError, match="a record leaves before those that it waits for"):
        waits_for_another_session()


def test_it_is_passed_when_the_peer_has_it_or_the_master_says_so() -> None:
    waiting = log(OWN, 9, Barrier(4, FOREIGN, 7))
    assert may_extend(waiting, TO_EAST, 0, known(finished={(FOREIGN, TO_EAST): 6})).last == 3
    assert may_extend(waiting, TO_EAST, 0, known(finished={(FOREIGN, TO_EAST): 7})).last == 9
    assert may_extend(waiting, TO_EAST, 4, known()).last == 9, "a barrier that the master found passed is not believed"


def test_the_master_is_believed() -> None:
    with fault("the-master's-word-counts-for-nothing"), pytest.raises(AssertionError, match="is not believed"):
        test_it_is_passed_when_the_peer_has_it_or_the_master_says_so()


def the_tail_goes_first() -> None:
    before, after = log(OWN, 7, sealed=True), log(LATER, 5, Barrier(2, OWN, 7))
    assert may_extend(after, TO_EAST, 0, known(before, after, finished={(OWN, TO_EAST): 6})).last == 1
    assert may_extend(after, TO_EAST, 0, known(before, after, finished={(OWN, TO_EAST): 7})).last == 5


def test_r24_a_log_waits_for_the_tail_of_the_own_one_before() -> None:
    the_tail_goes_first()


def other_tables_do_not_count() -> None:
    before, after = log(OWN, 7, sealed=True, tables=("2",)), log(LATER, 5, Barrier(2, OWN, 7))
    assert may_extend(after, TO_EAST, 0, known(before, after)).last == 5, (
        "it waits for a cell that never comes: no block of the log named a target of the table"
    )


def test_a_log_from_before_the_table_was_replicated_is_not_waited_for() -> None:
    other_tables_do_not_count()


def test_without_its_rule_the_new_log_waits_for_ever() -> None:
    with fault("logs-without-targets-are-waited-for"), pytest.raises(AssertionError, match="a cell that never comes"):
        other_tables_do_not_count()


def test_a_log_that_is_gone_is_not_waited_for() -> None:
    assert may_extend(log(LATER, 5, Barrier(2, OWN, 7)), TO_EAST, 0, known()).last == 5


def test_a_log_whose_barriers_are_forgotten_goes_through_the_master() -> None:
    forgotten = OwnLog(OWN, 9, True, (), frozenset({"1"}), through_master=True)
    assert may_extend(forgotten, TO_EAST, 4, known()).last == 4


def a_log_on_a_host_goes_as_far_as_states_have_it() -> None:
    hosted = OwnLog(OWN, 9, False, (Barrier(6, FOREIGN, 3),), frozenset({"1"}), named_until=7)
    passed = known(finished={(FOREIGN, TO_EAST): 3})
    assert may_extend(hosted, TO_EAST, 0, passed) == Extension(7), "R15: a peer gets what the cluster can lose"
    assert may_extend(hosted, TO_EAST, 8, passed) == Extension(8), "the master has read a newer name"
    assert may_extend(hosted, TO_EAST, 4, known()) == Extension(5, Barrier(6, FOREIGN, 3)), "R24"
    behind = OwnLog(OWN, 9, False, (Barrier(8, FOREIGN, 3),), frozenset({"1"}), named_until=7)
    assert may_extend(behind, TO_EAST, 0, known()) == Extension(7), "a barrier behind the names delays nothing"


def test_r15_a_log_on_a_host_goes_as_far_as_named_states_have_it() -> None:
    a_log_on_a_host_goes_as_far_as_states_have_it()


def test_r15_without_its_rule_a_peer_gets_what_the_cluster_can_lose() -> None:
    with fault("logs-on-hosts-go-by-themselves"), pytest.raises(AssertionError, match="what the cluster can lose"):
        a_log_on_a_host_goes_as_far_as_states_have_it()


# ---- never above the master


class Written:
    """What three sessions wrote: tablets of two tables write, move and get their targets late, and logs roll."""

    def __init__(self, rng: random.Random) -> None:
        self.length, self.sealed = defaultdict[str, int](int), set[str]()
        self.barriers, self.tables = defaultdict[str, set[Barrier]](set), defaultdict[str, set[str]](set)
        self._number = dict.fromkeys(("s0", "s1", "s2"), 1)
        self._uses = dict[tuple[int, str], tuple[bool, tuple[Barrier, ...]]]()
        self._last = dict[int, tuple[str, int]]()
        home, late = {tablet: rng.choice(sorted(self._number)) for tablet in range(4)}, rng.randrange(30)
        for step in range(40):
            tablet = rng.randrange(4)
            if rng.random() < 0.3:
                home[tablet] = rng.choice(sorted(self._number))
            name = self._log_of(home[tablet])
            if self.length[name] and rng.random() < 0.2:
                self.sealed.add(name)
                self._number[home[tablet]] += 1
                name = self._log_of(home[tablet])
            self._write(tablet, name, step >= late or tablet % 2 == 0)

    def _log_of(self, session: str) -> str:
        return f"wal/{session}/{self._number[session]:06d}.wal"

    def _write(self, tablet: int, name: str, has_targets: bool) -> None:
        self.length[name] += 1
        replicated, barriers = self._uses.get((tablet, name), (False, ()))
        if tablet in self._last and self._last[tablet][0] != name:
            barriers = (*barriers, Barrier(self.length[name], *self._last[tablet]))
        self._uses[tablet, name] = replicated or has_targets, barriers
        if replicated or has_targets:
            self.tables[name].add(str(1 + tablet % 2))
            self.barriers[name].update(barriers)
        self._last[tablet] = name, self.length[name]

    def files(self, finished: dict[tuple[str, TargetKey], int], gone: set[str]) -> Outstanding:
        """As a master has them."""
        entries, targets = [], scopes(TO_EAST, OTHER)
        for name in sorted(self.tables.keys() - gone):
            value = status_value(self.length[name], closed=name in self.sealed)
            entry = FileEntry(name.encode(), parse_cell(value), targets.of(tuple(sorted(self.tables[name]))))
            entry.wait_for(tuple(masters(barrier) for barrier in sorted(self.barriers[name])))
            entry.reach(self.length[name])
            for key, index in entry.scope.index_by_key.items():
                entry.advance(index, Progress(finished[name, key], 0))
            entries.append(entry)
        return by_name(*entries)

    def own_logs(self, gone: set[str]) -> dict[str, OwnLog]:
        """As session s0 has them."""
        return {
            name: OwnLog(
                name, end, name in self.sealed, tuple(sorted(self.barriers[name])), frozenset(self.tables[name])
            )
            for name, end in self.length.items()
            if name.startswith("wal/s0/") and name not in gone
        }


def masters(barrier: Barrier) -> FileBarrier:
    """A barrier as a master has it."""
    return FileBarrier(barrier.offset, barrier.file.encode(), barrier.until_offset)


def never_above_the_master(seed: int) -> None:
    """Peers have a part of what was written. One session knows an earlier state than the master does."""
    rng = random.Random(seed)
    written = Written(rng)
    done = {(name, key): rng.randint(0, written.length[name]) for name in written.tables for key in (TO_EAST, OTHER)}
    gone = {name for name in written.sealed if rng.random() < 0.2}
    earlier = {key: rng.randint(0, offset) for key, offset in done.items()}
    then, now = written.files(earlier, gone), written.files(done, gone)
    own, told = written.own_logs(gone), {key: rng.choice([0, earlier[key], offset]) for key, offset in done.items()}
    facts = Known(own.get, OwnLogs("s0").is_own, lambda file, target: told.get((file, target), 0))
    for one in own.values():
        entry = now.get(one.name.encode())
        for target in () if entry is None else entry.scope.index_by_key:
            assert entry is not None
            handed_out = next_range(then[entry.file], target, then, shipping())
            vouched = 0 if handed_out is None else handed_out[1]
            found = may_extend(one, target, vouched, facts)
            open_ones = [b.offset - 1 for b in one.barriers if not is_passed(masters(b), target, now, shipping())]
            assert found.last <= min([one.end, *open_ones]), "R24: further than the master would allow"
            if len(one.barriers) <= BARRIERS_MAX:
                assert found.last <= barrier_limit(entry, target, now, shipping())[0], "R24: above the master's limit"
            assert found.last >= vouched, "less than the master has handed out"


def never_above_the_master_in_many_worlds() -> None:
    """So many that each rule decides in some."""
    for seed in range(300):
        never_above_the_master(seed)


@given(st.integers(0, 2**32))
def test_r24_a_tserver_never_goes_further_than_the_master_would_allow(seed: int) -> None:
    never_above_the_master(seed)


@pytest.mark.parametrize("name", ["own-barriers-are-optional", "unknown-offsets-count-as-finished", "seals-are-ends"])
def test_r24_without_its_rule_it_does(name: str) -> None:
    with fault(name), pytest.raises(AssertionError, match="R24: "):
        never_above_the_master_in_many_worlds()


# ---- what is known of the own logs


def test_the_logs_of_a_session_are_known_until_their_files_are_gone() -> None:
    logs, heard = OwnLogs("s0"), list[int]()
    logs.listen(lambda: heard.append(1))
    logs.begin(OWN)
    logs.enter(OWN)
    logs.note_uses(OWN, frozenset({"1"}), (Barrier(3, FOREIGN, 7),))
    logs.note_uses(OWN, frozenset({"2"}), (Barrier(1, FOREIGN, 5),))
    logs.note_end(OWN, 4)
    assert logs.find(OWN) == OwnLog(
        OWN, 4, False, (Barrier(1, FOREIGN, 5), Barrier(3, FOREIGN, 7)), frozenset({"1", "2"}), late=1
    )
    assert logs.later_than(OWN) == []
    logs.begin(LATER)
    assert logs.later_than(OWN) == [], "nothing is written there yet"
    logs.enter(LATER)
    logs.note_seal(OWN, 4)
    assert logs.later_than(OWN) == [LATER]
    assert len(heard) == 2
    logs.forget_gone(lambda _name: True)
    found = logs.find(OWN)
    assert found is not None
    assert (found.is_sealed, len(found.barriers)) == (True, 2), "R24: a sealed log keeps its barriers"
    logs.forget_gone(lambda name: name == LATER)
    assert (logs.find(OWN), logs.is_own(OWN), logs.later_than(OWN)) == (None, True, [LATER])


def test_each_change_of_a_log_is_told_once_and_its_last_time_counts() -> None:
    logs = OwnLogs("s0")
    logs.begin(OWN)
    logs.enter(OWN)
    logs.note_uses(OWN, frozenset({"1", "2"}), ())
    before, found = logs.news_since(0)
    assert set(found) == {(OWN, "1"), (OWN, "2")}
    logs.note_uses(OWN, frozenset({"1"}), ())
    assert logs.news_since(before) == (before, []), "a known use is no news"
    for end, table in ((1, "2"), (2, "1"), (3, "2")):
        logs.note_end(OWN, end, {table})
    number, found = logs.news_since(before)
    assert found == [(OWN, "1"), (OWN, "2")]
    logs.note_seal(OWN, 3)
    assert logs.news_since(number)[1] == [(OWN, None)]
    logs.forget_gone(lambda _name: False)
    assert [news.log for news in logs.news_since(0)[1]] == [""], "news of a log whose file is gone is kept"


def reach(logs: OwnLogs, name: str) -> int:
    """How far a peer may have a log."""
    found = logs.find(name)
    return 0 if found is None else found.reach


def names_of_states() -> None:
    logs, heard = OwnLogs("s0", are_on_host=True), list[int]()
    logs.listen(lambda: heard.append(1))
    first, second = ("1", b"m"), ("1", None)
    for name in (OWN, LATER):
        logs.begin(name)
        logs.enter(name)
        logs.note_uses(name, frozenset({"1"}), ())
    logs.note_records(OWN, [(first, 3, 4), (second, 5, 6), (first, 7, 9)])
    logs.note_end(OWN, 9, {"1"})
    assert (reach(logs, OWN), len(heard)) == (2, 1), "a record is in no named state, and a peer has it (R15)"
    logs.note_named(first, {OWN: 4})
    assert (reach(logs, OWN), len(heard)) == (4, 2)
    logs.note_named(second, {OWN: 6, LATER: 3})
    assert (reach(logs, OWN), len(heard)) == (4, 2), "the other tablet has records from 7 on"
    logs.note_records(LATER, [(second, 4, 8)])
    logs.note_end(LATER, 8, {"1"})
    logs.note_named(first, {OWN: 9})
    assert (reach(logs, OWN), reach(logs, LATER), len(heard)) == (9, 3, 4)
    logs.forget_tablet(second)
    assert reach(logs, LATER) == 8, "a deleted tablet holds a log back"


def test_r15_a_log_on_a_host_waits_for_the_names_of_all_its_tablets() -> None:
    names_of_states()


def test_r15_without_their_records_it_waits_for_none() -> None:
    with fault("records-are-named-when-written"), pytest.raises(AssertionError, match="is in no named state"):
        names_of_states()


def test_records_that_are_held_back_wake_nobody() -> None:
    logs, heard = OwnLogs("s0", are_on_host=True), list[int]()
    logs.listen(lambda: heard.append(1))
    logs.begin(OWN)
    logs.note_uses(OWN, frozenset({"1"}), ())
    logs.note_records(OWN, [(("1", None), 1, 2)])
    before = logs.news_since(0)[0]
    logs.note_end(OWN, 2, {"1"})
    assert (heard, logs.news_since(before)[1]) == ([], [])


def test_the_memory_of_barriers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bookkeeper.tserver.shipping.own_log.SEALED_WITH_BARRIERS_MAX", 2)
    logs = OwnLogs("s0")
    names = [f"wal/s0/{number:06d}.wal" for number in range(1, 6)]
    for name in names:
        logs.begin(name)
        logs.enter(name)
        logs.note_uses(name, frozenset({"1"}), (Barrier(1, FOREIGN, 5),))
        logs.note_seal(name, 4)
    found = [one for name in names if (one := logs.find(name)) is not None]
    assert [(len(one.barriers), one.through_master) for one in found] == [(0, True)] * 3 + [(1, False)] * 2
