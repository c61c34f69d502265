"""The way of a mutation goes down: no room hands it to a room above, but for the server that calls the service."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mutation_way import Step, Way, way_of_a_mutation

pytestmark = pytest.mark.integration

SERVICES = {"TServerService.write", "TServerService.replicate"}
"""The server of calls stands below the services that it calls."""


def test_the_way_of_a_mutation_goes_down(tmp_path: Path) -> None:
    way = way_of_a_mutation(tmp_path)
    assert {step.place for step in way.steps} == {"client", "west", "east"}
    assert way.steps[0].function == "Mutation.put"
    up = {step.function for step in way.steps if step.goes_up}
    assert up == SERVICES, "a room hands a mutation to a room above it"


def test_returns_are_counted_for_each_place() -> None:
    places = [("west", "a", "f"), ("east", "a", "f"), ("west", "b", "g"), ("west", "b", "h"), ("west", "a", "f")]
    way = Way([Step(place, module, function, False) for place, module, function in places])
    assert (way.functions, way.modules, way.returns) == (4, 3, 1)
