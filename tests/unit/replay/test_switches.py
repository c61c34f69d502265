"""Each law of the sending side turns red when its rule is broken by a switch: R5, R13, R15, R19, R21, R23, R24."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bookkeeper.config.file import new_settings
from bookkeeper.model import TargetKey
from tests.support.faults import fault
from tests.support.ship_bench import Bench
from tests.support.wal_files import WEST
from tests.unit.peers import test_bookkeeper_system as system_laws
from tests.unit.replay import test_slots as slot_laws
from tests.unit.replay.stream import test_ahead as ahead_laws
from tests.unit.replay.stream import test_filters as filter_laws
from tests.unit.replay.stream import test_segment_transfer as whole_laws
from tests.unit.replay.stream import test_shipping as shipping_laws
from tests.unit.tserver.shipping import test_worker_plan as plan_laws

PURE = [
    (
        "today's-configuration-counts",
        filter_laws.test_a_block_without_the_target_is_not_shipped,
        "a block without the stamp of the target travels",
    ),
    (
        "loop-not-seen",
        filter_laws.test_data_that_was_at_the_peer_does_not_go_there_again,
        "data goes back to a peer that it has passed",
    ),
    (
        "groups-ignored",
        filter_laws.test_of_a_mixed_block_the_families_of_wanted_groups_travel,
        "does not travel in its wanted families",
    ),
    (
        "sender-leaves-no-trace",
        filter_laws.test_the_own_instance_is_added_behind_what_the_block_came_with,
        "the sender is not added to the provenance",
    ),
    (
        "dead-peers-take-all-slots",
        slot_laws.test_a_healthy_peer_finds_a_slot_beside_any_number_of_dead_ones,
        "dead peers take more than half of the slots",
    ),
    (
        "runs-wait-for-other-tservers",
        slot_laws.test_the_runs_of_many_tservers_to_one_peer_wait_for_no_other,
        "a run waits for the run of another",
    ),
    (
        "sent-counts-as-finished",
        plan_laws.test_an_error_keeps_what_was_acknowledged_and_leaves_the_rest_to_the_master,
        "what was sent counts as finished",
    ),
    (
        "shipped-past-the-range",
        plan_laws.test_nothing_is_ever_shipped_past_what_was_handed_out,
        "a range is shipped past what was handed out",
    ),
]

SHIPPING = [
    (
        "today's-configuration-counts",
        shipping_laws.test_what_is_filtered_between_counts_as_covered,
        "a block without the stamp of the target travels",
    ),
    (
        "loop-not-seen",
        shipping_laws.test_a_wholly_filtered_range_is_finished_without_a_message,
        "a range without a wanted block is not finished",
    ),
    (
        "groups-ignored",
        shipping_laws.test_of_a_mixed_block_only_the_groups_of_the_target_are_shipped,
        "a group travels that the stamp does not name",
    ),
    (
        "sender-leaves-no-trace",
        shipping_laws.test_blocks_of_other_provenance_go_in_a_message_of_their_own,
        "the provenance of the messages is not that of their blocks",
    ),
    (
        "hole-behind-the-fact",
        shipping_laws.test_a_range_that_leaves_a_hole_behind_the_fact_is_never_sent,
        "a range is sent that leaves a hole",
    ),
]


@pytest.mark.parametrize(("name", "law", "says"), PURE)
def test_without_its_rule_a_pure_law_is_red(name: str, law: Callable[[], None], says: str) -> None:
    with fault(name), pytest.raises(AssertionError, match=says):
        law()


@pytest.mark.parametrize(("name", "law", "says"), SHIPPING)
def test_without_its_rule_a_law_of_shipping_is_red(
    name: str, law: Callable[[Bench], None], says: str, tmp_path: Path
) -> None:
    with fault(name), pytest.raises(AssertionError, match=says):
        law(Bench(tmp_path))


def test_without_the_order_of_answers_a_message_that_failed_counts_as_acknowledged(tmp_path: Path) -> None:
    with fault("answers-count-as-they-come"), pytest.raises(AssertionError, match="counts as acknowledged"):
        ahead_laws.check_order_of_answers(tmp_path)


def test_without_reading_the_block_targets_files_go_to_every_target(tmp_path: Path) -> None:
    with (
        fault("files-for-every-target"),
        pytest.raises(AssertionError, match="files go to a target whose stamp does not name them"),
    ):
        whole_laws.test_r13_the_block_targets_say_which_files_are_for_the_target(tmp_path)


def test_without_the_incarnation_in_the_key_old_blocks_travel() -> None:
    other = TargetKey("east", "r1", "t1", 2)
    with fault("incarnations-are-one"), pytest.raises(AssertionError, match="a stamp counts for another target"):
        filter_laws.test_a_block_target_counts_for_exactly_its_target_incarnation_included(other)


def test_without_the_check_of_the_instance_another_cluster_gets_the_data(tmp_path: Path) -> None:
    settings = new_settings(tmp_path, "west", instance_id=WEST)
    law = system_laws.test_another_cluster_at_the_address_is_refused_without_another_try
    nobody_looks = "any-cluster-will-do and any-target-will-do and any-instance-will-do"
    with (
        fault(nobody_looks),
        pytest.raises(AssertionError, match="another cluster at the address of the peer gets the data"),
    ):
        law(settings, system_laws.NoWait())
