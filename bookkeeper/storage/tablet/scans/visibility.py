"""Visibility labels: whether a reader's authorizations satisfy them, decided once for each label of a batch.

Pure. A label is empty (every reader sees the cell) or an expression as in Accumulo: terms joined by ``&`` (all of them)
or by ``|`` (one of them), parentheses where both meet. A term is made of letters, digits and ``_-:./``, or of anything
in double quotes, where ``\\"`` and ``\\\\`` stand for a quote and a backslash. No reader sees a cell whose label does
not parse (older versions did not check labels).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from bookkeeper.errors import InvalidInputError
from bookkeeper.storage.columns import binary_offsets
from bookkeeper.storage.tablet.sorting.order import Mask

DEPTH_MAX = 100
"""Most parentheses inside each other."""

CACHED_LABELS_MAX = 4_096
"""Labels whose verdict is cached for one set of authorizations; beyond it the cache starts again."""
CACHED_LABEL_BYTES_MAX = 1_024
"""Longer labels are decided each time."""

_TERM = re.compile(rb"[A-Za-z0-9_\-:./]+")
_QUOTED = re.compile(rb'"((?:[^"\\]|\\["\\])+)"')
_ESCAPED = re.compile(rb"\\(.)", re.DOTALL)


class Combination(Struct, frozen=True):
    """All parts must hold, or any of them."""

    all_of: bool
    parts: tuple[Expression, ...]


Expression: TypeAlias = bytes | Combination
"""A term, or several expressions joined."""


def may_see(expression: Expression, authorizations: Collection[bytes]) -> bool:
    """Whether these authorizations satisfy an expression."""
    if isinstance(expression, bytes):
        return expression in authorizations
    judged = (may_see(part, authorizations) for part in expression.parts)
    return all(judged) if expression.all_of else any(judged)


class _Level(Struct):
    """The terms inside one pair of parentheses, as far as they are read."""

    begin: int
    parts: list[Expression] = field(default_factory=list)
    operator: bytes = b""
    wants_term: bool = True

    def add(self, part: Expression) -> None:
        self.parts.append(part)
        self.wants_term = False

    def join(self, operator: bytes) -> bool:
        """Another term follows behind this operator; False when the level has the other operator already."""
        if self.operator not in (b"", operator):
            return False
        self.operator, self.wants_term = operator, True
        return True

    def expression(self) -> Expression:
        return self.parts[0] if len(self.parts) == 1 else Combination(self.operator == b"&", tuple(self.parts))


class _Parser:
    """Reads one label from left to right."""

    def __init__(self, label: bytes) -> None:
        self._label = label
        self._at = 0
        self._levels = [_Level(0)]

    def parse(self) -> Expression:
        """The expression. Raises InvalidInputError."""
        while self._at < len(self._label):
            level = self._levels[-1]
            step = self._term if level.wants_term else self._behind_term
            step(level, self._label[self._at : self._at + 1])
        if len(self._levels) > 1:
            raise self._error("a parenthesis is not closed", self._levels[-1].begin)
        if self._levels[0].wants_term:
            raise self._error("a term is missing at the end", self._at)
        return self._levels[0].expression()

    def _term(self, level: _Level, here: bytes) -> None:
        if here == b"(":
            if len(self._levels) > DEPTH_MAX:
                raise self._error(f"more than {DEPTH_MAX} parentheses inside each other", self._at)
            self._levels.append(_Level(self._at))
            self._at += 1
            return
        quoted = here == b'"'
        match = (_QUOTED if quoted else _TERM).match(self._label, self._at)
        if match is None:
            raise self._error("an empty or unfinished quote" if quoted else "no term begins", self._at)
        level.add(_ESCAPED.sub(rb"\1", match[1]) if quoted else match[0])
        self._at = match.end()

    def _behind_term(self, level: _Level, here: bytes) -> None:
        if here == b")" and len(self._levels) > 1:
            self._levels.pop()
            self._levels[-1].add(level.expression())
        elif here in (b"&", b"|"):
            if not level.join(here):
                raise self._error("& and | are mixed without parentheses", self._at)
        else:
            raise self._error("neither & nor | nor the end", self._at)
        self._at += 1

    def _error(self, reason: str, at: int) -> InvalidInputError:
        shown = self._label[:200]
        return InvalidInputError(
            f"visibility {shown!r} is no expression: {reason} at byte {at}; write terms joined by & or |, parentheses "
            "where both meet, double quotes around other characters"
        )


def parse_label(label: bytes) -> Expression | None:
    """The expression of a label; None for the empty one. Raises InvalidInputError."""
    return _Parser(label).parse() if label else None


def _is_unlabelled(column: pa.Array) -> bool:
    offsets = binary_offsets(column)
    return bool(offsets[0] == offsets[-1])


@lru_cache(CACHED_LABELS_MAX)
def _check_short(label: bytes) -> None:
    parse_label(label)


def check_label(label: bytes) -> None:
    """Raise InvalidInputError unless a label parses."""
    if len(label) <= CACHED_LABEL_BYTES_MAX:
        _check_short(label)
    else:
        parse_label(label)


def check_labels(batch: pa.RecordBatch) -> None:
    """Raise InvalidInputError unless every label of a batch parses."""
    column = batch.column("visibility")
    if _is_unlabelled(column):
        return
    for label in pc.unique(column).to_pylist():
        check_label(label)


class Authorizations:
    """A reader's authorizations, with a cache of verdicts on labels. Thread-safe: a cached verdict never changes."""

    def __init__(self, authorizations: frozenset[bytes]) -> None:
        self._authorizations = authorizations
        self._verdicts: dict[bytes, bool] = {}

    def can_see(self, label: bytes) -> bool:
        """Whether the reader sees cells with this label."""
        if len(label) > CACHED_LABEL_BYTES_MAX:
            return self._decide(label)
        verdict = self._verdicts.get(label)
        if verdict is None:
            if len(self._verdicts) >= CACHED_LABELS_MAX:
                self._verdicts = {}
            verdict = self._verdicts[label] = self._decide(label)
        return verdict

    def _decide(self, label: bytes) -> bool:
        try:
            expression = parse_label(label)
        except InvalidInputError:
            return False
        return expression is None or may_see(expression, self._authorizations)

    def mask(self, entries: pa.RecordBatch) -> Mask | None:
        """The entries that the reader sees, as a mask; None = all, because none has a label."""
        column = entries.column("visibility")
        if _is_unlabelled(column):
            return None
        return by_label(column, self.can_see)


def by_label(column: pa.Array, judge: Callable[[bytes], bool]) -> Mask:
    """The verdict on each label, decided once for each distinct one."""
    encoded = pc.dictionary_encode(column)
    verdicts = np.array([judge(label) for label in encoded.dictionary.to_pylist()], bool)
    mask: Mask = verdicts[encoded.indices.to_numpy()]
    return mask


@lru_cache(64)
def authorizations_of(authorizations: frozenset[bytes]) -> Authorizations:
    """The same object for the same authorizations, so that pages of scans share its cache."""
    return Authorizations(authorizations)
