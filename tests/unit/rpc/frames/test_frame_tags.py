"""The tags of frames: right ones pass, and any change to the frames of a direction makes one wrong."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from bookkeeper.errors import CorruptionError
from bookkeeper.rpc.frames.envelope import FRAME_HEADER
from bookkeeper.rpc.frames.frame_tags import TAG_BYTES, FrameTags
from bookkeeper.rpc.frames.wire import Buffers
from bookkeeper.rpc.trust import handshake

TO_SERVER, TO_CLIENT = bytes(range(32)), bytes(range(32, 64))


def both() -> tuple[FrameTags, FrameTags]:
    """A client's and a server's side."""
    return FrameTags(TO_SERVER, TO_CLIENT), FrameTags(TO_CLIENT, TO_SERVER)


def frame_of(*payload: bytes | memoryview) -> Buffers:
    first, *others = payload
    return [FRAME_HEADER.pack(sum(map(len, payload))) + first, *others]


def sent_by(side: FrameTags, *payload: bytes | memoryview) -> memoryview:
    """The bytes that arrive behind the header."""
    raw = b"".join(side.tagged(frame_of(*payload)))
    assert FRAME_HEADER.unpack_from(raw)[0] == len(raw) - FRAME_HEADER.size
    return memoryview(bytearray(raw))[FRAME_HEADER.size :]


def test_the_bytes_of_a_tag_are_these() -> None:
    client, _ = both()
    tags = [bytes(sent_by(client, b"hello")[-TAG_BYTES:]).hex() for _ in range(2)]
    assert tags == [AESGCM(TO_SERVER).encrypt(bytes(11) + bytes([n]), b"", b"hello").hex() for n in range(2)]
    assert tags == VECTORS


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 32_768, 100_000, 4 << 20])
def test_what_is_sealed_comes_out_however_it_is_cut(size: int) -> None:
    client, server = both()
    raw = (bytes(range(251)) * (size // 251 + 1))[:size]
    signed = memoryview(pa.py_buffer(raw))  # as record batches come from Arrow
    for payload in ((b"x", raw), (b"x" + raw,), (b"x", raw[: size // 3], raw[size // 3 :]), (b"x", signed)):
        assert server.check(sent_by(client, *payload)) == b"x" + raw
        assert client.check(sent_by(server, *payload)) == b"x" + raw


def is_passed(side: FrameTags, raw: bytes | bytearray | memoryview, part_bytes: int) -> bool:
    """Whether the tag of a frame is right that is thrown away in parts of so many bytes."""
    discarded = side.discard_next()
    for at in range(0, len(raw), part_bytes):
        discarded.add(memoryview(raw)[at : at + part_bytes])
    try:
        discarded.check()
    except CorruptionError:
        return False
    return True


@pytest.mark.parametrize("part_bytes", [1, 7, 15, 16, 17, 100, 70_000])
def test_a_frame_that_is_thrown_away_has_a_tag_too(part_bytes: int) -> None:
    client, server = both()
    payload = bytes(range(251)) * (3 if part_bytes < 15 else 300)
    assert is_passed(server, sent_by(client, payload), part_bytes)
    assert bytes(server.check(sent_by(client, b"the next one"))) == b"the next one"
    changed = bytearray(sent_by(client, payload))
    changed[5] ^= 1
    assert not is_passed(server, changed, part_bytes)
    assert not is_passed(both()[1], b"short", part_bytes)


MEDDLING: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "repeated": lambda frames: [frames[0], frames[0]],
    "out of its turn": lambda frames: [frames[1]],
    "cut": lambda frames: [frames[0][:-1]],
    "without its tag": lambda frames: [frames[0][:-TAG_BYTES]],
    "longer": lambda frames: [frames[0] + b"\0"],
    "of nothing": lambda _: [b"\0"],
    "of zeros": lambda frames: [bytes(len(frames[0]))],
}


@pytest.mark.parametrize("meddling", MEDDLING.values(), ids=MEDDLING)
def test_a_frame_that_was_meddled_with_has_a_wrong_tag(meddling: Callable[[list[bytes]], list[bytes]]) -> None:
    client, server = both()
    frames = [bytes(sent_by(client, b"frame %d" % number)) for number in range(2)]
    *passed, last = meddling(frames)
    for frame in passed:
        server.check(memoryview(frame))
    with pytest.raises(CorruptionError, match="is wrong: a frame was changed, repeated or left out"):
        server.check(memoryview(last))


def test_every_byte_counts() -> None:
    raw = bytes(sent_by(both()[0], b"payload"))
    for at, bit in itertools.product(range(len(raw)), (1, 128)):
        changed = bytearray(raw)
        changed[at] ^= bit
        with pytest.raises(CorruptionError):
            both()[1].check(memoryview(changed))


def test_what_a_side_sent_is_not_taken_from_it() -> None:
    client, server = both()
    with pytest.raises(CorruptionError):
        client.check(sent_by(client, b"frame"))
    with pytest.raises(CorruptionError):
        server.check(sent_by(server, b"frame"))


def test_the_bytes_of_proofs_and_keys_are_these() -> None:
    transcript = handshake.transcript_of(b"tls", [b"greeting", b"instance", b"greeting"], bytes(32), b"secretid")
    assert transcript == b"\0\3tlsgreetinginstancegreeting" + bytes(32) + b"secretid"
    makers = (
        handshake.server_proof,
        handshake.client_proof,
        handshake.server_frames_key,
        handshake.client_frames_key,
    )
    assert [maker(TO_SERVER, transcript).hex() for maker in makers] == PROOFS
    assert len(set(PROOFS)) == 4


VECTORS = [
    "1e41edc481ec0cb9d8e7d0b3f91ef532",
    "d86263424364c62876f04917bbca2165",
]
PROOFS = [
    "961ee7e6a9946d2e6bde745e15cb58d0de322f22563e64bae1226217290f27a8",
    "95536fdff1ccdd6115c0b1ef325e5a2af9b68a0a3b5f04cd517a27678905bbb9",
    "f542e7e6a2ccb22fc76cb089809af7b956425daca55dabd2340899efebb0655f",
    "2911a2103568e4e784132ad38aa89c42b1184c734aeb61b0a2a0b39104c3e577",
]
