"""All batches of a message together take what a frame may hold: nothing is decompressed beyond."""

from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec.structs import replace

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import StreamKey
from bookkeeper.rpc.contract.messages import SourceBlock
from bookkeeper.storage.tablet.tablet_settings import BatchLimits
from bookkeeper.storage.wal.blocks.block import encode_batch
from bookkeeper.tserver.receive.message_decoding import decode_blocks
from bookkeeper.tserver.write.decompression import DecompressionBudget
from bookkeeper.tserver.write.request_decoder import decode_labelled, decode_records
from tests.support import tservers
from tests.support.faults import fault
from tests.support.ipc_forms import bomb
from tests.support.must_raise import must_raise

MIB = 1 << 20
LIMITS = BatchLimits()
STREAM = StreamKey("east", "1.wal", "7", "1", 1)


def grown() -> int:
    return int(pa.default_memory_pool().bytes_allocated())


def bombs(count: int) -> list[SourceBlock]:
    batch = tservers.records([(b"a", bytes(4 * MIB))], timestamp=1)
    raw = encode_batch(batch, "zstd").to_pybytes()
    assert len(raw) < 4_000
    return [replace(tservers.source_block(1 + n, batch), records=raw) for n in range(count)]


def test_a_message_of_many_small_batches_that_take_much_is_refused() -> None:
    request = tservers.replicate_request("t", STREAM, 0, 0, 40, bombs(40))
    before = grown()
    with must_raise(
        InvalidInputError,
        "a message takes more than a frame may hold",
        match=r"the records of a message take \d+ bytes, the limit is 33554432",
    ):
        decode_blocks(request, LIMITS)
    assert grown() < before + 40 * MIB
    assert len(decode_blocks(tservers.replicate_request("t", STREAM, 0, 0, 7, bombs(7)), LIMITS)) == 7


def test_without_its_rule_each_batch_takes_what_it_says() -> None:
    with (
        fault("each-batch-has-its-own-budget"),
        pytest.raises(AssertionError, match="a message takes more than a frame may hold"),
    ):
        test_a_message_of_many_small_batches_that_take_much_is_refused()


def test_writes_of_one_message_share_a_budget() -> None:
    batch = tservers.records([(b"a", bytes(7 * MIB))])
    budget, raw = DecompressionBudget(LIMITS), encode_batch(batch, "lz4").to_pybytes()
    for _ in range(4):
        decode_labelled(raw, LIMITS, budget=budget)
    with pytest.raises(InvalidInputError, match="the records of a message take"):
        decode_labelled(raw, LIMITS, budget=budget)
    with pytest.raises(InvalidInputError, match="the records of a message take"):
        decode_records(bomb(40 * MIB), LIMITS)


def test_batches_that_are_not_compressed_are_as_large_as_they_are() -> None:
    budget, batch = DecompressionBudget(LIMITS), tservers.records([(b"a", bytes(7 * MIB))], timestamp=1)
    raw = encode_batch(batch).to_pybytes()
    for _ in range(6):
        assert decode_records(raw, LIMITS, budget=budget).num_rows == 1
