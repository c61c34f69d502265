"""Only the form that we write is read: no other one costs memory, and none of them says less than it takes."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import CorruptionError
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.storage.wal.blocks.block import decode_batch, encode_batch
from bookkeeper.storage.wal.blocks.ipc_message import read_form
from tests.support.faults import fault
from tests.support.ipc_forms import VALUE_BUFFER, body_at, bomb, buffer_at, old_bomb, written
from tests.support.wal_files import records

MIB = 1 << 20
SMALL = records([b"a" * 30, b"b" * 40])
V4 = pa.ipc.MetadataVersion.V4


def refusal(raw: bytes) -> str:
    """Why a message is refused, and proof that nothing was allocated for it."""
    before = pa.default_memory_pool().bytes_allocated()
    with pytest.raises(CorruptionError) as caught:
        decode_batch(raw)
    assert pa.default_memory_pool().bytes_allocated() <= before + MIB
    return caught.value.message


def test_a_message_of_an_older_version_can_not_hide_what_it_decompresses_to() -> None:
    raw = old_bomb(300 * MIB)
    assert len(raw) < MIB
    assert "version" in refusal(raw)


def test_without_its_form_a_small_message_takes_much_memory() -> None:
    raw = old_bomb(300 * MIB)
    with fault("any-form-of-message-will-do"):
        assert decode_batch(raw).nbytes > 300 * MIB


def test_a_bomb_in_the_right_form_is_refused_for_its_size() -> None:
    assert "the limit is" in refusal(bomb(300 * MIB))


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_reader_is_told_what_a_compressed_message_takes_before_it_takes_it(compression: str) -> None:
    raw = bomb(4 * MIB, compression)
    told: list[int] = []
    batch = decode_batch(raw, told.append)
    (announced,) = told
    assert batch.nbytes <= announced <= batch.nbytes + 64 * len(MUTATION_SCHEMA)

    def refuse(size: int) -> None:
        raise CorruptionError(f"{size} bytes are too many")

    with pytest.raises(CorruptionError, match="too many"):
        decode_batch(raw, refuse)


@pytest.mark.parametrize("claim", [0, 1, MIB - 1, MIB + 1, 100 * MIB, -2, 1 << 62])
@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_buffer_that_decompresses_to_another_size_than_it_says_is_refused(claim: int, compression: str) -> None:
    raw = bytearray(bomb(MIB, compression))
    (offset,) = struct.unpack_from("<q", raw, buffer_at(raw, VALUE_BUFFER))
    struct.pack_into("<q", raw, body_at(raw) + offset, claim)
    with pytest.raises(CorruptionError):
        decode_batch(bytes(raw))


FIXED = [
    number
    for number, is_fixed in enumerate(
        is_fixed
        for field in MUTATION_SCHEMA
        for is_fixed in ((True, True, False) if pa.types.is_binary(field.type) else (True, True))
    )
    if is_fixed
]
"""Buffers whose size follows from the number of records."""


def test_a_fixed_buffer_may_not_announce_more_than_the_records_need() -> None:
    changed = 0
    for number in FIXED:
        raw = bytearray(bomb(MIB))
        offset, length = struct.unpack_from("<qq", raw, buffer_at(raw, number))
        if length:
            changed += 1
            struct.pack_into("<q", raw, body_at(raw) + offset, MIB)
            assert "for 1 records" in refusal(bytes(raw))
    assert changed >= len(MUTATION_SCHEMA)


def test_other_forms_are_refused() -> None:
    plain = bytes(encode_batch(SMALL))
    assert "version" in refusal(written(SMALL, metadata_version=V4))
    assert "custom metadata" in refusal(written(SMALL, {"a": "b"}))
    assert "do not begin" in refusal(plain[4:])
    views = pa.schema([*list(MUTATION_SCHEMA)[:-1], pa.field("value", pa.binary_view(), nullable=False)])
    assert "views" in refusal(written(SMALL.cast(views)))
    assert refusal(written(SMALL.select(["row"])))
    assert "body" in refusal(plain + bytes(8))


def test_columns_that_share_bytes_are_refused() -> None:
    """Each column would be copied: a message of a mebibyte grew to seven."""
    raw = bytearray(encode_batch(records([bytes(MIB)])))
    value = struct.unpack_from("<qq", raw, buffer_at(raw, VALUE_BUFFER))
    struct.pack_into("<qq", raw, buffer_at(raw, 2), *value)
    assert "behind" in refusal(bytes(raw))


@given(st.data())
def test_whatever_the_metadata_says_only_the_declared_error_comes(data: st.DataObject) -> None:
    raw = bytearray(encode_batch(SMALL, data.draw(st.sampled_from(["", "lz4", "zstd"]))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, body_at(raw) - 8))
        width = data.draw(st.sampled_from([1, 2, 4, 8]))
        value = data.draw(st.sampled_from([0, 1, 2, 255]) | st.integers(0, 256**width - 1)) % 256**width
        raw[at : at + width] = value.to_bytes(width, "little")
    try:
        form = read_form(memoryview(bytes(raw)))
        batch = decode_batch(bytes(raw))
    except CorruptionError:
        return
    assert form.records == batch.num_rows
    assert batch.nbytes <= form.column_bytes + 64 * len(MUTATION_SCHEMA)


def test_what_we_write_is_read() -> None:
    nulls = pa.RecordBatch.from_arrays(
        [pa.nulls(2, pa.int64()) if name == "timestamp" else SMALL.column(name) for name in MUTATION_SCHEMA.names],
        schema=MUTATION_SCHEMA,
    )
    for batch in (SMALL, SMALL.slice(1), SMALL.slice(0, 0), nulls, pa.concat_batches([nulls, SMALL])):
        for compression in ("", "lz4", "zstd"):
            assert decode_batch(encode_batch(batch, compression)).equals(batch)
