"""Sequence diagrams: the part of Mermaid that the pages use, drawn as SVG when the site is built.

The site loads nothing from another host and runs no script for a diagram. Code hosts draw the same text by themselves.
Known lines: ``participant ID as LABEL``, ``A->>B: TEXT`` (a call), ``A-->>B: TEXT`` (its answer), ``Note over A,B:
TEXT``; ``<br/>`` breaks a text. Any other line is a ValueError. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

HEADING = "sequenceDiagram"
CHARACTER_PX = 6.4
"""Width of a character of 12 px, on average."""
LINE_PX = 15
MARGIN_PX = 12
SELF_PX = 26
"""Width of a participant's call of itself; it extends to the right, for the last participant to the left."""

_PARTICIPANT = re.compile(r"participant (\w+) as (.+)")
_MESSAGE = re.compile(r"(\w+)(-?->>)(\w+): (.+)")
_NOTE = re.compile(r"Note over (\w+)(?:,(\w+))?: (.+)")

STYLE = """
.sequence{width:100%;height:auto;color:inherit;font:12px sans-serif}
.sequence text{fill:currentColor;text-anchor:middle;stroke:var(--color-background-primary,transparent);
stroke-width:4px;paint-order:stroke}
.sequence .life{stroke:currentColor;stroke-opacity:.3;fill:none}
.sequence .box{stroke:currentColor;fill:var(--color-background-secondary,transparent)}
.sequence .box+text,.sequence .note+text{stroke:none}
.sequence .box+text{font-weight:bold}
.sequence .note{stroke:currentColor;stroke-opacity:.4;fill:var(--color-background-secondary,transparent)}
.sequence .call,.sequence .answer{stroke:currentColor;fill:none}
.sequence .answer{stroke-dasharray:5 4}
.sequence .head{fill:currentColor}
""".replace("\n", "")


@dataclass(frozen=True, slots=True)
class Step:
    """A message from ``first`` to ``last``, or a note over both. ``kind``: ``call``, ``answer`` or ``note``."""

    kind: str
    first: int
    last: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diagram:
    """The labels of the participants from left to right, and the steps from top to bottom."""

    participants: tuple[tuple[str, ...], ...]
    steps: tuple[Step, ...]


def parse(text: str) -> Diagram:
    """A diagram of its text. Raises ValueError with the line that is not known."""
    heading, *lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    if heading != HEADING:
        raise ValueError(f"a diagram begins with {HEADING}, not with {heading!r}")
    places: dict[str, int] = {}
    labels: list[tuple[str, ...]] = []
    steps: list[Step] = []
    for line in lines:
        try:
            if found := _PARTICIPANT.fullmatch(line):
                places[found[1]] = len(labels)
                labels.append(_lines(found[2]))
            elif found := _MESSAGE.fullmatch(line):
                kind = "answer" if found[2] == "-->>" else "call"
                steps.append(Step(kind, places[found[1]], places[found[3]], _lines(found[4])))
            elif found := _NOTE.fullmatch(line):
                steps.append(Step("note", places[found[1]], places[found[2] or found[1]], _lines(found[3])))
            else:
                raise ValueError(f"a sequence diagram has no line {line!r}")
        except KeyError as error:
            raise ValueError(f"{line!r}: no participant {error}") from None
    if len(labels) < 2:
        raise ValueError("a sequence diagram has two participants at least")
    return Diagram(tuple(labels), tuple(steps))


def _lines(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split("<br/>"))


def draw(diagram: Diagram) -> str:
    """The diagram as one SVG element in the colours of the page."""
    centres = _centres(diagram)
    top = MARGIN_PX + LINE_PX * max(len(label) for label in diagram.participants) + 10
    body: list[str] = []
    y: float = top + 10
    for step in diagram.steps:
        part, y = _step(step, centres, y)
        body += part
    width, height = centres[-1] + centres[0], y + MARGIN_PX
    lives = [f'<path class="life" d="M{x:.0f} {top}V{height}"/>' for x in centres]
    boxes = [
        shape
        for x, label in zip(centres, diagram.participants, strict=True)
        for shape in _box("box", x, MARGIN_PX / 2, _width(label) + 20, label)
    ]
    return (
        f'<svg class="sequence" role="img" aria-label="{escape(" ".join(sum(diagram.participants, ())))}" '
        f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}"><style>{STYLE}</style>'
        + "".join([*lives, *boxes, *body])
        + "</svg>"
    )


def _width(lines: Sequence[str]) -> float:
    return CHARACTER_PX * max(map(len, lines))


def _centres(diagram: Diagram) -> list[float]:
    """The x position of each participant's line; the widest text between two neighbours fits."""
    widths = [_width(label) for label in diagram.participants]
    gaps = [(left + right) / 2 + 24 for left, right in pairwise(widths)]
    for step in diagram.steps:
        first, last = sorted((step.first, step.last))
        wanted = 20 + _width(step.lines)
        if first == last:
            wanted += SELF_PX
            first, last = (first, first + 1) if first < len(gaps) else (first - 1, first)
        missing = wanted - sum(gaps[first:last])
        for place in range(first, last) if missing > 0 else ():
            gaps[place] += missing / (last - first)
    centres = [widths[0] / 2 + MARGIN_PX + 10]
    for gap in gaps:
        centres.append(centres[-1] + gap)
    return centres


def _step(step: Step, centres: Sequence[float], y: float) -> tuple[list[str], float]:
    """The shapes of a step below ``y``, and the y position of the next step."""
    first, last = centres[step.first], centres[step.last]
    height = LINE_PX * len(step.lines)
    if step.kind == "note":
        width = max(abs(last - first) + 40, _width(step.lines) + 14)
        return list(_box("note", (first + last) / 2, y, width, step.lines)), y + height + 20
    if step.first == step.last:
        bottom = y + height + 4
        away = 1 if first < centres[-1] else -1
        text = _text(step.lines, first + away * (SELF_PX + _width(step.lines) / 2 + 8), y)
        path = f"M{first:.0f} {y + 4:.0f}h{away * SELF_PX}V{bottom:.0f}H{first:.0f}"
        return [*text, f'<path class="{step.kind}" d="{path}"/>', _head(first, bottom, -away)], bottom + 10
    line = y + height + 4
    text = _text(step.lines, (first + last) / 2, y)
    path = f"M{first:.0f} {line:.0f}H{last:.0f}"
    return [*text, f'<path class="{step.kind}" d="{path}"/>', _head(last, line, 1 if last > first else -1)], line + 10


def _head(x: float, y: float, direction: int) -> str:
    return f'<path class="head" d="M{x:.0f} {y:.0f}l{-8 * direction} -4v8z"/>'


def _box(kind: str, centre: float, y: float, width: float, lines: Sequence[str]) -> Iterator[str]:
    left, height = centre - width / 2, LINE_PX * len(lines) + 10
    yield f'<rect class="{kind}" x="{left:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height}" rx="4"/>'
    yield from _text(lines, centre, y + 4)


def _text(lines: Sequence[str], centre: float, y: float) -> list[str]:
    spans = (
        f'<tspan x="{centre:.0f}" y="{y + LINE_PX * n - 3:.0f}">{escape(line)}</tspan>'
        for n, line in enumerate(lines, 1)
    )
    return [f"<text>{''.join(spans)}</text>"]
