"""Laws that need a running tserver turn red when a switch breaks their rule: R1, R4, R7, R14, R15, R18, R20, R24."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration import test_tserver_adopting as adopting_laws
from tests.integration import test_tserver_books as books_laws
from tests.integration import test_tserver_compaction as compaction_laws
from tests.integration import test_tserver_compaction_cuts as cut_laws
from tests.integration import test_tserver_conditional as conditional_laws
from tests.integration import test_tserver_node as laws
from tests.integration import test_tserver_read_only as read_only_laws
from tests.integration import test_tserver_receiving as receiving_laws
from tests.integration import test_tserver_replicas as replica_laws
from tests.support.faults import fault
from tests.support.led_hosts import Hosts, hosts
from tests.support.tservers import Ground, ground

pytestmark = pytest.mark.integration

LAWS = [
    (
        "imports-are-applied-again",
        adopting_laws.test_r18_an_import_is_applied_once_even_when_its_segments_have_changed,
        "an import is taken twice",
    ),
    (
        "imports-are-not-remembered",
        adopting_laws.test_r18_a_server_may_die_when_an_import_is_in_the_books_and_nobody_knows,
        "an import is taken twice",
    ),
    (
        "imports-are-never-over",
        adopting_laws.test_r20_an_order_that_comes_when_its_import_is_over_is_refused,
        "an import that is over is taken",
    ),
    (
        "imports-show-before-they-travel",
        adopting_laws.test_what_is_imported_into_a_replicated_table_is_in_the_books_when_it_shows,
        "an import shows before it is in the books",
    ),
    (
        "imports-wait-for-nothing",
        adopting_laws.test_r24_an_import_has_its_place_between_what_was_written_before_and_later,
        "does not wait for what was written before it",
    ),
    (
        "imports-have-no-place",
        adopting_laws.test_imported_records_show_and_survive_the_server,
        "of equal timestamps the later wins",
    ),
    (
        "replaced-before-the-books-say-so",
        cut_laws.test_a_compaction_may_be_cut_between_any_two_steps,
        "the tablet can't be served any more",
    ),
    (
        "files-go-while-they-are-read",
        compaction_laws.test_a_page_that_is_being_filled_keeps_its_files,
        "the files go while a page is filled",
    ),
    (
        "compactions-forget-streams",
        compaction_laws.test_r18_what_is_known_of_a_stream_survives_a_compaction,
        "a compaction forgets what is known of a stream",
    ),
    (
        "conditions-are-replicated",
        conditional_laws.test_a_replicated_table_takes_no_conditional_write,
        "a replicated table takes a conditional write",
    ),
    (
        "conditions-see-the-past",
        conditional_laws.test_of_many_at_once_each_condition_holds_for_one,
        "a condition holds for several writes at once",
    ),
    (
        "read-only-is-a-word",
        read_only_laws.test_a_read_only_table_takes_no_users_write,
        "a read-only table takes a write",
    ),
    (
        "read-only-is-a-word",
        read_only_laws.test_a_read_only_cluster_takes_no_users_write_to_any_table,
        "a read-only table takes a write",
    ),
    (
        "confirmed-unseen",
        read_only_laws.test_r14_no_write_is_taken_after_the_confirmation,
        "a write is taken after the confirmation",
    ),
    (
        "confirmed-unseen",
        laws.test_r14_blocks_written_after_the_confirmation_name_the_new_targets,
        "after the confirmation has the old stamps",
    ),
    (
        "unsealed-logs-are-read",
        laws.test_r15_a_tablet_is_not_served_while_a_log_it_needs_has_no_seal,
        "served from a log that may still grow",
    ),
    (
        "late-attempts-count",
        laws.test_an_attempt_that_was_given_up_does_not_land_after_a_later_one,
        "given up lands after a later one",
    ),
    (
        "late-uses-are-needed",
        laws.test_r4_a_use_that_came_after_its_log_was_collected_is_passed_over,
        "not served for a log that nobody needs",
    ),
    (
        "flush-ids-begin-again",
        books_laws.test_r1_a_flush_that_arrives_after_the_next_holder_flushed_changes_nothing,
        "a late flush changes what the next holder wrote",
    ),
    (
        "orders-of-the-deposed-count",
        laws.test_orders_of_an_older_master_and_for_another_session_are_refused,
        "an order of an older master is carried out",
    ),
    (
        "high-water-does-not-count and paths-are-not-compared",
        receiving_laws.test_r18_the_high_water_survives_a_flush_and_a_move,
        "a flush or a move forgets what is known of a stream",
    ),
    (
        "marks-of-ended-streams-stay",
        receiving_laws.test_r20_a_stream_that_ended_while_nobody_served_the_tablet_leaves_no_mark,
        "a stream that is over leaves its mark",
    ),
    (
        "moves-leave-no-trace",
        laws.test_r24_a_tablet_that_moves_says_after_what_and_one_that_returns_comes_to_a_new_log,
        "does not say after what it comes",
    ),
]


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20}) as made:
        yield made


@pytest.mark.parametrize(("name", "law", "says"), LAWS)
def test_without_its_rule_a_law_of_a_running_tserver_is_red(
    name: str, law: Callable[[Ground], None], says: str, west: Ground
) -> None:
    with fault(name), pytest.raises(AssertionError, match=says):
        law(west)


REPLICA_LAWS = [
    (
        "replay-is-not-remembered",
        replica_laws.test_n1_a_late_name_of_a_dead_leader_takes_no_record_away,
        "a state hides the late one whose logs are gone",
    ),
    (
        "one-copy-is-enough",
        replica_laws.test_n3_a_state_with_too_few_copies_is_not_named_and_its_logs_stay,
        "a state with one copy of two is named",
    ),
    (
        "logs-go-with-the-flush",
        replica_laws.test_n3_a_state_with_too_few_copies_is_not_named_and_its_logs_stay,
        "logs go before enough hosts have their records",
    ),
    (
        "files-go-while-they-travel",
        replica_laws.test_p15_a_file_that_is_under_way_stays_although_a_later_state_is_named,
        "a file goes while another host gets it",
    ),
]


@pytest.mark.parametrize(("name", "law", "says"), REPLICA_LAWS)
def test_without_its_rule_a_law_of_replicas_is_red(
    name: str, law: Callable[[Hosts], None], says: str, tmp_path: Path
) -> None:
    with (
        hosts(tmp_path, "host1", "host2", "host3") as world,
        fault(name),
        pytest.raises(AssertionError, match=says),
    ):
        law(world)
