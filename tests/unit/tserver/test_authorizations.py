"""A scan sees with what its user has, or with less, never with more."""

from __future__ import annotations

import pytest

from bookkeeper.errors import InvalidInputError, RefusedError
from bookkeeper.storage.tablet.tablet_settings import BatchLimits
from bookkeeper.storage.wal.blocks.block import encode_batch
from bookkeeper.tserver.authorizations import ROOT, authorizations_for
from bookkeeper.tserver.write.request_decoder import decode_labelled, decode_records
from tests.support.must_raise import must_raise
from tests.support.tablet_model import Record, to_batch

USERS = {ROOT: frozenset({"A", "B"}), "ann": frozenset({"C"})}
LIMITS = BatchLimits()


@pytest.mark.parametrize(
    ("user", "asked", "seen"),
    [
        (None, None, "AB"),
        (None, (), ""),
        (None, ("B",), "B"),
        (ROOT, ("A", "B", "A"), "AB"),
        ("ann", None, "C"),
        ("nobody", None, ""),
        ("nobody", (), ""),
    ],
)
def test_without_a_word_it_is_all_that_the_user_has(user: str | None, asked: tuple[str, ...] | None, seen: str) -> None:
    authorizations = authorizations_for(USERS, user, asked)
    assert "".join(letter for letter in "ABC" if authorizations.can_see(letter.encode())) == seen
    assert authorizations.can_see(b"")


@pytest.mark.parametrize(("user", "asked"), [(None, ("A", "C")), ("ann", ("A",)), ("nobody", ("A",)), ("", ("C",))])
def test_more_than_the_user_has_is_refused(user: str | None, asked: tuple[str, ...]) -> None:
    with pytest.raises(RefusedError, match="setauths"):
        authorizations_for(USERS, user, asked)


def test_more_is_refused_to_ann() -> None:
    with must_raise(
        RefusedError, "a user gets an authorization that was not granted", match="user ann has no authorization A"
    ):
        authorizations_for(USERS, "ann", ("A", "C"))


def test_a_users_label_must_be_an_expression() -> None:
    batch = to_batch([Record(b"r", b"f", b"q", label, 1, False, b"v") for label in (b"A", b"A&B|C")])
    encoded = encode_batch(batch).to_pybytes()
    with must_raise(InvalidInputError, "a label is taken that no reader can judge", match="mixed without parentheses"):
        decode_labelled(encoded, LIMITS)


def test_what_another_cluster_took_is_not_held_up() -> None:
    batch = to_batch([Record(b"r", b"f", b"q", b"A&B|C", 1, False, b"v")])
    assert decode_records(encode_batch(batch).to_pybytes(), LIMITS).num_rows == 1
