"""The parts of the benchmark of replicas: what it counts, and that it can be missed."""

from __future__ import annotations

import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from bookkeeper.model import Extent
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.tablet.tablet_data import TabletData
from tests.benchmarks import plain_receiver, replicas
from tests.benchmarks.figure import met
from tests.support.tservers import records
from tests.support.volumes import MACHINE, name_at


def test_a_commit_is_measured_and_decodes_no_row() -> None:
    one, two, flat, decoded = replicas.commits((10, 1_000), rounds=1)
    assert (one["size"], two["size"]) == (10, 1_000)
    assert 0 < one["value"] < one["value"] + two["value"]
    assert flat["ratio"] == two["value"] / one["value"]
    assert (decoded["value"], met(decoded)) == (0, True)


def test_a_decoded_row_is_counted(tmp_path: Path) -> None:
    tablet = TabletData(Extent("1", None, None), GroupMap({}), MACHINE, name_at(tmp_path), [])
    tablet.apply(records([(b"a", b"1")], timestamp=1), 1)
    with replicas.DecodeCount() as count:
        tablet.scan_page(None, None, (), (), None, 1 << 20)
    assert count.calls


def test_a_count_above_its_mark_is_missed_and_one_below_is_an_error() -> None:
    assert met(replicas.exactly("crossings", 2.0, 2, "N - 1"))
    assert not met(replicas.exactly("crossings", 2.001, 2, "N - 1"))
    assert not met(replicas.exactly("merges", 1, 0, "none"))
    with pytest.raises(AssertionError, match=r"crossings: 1\.9 is less than 2"):
        replicas.exactly("crossings", 1.9, 2, "N - 1")


def test_the_plain_copy_is_whole(tmp_path: Path) -> None:
    content = bytes(range(256)) * 10_000
    (tmp_path / "source").write_bytes(content)
    copied = plain_receiver.copy_plain(tmp_path / "source", tmp_path / "target")
    assert copied.cpu_seconds >= 0
    assert copied.seconds > 0
    assert (tmp_path / "target").read_bytes() == content


def test_a_file_has_the_asked_rows() -> None:
    assert pq.read_metadata(io.BytesIO(replicas.parquet_of(1_234))).num_rows == 1_234
