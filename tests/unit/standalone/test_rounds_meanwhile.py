"""A host starts while the leader of another one raises the round in the books and in the coordination store."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.errors import RefusedError
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import RowPut
from bookkeeper.metadata.opening import open_metadata
from bookkeeper.metadata.owner import ROUND_NAME
from bookkeeper.standalone.books import check_books
from bookkeeper.standalone.directory import init_cluster
from tests.support.faults import fault

FIRST, LATER = 5, 9


class LedMeanwhile(EmbeddedCoordination):
    """Its round rises to that of the books after the first look."""

    def number(self, name: str) -> int:
        found = super().number(name)
        if name == ROUND_NAME:
            self.raise_number(ROUND_NAME, LATER)
        return found


def a_start_beside_a_leader(home: Path) -> None:
    settings = init_cluster(home, "west")
    with closing(open_metadata(settings.metadata_url, settings.instance.instance_id)) as table:
        table.put([RowPut(keys.owner_row(), {keys.ROUND: b""})], LATER)
    assert settings.coordination_dir is not None
    with closing(LedMeanwhile(settings.coordination_dir, settings.coordination)) as store:
        store.raise_number(ROUND_NAME, FIRST)
        try:
            check_books(settings, store)
        except RefusedError as error:
            raise AssertionError(f"a start is refused beside a leader: {error.message}") from error


def test_a_round_that_rises_meanwhile_refuses_no_start(tmp_path: Path) -> None:
    a_start_beside_a_leader(tmp_path / "west")


def test_by_one_look_it_is_refused(tmp_path: Path) -> None:
    with fault("rounds-of-two-moments"), pytest.raises(AssertionError, match="a start is refused beside a leader"):
        a_start_beside_a_leader(tmp_path / "west")
