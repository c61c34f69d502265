"""Visibility: expressions as Accumulo's, judged once a label; no reader sees a cell whose label does not parse."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bookkeeper.errors import InvalidInputError
from bookkeeper.storage.tablet.scans.visibility import (
    CACHED_LABEL_BYTES_MAX,
    CACHED_LABELS_MAX,
    DEPTH_MAX,
    Authorizations,
    Combination,
    Expression,
    authorizations_of,
    by_label,
    check_labels,
    may_see,
    parse_label,
)
from tests.support.tablet_model import Record, to_batch

PLAIN = Record(b"r", b"f", b"q", b"", 1, False, b"v")


@pytest.mark.parametrize(
    ("label", "seen_with", "hidden_from"),
    [
        (b"A", ["A", "AB"], ["", "B"]),
        (b"A&B", ["AB"], ["A", "B", ""]),
        (b"A|B", ["A", "B", "AB"], ["", "C"]),
        (b"A&(B|C)", ["AB", "AC"], ["A", "BC"]),
        (b"(A&B)|(C&D)", ["AB", "CD", "ABC"], ["AC", "BD"]),
        (b"((A))", ["A"], ["B"]),
        (b"A&B&C", ["ABC"], ["AB"]),
        (b"A|(B&(C|(D&E)))", ["A", "BC", "BDE"], ["BD", "CDE"]),
        (b'"A"', ["A"], ["B"]),
    ],
)
def test_an_expression_says_who_sees(label: bytes, seen_with: list[str], hidden_from: list[str]) -> None:
    for letters in seen_with:
        assert Authorizations(frozenset(bytes([code]) for code in letters.encode())).can_see(label), letters
    for letters in hidden_from:
        assert not Authorizations(frozenset(bytes([code]) for code in letters.encode())).can_see(label), letters


@pytest.mark.parametrize(
    ("label", "term"),
    [
        (b"a_b-c:d.e/f9", b"a_b-c:d.e/f9"),
        (b'"a b"', b"a b"),
        (b'"say \\"hi\\" \\\\ "', b'say "hi" \\ '),
        (b'"\xff\x00&|()"', b"\xff\x00&|()"),
    ],
)
def test_terms_are_words_or_anything_in_quotes(label: bytes, term: bytes) -> None:
    assert parse_label(label) == term


@pytest.mark.parametrize(
    ("label", "said"),
    [
        (b"A&B|C", "mixed without parentheses at byte 3"),
        (b"A|B&C", "mixed without parentheses at byte 3"),
        (b"(A|B&C)", "mixed without parentheses at byte 4"),
        (b"A&", "a term is missing at the end"),
        (b"&A", "no term begins at byte 0"),
        (b"A||B", "no term begins at byte 2"),
        (b"()", "no term begins at byte 1"),
        (b"(A", "a parenthesis is not closed at byte 0"),
        (b"A)", "neither & nor | nor the end at byte 1"),
        (b"A B", "neither & nor | nor the end at byte 1"),
        (b"A(B)", "neither & nor | nor the end at byte 1"),
        (b'"A', "unfinished quote at byte 0"),
        (b'""', "empty or unfinished quote at byte 0"),
        (b'"A\\n"', "unfinished quote at byte 0"),
        (b"\xff", "no term begins at byte 0"),
        (b"(" * (DEPTH_MAX + 1) + b"A" + b")" * (DEPTH_MAX + 1), f"more than {DEPTH_MAX} parentheses"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(label: bytes, said: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        parse_label(label)
    assert said in refused.value.message
    with pytest.raises(InvalidInputError):
        check_labels(to_batch([PLAIN, PLAIN._replace(visibility=b"A"), PLAIN._replace(visibility=label)]))
    assert not Authorizations(frozenset({b"A", b"B", b"C"})).can_see(label), (
        "a user with the authorization does not see it either"
    )


def test_the_empty_label_is_everybodys() -> None:
    assert parse_label(b"") is None
    assert Authorizations(frozenset()).can_see(b"")
    check_labels(to_batch([PLAIN]))


# ---- against a model

TERMS = st.sampled_from([b"A", b"B", b"C", b"a b", b'"', b"\\", b"\xff"])


def joined(parts: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.builds(Combination, st.booleans(), st.lists(parts, min_size=2, max_size=4).map(tuple))


EXPRESSIONS: st.SearchStrategy[Expression] = st.recursive(TERMS, joined, max_leaves=12)


def written(expression: Expression) -> bytes:
    if isinstance(expression, Combination):
        operator = b"&" if expression.all_of else b"|"
        return b"(" + operator.join(map(written, expression.parts)) + b")"
    if expression.isalnum():
        return expression
    return b'"' + expression.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'


def truth(expression: Expression, held: frozenset[bytes]) -> bool:
    if isinstance(expression, Combination):
        return (all if expression.all_of else any)([truth(part, held) for part in expression.parts])
    return expression in held


@given(EXPRESSIONS, st.frozensets(TERMS))
def test_what_is_written_is_what_is_judged(expression: Expression, held: frozenset[bytes]) -> None:
    label = written(expression)
    parsed = parse_label(label)
    assert parsed is not None
    assert written(parsed) == label
    assert may_see(parsed, held) == Authorizations(held).can_see(label) == truth(expression, held)


@given(st.binary(max_size=20) | st.text(alphabet='AB&|()"\\ ', max_size=20).map(str.encode))
def test_garbage_is_refused_and_nothing_else_happens(label: bytes) -> None:
    try:
        parsed = parse_label(label)
    except InvalidInputError:
        return
    if parsed is not None:
        assert parse_label(written(parsed)) == parsed


# ---- columns

LABELS = st.sampled_from([b"", b"A", b"A&B", b"B|C", b"A|", b"x" * (CACHED_LABEL_BYTES_MAX + 1)])


@given(st.lists(LABELS, min_size=1, max_size=30), st.frozensets(st.sampled_from([b"A", b"B"])), st.integers(0, 5))
def test_a_mask_is_the_verdict_on_each_entry(labels: list[bytes], held: frozenset[bytes], skip: int) -> None:
    batch = to_batch([PLAIN._replace(visibility=label) for label in labels]).slice(skip)
    authorizations = Authorizations(held)
    mask = authorizations.mask(batch)
    expected = [authorizations.can_see(label) for label in labels[skip:]]
    assert (mask is None and all(expected)) or (mask is not None and mask.tolist() == expected)


def test_each_label_is_judged_once() -> None:
    judged: list[bytes] = []

    def judge(label: bytes) -> bool:
        judged.append(label)
        return label == b"A"

    column = pa.array([b"A", b"B", b""] * 1_000, pa.binary())
    assert by_label(column, judge).sum() == 1_000
    assert sorted(judged) == [b"", b"A", b"B"]


def test_what_is_remembered_is_bounded_and_shared() -> None:
    authorizations = authorizations_of(frozenset({b"A"}))
    assert authorizations_of(frozenset({b"A"})) is authorizations
    for number in range(2 * CACHED_LABELS_MAX):
        assert authorizations.can_see(b"A|%d" % number)
        assert len(authorizations._verdicts) <= CACHED_LABELS_MAX
    assert authorizations.can_see(b"A|" + b"x" * CACHED_LABEL_BYTES_MAX)
