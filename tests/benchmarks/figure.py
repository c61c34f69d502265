"""One measured figure: its name, its value and its reference; a row of the table and of the JSON file of ``make
bench``.
"""

from __future__ import annotations

from typing import NotRequired, TypedDict


class Figure(TypedDict):
    """``ratio`` is value / reference. ``target`` is the least (or, with ``lower_is_better``, the most) allowed."""

    name: str
    value: float
    unit: str
    reference: float
    reference_name: str
    reference_unit: str
    ratio: float
    target: NotRequired[float]
    target_of: NotRequired[str]
    lower_is_better: NotRequired[bool]
    size: NotRequired[int]
    note: NotRequired[str]


def met(figure: Figure) -> bool | None:
    """Whether the target was met; None when the figure has none. ``target_of`` is "value" (default) or "ratio"."""
    if "target" not in figure:
        return None
    measured = figure["ratio"] if figure.get("target_of") == "ratio" else figure["value"]
    return measured <= figure["target"] if figure.get("lower_is_better") else measured >= figure["target"]
