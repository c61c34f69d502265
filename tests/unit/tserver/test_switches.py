"""Each law of the tserver's pure parts turns red when its rule is broken by a switch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.faults import fault
from tests.unit.tserver import test_books as books_laws
from tests.unit.tserver import test_commit as commit_laws
from tests.unit.tserver import test_loading as loading_laws
from tests.unit.tserver import test_offers as offer_laws
from tests.unit.tserver import test_paths as path_laws
from tests.unit.tserver import test_receiver as receiver_laws
from tests.unit.tserver import test_receiving as receiving_laws
from tests.unit.tserver import test_segments as segment_laws
from tests.unit.tserver import test_sight as sight_laws
from tests.unit.tserver import test_stamps as stamp_laws
from tests.unit.tserver import test_streams as stream_laws
from tests.unit.tserver import test_tablet as tablet_laws

RED = (AssertionError, pytest.fail.Exception)

LAWS = [
    ("high-water-does-not-count", receiving_laws.test_r18_a_range_that_comes_twice_is_applied_once),
    ("gaps-are-swallowed", receiving_laws.test_r19_a_range_that_starts_above_is_declined_with_the_high_water),
    ("proven-for-those-not-asked", receiver_laws.test_r19_an_answer_proves_nothing_about_tablets_that_were_not_asked),
    ("own-data-is-welcome", receiver_laws.test_r21_data_that_passed_this_cluster_is_refused),
    ("own-data-is-welcome", receiver_laws.test_r21_this_clusters_own_files_do_not_come_back),
    ("tokens-live-for-ever", stream_laws.test_r20_an_idle_token_is_dead_for_ever),
    ("every-segment-cell-counts", loading_laws.test_a_segment_that_the_newest_state_does_not_name_does_not_count),
    ("every-segment-cell-counts", segment_laws.test_cells_that_the_newest_state_does_not_name_are_dead),
    ("late-states-decide", segment_laws.test_nothing_is_dead_by_the_state_of_another_holder_or_by_none),
    ("compactions-forget-streams", segment_laws.test_r18_a_compaction_changes_nothing_but_segments),
    ("labels-are-not-read", sight_laws.test_a_users_label_must_be_an_expression),
    ("authorizations-for-the-asking", sight_laws.test_more_is_refused_to_ann),
    ("high-water-not-rebuilt", loading_laws.test_r18_the_high_water_is_rebuilt_from_block_headers),
    (
        "no-barriers-in-the-books",
        books_laws.test_r24_the_barrier_is_in_the_books_before_the_block_and_stays_there,
    ),
    ("log-without-repl", books_laws.test_r12_log_and_repl_go_in_one_row_put),
    ("log-without-repl", books_laws.test_r12_the_first_stamped_block_finds_both_cells_in_the_books),
    ("enabling-needs-no-cell", books_laws.test_r12_replication_that_is_enabled_in_the_middle_of_a_log_gets_its_cell),
    ("written-counts-as-synced", books_laws.test_r15_needed_never_passes_what_is_synced),
    ("a-flush-keeps-the-log-cell", books_laws.test_a_record_that_is_appended_while_its_tablet_is_flushed_keeps_the_log),
    ("some-is-nothing", offer_laws.test_a_tablet_has_all_of_a_stream_or_nothing_or_takes_no_file),
    ("nobody-waits-at-the-gate", offer_laws.test_r14_who_changes_the_configuration_waits_for_those_who_saw_the_old_one),
    ("nobody-is-stamped", stamp_laws.test_r13_a_block_is_stamped_with_every_target_in_force_and_its_groups),
]


@pytest.mark.parametrize(("name", "law"), LAWS)
def test_without_its_rule_a_law_is_red(name: str, law: Callable[[], None]) -> None:
    with fault(name), pytest.raises(RED):
        law()


def test_without_a_count_of_what_is_forgotten_a_late_message_is_taken(tmp_path: Path) -> None:
    with fault("forgotten-meanwhile-counts"), pytest.raises(RED):
        commit_laws.test_r20_a_message_that_saw_its_stream_in_the_books_before_it_was_forgotten_is_not_taken(tmp_path)


PATH_LAWS = [
    (
        "paths-are-not-compared",
        path_laws.test_r22_schedule_26_what_comes_straight_and_by_way_of_another_is_applied_once,
    ),
    ("high-water-for-all-paths", path_laws.test_r22_schedule_26_a_group_that_goes_another_way_is_not_lost),
    ("enabled-since-ever", path_laws.test_r22_what_a_path_left_out_before_it_was_enabled_again_is_not_lost),
    ("path-passes-what-is-set-aside", path_laws.test_r22_what_is_in_quarantine_on_one_path_is_not_lost),
    ("crash-forgets-the-paths", path_laws.test_r22_a_tserver_that_died_knows_what_came_by_which_path),
    ("merged-rows-hold-the-same", path_laws.test_r22_a_merged_tablet_knows_which_rows_have_what),
    ("blocks-hold-all-they-claim", path_laws.test_r22_a_cluster_behind_is_told_of_what_it_gets_and_of_nothing_else),
    ("flushes-forget-the-paths", path_laws.test_r22_a_path_may_come_when_another_has_long_ended),
]


@pytest.mark.parametrize(("name", "law"), PATH_LAWS)
def test_without_its_rule_a_law_of_several_paths_is_red(name: str, law: Callable[[Path], None], tmp_path: Path) -> None:
    with fault(name), pytest.raises(RED):
        law(tmp_path)


def test_without_predecessors_a_move_leaves_no_trace(tmp_path: Path) -> None:
    with fault("moves-leave-no-trace"), pytest.raises(RED):
        tablet_laws.test_r24_the_first_block_in_another_log_says_after_what(tmp_path)
