"""The plots of measured growth that ``python -m tests.benchmarks.plots`` has drawn.

Arrives: ``docs/plots/*.svg`` and the figures beside them. Leaves: on what machine and when they were measured, and an
image for each, or a sentence that says how to draw them.
"""

from __future__ import annotations

import json
from pathlib import Path

DIRECTORY = Path(__file__).parents[1] / "plots"


def plots(_: str) -> str:
    """Every plot there is, by name."""
    found = sorted(DIRECTORY.glob("*.svg"))
    if not found:
        return "No plot is drawn yet: `make bench` measures, `python -m tests.benchmarks.plots` draws."
    machine = json.loads((DIRECTORY / "figures.json").read_text())["machine"]
    said = f"Measured on {', '.join(f'{key} {value}' for key, value in machine.items())}."
    return "\n\n".join([said, *(f"![{path.stem.replace('-', ' ')}](/plots/{path.name})" for path in found)])
