"""The streams that a lane goes on with by itself, without a lane: which ranges it offers, and when it stops."""

from __future__ import annotations

from collections import Counter, UserDict
from collections.abc import Mapping, MutableMapping

import pytest
from msgspec.structs import replace

from bookkeeper.errors import AT_PEER, LogAwayError, PermanentError, UnavailableError
from bookkeeper.model import Barrier, TargetKey
from bookkeeper.replay.ranges import RangeError
from bookkeeper.rpc.contract.messages import WorkItem
from bookkeeper.tserver.shipping.open_streams import SWEEP_MS, Destination, OpenStreams
from bookkeeper.tserver.shipping.own_log import OwnLog, OwnLogs
from bookkeeper.tserver.shipping.worker_plan import LanePlan, Outcome, Queued, StreamProgress, stream_of
from tests.support.faults import fault
from tests.support.jumping_clock import StandingClock

EAST, GONE = TargetKey("east", "r1", "1", 1), TargetKey("east", "r1", "1", 0)
WEST, OTHER_TABLE = TargetKey("west", "r1", "1", 1), TargetKey("east", "r2", "2", 1)
LOG, NEXT, FOREIGN, RELAY = (f"wal/{name}.wal" for name in ("s0/000001", "s0/000002", "s1/000001", "s0/relay-1"))
PLACE = Destination("east:1", "i-east", takes_small_messages=True)


def item(file: str = LOG, last: int = 1, target: TargetKey = EAST, run_id: str = "") -> WorkItem:
    """A range that the master hands out."""
    return WorkItem("tx", file, target, 1, last, "east:1", "i-east", 1, run_id=run_id)


class Scene:
    """A session with a log of nine records, of which a peer has one."""

    def __init__(self, places: Mapping[TargetKey, Destination] | None = None) -> None:
        self.logs, self.plan, self.clock = OwnLogs("s0"), LanePlan(10), StandingClock()
        self.places: MutableMapping[TargetKey, Destination] = {EAST: PLACE} if places is None else dict(places)
        self.streams = OpenStreams("east", self.logs, lambda: self.places, self.clock)
        self.write(LOG, 9)

    def write(self, name: str, end: int, *barriers: Barrier) -> None:
        """A log begins, with as many records."""
        self.logs.begin(name)
        self.logs.enter(name)
        self.logs.note_uses(name, frozenset({"1"}), barriers)
        self.logs.note_end(name, end)

    def open(self, made: WorkItem, finished: int = 1) -> None:
        """The master hands it out, and it is shipped."""
        self.streams.open(made)
        self.plan.remember(stream_of(made), StreamProgress(finished, finished))

    def due(self) -> list[tuple[str, int, int]]:
        """File, first and last offset of what may be shipped."""
        return [(found.file, found.first_offset, found.last_offset) for found in self.streams.due(self.plan)]

    def ship(self, *made: WorkItem) -> None:
        """Runs of these ranges are over, and the peer has them."""
        for item in made:
            self.plan.remember(stream_of(item), StreamProgress(item.last_offset, item.last_offset))
            self.settle(item, None)

    def sweep(self) -> None:
        """So much time passes that all streams are looked at."""
        self.clock.now_ns += SWEEP_MS * 1_000_000

    def settle(self, made: WorkItem, error: RangeError | None) -> None:
        """A run is over."""
        self.streams.settle([(Queued(made, 1), Outcome(StreamProgress(1, 1), None, error))])


def test_a_stream_goes_on_behind_what_the_peer_has() -> None:
    scene = Scene()
    scene.open(item())
    assert scene.due() == [(LOG, 2, 9)]
    scene.plan.remember(stream_of(item()), StreamProgress(9, 9))
    assert scene.due() == []
    scene.logs.note_end(LOG, 12)
    assert scene.due() == [(LOG, 10, 12)]


def check_beginnings() -> None:
    """A session has a log with records of a table, and no range of the master."""
    scene = Scene({})
    assert scene.due() == []
    scene.places = {WEST: PLACE, OTHER_TABLE: PLACE}
    assert scene.due() == [], "a stream begins to a target of another lane, or of a table without a record"
    scene.places = {EAST: PLACE}
    assert scene.due() == [(LOG, 1, 9)], "the first records of a target wait for a master"
    scene.plan.remember((LOG, EAST, ""), StreamProgress(9, 9))
    scene.places = {EAST: PLACE, OTHER_TABLE: PLACE}
    assert scene.due() == [], "what is shipped is begun again"
    scene.logs.note_uses(LOG, frozenset({"2"}), (Barrier(10, FOREIGN, 7),))
    scene.logs.note_end(LOG, 12)
    assert {(found.target, found.last_offset) for found in scene.streams.due(scene.plan)} == {(OTHER_TABLE, 9)}, "R24"


