"""Flags of files: as a dictionary has them, for logs and for any other name."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.master.gc.file_flags import LISTED, MARKED, REFERENCED, SEALED, FileFlags

LOGS = st.builds(
    lambda session, number: b"w/s%d/%06d.wal" % (session, number),
    st.integers(0, 2),
    st.sampled_from([0, 1, 2, 63, 64, 65, 127, 128, 9_999, 999_998, 999_999]),
)
OTHERS = st.sampled_from([b"t/1/a.parquet", b"w/s0/taken-000001.wal", b"w/import/x.wal", b"x"])
FILES, FLAGS = LOGS | OTHERS, st.integers(1, 15)


@given(st.lists(st.tuples(FILES, FLAGS, st.booleans())))
def test_they_are_those_of_a_dictionary(steps: list[tuple[bytes, int, bool]]) -> None:
    flags, model = FileFlags(), dict[bytes, int]()
    for file, added, known_only in steps:
        before = model.get(file, 0)
        assert flags.of(file) == before
        if known_only:
            assert flags.add_known(file, added) == before
        else:
            flags.add(file, added)
        if before or not known_only:
            model[file] = before | added
    assert dict(flags) == model
    names = [file for file, _ in flags]
    logs = [file for file in names if file[-10:-4].isdigit() and b"taken" not in file]
    assert names == sorted(logs) + sorted(set(names) - set(logs))


def test_flags_are_independent() -> None:
    assert len({LISTED | SEALED, LISTED | MARKED, LISTED | REFERENCED, LISTED}) == 4
    assert not LISTED & SEALED & MARKED & REFERENCED


def bytes_a_file(files: Iterable[bytes]) -> float:
    """The bytes a file of the flags of files, each object once."""
    flags = FileFlags()
    for file in files:
        flags.add(file, LISTED)
    seen: dict[int, int] = {}
    left: list[object] = [flags]
    while left:
        found = left.pop()
        if id(found) not in seen and not isinstance(found, type):
            seen[id(found)] = sys.getsizeof(found)
            left += gc.get_referents(found)
    return sum(seen.values()) / sum(1 for _ in flags)


def test_a_log_costs_a_few_bytes_and_one_far_from_others_a_few_hundred() -> None:
    assert bytes_a_file(b"var/lib/w/s%d/%06d.wal" % divmod(n, 10_000) for n in range(100_000)) < 8
    assert bytes_a_file(b"var/lib/w/s1/%06d.wal" % n for n in range(0, 1_000_000, 1_000)) < 400
