"""One seed is played again by a command, with the steps that led to a broken law."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from tests.support.simulation.__main__ import main


@pytest.mark.parametrize("stage", ["pair", "triangle", "imports", "hosts"])
def test_a_seed_that_holds_says_so(stage: str) -> None:
    done = CliRunner().invoke(main, ["3", "--stage", stage, "--length", "5"])
    assert (done.exit_code, done.output.startswith("seed 3: all laws hold after ")) == (0, True), done.output


def test_a_seed_that_breaks_a_law_shows_its_last_steps_and_the_law() -> None:
    done = CliRunner().invoke(main, ["1", "--switch", "closed-ranks-like-open", "--lines", "7"])
    *steps, law = done.output.strip().split("\n\n")
    assert done.exit_code == 1
    assert law.startswith("R1: ")
    assert len("\n".join(steps).splitlines()) == 7