def test_a_stream_begins_with_the_first_records_of_its_table() -> None:
    check_beginnings()


def test_without_its_rule_it_waits_for_a_master() -> None:
    with fault("only-the-master-begins-streams"), pytest.raises(AssertionError, match="wait for a master"):
        check_beginnings()


def test_a_log_on_a_host_goes_as_far_as_named_states_have_it() -> None:
    scene, tablet = Scene(), ("1", None)
    scene.logs = scene.streams.own_logs = OwnLogs("s0", are_on_host=True)
    scene.logs.begin(LOG)
    scene.logs.enter(LOG)
    scene.logs.note_uses(LOG, frozenset({"1"}), ())
    scene.logs.note_records(LOG, [(tablet, 1, 9)])
    scene.logs.note_end(LOG, 9)
    assert scene.due() == [], "R15: a peer gets what the cluster can lose"
    scene.logs.note_named(tablet, {LOG: 4})
    assert scene.due() == [(LOG, 1, 4)], "no master says so"
    scene.logs.note_named(tablet, {LOG: 9})
    assert scene.due() == [(LOG, 1, 9)]


def test_r15_without_its_rule_it_goes_to_its_end() -> None:
    with fault("logs-on-hosts-go-by-themselves"), pytest.raises(AssertionError, match="what the cluster can lose"):
        test_a_log_on_a_host_goes_as_far_as_named_states_have_it()


def check_refused_beginnings() -> None:
    scene = Scene()
    made = scene.streams.due(scene.plan)[0]
    scene.settle(made, RangeError.of(PermanentError("refused"), AT_PEER))
    scene.places = {EAST: PLACE}
    scene.logs.note_uses(LOG, frozenset({"2"}), ())
    assert scene.due() == [], "a refused stream is begun again and again"


def test_a_stream_that_ended_with_a_permanent_error_is_not_begun_again() -> None:
    check_refused_beginnings()


def test_without_its_rule_it_is_begun_with_each_change() -> None:
    with fault("refused-streams-begin-again"), pytest.raises(AssertionError, match="again and again"):
        check_refused_beginnings()


def check_looks() -> None:
    """A stream waits for a log of another session; the books say how far that one is."""
    scene = Scene()
    scene.logs.note_uses(LOG, frozenset({"1"}), (Barrier(4, FOREIGN, 7),))
    assert scene.due() == [(LOG, 1, 3)]
    assert scene.streams.take_look() == [(FOREIGN, EAST)], "nobody reads how far the other session is"
    assert not scene.streams.take_look(), "the books are read all the time"
    assert scene.streams.look_ms == 1_000
    scene.sweep()
    assert scene.due() == [(LOG, 1, 3)]
    for finished, last in ((0, 3), (6, 3), (7, 9)):
        scene.streams.note_shipped_elsewhere({(FOREIGN, EAST): finished})
        assert scene.due() == [(LOG, 1, last)], f"R24: the peer has {finished} of 7 records"
    scene.clock.now_ns += 1_000_000_000
    assert not scene.streams.take_look(), "a passed barrier is looked for"
    assert scene.streams.wait_ms() > 1_000


def test_r24_the_books_say_how_far_other_sessions_are() -> None:
    check_looks()


def test_without_its_rule_nobody_reads_them() -> None:
    with fault("finished-cells-are-not-read"), pytest.raises(AssertionError, match="nobody reads"):
        check_looks()


def check_strangers() -> None:
    scene = Scene()
    scene.open(item(), finished=9)
    for made in (item(FOREIGN), item(RELAY), item(run_id="again")):
        scene.open(made)
        assert scene.due() == [], f"{made.file} {made.run_id} goes on without the master"


def test_logs_of_others_relay_logs_and_repeated_runs_stay_with_the_master() -> None:
    check_strangers()


def test_without_its_rule_a_repeated_run_goes_on() -> None:
    with fault("repeated-runs-go-on"), pytest.raises(AssertionError, match="goes on without the master"):
        check_strangers()


