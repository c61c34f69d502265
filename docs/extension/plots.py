"""The plots of measured growth that ``python -m tests.benchmarks.plots`` has drawn.

Arrives: ``docs/plots/*.svg``. Leaves: an image for each, or a sentence that says how to draw them.
"""

from __future__ import annotations

from pathlib import Path

DIRECTORY = Path(__file__).parents[1] / "plots"


def plots(_: str) -> str:
    """Every plot there is, by name."""
    found = sorted(DIRECTORY.glob("*.svg"))
    if not found:
        return "No plot is drawn yet: `make bench` measures, `python -m tests.benchmarks.plots` draws."
    return "\n\n".join(f"![{path.stem.replace('-', ' ')}](/plots/{path.name})" for path in found)
