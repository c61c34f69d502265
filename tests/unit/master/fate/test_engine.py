"""The engine of operations: steps are persisted, repeated after a cut, excluded by locks, shown when they fail."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

import pytest

from bookkeeper.errors import (
    CorruptionError,
    InvalidInputError,
    LeaseLostError,
    NotFoundError,
    NotLeaderError,
    PermanentError,
    UnavailableError,
)
from bookkeeper.master.fate.engine import (
    FAILED_RETENTION_NS,
    FAILED_STEP,
    Args,
    Call,
    Done,
    Failed,
    FateEngine,
    FateLimits,
    Next,
    Outcome,
    Step,
    Wait,
    first_of_each_lock,
    shared,
)
from bookkeeper.master.fate.fate_store import FateStore, parse_record
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Cell, CellKey, Row
from bookkeeper.metadata.values import FateOp, FateStep
from tests.support.failing_metadata import FailingMetadata
from tests.support.faults import fault
from tests.support.master_world import Master, World


@dataclass
class Script:
    """An operation with the steps of a test."""

    steps: Mapping[str, Step]
    first: str = "one"
    lock: Callable[[Args], Collection[str]] = lambda _args: ()
    seen: list[str] = field(default_factory=list)

    def locks(self, args: Args) -> Collection[str]:
        return self.lock(args)


def _two_steps(seen: list[str]) -> dict[str, Step]:
    def one(call: Call) -> Outcome:
        seen.append(f"one {call.args['n']}")
        return Next("two", {"half": call.args["n"]})

    def two(call: Call) -> Outcome:
        seen.append(f"two {call.state['half']}")
        return Done(call.state["half"])

    return {"one": one, "two": two}


def _engine(world: World, master: Master, script: Script) -> FateEngine:
    store, limits = FateStore(world.table, master.reign), FateLimits(1, 2)
    return FateEngine(store, {"script": script}, world.clock, random.Random(1), limits)


def _rows(world: World) -> list[Row]:
    return list(world.table.scan(*keys.section(keys.FATE_PREFIX)))


def _until_idle(engine: FateEngine) -> None:
    while engine.step_once():
        pass


def test_steps_follow_each_other_and_the_end_purges_the_record(world: World) -> None:
    script = Script({})
    script.steps = _two_steps(script.seen)
    engine = _engine(world, world.master(), script)
    running = engine.submit("script", {"n": 7})
    assert len(_rows(world)) == 1
    _until_idle(engine)
    assert engine.wait(running, 0) == 7
    assert script.seen == ["one 7", "two 7"]
    assert _rows(world) == []


def test_the_next_leader_goes_on_at_the_step_that_was_reached(world: World) -> None:
    script = Script({})
    script.steps = _two_steps(script.seen)
    first = world.master()
    engine = _engine(world, first, script)
    engine.submit("script", {"n": 1})
    engine.step_once()
    second = world.depose(first)
    successor = _engine(world, second, script)
    successor.resume(successor.store.load())
    _until_idle(successor)
    assert script.seen == ["one 1", "two 1"]


def test_a_step_that_was_cut_before_it_was_persisted_is_repeated(world: World) -> None:
    script = Script({})
    script.steps = _two_steps(script.seen)
    first = world.master()
    engine = _engine(world, first, script)
    engine.submit("script", {"n": 1})
    first.session.close()
    with pytest.raises(LeaseLostError):
        engine.step_once()
    successor = _engine(world, world.master(), script)
    successor.resume(successor.store.load())
    _until_idle(successor)
    assert script.seen[-2:] == ["one 1", "two 1"]


def test_a_deposed_leaders_step_is_older_by_its_rank(world: World) -> None:
    script = Script({})
    script.steps = _two_steps(script.seen)
    first = world.master()
    engine = _engine(world, first, script)
    running = engine.submit("script", {"n": 1})
    second = world.depose(first)
    FateStore(world.table, second.reign).reach({running.txid: FateStep("two", {"half": 5})})
    engine.step_once()
    (record,) = FateStore(world.table, second.reign).load()
    assert (record.step, record.state) == ("two", {"half": 5})


def test_an_equal_request_joins_the_one_that_is_under_way(world: World) -> None:
    script = Script({})
    script.steps = _two_steps(script.seen)
    first = world.master()
    engine = _engine(world, first, script)
    running = engine.submit("script", {"n": 1})
    assert engine.submit("script", {"n": 1}) is running
    assert engine.submit("script", {"n": 2}) is not running
    successor = _engine(world, world.depose(first), script)
    successor.resume(successor.store.load())
    assert successor.submit("script", {"n": 1}).txid == running.txid, "a client that lost its master asks again"
    assert len(_rows(world)) == 2


def test_a_transient_error_repeats_the_step_and_is_shown(world: World) -> None:
    tries: list[int] = []

    def one(_call: Call) -> Outcome:
        tries.append(1)
        if len(tries) < 3:
            raise UnavailableError("nobody is there")
        return Done("at last")

    engine = _engine(world, world.master(), Script({"one": one}))
    running = engine.submit("script", {})
    engine.step_once()
    assert (running.note, running.failures, engine.step_once()) == ("nobody is there", 1, False)
    for _ in range(3):
        world.clock.jump(10_000)
        engine.step_once()
    assert engine.wait(running, 0) == "at last"


def test_a_waiting_operation_occupies_no_thread_and_continues_later(world: World) -> None:
    gate: list[bool] = []

    def one(_call: Call) -> Outcome:
        return Done() if gate else Wait("the gate is shut", 500)

    script = Script({"one": one})
    engine = _engine(world, world.master(), script)
    running = engine.submit("script", {})
    assert engine.step_once()
    assert not engine.step_once()
    with pytest.raises(UnavailableError, match=r"still at one \(the gate is shut\)"):
        engine.wait(running, 0)
    gate.append(True)
    world.clock.jump(1_000)
    assert engine.step_once()
    assert running.ended


@pytest.mark.parametrize("how", ["raise", "return"])
def test_a_failure_is_reported_retained_and_dropped_after_a_while(world: World, how: str) -> None:
    def one(_call: Call) -> Outcome:
        error = NotFoundError("no table t") if how == "raise" else UnavailableError("east can't be asked")
        if isinstance(error, PermanentError):
            raise error
        return Failed(error)

    first = world.master()
    engine = _engine(world, first, Script({"one": one}))
    running = engine.submit("script", {})
    engine.step_once()
    with pytest.raises(NotFoundError if how == "raise" else UnavailableError):
        engine.wait(running, 0)
    assert [r.step for r in engine.pending()] == [FAILED_STEP]
    again = engine.submit("script", {})
    assert again is not running, "asking again is a new try"
    successor = _engine(world, world.depose(first), Script({"one": one}))
    successor.resume(successor.store.load())
    shown = [r for r in successor.pending() if r.ended]
    assert [(r.txid, r.error is not None) for r in shown] == [(running.txid, True)]
    world.clock.jump(FAILED_RETENTION_NS // 1_000_000 + 1)
    _until_idle(successor)
    world.clock.jump(FAILED_RETENTION_NS // 1_000_000 + 1)
    _until_idle(successor)
    assert _rows(world) == []


def _locked(seen: list[str]) -> Script:
    return Script(_two_steps(seen), lock=lambda args: [str(args["lock"])] if args["lock"] else [])


def test_operations_with_a_lock_in_common_run_one_after_another_in_order(world: World) -> None:
    seen: list[str] = []
    engine = _engine(world, world.master(), _locked(seen))
    for n, lock in ((1, "t"), (2, "t"), (3, "u"), (4, "")):
        engine.submit("script", {"n": n, "lock": lock})
    _until_idle(engine)
    assert seen.index("two 1") < seen.index("one 2")
    assert set(seen) == {f"{step} {n}" for step in ("one", "two") for n in range(1, 5)}


def test_a_shared_lock_excludes_only_the_exclusive_one(world: World) -> None:
    seen: list[str] = []
    engine = _engine(world, world.master(), _locked(seen))
    locks = (shared("t"), shared("t"), "t", shared("t"), shared("u"))
    runs = [engine.submit("script", {"n": n, "lock": lock}) for n, lock in enumerate(locks)]
    assert list(first_of_each_lock(runs)) == [runs[0], runs[1], runs[4]]
    assert list(first_of_each_lock(runs[2:])) == [runs[2], runs[4]]
    assert list(first_of_each_lock(runs[3:])) == runs[3:]


def test_the_order_of_locked_operations_outlives_the_master(world: World) -> None:
    seen: list[str] = []
    first = world.master()
    engine = _engine(world, first, _locked(seen))
    for n in (1, 2):
        engine.submit("script", {"n": n, "lock": "t"})
    successor = _engine(world, world.depose(first), _locked(seen))
    successor.resume(reversed(successor.store.load()))
    _until_idle(successor)
    assert seen == ["one 1", "two 1", "one 2", "two 2"]


def test_without_locks_two_operations_change_one_table(world: World) -> None:
    seen: list[str] = []
    engine = _engine(world, world.master(), _locked(seen))
    first, second = (engine.submit("script", {"n": n, "lock": "t"}) for n in (1, 2))
    first.busy = True
    assert not engine.step_once()
    with fault("locks-do-not-exclude"):
        assert engine.step_once()
    assert seen == ["one 2"]
    assert second.step == "two"


def test_threads_execute_and_callers_wait(world: World) -> None:
    seen: list[str] = []
    engine = _engine(world, world.master(), Script(_two_steps(seen)))
    threads = [threading.Thread(target=engine.serve) for _ in range(2)]
    for thread in threads:
        thread.start()
    assert [engine.run("script", {"n": n}, 30_000) for n in range(5)] == list(range(5))
    engine.stop()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_callers_learn_when_the_reign_ends(world: World) -> None:
    engine = _engine(world, world.master(), Script({"one": lambda _call: Wait("for ever")}))
    running = engine.submit("script", {})
    engine.stop()
    with pytest.raises(NotLeaderError, match="which continues the operation"):
        engine.wait(running, 30_000)


def test_a_step_of_another_version_fails_and_an_unknown_kind_is_left_alone(world: World) -> None:
    master = world.master()
    store = FateStore(world.table, master.reign)
    known, unknown = store.begin([FateOp("script", {}, 1), FateOp("from the future", {}, 1)])
    store.reach({known: FateStep("three", {})})
    engine = _engine(world, master, Script({"one": lambda _call: Done()}))
    engine.resume(store.load())
    _until_idle(engine)
    assert [r.error.message for r in engine.pending() if r.error] == [
        "script has no step 'three': another version began it"
    ]
    assert keys.fate_row(unknown) in [row.key for row in _rows(world)]


def test_the_remains_of_an_ended_operation_are_no_operation(world: World) -> None:
    row = Row(keys.fate_row("0" * 16), {keys.FATE_STEP: Cell(9, FateStep("one", {}).encode())})
    assert parse_record(row) is None
    with pytest.raises(CorruptionError):
        parse_record(Row(keys.fate_row("not hex"), {}))
    assert world.table.get(row.key) is None


def test_the_remains_of_an_ended_operation_go_with_the_next_leader(world: World) -> None:
    script = Script({})
    script.steps = _two_steps(script.seen)
    first = world.master()
    engine = _engine(world, first, script)
    engine.submit("script", {"n": 1})
    engine.step_once()
    (row,) = _rows(world)
    world.table.purge([CellKey(row.key, keys.FATE_OP)])
    assert [row.key for row in _rows(world)] == [row.key], "the step is left"
    assert _engine(world, world.depose(first), script).store.load() == []
    assert _rows(world) == []


def test_an_operation_whose_beginning_failed_does_not_stay_in_the_books(world: World) -> None:
    """The write was done and its answer was lost: no process would end it before the next master executes it."""
    reign = world.master().reign
    table = FailingMetadata(world.table)
    store = FateStore(table, reign)
    with table.failing(lambda call, _: call == "put", applied=True), pytest.raises(UnavailableError):
        store.begin([FateOp("script", {}, 1), FateOp("script", {}, 2)])
    with table.failing(lambda call, _: call == "purge"), pytest.raises(UnavailableError):
        store.end([])
    (written,) = store.begin([FateOp("script", {}, 3)])
    assert len(store.load()) == 3
    store.end([])
    assert [record.txid for record in store.load()] == [written]


def test_arguments_that_can_t_be_written_are_refused_before_anything_begins(world: World) -> None:
    engine = _engine(world, world.master(), Script({}))
    with pytest.raises(InvalidInputError):
        engine.submit("script", {"n": float("nan")})
    assert _rows(world) == []


# ---- failures, their number


def _failing(world: World, master: Master, failed_max: int) -> FateEngine:
    script = Script({"one": lambda call: Failed(NotFoundError(f"no {call.args['n']}"))})
    store, limits = FateStore(world.table, master.reign), FateLimits(failed_max=failed_max)
    engine = FateEngine(store, {"script": script}, world.clock, random.Random(1), limits)
    engine.resume(engine.store.load())
    return engine


def _kept(engine: FateEngine) -> list[str]:
    return [running.error.message for running in engine.pending() if running.error is not None]


def _three_masters_with_four_failures_each(world: World) -> None:
    master = world.master()
    for reign in range(3):
        engine = _failing(world, master, 5)
        for n in range(4):
            engine.submit("script", {"n": 10 * reign + n})
            _until_idle(engine)
        master = world.depose(master)
    assert _kept(engine) == ["no 13", "no 20", "no 21", "no 22", "no 23"], "failures of earlier masters pile up"
    successor = _failing(world, master, 3)
    _until_idle(successor)
    assert _kept(successor) == ["no 21", "no 22", "no 23"]
    assert len(_rows(world)) == 3


def test_failures_are_bounded_over_changes_of_the_master_and_the_newest_are_shown(world: World) -> None:
    _three_masters_with_four_failures_each(world)


def test_red_failures_pile_up(world: World) -> None:
    with (
        fault("failures-are-kept-for-ever"),
        pytest.raises(AssertionError, match="failures of earlier masters pile up"),
    ):
        _three_masters_with_four_failures_each(world)
