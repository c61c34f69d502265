"""The text of ``replication status``."""

from __future__ import annotations

from bookkeeper.model import TargetKey
from shell.replication_commands import cause_text, target_names


def test_an_earlier_incarnation_of_a_target_has_its_number() -> None:
    targets = [TargetKey("east", "1", "a", 1), TargetKey("east", "1", "a", 2), TargetKey("east", "1", "b", 1)]
    assert target_names(targets) == ["east:1#1", "east:1", "east:1"]


def test_a_file_behind_others_has_the_cause_of_the_one_that_all_wait_for() -> None:
    assert [cause_text(None, None), cause_text("shipping", None), cause_text("behind", "table_gone")] == [
        None,
        "shipping",
        "behind (table_gone)",
    ]
