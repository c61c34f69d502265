"""A compaction of some files: the major lists all others, whatever segment brought them."""

from __future__ import annotations

import pytest

from bookkeeper.replicas.events import Compacted, Flushed, LeaderNamed
from bookkeeper.replicas.machine import decide
from bookkeeper.replicas.rules import CORRECTED
from bookkeeper.replicas.values import Placement, ProtocolError, Replica


def led() -> Replica:
    """A leader with two flushes of two files each."""
    replica = Replica("a", Placement("p"))
    for event in (LeaderNamed("a", 1), Flushed(("x1", "y1")), Flushed(("x2", "y2"))):
        replica, _ = decide(replica, event, CORRECTED)
    return replica


def test_a_compaction_of_one_locality_group_retains_the_files_of_the_others() -> None:
    replica = led()
    inputs = tuple(entry.segment.id for entry in replica.entries)
    replica, _ = decide(replica, Compacted(inputs, ("x3",), replaced=("x1", "x2")), CORRECTED)
    (major,) = (entry.segment for entry in replica.entries if entry.segment.id == replica.root)
    assert (major.is_major, major.base, major.list) == (True, inputs[-1], ("y1", "y2", "x3"))
    assert set(major.included) == set(inputs)


def test_a_file_that_the_root_does_not_list_is_not_replaced() -> None:
    replica = led()
    inputs = tuple(entry.segment.id for entry in replica.entries)
    with pytest.raises(ProtocolError, match="can't replace x9"):
        decide(replica, Compacted(inputs, ("x3",), replaced=("x9",)), CORRECTED)
