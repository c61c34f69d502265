"""Related ranges stay in one task, in order; the tasks share the others evenly."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.model import TargetKey
from bookkeeper.replay.ranges import Range, ranges_from_table
from bookkeeper.replay.spark.tasks import split_tasks, task_table
from tests.support.ranges import a_range

_ranges = st.lists(
    st.builds(
        lambda file, target, instance, first, order: a_range(
            f"{file}",
            first,
            first + 9,
            target=TargetKey("east", "r1", target, 1),
            instance=instance,
            order_key=order,
        ),
        st.integers(0, 5),
        st.sampled_from(["t1", "t2"]),
        st.sampled_from(["east", "north"]),
        st.integers(1, 5).map(lambda n: 10 * n + 1),
        st.integers(0, 2),
    ),
    unique_by=lambda r: (r.file, r.target, r.peer_instance_id, r.first),
    min_size=1,
    max_size=40,
)


@given(_ranges, st.integers(1, 8))
def test_every_range_is_in_one_task_and_a_file_for_a_peer_in_one_only(ranges: list[Range], tasks: int) -> None:
    shares = split_tasks(ranges, tasks)
    assert sorted(r.first for share in shares for r in share) == sorted(r.first for r in ranges)
    assert 1 <= len(shares) <= tasks
    homes: dict[tuple[str, str], set[int]] = {}
    for number, share in enumerate(shares):
        for r in share:
            homes.setdefault((r.file, r.peer_instance_id), set()).add(number)
    assert all(len(home) == 1 for home in homes.values())


@given(_ranges, st.integers(1, 8))
def test_each_task_is_one_record_batch_with_its_number(ranges: list[Range], tasks: int) -> None:
    shares = split_tasks(ranges, tasks)
    batches = task_table(ranges, tasks).to_batches()
    assert [ranges_from_table(batch) for batch in batches] == shares
    assert [set(batch.column("task").to_pylist()) for batch in batches] == [{n} for n in range(len(shares))]


def test_the_larger_files_are_shared_out_first() -> None:
    sizes = {"a": 100, "b": 60, "c": 50}
    shares = split_tasks([a_range(file, 1, size) for file, size in sizes.items()], 2)
    assert [[r.file for r in share] for share in shares] == [["a"], ["b", "c"]]
