"""The plots of measured growth that ``python -m tests.benchmarks.plots`` has drawn.

The input is ``docs/plots/*.svg`` and the figures beside them. The output is the machine and the time of the
measurement, and an image for each plot, or a sentence that says how to draw the plots.
"""

from __future__ import annotations

import json
from pathlib import Path

DIRECTORY = Path(__file__).parents[1] / "plots"


def plots(_: str) -> str:
    """Every plot, by name."""
    found = sorted(DIRECTORY.glob("*.svg"))
    if not found:
        return "No plot is drawn yet: `make bench` measures, `python -m tests.benchmarks.plots` draws."
    machine = json.loads((DIRECTORY / "figures.json").read_text())["machine"]
    introduction = f"Measured on {', '.join(f'{key} {value}' for key, value in machine.items())}."
    return "\n\n".join([introduction, *(f"![{path.stem.replace('-', ' ')}](/plots/{path.name})" for path in found)])
