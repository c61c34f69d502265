"""The figures of the code's grain are those of a small product that can be counted by hand."""

from __future__ import annotations

from pathlib import Path

from tests.support.grain import Grain, grain_of

SOURCE = '''\
"""A module
of two lines."""

import math

LIMIT = 3
"""A value."""


def once(value: int) -> bool:
    """Whether it is small."""
    return value < LIMIT  # a comment behind code is none


def twice(value: int) -> int:
    return 2 * value


class Shape:
    def area(
        self,
    ) -> float:
        # A comment
        # of two lines.
        if once(1):
            return twice(twice(2))

        return math.pi
'''


def test_the_figures_are_those_of_the_source(tmp_path: Path) -> None:
    (tmp_path / "bookkeeper").mkdir()
    (tmp_path / "bookkeeper" / "shapes.py").write_text(SOURCE)
    (tmp_path / "bookkeeper" / "shapes_pb2.py").write_text(SOURCE)
    assert grain_of(tmp_path) == Grain(
        files=1,
        lines=28,
        code_lines=13,
        comment_lines=2,
        function_lines=(2, 2, 6),
        one_return=2,
        one_use=1,
    )
