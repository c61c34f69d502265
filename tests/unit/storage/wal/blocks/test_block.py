"""Blocks: they decode to the encoded records, and bytes from outside either are a batch of mutations or are refused."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.model import MUTATION_SCHEMA, BlockTarget, Origin, StreamKey, TargetKey
from bookkeeper.storage.wal.blocks.block import Block, decode_batch, encode_batch
from bookkeeper.storage.wal.blocks.block_messages import (
    block_target_from_pb,
    block_target_to_pb,
    origin_from_pb,
    origin_to_pb,
    stream_from_pb,
    stream_to_pb,
    target_from_pb,
)
from bookkeeper.storage.wal.blocks.block_pb2 import BlockHeader
from bookkeeper.tserver.commit.submission import Durability
from tests.support.wal_files import records

texts = st.text(max_size=20)
numbers = st.integers(0, 2**64 - 1)
targets = st.builds(TargetKey, texts, texts, texts, numbers)
block_targets = st.builds(BlockTarget, targets, st.none() | st.lists(texts, max_size=4).map(tuple))
streams = st.builds(StreamKey, texts, texts, texts, texts, numbers, texts)
origins = st.builds(Origin, streams, numbers, numbers)
parts = st.binary(max_size=12)
mutations = st.fixed_dictionaries(
    {
        "row": parts,
        "family": parts,
        "qualifier": parts,
        "visibility": parts,
        "timestamp": st.none() | st.integers(-(2**63), 2**63 - 1),
        "delete": st.booleans(),
        "value": st.binary(max_size=40),
    }
)
batches = st.lists(mutations, max_size=20).map(lambda rows: pa.RecordBatch.from_pylist(rows, schema=MUTATION_SCHEMA))
compressions = st.sampled_from(["", "lz4", "zstd"])


@given(block_targets)
def test_block_targets_survive_the_way_through_bytes(block_target: BlockTarget) -> None:
    message = block_target_to_pb(block_target)
    assert block_target_from_pb(message) == block_target
    assert target_from_pb(message) == block_target.target


@given(origins)
def test_an_origin_comes_back(origin: Origin) -> None:
    assert origin_from_pb(origin_to_pb(origin)) == origin
    assert stream_from_pb(stream_to_pb(origin.stream)) == origin.stream


@given(batches, compressions)
def test_a_batch_comes_back(batch: pa.RecordBatch, compression: str) -> None:
    assert decode_batch(encode_batch(batch, compression)).equals(batch)


@given(batches, st.data())
def test_a_slice_comes_back(batch: pa.RecordBatch, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, batch.num_rows))
    part = batch.slice(start, data.draw(st.integers(0, batch.num_rows - start)))
    assert decode_batch(encode_batch(part)).equals(part)


def test_a_slice_takes_nothing_of_its_neighbours_along() -> None:
    batch = records([b"left" * 50, b"mine", b"right" * 50])
    for first, count in ((1, 1), (0, 2), (1, 2), (0, 1), (2, 1)):
        payload = bytes(encode_batch(batch.slice(first, count)))
        for index, word in enumerate((b"left", b"mine", b"right")):
            assert (word in payload) == (first <= index < first + count)


def test_decoding_copies_nothing() -> None:
    payload = encode_batch(records([b"a" * 100, b"b" * 100]))
    values = decode_batch(payload).column("row").buffers()[2]
    assert payload.address <= values.address < payload.address + payload.size


@pytest.mark.parametrize("wrap", [bytes, memoryview, pa.py_buffer])
def test_any_buffer_will_do(wrap: type) -> None:
    assert decode_batch(wrap(bytes(encode_batch(records([b"a"]))))).num_rows == 1


def test_only_mutations_enter() -> None:
    with pytest.raises(InvalidInputError, match="schema"):
        encode_batch(pa.RecordBatch.from_pylist([{"x": 1}]))
    with pytest.raises(InvalidInputError, match="brotli"):
        encode_batch(records([b"a"]), "brotli")


@pytest.mark.parametrize(
    "garbage",
    [b"", b"\0", b"\0" * 64, b"garbage" * 20, b"\xff" * 8, b"\xff\xff\xff\xff\xff\xff\xff\x7f" * 4],
)
def test_garbage_is_no_batch(garbage: bytes) -> None:
    with pytest.raises(CorruptionError):
        decode_batch(garbage)


def test_a_batch_must_fill_its_bytes_exactly() -> None:
    payload = bytes(encode_batch(records([b"a", b"b"])))
    for wrong in (payload[:-8], payload[: len(payload) // 2], payload + bytes(8)):
        with pytest.raises(CorruptionError):
            decode_batch(wrong)


def test_another_kind_of_message_is_refused() -> None:
    with pytest.raises(CorruptionError, match="schema"):
        decode_batch(MUTATION_SCHEMA.serialize())


def test_a_foreign_schema_is_refused_or_harmless() -> None:
    foreign = pa.RecordBatch.from_pylist([{"x": 1, "y": "z"}]).serialize()
    with pytest.raises(CorruptionError):
        decode_batch(foreign)


def test_nulls_where_none_may_be_are_refused() -> None:
    arrays = [pa.array([None], pa.binary()), *records([b"a"]).columns[1:]]
    loose = pa.schema([field.with_nullable(True) for field in MUTATION_SCHEMA])
    with pytest.raises(CorruptionError, match="'row'"):
        decode_batch(pa.RecordBatch.from_arrays(arrays, schema=loose).serialize())


def test_offsets_that_lead_out_of_the_buffer_are_refused() -> None:
    payload = bytearray(encode_batch(records([b"a" * 30, b"b" * 30])))
    at = payload.index(struct.pack("<iii", 0, 30, 60))
    for wrong in (1 << 30, -1, 61):
        payload[at + 8 : at + 12] = struct.pack("<i", wrong)
        with pytest.raises(CorruptionError):
            decode_batch(bytes(payload))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_small_message_can_not_ask_for_much_memory(compression: str) -> None:
    payload = bytearray(encode_batch(records([b"a" * 1000] * 10), compression))
    at = next(at for at in range(0, len(payload), 8) if payload[at : at + 8] == struct.pack("<q", 10_000))
    payload[at : at + 8] = struct.pack("<q", 1 << 40)
    with pytest.raises(CorruptionError, match="announces"):
        decode_batch(bytes(payload))


@given(batches, compressions, st.randoms(use_true_random=False))
def test_damaged_messages_never_lead_out_of_memory(
    batch: pa.RecordBatch, compression: str, randomness: random.Random
) -> None:
    payload = bytearray(encode_batch(batch, compression))
    for _ in range(randomness.randint(1, 4)):
        payload[randomness.randrange(len(payload))] = randomness.randrange(256)
    try:
        decoded = decode_batch(bytes(payload))
    except CorruptionError:
        return
    decoded.to_pylist()


def test_a_header_must_not_lie_about_the_number_of_records() -> None:
    block = Block(BlockHeader(first_offset=5, record_count=3), encode_batch(records([b"a", b"b"])))
    assert (block.first_offset, block.last_offset) == (5, 7)
    with pytest.raises(CorruptionError, match="announces 3"):
        block.batch()


def test_durability_by_name() -> None:
    assert [Durability.parse(name) for name in ("none", "log", "flush", "sync")] == list(Durability)
    for wrong in ("", "SYNC", "quorum"):
        with pytest.raises(ValueError, match="unknown durability"):
            Durability.parse(wrong)
