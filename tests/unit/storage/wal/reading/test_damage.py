"""One flipped bit anywhere in a sealed log, or in its seal, is noticed by every reader of the whole log."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import CorruptionError
from bookkeeper.storage.wal.reading.block_reader import read_blocks
from bookkeeper.storage.wal.reading.wal_recovery import file_summary
from bookkeeper.storage.wal.writing.seal import Seal, SealFile, decode_seal, encode_seal
from tests.support.volumes import MACHINE, name_at, path_of
from tests.support.wal_files import Spec, write_wal
from tests.support.wal_files import lay_out as lay_out_at

SPECS = [Spec([b"a", b"b"]), Spec([b"c" * 200], compression="zstd"), Spec([b"%d" % index for index in range(50)])]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return path_of(write_wal(tmp_path_factory.mktemp("whole") / "log" / "1.wal", SPECS, seal=True))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out_at(tmp_path_factory.mktemp("copy"), b"")


def lay_out(copy: Path, log: bytes, seal: bytes) -> str:
    copy.write_bytes(log)
    copy.with_name("1.wal.seal").write_bytes(seal)
    return name_at(copy)


def read_all(name: str) -> None:
    for block in read_blocks(MACHINE, name, 1, 53):
        block.batch()


def seal_of(path: Path) -> bytes:
    return path.with_name("1.wal.seal").read_bytes()


@given(st.data(), st.integers(0, 7))
def test_a_flipped_bit_in_the_log_is_corruption(whole: Path, copy: Path, data: st.DataObject, bit: int) -> None:
    raw = bytearray(whole.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << bit
    with pytest.raises(CorruptionError) as caught:
        read_all(lay_out(copy, bytes(raw), seal_of(whole)))
    assert caught.value.details["file"] == name_at(copy)
    assert int(caught.value.details["position"]) <= at
    assert caught.value.details["reason"] in caught.value.message


def test_every_byte_is_covered(tmp_path: Path) -> None:
    name = write_wal(tmp_path / "1.wal", [Spec([b"a"])], seal=True)
    raw = bytearray(path_of(name).read_bytes())
    for at in range(len(raw)):
        raw[at] ^= 0x10
        path_of(name).write_bytes(raw)
        with pytest.raises(CorruptionError):
            list(read_blocks(MACHINE, name, 1, 1))
        raw[at] ^= 0x10


@given(st.data(), st.integers(0, 7))
def test_a_flipped_bit_in_the_seal_is_corruption(whole: Path, copy: Path, data: st.DataObject, bit: int) -> None:
    seal = bytearray(seal_of(whole))
    seal[data.draw(st.integers(0, len(seal) - 1))] ^= 1 << bit
    with pytest.raises(CorruptionError):
        read_all(lay_out(copy, whole.read_bytes(), bytes(seal)))


@pytest.mark.parametrize(
    "seal", [b"", b"{}", b"[]", b"null", b"[" * 4000, b"\xff", b'{"offset":1,"bytes":"x","crc32c":0}']
)
def test_garbage_is_no_seal(whole: Path, copy: Path, seal: bytes) -> None:
    with pytest.raises(CorruptionError, match="seal"):
        read_all(lay_out(copy, whole.read_bytes(), seal))


@given(st.integers(0, 2**63), st.integers(0, 2**63))
def test_a_seal_comes_back(offset: int, position: int) -> None:
    assert decode_seal(encode_seal(SealFile(Seal(offset, position)))) == SealFile(Seal(offset, position))


@pytest.mark.parametrize("shift", [-64, -8, 8])
def test_a_seal_that_does_not_fit_the_log_is_corruption(whole: Path, copy: Path, shift: int) -> None:
    seal = Seal(53, len(whole.read_bytes()) + shift)
    with pytest.raises(CorruptionError):
        read_all(lay_out(copy, whole.read_bytes(), encode_seal(SealFile(seal))))


@pytest.mark.parametrize("offset", [52, 54])
def test_a_seal_with_another_count_is_corruption(whole: Path, copy: Path, offset: int) -> None:
    name = lay_out(copy, whole.read_bytes(), encode_seal(SealFile(Seal(offset, len(whole.read_bytes())))))
    with pytest.raises(CorruptionError):
        file_summary(MACHINE, name)
    with pytest.raises(CorruptionError):
        list(read_blocks(MACHINE, name, 1, offset))


def test_what_lies_behind_the_seal_does_not_matter(whole: Path, copy: Path) -> None:
    read_all(lay_out(copy, whole.read_bytes() + b"a late owner wrote this", seal_of(whole)))
