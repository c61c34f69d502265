"""The codec of file entries decodes every value that it encodes, and takes few bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.master.index.barriers import FileBarrier
from bookkeeper.master.index.file_entry_codec import (
    Parts,
    amount_in,
    barriers_in,
    closed_in,
    finished_in,
    is_closed_in,
    is_status_in,
    needed_in,
    pack,
    progress_in,
    reach_in,
    status_in,
    unpack,
    with_closed_in,
)
from bookkeeper.master.index.target_progress import NO_AMOUNT, NO_PROGRESS, Amount, Progress
from tests.support.master_values import name

numbers = st.one_of(st.integers(0, 99), st.integers(0, 2**32), st.integers(0, 2**64 - 1))
names = st.one_of(
    st.builds(name, st.sampled_from(["s1", "s2", "tserver-1-0badcafe"]), st.integers(0, 2_000_000)),
    st.binary(max_size=40),
    st.binary(min_size=250, max_size=600),
)


@given(
    names,
    numbers,
    st.lists(st.builds(Progress, numbers, numbers, numbers, numbers), max_size=3),
    st.lists(st.builds(Amount, numbers, numbers), max_size=3),
    st.lists(st.builds(FileBarrier, numbers, names, numbers, st.booleans()), max_size=8),
    st.binary(max_size=30),
    st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=2),
)
def test_unpacking_inverts_packing(
    own: bytes,
    needed: int,
    progress: list[Progress],
    amounts: list[Amount],
    barriers: list[FileBarrier],
    status: bytes,
    cycles: list[int],
) -> None:
    told = Parts(needed, tuple(progress), tuple(sorted(barriers)), status, cycles[0], tuple(amounts))
    targets = max(len(progress), len(amounts))
    progress += [NO_PROGRESS] * (targets - len(progress))
    amounts += [NO_AMOUNT] * (targets - len(amounts))
    parts = told._replace(progress=tuple(progress), amounts=tuple(amounts))
    packed = with_closed_in(pack(own, told), cycles[1])
    assert unpack(own, packed) == parts._replace(closed_in=cycles[1])
    packed = with_closed_in(packed, cycles[0])
    assert unpack(own, packed) == parts
    assert (closed_in(packed), is_closed_in(packed)) == (cycles[0], cycles[0] > 0)
    assert (needed_in(packed), status_in(packed), barriers_in(packed)) == (needed, status, len(barriers))
    assert [progress_in(packed, place) for place in range(len(progress) + 1)] == [*progress, None]
    assert [finished_in(packed, place) for place in range(len(progress))] == [done.offset for done in progress]
    assert finished_in(packed, len(progress)) == 0
    assert [amount_in(packed, place) for place in range(targets + 1)] == [*amounts, NO_AMOUNT]
    assert is_status_in(packed, status)
    assert not any(
        is_status_in(packed, other) for other in (status + b"s", status[1:], b"s" + status) if other != status
    )
    assert reach_in(packed) == (needed, min((done.offset for done in progress), default=None))


def test_more_of_anything_than_a_byte_counts_comes_out_again() -> None:
    barriers = tuple(FileBarrier(n, name("s1", n), n) for n in range(70_000))
    parts = Parts(1, (Progress(1, 1),) * 300, barriers, b"status", 0, (Amount(1, 9),) * 300)
    assert unpack(name("s2"), pack(name("s2"), parts)) == parts


def test_a_barrier_in_a_log_of_the_same_tserver_takes_few_bytes() -> None:
    own = name("tserver-1-0badcafe", 4_000)
    barriers = tuple(FileBarrier(1_000_000 + n, name("tserver-1-0badcafe", 90 * n), 8_000_000) for n in range(20))
    bare, held = (len(pack(own, Parts(9, (), found, b""))) for found in ((), barriers))
    assert (held - bare) / len(barriers) <= 16
