"""The properties of a table: typed and bounded; an error names the nearest known key."""

from __future__ import annotations

import pytest

from bookkeeper.config.table_properties import (
    DEFAULT_PROPERTIES,
    PROPERTIES,
    PROPERTIES_MAX,
    changed,
    parse_properties,
)
from bookkeeper.errors import InvalidInputError


def test_without_properties_the_defaults_hold() -> None:
    assert parse_properties({}) == DEFAULT_PROPERTIES
    assert parse_properties({key: known.default for key, known in PROPERTIES.items()}) == DEFAULT_PROPERTIES


def test_every_property_has_a_meaning() -> None:
    for known in PROPERTIES.values():
        assert known.key.startswith("table.")
        assert known.meaning
    assert PROPERTIES["table.compression"].choices == ("lz4", "zstd", "snappy", "none")


def test_values_are_typed() -> None:
    parsed = parse_properties({"table.versions.max": "7", "table.compaction.ratio": "1.5", "table.durability": "log"})
    assert (parsed.versions_max, parsed.ratio, parsed.durability) == (7, 1.5, "log")


def test_custom_properties_are_stored_without_a_meaning() -> None:
    assert parse_properties({"table.custom.owner": "me"}) == DEFAULT_PROPERTIES
    after, _ = changed({"table.custom.owner": "me"}, {"table.custom.team": "us"}, ())
    assert after == {"table.custom.owner": "me", "table.custom.team": "us"}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("table.version.max", "2", "did you mean table.versions.max?"),
        ("table.compaction.segment_max", "2", "did you mean table.compaction.segments_max?"),
        ("zzz", "2", "known are table.versions.max"),
        ("table.custom.", "2", "unknown property"),
        ("versions_max", "2", "unknown property"),
        ("table.versions.max", "0", "'0'"),
        ("table.versions.max", "many", "'many'"),
        ("table.versions.max", "1.5", "'1.5'"),
        ("table.age_off_ms", "-1", "'-1'"),
        ("table.compaction.ratio", "nan", "'nan'"),
        ("table.compression", "brotli", "'lz4', 'zstd'"),
        ("table.custom.big", "x" * 70_000, "above"),
    ],
)
def test_a_wrong_property_is_refused_in_one_line(key: str, value: str, said: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_properties({key: value})
    assert said in refused.value.message
    assert "\n" not in refused.value.message


def test_there_is_a_bound() -> None:
    with pytest.raises(InvalidInputError):
        parse_properties({f"table.custom.{n}": "" for n in range(PROPERTIES_MAX + 1)})


def test_changes_and_removals_give_the_properties_after_them() -> None:
    before = {"table.versions.max": "3", "table.age_off_ms": "5"}
    after, parsed = changed(before, {"table.compression": "zstd"}, ["table.age_off_ms", "table.durability"])
    assert after == {"table.versions.max": "3", "table.compression": "zstd"}
    assert (parsed.versions_max, parsed.age_off_ms, parsed.compression) == (3, 0, "zstd")
    assert before == {"table.versions.max": "3", "table.age_off_ms": "5"}
    with pytest.raises(InvalidInputError):
        changed(before, {}, ["table.age_of_ms"])


def test_copies_are_at_most_the_replicas_and_a_majority_by_default() -> None:
    with pytest.raises(InvalidInputError, match=r"table.copies_min is 3 and table.replicas is 2"):
        parse_properties({"table.replicas": "2", "table.copies_min": "3"})
    needed = [parse_properties({"table.replicas": f"{n}"}).copies_needed for n in range(1, 8)]
    assert needed == [1, 2, 2, 3, 3, 4, 4]
    assert parse_properties({"table.replicas": "3", "table.copies_min": "1"}).copies_needed == 1


def test_a_table_with_one_replica_has_no_failover_without_a_log() -> None:
    with pytest.raises(InvalidInputError, match=r"table.failover is 60000 and table.replicas is 1: no other host"):
        parse_properties({"table.failover": "60000"})
    with pytest.raises(InvalidInputError, match=r"table.failover can't be 'never'"):
        parse_properties({"table.replicas": "2", "table.failover": "never"})
    assert parse_properties({"table.replicas": "2", "table.failover": "60000"}).failover_ms == 60_000
    assert parse_properties({"table.replicas": "2"}).failover_ms is None, "a tablet waits unless it is told otherwise"
