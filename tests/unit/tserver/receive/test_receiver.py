"""The answers and refusals of a receiver (R19, R21, R23), and the tablets that its records reach."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from bookkeeper.errors import (
    CorruptionError,
    GapError,
    InvalidInputError,
    NotServingError,
    RefusedError,
    UnavailableError,
)
from bookkeeper.model import Extent, StreamKey
from bookkeeper.origins import Root
from bookkeeper.storage.tablet.tablet_settings import BatchLimits
from bookkeeper.storage.wal.blocks.block import decode_batch, encode_batch
from bookkeeper.tserver.receive import message_admission, message_order
from bookkeeper.tserver.receive.message_decoding import received_block
from bookkeeper.tserver.receive.receiving_tablets import Located, check_chain
from bookkeeper.tserver.receive.slice_delivery import part_by_tablet, source_block, worst_of
from bookkeeper.tserver.write.request_decoder import decode_records, records_for_tablet
from tests.support import tservers
from tests.support.must_raise import must_raise

STREAM = StreamKey("east", "1.wal", "7", "1", 1)
LIMITS = BatchLimits()
LEFT, RIGHT = Extent("1", b"m", None), Extent("1", None, b"m")


def test_r21_data_that_passed_this_cluster_is_refused() -> None:
    message_admission.check_provenance(["south", "east"], STREAM, "west")
    with must_raise(RefusedError, "R21: data that passed this cluster is taken again"):
        message_admission.check_provenance(["west", "east"], STREAM, "west")


def test_r21_this_clusters_own_files_do_not_come_back() -> None:
    with must_raise(RefusedError, "R21: this cluster's own files come back"):
        message_admission.check_provenance(["east"], STREAM, "east")


def test_the_provenance_ends_with_the_sender() -> None:
    for provenance in ([], ["east", "south"]):
        with pytest.raises(InvalidInputError):
            message_admission.check_provenance(provenance, STREAM, "west")


def test_r19_an_answer_proves_nothing_about_tablets_that_were_not_asked() -> None:
    assert message_order.durable_offset(acked=5, after=5, to=9) == 9
    assert message_order.durable_offset(acked=5, after=3, to=9) == 9
    assert message_order.durable_offset(acked=5, after=6, to=9) == 5, (
        "R19: an answer proves what a tablet that was not asked has"
    )


def test_the_lowest_gap_goes_before_everything_else() -> None:
    gaps = [GapError("", {"high_water": "7"}), GapError("", {"high_water": "4"})]
    assert worst_of([UnavailableError(""), *gaps, InvalidInputError("")]) is gaps[1]
    transient = UnavailableError("")
    assert worst_of([InvalidInputError(""), transient]) is transient


def test_blocks_are_parted_by_tablet_and_keep_their_offsets() -> None:
    wire = tservers.source_block(4, tservers.records([(b"z", b"1"), (b"a", b"2"), (b"y", b"3")], timestamp=1))
    block = received_block(wire, LIMITS)
    assert block is not None
    parts = part_by_tablet([block], [LEFT, RIGHT])
    (left,), (right,) = parts[LEFT], parts[RIGHT]
    assert left.records.batch.column("row").to_pylist() == [b"a"]
    assert right.records.batch.column("row").to_pylist() == [b"z", b"y"]
    assert (left.first_offset, left.last_offset) == (right.first_offset, right.last_offset) == (4, 6)
    forwarded = source_block(right, Root("east", "1.wal", "7"))
    assert (forwarded.record_count, forwarded.min_row, forwarded.max_row) == (2, b"y", b"z")
    assert received_block(forwarded, LIMITS) is not None


def test_a_block_that_a_filter_emptied_is_nobodys() -> None:
    wire = tservers.source_block(4, tservers.records([(b"z", b"1")], timestamp=1))
    empty = tservers.records([], timestamp=1)
    emptied = replace(wire, records=encode_batch(empty).to_pybytes(), record_count=0)
    assert received_block(emptied, LIMITS) is None


@pytest.mark.parametrize(
    "change",
    [{"record_count": 5}, {"last_offset": 4}, {"records": b"garbage"}, {"records": b""}],
)
def test_blocks_that_contradict_themselves_are_refused(change: dict[str, object]) -> None:
    wire = tservers.source_block(4, tservers.records([(b"z", b"1"), (b"y", b"1")], timestamp=1))
    with pytest.raises(InvalidInputError):
        received_block(replace(wire, **change), LIMITS)


def test_a_replicated_record_without_a_timestamp_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        received_block(tservers.source_block(4, tservers.records([(b"z", b"1")])), LIMITS)


def test_a_write_outside_its_tablet_is_refused_whole() -> None:
    batch = decode_records(encode_batch(tservers.records([(b"a", b""), (b"n", b"")])).to_pybytes(), LIMITS)
    with pytest.raises(InvalidInputError):
        records_for_tablet(LEFT, batch)


def test_r16_tablets_that_do_not_join_up_are_not_used() -> None:
    def located(end_row: bytes | None, prev_row: bytes | None) -> Located:
        return Located(Extent("1", end_row, prev_row), "s", "h:1")

    check_chain("1", [located(None, None)])
    check_chain("1", [located(b"g", None), located(b"m", b"g"), located(None, b"m")])
    for broken in (
        [located(b"g", None)],
        [located(b"g", None), located(None, b"h")],
        [located(None, b"g")],
        [located(None, None), located(None, None)],
    ):
        with pytest.raises(NotServingError):
            check_chain("1", broken)


def test_garbage_in_a_log_is_another_error_than_garbage_on_the_wire() -> None:
    with pytest.raises(CorruptionError):
        decode_batch(b"garbage")
    with pytest.raises(InvalidInputError):
        decode_records(b"garbage", LIMITS)
