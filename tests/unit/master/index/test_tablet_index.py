"""All tablets, changed in place: its counts and its order match its tablets."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.master.index.snapshot import TabletView
from bookkeeper.master.index.tablet_index import TabletIndex
from tests.support.master_values import tablet

ends = st.one_of(st.none(), st.binary(min_size=1, max_size=2))
views = st.builds(tablet, ends, st.none(), st.sampled_from([None, "a", "b"]), st.sampled_from(["1", "2", "10"]))
changes = st.lists(st.tuples(st.booleans(), views), max_size=40)


@given(changes, st.binary(max_size=2), st.binary(max_size=2))
def test_the_index_equals_a_rebuilt_one(done: list[tuple[bool, TabletView]], first: bytes, behind: bytes) -> None:
    index, model = TabletIndex(), dict[bytes, TabletView]()
    for is_put, view in done:
        if is_put:
            index.put(view)
            model[view.row] = view
        else:
            index.remove(view.row)
            model.pop(view.row, None)
    assert index == model
    assigned = [view for view in model.values() if view.session is not None]
    assert index.counts.total == Counter(view.session for view in assigned)
    assert index.counts.by_table == Counter((view.session, view.extent.table_id) for view in assigned)
    assert {session: set(index.rows_of(session)) for session in index.sessions()} == {
        session: {view.row for view in assigned if view.session == session} for session in index.counts.total
    }
    start, stop = b"1;" + first, b"1;" + behind
    assert index.between(start, stop) == sorted(row for row in model if start <= row < stop)
    assert index.between(b"1;", b"1=") == sorted(row for row, view in model.items() if view.extent.table_id == "1")
