"""The index of outstanding files is a mapping by name, for any names, and keeps their order."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from operator import itemgetter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.master.index import log_index, log_names
from bookkeeper.master.index.barriers import log_directory
from bookkeeper.master.index.file_entry import FileEntry, Scopes, parse_cell
from bookkeeper.master.index.outstanding import Outstanding
from tests.support.master_values import EAST, by_name, entry, name, scopes, status_value, target

SCOPE = scopes().of(("1",))
DIRECTORY = name("s1").removesuffix(b"000001.wal")
STATUS = parse_cell(status_value(5))

logs = st.builds(name, st.sampled_from(["s1", "s10", "s2"]), st.integers(1, 40))
odd = st.text("a/01.wl", max_size=12).map(str.encode)
within = st.builds(lambda log, rest: log[:-10] + rest, logs, st.one_of(odd, st.just(b"000003/000002.wal")))
"""Names in a directory of logs, and those of logs in one that is in it."""
any_name = st.one_of(logs, odd, within, odd.map(lambda file: file + b"/000007.wal"))


@given(any_name)
def test_a_name_comes_out_again(file: bytes) -> None:
    assert log_names.joined(*log_names.split(file)) == file
    assert FileEntry(file, STATUS, SCOPE).file == file


@pytest.fixture(autouse=True)
def _chunks_are_short(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "memory" not in request.node.name:
        monkeypatch.setattr(log_index, "CHUNK_LOGS", 4)


@given(st.lists(st.tuples(any_name, st.sampled_from(["put", "add", "remove"])), max_size=100))
def test_it_is_a_mapping_in_order_of_names(steps: list[tuple[bytes, str]]) -> None:
    model: dict[bytes, FileEntry] = {}
    files = Outstanding()
    for file, step in steps:
        if step == "remove":
            if file in model:
                files.remove(file)
            model.pop(file, None)
        else:
            model[file] = made = FileEntry(file, STATUS, SCOPE)
            (files.put if step == "put" else files.add)(made)
    assert len(files) == len(model)
    assert list(files.in_order()) == sorted(model.items(), key=itemgetter(0))
    assert sorted(files) == sorted(model)
    assert all(files[made.file] is made is model[made.file] for made in files.values())
    for file, _ in steps:
        assert files.get(file) is model.get(file)
        assert (file in files) == (file in model)
        directory = file.rpartition(b"/")[0] + b"/"
        logs_beside = [known for known in model if log_directory(known) == directory]
        assert files.newest(directory) == max(logs_beside, default=None)


@given(st.permutations(range(1, 41)), st.permutations(range(1, 41)), st.integers(0, 40))
def test_logs_come_and_go_in_any_order(coming: list[int], going: list[int], since: int) -> None:
    files, there = Outstanding(), dict[int, FileEntry]()
    for number in coming:
        there[number] = entry(name("s1", number), 5)
        files.put(there[number])
        assert [made.number for _, made in files.in_order()] == sorted(there)
        assert all(files.get(name("s1", number)) is there.get(number) for number in range(42))
    for number in going:
        left = files.oldest_left(DIRECTORY, EAST, lambda made: made.number < since)
        assert left == min((made.file for made in there.values() if made.number >= since), default=None)
        files.remove(there.pop(number).file)
        files.add(there.setdefault(going[-1], entry(name("s1", going[-1]), 5)))
        assert list(files.in_order()) == [(there[number].file, there[number]) for number in sorted(there)]
        assert files.newest(DIRECTORY) == there[max(there)].file


def test_a_missing_file_can_not_be_removed() -> None:
    files = by_name(entry(name("s1", 11), 5))
    for file in (name("s1", 12), name("s2", 11), b"odd"):
        with pytest.raises(KeyError):
            files.remove(file)
    assert list(files) == [name("s1", 11)]


def test_the_search_for_the_oldest_unfinished_log_starts_at_its_last_result() -> None:
    made = [entry(name("s1", number), 5) for number in range(8, 14)]
    files, asked = by_name(*made[1:]), []

    def is_over(found: FileEntry) -> bool:
        asked.append(found)
        return found in over

    over = made[:3]
    assert [files.oldest_left(DIRECTORY, EAST, is_over) for _ in range(2)] == [made[3].file] * 2
    assert asked == [*made[1:4], made[3]]
    over = made
    assert files.oldest_left(DIRECTORY, EAST, is_over) is None
    over = made[1:]
    files.add(made[0])
    assert files.oldest_left(DIRECTORY, EAST, is_over) == made[0].file, "one that came later"


def test_files_are_read_while_others_come() -> None:
    """Operators ask for the status while the master's thread reads the books."""
    files, stop = by_name(entry(name("s1", 1), 5)), threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not stop.is_set():
            seen.append(sum(1 for _ in files.values()))

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(2, 4_000):
        files.add(entry(name(f"s{number % 7}", number), 5))
    stop.set()
    reader.join()
    assert seen == sorted(seen)


@pytest.mark.parametrize("step", [1, 3, 10, 7_000])
def test_two_snapshots_of_a_file_cost_little_memory_however_far_names_are_apart(step: int) -> None:
    """A full cycle holds the index before and the one that it makes; the second one shares all but its pages."""
    count = 5_000
    shared = Scopes({"1": [target()]}).of(("1",))
    gc.collect()
    tracemalloc.start()
    held, made = Outstanding(), Outstanding()
    for number in range(0, count * step, step):
        held.put(FileEntry(bytes(bytearray(_long_name(number))), STATUS, shared))
    gc.collect()
    alone, _ = tracemalloc.get_traced_memory()
    for known in held.values():
        made.put(known)
    both, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(made) == count
    assert alone / count <= 240
    assert (both - alone) / count <= 20


def _long_name(number: int) -> bytes:
    session, log = divmod(number, 1_000_000)
    return b"wal/tserver-1-%08x/%06d.wal" % (session, log)
