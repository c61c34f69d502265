"""Each law of the tserver's pure parts turns red when a switch breaks its rule: R1, R12 to R15, R18 to R22, R24."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faults import fault
from tests.unit.tserver import test_authorizations as sight_laws
from tests.unit.tserver.books import test_wal_cells as books_laws
from tests.unit.tserver.bulk import test_segment_offers as offer_laws
from tests.unit.tserver.origins import test_origin_dedup as path_laws
from tests.unit.tserver.receive import test_receive_streams as stream_laws
from tests.unit.tserver.receive import test_receiver as receiver_laws
from tests.unit.tserver.receive import test_slice_decision as receiving_laws
from tests.unit.tserver.tablets import test_block_targets as stamp_laws
from tests.unit.tserver.tablets import test_load_plan as loading_laws
from tests.unit.tserver.tablets import test_tablet as tablet_laws
from tests.unit.tserver.tablets import test_tablet_segments as segment_laws
from tests.unit.tserver.write import test_submissions as submission_laws

LAWS = [
    ("high-water-does-not-count", receiving_laws.test_r18_a_range_that_comes_twice_is_applied_once, "is applied twice"),
    (
        "gaps-are-swallowed",
        receiving_laws.test_r19_a_range_that_starts_above_is_declined_with_the_high_water,
        "a range behind a gap is taken",
    ),
    (
        "durable-for-unasked-tablets",
        receiver_laws.test_r19_an_answer_proves_nothing_about_tablets_that_were_not_asked,
        "proves what a tablet that was not asked has",
    ),
    (
        "own-data-is-welcome",
        receiver_laws.test_r21_data_that_passed_this_cluster_is_refused,
        "data that passed this cluster is taken again",
    ),
    ("own-data-is-welcome", receiver_laws.test_r21_this_clusters_own_files_do_not_come_back, "own files come back"),
    ("tokens-live-for-ever", stream_laws.test_r20_an_idle_token_is_dead_for_ever, "an expired token is taken"),
    (
        "every-segment-cell-counts",
        loading_laws.test_a_segment_that_the_newest_state_does_not_name_does_not_count,
        "does not name counts",
    ),
    (
        "every-segment-cell-counts",
        segment_laws.test_cells_that_the_newest_state_does_not_name_are_dead,
        "does not name stays",
    ),
    (
        "late-states-decide",
        segment_laws.test_nothing_is_dead_by_the_state_of_another_holder_or_by_none,
        "a late state of another holder decides",
    ),
    (
        "compactions-forget-streams",
        segment_laws.test_r18_a_compaction_changes_nothing_but_segments,
        "changes more than segments",
    ),
    (
        "labels-are-not-read",
        sight_laws.test_a_users_label_must_be_an_expression,
        "a label is taken that no reader can judge",
    ),
    ("authorizations-for-the-asking", sight_laws.test_more_is_refused_to_ann, "an authorization that was not granted"),
    (
        "high-water-not-rebuilt",
        loading_laws.test_r18_the_high_water_is_rebuilt_from_block_headers,
        "high-water is not rebuilt",
    ),
    (
        "no-barriers-in-the-books",
        books_laws.test_r24_the_barrier_is_in_the_books_before_the_block_and_stays_there,
        "the barrier is not in the books",
    ),
    ("log-without-repl", books_laws.test_r12_log_and_repl_go_in_one_row_put, "do not go in one put"),
    (
        "log-without-repl",
        books_laws.test_r12_the_first_block_with_a_target_finds_both_cells_in_the_books,
        "a stamped block before its repl: cell",
    ),
    (
        "enabling-needs-no-cell",
        books_laws.test_r12_replication_that_is_enabled_in_the_middle_of_a_log_gets_its_cell,
        "a stamped block before its repl: cell",
    ),
    (
        "written-counts-as-synced",
        books_laws.test_r15_needed_never_passes_what_is_synced,
        "the books need what is not synced",
    ),
    (
        "a-flush-keeps-the-log-cell",
        books_laws.test_a_record_that_is_appended_while_its_tablet_is_flushed_keeps_the_log,
        "lets the log of a later record go",
    ),
    (
        "some-is-nothing",
        offer_laws.test_a_tablet_has_all_of_a_stream_or_nothing_or_takes_no_file,
        "has some of the records counts as empty",
    ),
    (
        "no-write-waits-for-the-barrier",
        offer_laws.test_r14_who_changes_the_configuration_waits_for_those_who_saw_the_old_one,
        "does not wait for a write under way",
    ),
    (
        "no-block-has-targets",
        stamp_laws.test_r13_a_block_names_every_target_in_force_and_its_groups,
        "the stamps of a block are not its targets",
    ),
]


@pytest.mark.parametrize(("name", "law", "says"), LAWS)
def test_without_its_rule_a_law_is_red(name: str, law: Callable[[], None], says: str) -> None:
    with fault(name), pytest.raises(AssertionError, match=says):
        law()


def test_without_a_count_of_what_is_forgotten_a_late_message_is_taken(tmp_path: Path) -> None:
    with (
        fault("forgotten-meanwhile-counts"),
        pytest.raises(AssertionError, match="a stream that was forgotten is taken"),
    ):
        submission_laws.test_r20_a_message_that_saw_its_stream_in_the_books_before_it_was_forgotten_is_not_taken(
            tmp_path
        )


PATH_LAWS = [
    (
        "paths-are-not-compared",
        path_laws.test_r22_schedule_26_what_comes_straight_and_by_way_of_another_is_applied_once,
        "c applied .* twice",
    ),
    ("high-water-for-all-paths", path_laws.test_r22_schedule_26_a_group_that_goes_another_way_is_not_lost, "c lost"),
    ("enabled-since-ever", path_laws.test_r22_what_a_path_left_out_before_it_was_enabled_again_is_not_lost, "c lost"),
    ("path-passes-what-is-set-aside", path_laws.test_r22_what_is_in_quarantine_on_one_path_is_not_lost, "c lost"),
    (
        "crash-forgets-the-paths",
        path_laws.test_r22_a_tserver_that_died_knows_what_came_by_which_path,
        "c applied .* twice",
    ),
    ("merged-rows-hold-the-same", path_laws.test_r22_a_merged_tablet_knows_which_rows_have_what, "c lost"),
    (
        "blocks-hold-all-they-claim",
        path_laws.test_r22_a_cluster_behind_learns_the_origins_of_its_records_and_no_others,
        "c lost",
    ),
    ("flushes-forget-the-paths", path_laws.test_r22_a_path_may_come_when_another_has_long_ended, "c applied .* twice"),
]


@pytest.mark.parametrize(("name", "law", "says"), PATH_LAWS)
def test_without_its_rule_a_law_of_several_paths_is_red(
    name: str, law: Callable[[Path], None], says: str, tmp_path: Path
) -> None:
    with fault(name), pytest.raises(AssertionError, match=says):
        law(tmp_path)


def test_without_predecessors_a_move_leaves_no_trace(tmp_path: Path) -> None:
    with fault("moves-leave-no-trace"), pytest.raises(AssertionError, match="does not say after what"):
        tablet_laws.test_r24_the_first_block_in_another_log_says_after_what(tmp_path)


def test_without_the_offsets_of_retained_logs_they_are_replayed_again(tmp_path: Path) -> None:
    with fault("retained-logs-have-no-offset"), pytest.raises(AssertionError, match="replayed from its beginning"):
        tablet_laws.test_r4_a_log_whose_cell_waits_for_a_name_has_its_offset_in_each_state(tmp_path)
