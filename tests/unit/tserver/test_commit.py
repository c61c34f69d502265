"""What the commit thread says to a replicated range (R20), beyond the judgement that ``test_receiving`` has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bookkeeper.clock import SystemClock
from bookkeeper.errors import UnavailableError
from bookkeeper.model import Extent, StreamKey
from bookkeeper.storage.tablet import GroupMap, TabletData
from bookkeeper.tserver.desk import Desk
from bookkeeper.tserver.loading import Recovered
from bookkeeper.tserver.replicated import ReceivedRange, ReplicatedApply
from bookkeeper.tserver.stamps import ConfigView, TableView
from bookkeeper.tserver.tablet import ReceivedBlock, ServedTablet, Tenure, share_of
from tests.support.tservers import records

WHOLE = Extent("1", None, None)
STREAM = StreamKey("east", "file:///1.wal", "7", "1", 1)
OTHER = replace(STREAM, file="file:///2.wal")
VIEW = TableView("1", "t", True, GroupMap({}), ())
RANGE = ReceivedRange(STREAM, ("east",), 0, 0, 1, (ReceivedBlock(1, 1, share_of(records([(b"a", b"v")]))),))


def served(directory: Path, recovered: Recovered | None = None) -> ServedTablet:
    return ServedTablet(WHOLE, TabletData(WHOLE, VIEW.groups, directory, []), recovered or Recovered(), Tenure(1, 1), 0)


def desk() -> Desk:
    made = Desk(SystemClock(), ConfigView(1, {"1": VIEW}))
    made.wal_uri = lambda: "w1"
    return made


def test_r20_a_message_that_saw_its_stream_in_the_books_before_it_was_forgotten_is_not_taken(tmp_path: Path) -> None:
    tablet = served(tmp_path)
    late = ReplicatedApply(desk(), tablet, RANGE, tablet.forgets)
    tablet.forget_stream(STREAM)
    with pytest.raises(UnavailableError):
        late.prepare(1)
    (draft,) = ReplicatedApply(desk(), tablet, RANGE, tablet.forgets).prepare(1)
    assert draft.header.origin.to_offset == 1


def test_a_tablet_that_knows_the_stream_does_not_care_what_else_was_forgotten(tmp_path: Path) -> None:
    tablet = served(tmp_path, Recovered(high_water={STREAM: 0, OTHER: 5}))
    asked = tablet.forgets
    tablet.forget_stream(OTHER)
    assert ReplicatedApply(desk(), tablet, RANGE, asked).prepare(1)