def check_destinations() -> None:
    scene = Scene({})
    scene.open(item(target=GONE))
    assert scene.due() == [], "R9: a stream goes on to a target that is not configured"
    assert not scene.streams.newest, "targets that are not configured are remembered"
    scene = Scene()
    scene.open(item())
    scene.places[EAST] = replace(PLACE, quorum="east:2")
    assert [found.peer_quorum for found in scene.streams.due(scene.plan)] == ["east:2"], "it goes to an old address"
    scene.places[EAST] = replace(PLACE, instance_id="another")
    assert scene.due() == [], "R23: a stream goes on to another instance"
    small = Scene({EAST: replace(PLACE, takes_small_messages=False)})
    small.open(item())
    assert small.due() == [], "a directory gets a file for each record"


def test_the_configuration_in_force_says_where_a_stream_goes() -> None:
    check_destinations()


@pytest.mark.parametrize(
    ("name", "law"),
    [
        ("streams-keep-their-address", "it goes to an old address"),
        ("streams-follow-an-address", "R23: a stream goes on to another instance"),
        ("directories-take-single-records", "a directory gets a file for each record"),
    ],
)
def test_without_its_rule_the_first_range_says_it(name: str, law: str) -> None:
    with fault(name), pytest.raises(AssertionError, match=law):
        check_destinations()


def check_permanent_errors() -> None:
    scene = Scene()
    scene.open(item())
    scene.settle(item(), RangeError.of(PermanentError("refused"), AT_PEER))
    assert scene.due() == [], "a record that the peer refuses is sent again and again"
    scene.open(item())
    assert scene.due() == [(LOG, 2, 9)], "the master's decision counts"


def test_only_the_master_opens_a_stream_again_after_a_permanent_error() -> None:
    check_permanent_errors()


def test_without_its_rule_the_tserver_does() -> None:
    with fault("refused-records-go-again"), pytest.raises(AssertionError, match="sent again and again"):
        check_permanent_errors()


def check_pauses() -> None:
    scene, away = Scene(), RangeError.of(UnavailableError("no answer"), AT_PEER)
    scene.open(item())
    pauses = []
    for _ in range(12):
        scene.settle(item(), away)
        assert scene.due() == [], "a peer that is away is tried all the time"
        pauses.append(scene.streams.pause_ms())
    assert pauses[:3] == [500, 1000, 2000]
    assert pauses[-1] == 30_000
    scene.clock.now_ns += 30_000_000_000
    assert scene.due() == [(LOG, 2, 9)]
    scene.settle(item(), None)
    assert scene.streams.pause_ms() == 0
    scene.settle(item(), RangeError.of(LogAwayError("its host is away")))
    assert scene.due() == [(LOG, 2, 9)], "the host of another log delays the peer"


def test_a_peer_that_is_away_is_tried_again_after_a_pause() -> None:
    check_pauses()


def test_without_its_rule_it_is_tried_all_the_time() -> None:
    with fault("errors-cause-no-pause"), pytest.raises(AssertionError, match="is tried all the time"):
        check_pauses()


def test_a_stream_goes_on_in_the_next_log_behind_the_tail_of_the_one_before() -> None:
    scene = Scene()
    scene.open(item())
    scene.logs.begin(NEXT)
    assert scene.due() == [(LOG, 2, 9)], "nothing is written to the next one"
    scene.logs.enter(NEXT)
    scene.logs.note_seal(LOG, 9)
    scene.logs.note_uses(NEXT, frozenset({"1"}), (Barrier(1, LOG, 9),))
    scene.logs.note_end(NEXT, 3)
    assert scene.due() == [(LOG, 2, 9)]
    scene.ship(item(last=9))
    assert scene.due() == [(NEXT, 1, 3)]
    assert {key[0] for key in scene.streams.items} == {NEXT}, "a log that is sealed and shipped has no stream"


def test_a_barrier_that_comes_late_is_judged() -> None:
    scene = Scene()
    scene.logs.note_uses(LOG, frozenset({"1"}), (Barrier(9, FOREIGN, 0),))
    scene.open(item())
    assert scene.due() == [(LOG, 2, 9)]
    scene.logs.note_uses(LOG, frozenset({"1"}), (Barrier(5, FOREIGN, 7),))
    assert scene.due() == [(LOG, 2, 4)]


def test_a_stream_that_runs_or_waits_is_not_queued_twice() -> None:
    scene = Scene()
    scene.open(item())
    for found in scene.streams.due(scene.plan):
        scene.plan.offer(found)
    assert scene.due() == []
    assert len(scene.plan.take()) == 1
    scene.logs.note_end(LOG, 12)
    assert scene.due() == [], "two runs of a stream"


