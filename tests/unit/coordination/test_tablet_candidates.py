"""The candidacy of a host as bytes: it comes back as it was, and nothing else is one."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.coordination.tablet_candidates import TabletCandidate
from bookkeeper.errors import CorruptionError

STATES = st.lists(st.integers(0, 2**63 - 1), max_size=5).map(tuple)


@given(st.text("abc-1", min_size=1), st.text(max_size=5), st.text(max_size=5), st.integers(0, 2**63 - 1), STATES)
def test_a_candidacy_comes_back_as_it_was(
    host: str, placement: str, incarnation: str, root: int, complete: tuple[int, ...]
) -> None:
    candidate = TabletCandidate(host, placement, incarnation, root, complete)
    assert TabletCandidate.decode(candidate.encode()) == candidate


def test_the_bytes_of_a_candidacy() -> None:
    assert TabletCandidate("h2", "p7", "d1", 9, (7, 9)).encode() == (
        b'{"complete":[7,9],"host":"h2","incarnation":"d1","placement":"p7","root":9}'
    )


@given(st.binary(max_size=60))
def test_other_bytes_are_refused_in_words(raw: bytes) -> None:
    with suppress(CorruptionError):
        TabletCandidate.decode(raw)


@pytest.mark.parametrize("raw", [b"{}", b"[]", b'{"complete":[-1],"host":"","incarnation":"","placement":"","root":0}'])
def test_a_candidacy_that_lacks_something_is_refused(raw: bytes) -> None:
    with pytest.raises(CorruptionError):
        TabletCandidate.decode(raw)
