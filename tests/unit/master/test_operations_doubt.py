"""Writes of operations get no answer: the error for their user, and the end of the operations. The answer is lost, or
the write is lost, or the put of a record arrives long after the end of its master.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bookkeeper.errors import BookkeeperError, InvalidInputError, UnavailableError
from bookkeeper.master.fate.engine import Args
from bookkeeper.master.fate.fate_store import FateStore
from bookkeeper.master.operations.table_lifecycle import create_table_args
from bookkeeper.master.reign.leader import campaign
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import Row, RowPut
from tests.support.cuts import Crash, cut_at, unanswered_once
from tests.support.faults import fault
from tests.support.masters import LocalMaster
from tests.support.operation_plays import OPERATIONS, PLAYS, REQUESTS, Outcomes
from tests.support.operation_scenes import NAME, Play, Scene, end_state, scene_at

ASKED = [name for name in OPERATIONS if name in REQUESTS]
"""Operations that a user requests."""

DELETES = "delete_table"
CREATES = create_table_args(NAME, [b"m"], [], {})

Begun = Callable[[], None]


def is_beginning(rows: Sequence[RowPut]) -> bool:
    """Whether a put is that of an operation's record."""
    return any(keys.FATE_OP in row.values for row in rows)


@contextmanager
def in_doubt(scene: Scene, landed: bool) -> Iterator[Begun]:
    """The put of a record gets no answer, and arrives only if ``landed``. The yielded function writes it late."""
    put, late = scene.world.table.put, list[Callable[[], None]]()

    def unanswered(rows: Sequence[RowPut], rank: int) -> None:
        if not is_beginning(rows):
            return put(rows, rank)
        if landed:
            put(rows, rank)
        late.append(lambda: put(rows, rank))
        raise UnavailableError("no answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scene.world.table, "put", unanswered)
        yield lambda: late[0]()


def records(scene: Scene) -> list[Row]:
    """The records of operations in the books."""
    return list(scene.world.table.scan(*keys.section(keys.FATE_PREFIX)))


def is_idle(scene: Scene) -> bool:
    """Nothing is under way, nothing has failed, and no record is left."""
    return scene.master.fate.pending() == [] and records(scene) == []


def check_doubt(directory: Path, peer: LocalMaster, outcomes: Outcomes, name: str, landed: bool) -> None:
    """The user gets an error of a doubtful beginning; this master continues the operation, with or without the put."""
    play, (_, after) = OPERATIONS[name], outcomes.of(name)
    with scene_at(directory / "west", peer) as scene:
        args = play.prepare(scene)
        with in_doubt(scene, landed):
            for _ in range(2):  # a second request joins it
                with pytest.raises(BookkeeperError) as raised:
                    scene.master.fate.submit(play.kind, args)
                assert isinstance(raised.value, UnavailableError), "its user gets a failure"
                assert raised.match("in doubt whether")
            (running,) = scene.master.fate.pending()
            scene.world.clock.jump(60_000)
            assert scene.master.fate.step_once()
            assert (running.started, running.note) == (False, "no answer")
        play.go_on(scene)
        assert running.error is None
        assert is_idle(scene)
        assert end_state(scene) == after


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("name", ASKED)
def test_an_operation_whose_beginning_is_in_doubt_goes_on(
    name: str, landed: bool, tmp_path: Path, peer: LocalMaster, outcomes: Outcomes
) -> None:
    check_doubt(tmp_path, peer, outcomes, name, landed)


def test_red_a_user_gets_a_failure_of_an_operation_that_is_done(
    tmp_path: Path, peer: LocalMaster, outcomes: Outcomes
) -> None:
    with fault("a-doubt-is-a-failure"), pytest.raises(AssertionError, match="its user gets a failure"):
        check_doubt(tmp_path, peer, outcomes, "create_table", True)


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("name", REQUESTS)
def test_an_operation_goes_on_when_each_of_its_writes_is_in_doubt(
    name: str, landed: bool, tmp_path: Path, peer: LocalMaster, outcomes: Outcomes
) -> None:
    """The same master repeats each write that got no answer."""
    play, (_, after) = PLAYS[name], outcomes.of(name)
    with scene_at(tmp_path / "west", peer) as scene:
        args = play.prepare(scene)
        with unanswered_once(scene.world, landed) as doubted:
            while not is_done(play, scene, args):
                continue  # each time with one doubt more, at least
        assert len(doubted) > 2
        assert is_idle(scene)
        assert end_state(scene) == after


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("name", ASKED)
def test_the_next_master_executes_only_records_that_landed_in_time(
    name: str, landed: bool, tmp_path: Path, peer: LocalMaster, outcomes: Outcomes
) -> None:
    play, (before, after) = OPERATIONS[name], outcomes.of(name)
    with scene_at(tmp_path / "west", peer) as scene:
        args = play.prepare(scene)
        with in_doubt(scene, landed) as land, pytest.raises(UnavailableError, match="in doubt whether"):
            scene.master.fate.submit(play.kind, args)
        scene.master = scene.world.depose(scene.master)
        play.go_on(scene)
        assert is_idle(scene)
        expected = after if landed else before
        assert end_state(scene) == expected
        land()
        for _ in range(2):
            scene.master = scene.world.depose(scene.master)
            play.go_on(scene)
            assert is_idle(scene)
            assert end_state(scene) == expected


def is_done(play: Play, scene: Scene, args: Args) -> bool:
    """Ask for an operation, and whether it ends with an answer."""
    try:
        play.run(scene, args)
    except UnavailableError:
        return False
    return True


# ---- late records


def check_late_delete(directory: Path, peer: LocalMaster) -> None:
    """A user deletes a table, gets no answer, asks the next master, which does it; then makes a table of that name. The
    first request lands in the books, and later the master changes: the new table stays.
    """
    with scene_at(directory / "west", peer) as scene:
        scene.create_table()
        with in_doubt(scene, landed=False) as land, pytest.raises(UnavailableError):
            scene.master.fate.submit(DELETES, {"name": NAME})
        scene.master = scene.world.depose(scene.master)
        scene.run(DELETES, {"name": NAME})
        table_id = scene.create_table()
        land()
        scene.master = scene.world.depose(scene.master)
        scene.finish()
        assert table_id in scene.world.config().tables, "an old request deletes a new table"
        assert scene.world.config().table_named(NAME).table_id == table_id
        assert is_idle(scene)


def test_a_request_that_lands_when_it_was_asked_again_is_void(tmp_path: Path, peer: LocalMaster) -> None:
    check_late_delete(tmp_path, peer)


def test_red_a_table_is_deleted_because_of_an_old_request(tmp_path: Path, peer: LocalMaster) -> None:
    with fault("late-operations-count"), pytest.raises(AssertionError, match="an old request deletes a new table"):
        check_late_delete(tmp_path, peer)


def test_a_void_record_goes_while_its_master_leads(tmp_path: Path, peer: LocalMaster) -> None:
    with scene_at(tmp_path / "west", peer) as scene:
        with in_doubt(scene, landed=False) as land, pytest.raises(UnavailableError):
            scene.master.fate.submit("create_table", CREATES)
        scene.master = scene.world.depose(scene.master)
        deletion = scene.master.fate.submit(DELETES, {"name": NAME})
        land()
        assert len(records(scene)) == 2
        scene.master.collect(1)
        assert [row.key for row in records(scene)] == [keys.fate_row(deletion.txid)]


# ---- masters that die while they take over


def dies_as_it_takes_over(scene: Scene, write: int, behind: bool) -> bool:
    """A master that dies at one of its first writes; whether there were so many."""
    session = scene.world.coordination.open_session("master", "127.0.0.1:1")
    reign = campaign(scene.world.coordination, session)
    assert reign is not None
    with cut_at(scene.world, write, behind) as has_died:
        with suppress(Crash):
            FateStore(scene.world.table, reign).load()
        died = has_died()
    session.close()
    return died


@pytest.mark.parametrize("behind", [False, True], ids=["before it", "behind it"])
def test_an_operation_survives_any_number_of_masters_that_die_as_they_take_over(
    behind: bool, tmp_path: Path, peer: LocalMaster, outcomes: Outcomes
) -> None:
    _, after = outcomes.of("create_table")
    for write in itertools.count():
        with scene_at(tmp_path / str(write) / "west", peer) as scene:
            args = OPERATIONS["create_table"].prepare(scene)
            scene.master.fate.submit("create_table", args)
            scene.master.fate.step_once()
            scene.master.session.close()
            cut = [dies_as_it_takes_over(scene, write, behind) for _ in range(3)]
            scene.master = scene.world.master()
            scene.finish()
            assert is_idle(scene)
            assert end_state(scene) == after
        if not any(cut):
            assert write == 2, "every step anew, and that all are taken over"
            return


def test_a_record_that_the_books_refuse_is_no_operation(tmp_path: Path, peer: LocalMaster) -> None:
    with scene_at(tmp_path / "west", peer) as scene:
        for _ in range(2):
            with pytest.raises(InvalidInputError):
                scene.master.fate.submit(DELETES, {"name": float("nan")})
        assert is_idle(scene)
