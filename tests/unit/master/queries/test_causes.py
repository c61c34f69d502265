"""The cause of each wait: this cluster's before the peer's; a file behind others has that of the file at the root."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bookkeeper.errors import AT_BOOKS, AT_LOG, AT_PEER, AT_REPLAY
from bookkeeper.master.index.barriers import FileBarrier
from bookkeeper.master.index.file_entry import FileEntry
from bookkeeper.master.index.shipments import Flight, Shipments
from bookkeeper.master.queries import causes
from bookkeeper.master.queries.causes import Away, Cause, Causes, Lack, LocalFacts, Now, kind_of_error
from bookkeeper.model import BlockRange
from tests.support.master_values import EAST, by_name, entry, name, report, shipping

W1, W2, W3 = name("s1"), name("s2"), name("s3")
NOW = Now(boot_ns=100_000_000_000, wall_ms=61_000)


def cause(made: FileEntry, *others: FileEntry, work: Shipments | None = None, now: Now = NOW, tries: int = 2) -> Cause:
    return Causes(by_name(made, *others), work or shipping(), now, tries).of(made, EAST)


def failed(
    code: str, failed_at: str, *, transient: bool, blocks: BlockRange | None = None, times: int = 1
) -> Shipments:
    """Tries of the first log failed."""
    work = shipping()
    said = replace(report(W1, 0, error="no", transient=transient), error_code=code, failed_at=failed_at, failed=blocks)
    for number in range(times):
        work.report(said, NOW.boot_ns - (times - number) * 10_000_000_000)
    return work


def test_a_file_that_a_target_has_waits_for_nothing() -> None:
    assert cause(entry(W1, 9, done={EAST: 9})).kind == causes.DONE


def test_a_file_is_waiting_until_a_worker_has_it() -> None:
    assert cause(entry(W1, 9)).kind == causes.WAITING
    work = shipping()
    work.hand_out((W1, EAST), Flight("s7", "t", 1, 9, 0))
    assert cause(entry(W1, 9), work=work).kind == causes.SHIPPING


def test_records_beyond_what_was_read_twice_are_not_read_yet_and_those_of_one_host_are_uncopied() -> None:
    made = entry(W1, 9, safe=0)
    assert cause(made).kind == causes.NOT_READ
    assert cause(made, now=replace(NOW, held_back={W1})).kind == causes.UNCOPIED


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        (LocalFacts(no_books=Lack(5, "the store is away")), causes.NO_BOOKS),
        (LocalFacts(no_tserver=Lack(5)), causes.NO_TSERVER),
        (LocalFacts(no_replay=Lack(5, "Java is missing")), causes.NO_REPLAY),
        (LocalFacts(away={"s1": Away("host2", 5)}), causes.LOG_AWAY),
        (LocalFacts(unrecoverable={W1.decode(): "block 3 is damaged"}), causes.DAMAGED),
    ],
)
def test_a_lack_of_this_cluster_comes_before_an_error_of_the_peer(facts: LocalFacts, kind: str) -> None:
    found = cause(entry(W1, 9), work=failed("unavailable", AT_PEER, transient=True), now=replace(NOW, local=facts))
    assert found.kind == kind
    assert found.since_ns in (5, None)


@pytest.mark.parametrize(
    ("code", "failed_at", "transient", "kind"),
    [
        ("not_admitted", AT_PEER, False, causes.SECRET_REFUSED),
        ("unauthorized", AT_PEER, False, causes.TABLE_REFUSED),
        ("other_instance", AT_PEER, False, causes.OTHER_INSTANCE),
        ("incompatible", AT_PEER, False, causes.OTHER_VERSION),
        ("table_gone", AT_PEER, False, causes.TABLE_GONE),
        ("refused", AT_PEER, False, causes.PEER_REFUSES),
        ("no_space", AT_PEER, True, causes.PEER_FULL),
        ("unavailable", AT_PEER, True, causes.PEER_UNREACHABLE),
        ("overloaded", AT_PEER, True, causes.PEER_BUSY),
        ("not_serving", AT_PEER, True, causes.PEER_BUSY),
        ("overloaded", AT_REPLAY, True, causes.SLOTS_BUSY),
        ("unavailable", AT_REPLAY, True, causes.REPLAY_FAILS),
        ("unavailable", AT_BOOKS, True, causes.NO_BOOKS),
        ("unavailable", AT_LOG, True, causes.DAMAGED),
        ("corruption", AT_LOG, False, causes.DAMAGED),
        ("log_away", AT_LOG, True, causes.LOG_AWAY),
    ],
)
def test_a_workers_error_has_the_kind_of_the_place_where_it_failed(
    code: str, failed_at: str, transient: bool, kind: str
) -> None:
    found = cause(entry(W1, 9), work=failed(code, failed_at, transient=transient))
    assert (found.kind, found.error, found.tries) == (kind, "no", 1)
    assert found.since_ns == NOW.boot_ns - 10_000_000_000
    assert found.next_try_ns > 0


def test_the_time_of_a_cause_is_that_of_the_first_failure_in_a_row() -> None:
    for transient in (True, False):
        found = cause(entry(W1, 9), work=failed("unavailable", AT_PEER, transient=transient, times=3))
        assert (found.tries, found.since_ns) == (3, NOW.boot_ns - 30_000_000_000)


def test_an_error_without_a_place_is_the_peers() -> None:
    assert kind_of_error("unavailable", "") == causes.PEER_UNREACHABLE


def test_records_that_the_peer_refuses_are_named_by_their_range_and_final_after_enough_tries() -> None:
    blocks = BlockRange(3, 4, 0, 0)
    once = cause(entry(W1, 9), work=failed("invalid_input", AT_PEER, transient=False, blocks=blocks))
    assert (once.kind, once.is_final, len(once.range_id)) == (causes.REFUSED_RECORD, False, 10)
    twice = cause(entry(W1, 9), work=failed("invalid_input", AT_PEER, transient=False, blocks=blocks, times=2))
    assert twice.is_final
    damaged = cause(entry(W1, 9), work=failed("corruption", AT_LOG, transient=False, blocks=blocks, times=2))
    assert (damaged.kind, damaged.range_id) == (causes.DAMAGED, once.range_id)


def test_a_log_that_grows_is_not_called_done_while_the_books_do_not_answer() -> None:
    unread = replace(NOW, local=LocalFacts(no_books=Lack(5, "the store is away")))
    assert cause(entry(W1, 9, done={EAST: 9}), now=unread) == Cause(causes.NO_BOOKS, 5, "the store is away")
    assert cause(entry(W1, 9, closed=True, done={EAST: 9}), now=unread).kind == causes.DONE


def test_a_log_of_a_dead_tserver_is_unsealed_although_the_target_has_all_that_is_known() -> None:
    lost = replace(NOW, has_lost_owner=lambda _name: True)
    made = entry(W1, 9, done={EAST: 9})
    assert cause(made, now=lost).kind == causes.UNSEALED
    away = replace(lost, local=LocalFacts(away={"s1": Away("host2", 7)}))
    assert cause(made, now=away) == Cause(causes.LOG_AWAY, 7, host="host2")
    problem = replace(lost, local=LocalFacts(unrecoverable={made.name(): "block 3 is damaged"}))
    assert cause(made, now=problem) == Cause(causes.DAMAGED, error="block 3 is damaged", is_final=True)
    on_host = LocalFacts(unrecoverable={made.name(): "block 3 is damaged"}, homes={"s1": "host2"})
    assert cause(made, now=replace(lost, local=on_host)).host == "host2"
    assert cause(entry(W1, 9, closed=True, done={EAST: 9}), now=lost).kind == causes.DONE


def test_a_file_behind_others_has_the_cause_of_the_file_at_the_root() -> None:
    third, second = entry(W3, 9, barriers=[(1, W2, 5)]), entry(W2, 5, barriers=[(1, W1, 9)])
    work = failed("table_gone", AT_PEER, transient=False)
    found = cause(third, second, entry(W1, 9), work=work)
    assert (found.kind, found.root) == (causes.BEHIND, W1)
    assert found.bottom.kind == causes.TABLE_GONE
    assert cause(second, entry(W1, 9), work=work) == found


def test_a_file_that_can_still_go_on_before_its_barrier_is_not_behind() -> None:
    assert cause(entry(W2, 9, barriers=[(4, W1, 5)]), entry(W1, 5)).kind == causes.WAITING
    assert cause(entry(W2, 9, barriers=[(4, W1, 5)], done={EAST: 3}), entry(W1, 5)).kind == causes.BEHIND


def test_a_file_behind_all_logs_before_one_waits_for_the_oldest() -> None:
    oldest, newer = entry(name("s1", 1), 5, closed=True), entry(name("s1", 2), 5, closed=True, done={EAST: 5})
    made = entry(W2, 9, barriers=[FileBarrier(1, name("s1", 2), 5, all_before=True)])
    found = cause(made, oldest, newer)
    assert (found.kind, found.root, found.bottom.kind) == (causes.BEHIND, name("s1", 1), causes.WAITING)


def test_a_file_behind_records_that_nobody_has_read_yet_says_so() -> None:
    root = entry(W1, 5, done={EAST: 5})
    found = cause(entry(W2, 9, barriers=[(1, W1, 7)]), root)
    assert (found.kind, found.root, found.bottom.kind) == (causes.BEHIND, W1, causes.NOT_READ)
    lost = replace(NOW, has_lost_owner=lambda uri: uri == W1.decode())
    assert cause(entry(W2, 9, barriers=[(1, W1, 7)]), root, now=lost).bottom.kind == causes.UNSEALED


def test_files_that_wait_for_each_other_have_a_cause_although_there_must_be_none() -> None:
    one, other = entry(W1, 5, barriers=[(1, W2, 5)]), entry(W2, 5, barriers=[(1, W1, 5)])
    assert cause(one, other).kind == causes.BEHIND


def test_a_long_chain_of_files_is_followed_once() -> None:
    count = 3_000
    chain = [entry(name("s1", 1), 5)]
    chain += [entry(name("s1", n), 5, barriers=[(1, name("s1", n - 1), 5)]) for n in range(2, count + 1)]
    looked = Causes(by_name(*chain), failed("not_admitted", AT_PEER, transient=False), NOW, 2)
    found = [looked.of(made, EAST) for made in reversed(chain)]
    assert {one.bottom.kind for one in found} == {causes.SECRET_REFUSED}
    assert {one.root for one in found[:-1]} == {name("s1", 1)}
