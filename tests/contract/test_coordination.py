"""The laws of :class:`bookkeeper.coordination.coordination_protocol.Coordination`, for every implementation, with real
processes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from bookkeeper.coordination.config_changes import next_count
from bookkeeper.coordination.coordination_protocol import Coordination, Session, Versioned
from bookkeeper.coordination.host_times import raise_times, times_of
from bookkeeper.errors import ConflictError, InvalidInputError, LeaseLostError, RefusedError
from bookkeeper.model import HostIdentity
from tests.support.coordination_process import (
    LEASE_MS,
    MARGIN_MS,
    SHORT_LEASE_MS,
    STORES,
    CoordinationProcess,
    new_store,
)
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.standstills import undisturbed
from tests.support.tservers import wait_until


@dataclass
class Site:
    """One store, opened in this process or in another one."""

    name: str
    argument: str

    def open(self, lease_ms: int = LEASE_MS) -> Coordination:
        return STORES[self.name](self.argument, lease_ms)

    def process(self, lease_ms: int = LEASE_MS) -> CoordinationProcess:
        return CoordinationProcess(self.name, self.argument, str(lease_ms))


@pytest.fixture(params=list(STORES))
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return Site(request.param, new_store(request.param, request, tmp_path))


@pytest.fixture
def store(site: Site) -> Iterator[Coordination]:
    coordination = site.open()
    yield coordination
    coordination.close()


def _alive(store: Coordination, session_id: str) -> bool:
    return {info.session_id: info.alive for info in store.sessions("master")}[session_id]


# ---- sessions


def test_a_session_is_alive_until_it_is_closed_and_dead_for_good_then(store: Coordination) -> None:
    session = store.open_session("tserver", "host:1")
    assert [(i.session_id, i.kind, i.address, i.alive) for i in store.sessions("tserver")] == [
        (session.session_id, "tserver", "host:1", True)
    ]
    assert session.is_valid()
    store.confirm(session)
    session.close()
    session.close()
    assert not session.is_valid()
    with pytest.raises(LeaseLostError):
        session.check()
    with pytest.raises(LeaseLostError):
        store.confirm(session)
    assert [i.alive for i in store.sessions("tserver")] == [False]


def test_a_session_shows_the_host_whose_lock_its_process_holds_also_after_its_death_and_a_restart(
    site: Site, store: Coordination
) -> None:
    host = HostIdentity("host2", "4f1c")
    session = store.open_session("tserver", "h:1", host)
    store.open_session("tserver", "h:2")
    assert {info.address: info.host for info in store.sessions("tserver")} == {"h:1": host, "h:2": None}
    session.close()
    again = site.open()
    try:
        assert {i.address: (i.host, i.alive) for i in again.sessions("tserver")}["h:1"] == (host, False)
    finally:
        again.close()


def test_kinds_are_separate_and_ids_never_repeat_and_fit_into_a_path(store: Coordination) -> None:
    ids = [store.open_session(kind, "h:1").session_id for kind in ("master", "tserver", "tserver")]
    assert len(set(ids)) == 3
    assert all(part.isalnum() for session_id in ids for part in session_id.split("-"))
    assert [i.session_id for i in store.sessions("master")] == ids[:1]
    assert {i.session_id for i in store.sessions("tserver")} == set(ids[1:])
    with pytest.raises(InvalidInputError):
        store.open_session("../x", "h:1")


def test_a_dead_session_is_listed_until_it_is_forgotten_and_a_live_one_can_not_be_forgotten(
    store: Coordination,
) -> None:
    session = store.open_session("tserver", "h:1")
    with pytest.raises(RefusedError):
        store.forget_session(session.session_id)
    session.close()
    store.forget_session(session.session_id)
    store.forget_session(session.session_id)
    assert store.sessions("tserver") == []
    assert store.open_session("tserver", "h:1").session_id != session.session_id


def test_a_session_outlives_its_lease_as_long_as_it_is_renewed(site: Site) -> None:
    def check() -> None:
        with closing(site.open(SHORT_LEASE_MS)) as store:
            session = store.open_session("master", "h:1")
            threading.Event().wait(2 * (SHORT_LEASE_MS + MARGIN_MS) / 1000)
            assert session.is_valid()
            assert _alive(store, session.session_id)

    undisturbed(check)


def test_a_killed_process_counts_as_dead_at_once(site: Site, store: Coordination) -> None:
    with site.process() as other:
        session_id = other.ask("open", "master", "h:1")
        assert _alive(store, session_id)
        other.kill()
        assert not _alive(store, session_id)


def test_a_stopped_process_is_dead_after_its_lease_and_stays_dead_when_it_resumes(site: Site) -> None:
    def check() -> None:
        with closing(site.open(SHORT_LEASE_MS)) as store, site.process(SHORT_LEASE_MS) as other:
            session_id = other.ask("open", "master", "h:1")
            other.freeze()
            wait_until(lambda: not _alive(store, session_id), "the end of its lease")
            other.thaw()
            assert other.ask("valid", session_id) is False
            threading.Event().wait(SHORT_LEASE_MS / 1000)
            assert other.ask("valid", session_id) is False
            assert not _alive(store, session_id)

    undisturbed(check)


PAUSES_MS = [SHORT_LEASE_MS + more_ms for more_ms in (-500, -100, -50, 0, 50, MARGIN_MS)]


def test_no_session_counts_as_dead_while_it_is_valid(site: Site) -> None:
    def is_valid_when_dead() -> bool:
        with closing(site.open(SHORT_LEASE_MS)) as store, site.process(SHORT_LEASE_MS) as other:
            session_id = other.ask("open", "master", "h:1")
            for pause_ms in PAUSES_MS:
                other.freeze()
                threading.Event().wait(pause_ms / 1000)
                dead = not _alive(store, session_id)
                other.thaw()
                if dead:
                    return bool(other.ask("valid", session_id))
        return False

    assert not undisturbed(is_valid_when_dead)  # a standstill is no excuse for a valid session that is dead


# ---- leadership


def test_one_leads_and_asking_again_changes_nothing(store: Coordination) -> None:
    first, second = store.open_session("master", "a:1"), store.open_session("master", "b:1")
    assert store.leader() is None
    leader = store.try_lead(first)
    assert leader is not None
    assert (leader.session_id, leader.address) == (first.session_id, "a:1")
    assert store.try_lead(second) is None
    assert store.try_lead(first) == leader == store.leader()


def test_epochs_rise_over_reigns_and_over_restarts_of_the_store(site: Site) -> None:
    epochs = []
    for _ in range(3):
        store = site.open()
        for _ in range(2):
            session = store.open_session("master", "a:1")
            leader = store.try_lead(session)
            assert leader is not None
            epochs.append(leader.epoch)
            session.close()
            assert store.leader() is None
        store.close()
    assert epochs == sorted(set(epochs))


def test_r8_a_leader_lifts_its_epoch_above_a_rank_it_met_and_the_next_reign_is_above_that(store: Coordination) -> None:
    first, second = store.open_session("master", "a:1"), store.open_session("master", "b:1")
    assert store.try_lead(first) is not None
    assert store.raise_epoch(first, 41).epoch == 42
    assert store.raise_epoch(first, 7).epoch == 42
    with pytest.raises(LeaseLostError):
        store.raise_epoch(second, 100)
    first.close()
    with pytest.raises(LeaseLostError):
        store.raise_epoch(first, 100)
    with pytest.raises(LeaseLostError):
        store.try_lead(first)
    leader = store.try_lead(second)
    assert leader is not None
    assert leader.epoch == 43


def test_of_many_candidates_exactly_one_leads_and_a_killed_leader_is_replaced_at_once(site: Site) -> None:
    with site.process() as a, site.process() as b, site.process() as c:
        processes = [a, b, c]
        ids = [p.ask("open", "master", "h:1") for p in processes]
        threads_answers: dict[int, object] = {}

        def stand(index: int) -> None:
            threads_answers[index] = processes[index].ask("lead", ids[index])

        epochs = []
        while processes:
            threads = [threading.Thread(target=stand, args=(i,)) for i in range(len(processes))]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            winners = [i for i in range(len(processes)) if threads_answers[i] is not None]
            assert len(winners) == 1
            epochs.append(threads_answers[winners[0]][1])  # type: ignore[index]
            processes[winners[0]].kill()
            del processes[winners[0]], ids[winners[0]]
            threads_answers.clear()
        assert epochs == [1, 2, 3]


def test_a_stopped_leader_is_replaced_after_its_lease_and_detects_it_when_it_resumes(site: Site) -> None:
    def check() -> None:
        with closing(site.open(SHORT_LEASE_MS)) as store, site.process(SHORT_LEASE_MS) as other:
            session_id = other.ask("open", "master", "a:1")
            led_by, epoch = other.ask("lead", session_id)
            assert led_by == session_id
            mine = store.open_session("master", "b:1")
            other.freeze()
            assert store.try_lead(mine) is None

            def leads() -> bool:
                assert mine.is_valid()
                return store.try_lead(mine) is not None

            wait_until(leads, "the end of its lease")
            other.thaw()
            assert other.ask("valid", session_id) is False
            leader = store.leader()
            assert leader is not None
            assert (leader.session_id, leader.epoch) == (mine.session_id, epoch + 1)

    undisturbed(check)


# ---- configuration tree


def test_values_have_versions_and_a_mismatch_changes_nothing(store: Coordination) -> None:
    assert store.get("/a") is None
    assert store.put("/a", b"1", 0) == 1
    assert store.put("/a", b"2", 1) == 2
    assert store.put("/a", b"\x00\xff") == 3
    generation = store.generation()
    for expected in (0, 1, 2, 4):
        with pytest.raises(ConflictError):
            store.put("/a", b"no", expected)
        with pytest.raises(ConflictError):
            store.delete("/a", expected)
    found = store.get("/a")
    assert found is not None
    assert (found.value, found.version) == (b"\x00\xff", 3)
    assert store.generation() == generation
    store.delete("/a", 3)
    store.delete("/a", 3)
    assert store.get("/a") is None
    assert store.put("/a", b"new", 0) == 1
    with pytest.raises(InvalidInputError):
        store.put("a", b"")


def test_the_generation_counts_every_change_and_only_those(store: Coordination) -> None:
    seen = [store.generation()]
    for change in (
        lambda: store.put("/a", b"1"),
        lambda: store.put("/a", b"1"),
        lambda: store.delete("/a"),
        lambda: store.put("/b", b"", 0),
    ):
        change()
        seen.append(store.generation())
    assert seen == sorted(set(seen))
    store.delete("/nothing")
    store.get("/a")
    store.open_session("master", "h:1").close()
    assert store.generation() == seen[-1]


def test_children_are_those_that_start_with_the_prefix(store: Coordination) -> None:
    for path in ("/t/1", "/t/10", "/t/2", "/tt", "/u/1", "/t/%_", "/T/1"):
        store.put(path, path.encode())
    assert list(store.children("/t/")) == ["/t/%_", "/t/1", "/t/10", "/t/2"]
    assert list(store.children("/t/1")) == ["/t/1", "/t/10"]
    assert list(store.children("/t/%_")) == ["/t/%_"]
    assert len(store.children("/")) == 7
    assert {v.value for v in store.children("/u").values()} == {b"/u/1"}


def test_values_are_there_after_a_restart(site: Site, store: Coordination) -> None:
    with site.process() as other:
        other.ask("write", "/w/", 20)
        other.kill()
    assert len(store.children("/w/")) == 20
    generation = store.generation()
    store.close()
    again = site.open()
    assert (again.generation(), len(again.children("/w/"))) == (generation, 20)
    again.close()


def test_counters_of_concurrent_processes_and_threads_never_give_a_number_twice(
    site: Site, store: Coordination
) -> None:
    given: list[int] = []
    with site.process() as a, site.process() as b:
        before = store.generation()

        def ask(process: CoordinationProcess) -> None:
            given.extend(process.ask("count", "x", 40))

        def count() -> None:
            given.extend(next_count(store, "x") for _ in range(40))

        threads = [threading.Thread(target=ask, args=(p,)) for p in (a, b)]
        threads += [threading.Thread(target=count) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(given) == list(range(1, 161))
    assert store.generation() == before + 160


def test_children_are_one_moment_even_while_others_write(site: Site, store: Coordination) -> None:
    with site.process() as other:
        writer = threading.Thread(target=other.ask, args=("write", "/n/", 150))
        writer.start()
        while writer.is_alive():
            seen = sorted(int(v.value) for v in store.children("/n/").values())
            assert seen == list(range(len(seen))), "a later value without an earlier one"
        writer.join()
    assert len(store.children("/n/")) == 150


def test_several_values_change_in_one_step_while_no_session_is_alive(store: Coordination) -> None:
    store.put("/a", b"1")
    before, _ = store.tree()
    session = store.open_session("replay", "h:1")
    with pytest.raises(RefusedError, match=rf"{session.session_id} run with the former settings: stop all hosts first"):
        store.put_while_idle({"/a": b"2", "/b": b"2"})
    session.close()
    store.put_while_idle({"/a": b"2", "/b": b"2"})
    assert store.tree() == (before + 1, {"/a": Versioned(b"2", 2), "/b": Versioned(b"2", 1)})


def test_a_session_that_begins_in_the_middle_prevents_a_change(site: Site, store: Coordination) -> None:
    with closing(site.open()) as other:
        look, opened = store._judge, list[Session]()  # type: ignore[attr-defined]
        store.open_session("replay", "h:1").close()

        def looked(*arguments: object) -> object:
            found = look(*arguments)
            if not opened:
                opened.append(other.open_session("master", "h:2"))
            return found

        store._judge = looked  # type: ignore[attr-defined]
        with must_raise(RefusedError, "a change came behind a session", match="stop all hosts first"):
            store.put_while_idle({"/a": b"2"})
        assert store.get("/a") is None


def test_without_the_serial_a_change_comes_behind_a_session(site: Site, store: Coordination) -> None:
    switches = {"embedded": "embedded-idle-at-a-look", "zookeeper": "zookeeper-idle-at-a-look"}
    with fault(switches[site.name]), pytest.raises(AssertionError, match="a change came behind a session"):
        test_a_session_that_begins_in_the_middle_prevents_a_change(site, store)


def test_the_tree_is_of_one_moment_while_it_changes(site: Site, store: Coordination) -> None:
    store.put("/a", b"1")
    first, _ = store.tree()
    with site.process() as writer:
        writing = threading.Thread(target=writer.ask, args=("write", "/b", 30))
        writing.start()
        while store.generation() < first + 30:
            generation, values = store.tree()
            assert len(values) == 1 + generation - first, "the values are of another moment than the generation"
        writing.join()
    assert store.tree() == (first + 30, store.children("/"))


# ---- the server times of hosts (N7)


def test_n7_a_process_whose_session_is_over_takes_no_later_times(site: Site, store: Coordination) -> None:
    session = store.open_session("tserver", "h:1")
    raise_times(store, session, "host1", 1_000)
    raise_times(store, session, "host1", 900)
    session.close()
    with closing(site.open()) as other:
        reader = other.open_session("tserver", "h:2")
        assert times_of(other, reader, {"host1", "host2"}) == 1_000
        assert times_of(other, reader, set()) == 0
    with must_raise(LeaseLostError, "N7: times are taken that the next leader did not see"):
        raise_times(store, session, "host1", 2_000)


def test_n7_red_nobody_looks_at_the_session(site: Site, store: Coordination) -> None:
    with (
        fault("times-are-taken-without-a-session"),
        pytest.raises(AssertionError, match="N7: times are taken that the next leader did not see"),
    ):
        test_n7_a_process_whose_session_is_over_takes_no_later_times(site, store)
