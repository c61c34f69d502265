"""The benchmarks of replicas on small sizes: they run, and what they count is right."""

from __future__ import annotations

import pytest

from tests.benchmarks import replica_growth, replica_joins, replica_rounds, replica_splits
from tests.benchmarks.figure import met

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.mark.long
def test_a_joiner_gets_the_files_of_the_newest_list_once() -> None:
    content, rate, ingest = replica_joins.measure(32 << 20, batches=5)
    assert (content["ratio"], met(content)) == (1.0, True)
    assert rate["value"] > 0
    assert ingest["value"] > 0


@pytest.mark.long
def test_replicated_writes_and_scans_are_measured_beside_those_of_one_replica() -> None:
    (hosts,) = replica_growth.hosts_growth((3,), rows=500, rounds=1)
    assert (hosts["size"], hosts["value"] > 0) == (3, True)
    writes, quiet = replica_growth.tablets_growth((1, 4), rows=500, rounds=1, quiet_s=0.5)
    assert (writes["size"], quiet["size"]) == (4, 4)
    (reads,) = replica_growth.reads(rows=500, scans=1, readers=2)
    assert reads["value"] > 0


@pytest.mark.long
def test_a_split_and_a_merge_in_place_send_nothing() -> None:
    split, merge, *away = replica_splits.measure(rows=64, rounds=1, quiet_s=0.5)
    assert [(one["value"], met(one)) for one in (split, merge)] == [(0, True)] * 2
    assert all(one["value"] > 0 for one in away)


@pytest.mark.long
def test_rounds_of_kills_and_wipes_lose_and_repeat_nothing() -> None:
    lost, repeated, felt = replica_rounds.measure(rounds=3, seed=4)
    assert "in 2 kills and 1 wipes" in lost["name"]
    assert (lost["value"], repeated["value"]) == (0, 0)
    assert felt["value"] > 0