def test_a_full_lane_gets_no_more() -> None:
    scene = Scene()
    scene.open(item())
    scene.plan.ranges_max = 0
    assert scene.due() == []


class CountingLogs(OwnLogs):
    """``looks``: how often each log was looked at."""

    def __init__(self) -> None:
        super().__init__("s0")
        self.looks: Counter[str] = Counter()

    def find(self, name: str) -> OwnLog | None:
        """See the base class."""
        self.looks[name] += 1
        return super().find(name)


class CountingPlaces(UserDict[TargetKey, Destination]):
    """``reads``: how many targets were read."""

    reads = 0

    def __getitem__(self, key: TargetKey) -> Destination:
        self.reads += 1
        return super().__getitem__(key)


class Many(Scene):
    """A session whose log has records of as many tables, each with a target; the peer has all of them."""

    def __init__(self, tables: int) -> None:
        super().__init__()
        self.logs = self.streams.own_logs = self.counted = CountingLogs()
        self.places = self.read = CountingPlaces(
            {TargetKey("east", f"r{n}", str(n), 1): PLACE for n in range(1, tables + 1)}
        )
        self.logs.begin(LOG)
        self.logs.enter(LOG)
        self.logs.note_uses(LOG, frozenset(map(str, range(1, tables + 1))), ())
        self.logs.note_end(LOG, 9)
        self.settle_all()

    def settle_all(self) -> None:
        """All that is due is shipped, now and at the next look at all streams."""
        self.plan.ranges_max = 1_000
        self.ship(*self.streams.due(self.plan))
        self.sweep()
        self.ship(*self.streams.due(self.plan))
        assert self.due() == []

    def cost_of_syncs(self, syncs: int) -> int:
        """The looks at logs and targets for records of one table."""
        self.counted.looks.clear()
        self.read.reads = 0
        for end in range(10, 10 + syncs):
            self.logs.note_end(LOG, end, {"1"})
            assert self.due() == [(LOG, end, end)]
            self.ship(*self.streams.due(self.plan))
            assert self.due() == []
        return self.counted.looks.total() + self.read.reads


def test_a_sync_looks_only_at_streams_with_something_new() -> None:
    one, many = Many(1).cost_of_syncs(5), Many(100).cost_of_syncs(5)
    assert many == one, f"a table with records costs {many} looks beside 99 tables without any, and {one} alone"


def test_streams_without_new_records_follow_the_log_now_and_then() -> None:
    scene = Many(3)
    scene.logs.note_end(LOG, 10, {"1"})
    assert scene.due() == [(LOG, 10, 10)]
    assert scene.streams.wait_ms() == SWEEP_MS
    scene.ship(*scene.streams.due(scene.plan))
    scene.sweep()
    assert scene.due() == [(LOG, 10, 10)] * 2, "`done:` stays behind the log, and the master hands out the rest"
    scene.settle_all()
    assert scene.streams.wait_ms() > SWEEP_MS, "an idle lane looks at its streams"


def test_all_streams_of_a_log_go_to_its_seal_at_once() -> None:
    scene = Many(3)
    scene.logs.note_end(LOG, 10, {"1"})
    scene.logs.note_seal(LOG, 10)
    assert scene.due() == [(LOG, 10, 10)] * 3
    scene.ship(*scene.streams.due(scene.plan))
    assert scene.due() == []
    assert not scene.streams.items, "a log that is sealed and shipped has streams"


def test_a_barrier_is_passed_when_the_books_say_that_the_log_before_is_shipped() -> None:
    scene = Scene()
    scene.logs.note_seal(LOG, 9)
    scene.write(NEXT, 3, Barrier(1, LOG, 9))
    assert scene.due() == [(LOG, 1, 9)]
    scene.plan.remember((LOG, EAST, ""), StreamProgress(9, 9))
    assert scene.due() == [(NEXT, 1, 3)], "no run ships the log before, and the next one waits for it"


def test_a_barrier_on_an_own_log_ends_with_that_log() -> None:
    scene = Scene()
    scene.logs.note_seal(LOG, 9)
    scene.write(NEXT, 3, Barrier(1, LOG, 9))
    assert scene.due() == [(LOG, 1, 9)]
    scene.logs.forget_gone(lambda _name: False)
    assert scene.due() == [(NEXT, 1, 3)], "the file is gone, and the stream behind it waits"
