"""The runner of the machine of replicas: each example of its page, and what it says about wrong input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.simulation.segments.__main__ import WRONG_INPUT, main
from tests.support.segment_simulation.family_schedules import FamilySchedule
from tests.support.segment_simulation.runner import run
from tests.support.segment_simulation.schedules import Schedule
from tests.support.segment_simulation.steps import STEPS

PAGE = Path(__file__).parents[2] / "docs" / "design" / "segment-machine.md"
EXAMPLES = {
    name: (given, expected)
    for name, given, expected in re.findall(
        r"^#### (\w+)\n.*?```json\n(.*?)```\n\n```json\n(.*?)```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
}


def test_each_step_has_an_example() -> None:
    assert list(EXAMPLES) == list(STEPS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_of_the_page_gives_its_output(name: str) -> None:
    given, expected = EXAMPLES[name]
    assert name in [step["step"] for step in json.loads(given)["steps"]]
    done = CliRunner().invoke(main, ["-"], input=given)
    assert (done.exit_code, done.stderr) == (0, "")
    assert json.loads(done.stdout) == json.loads(expected)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("{", "this is no JSON"),
        ("[]", "the input must be an object"),
        ({"steps": []}, "replicas must be an object, not None"),
        ({"replicas": {}, "steps": [], "ruels": "literal"}, "the input has no key 'ruels'"),
        ({"replicas": {}, "steps": [], "rules": "lax"}, "rules must be 'literal' or 'corrected'"),
        ({"replicas": {}, "steps": [], "switches": {"n7": False}}, "there is no switch 'n7'"),
        ({"replicas": {}, "steps": [{"step": "jump"}]}, "step 1: there is no step 'jump'"),
        ({"replicas": {}, "steps": [{}]}, "step 1: there is no step None"),
        ({"replicas": {"a": {"leader": "a"}}, "steps": [{"step": "flush"}]}, "step 1: replica must be a string"),
        ({"replicas": {"a": {}}, "steps": [{"step": "flush", "replica": "b"}]}, "replica names 'b', which is no"),
        ({"replicas": {"a": {}}, "steps": [{"step": "flush", "replica": "a", "at": 1}]}, "step flush has no key 'at'"),
        ({"replicas": {"a": {"stage": "GONE"}}, "steps": []}, "stage of replica a must be one of"),
        ({"replicas": {"a": {"segments": [{"base": "A"}]}}, "steps": []}, "id of a segment of replica a must be"),
        ({"replicas": {"a": {"placement": "p#x"}}, "steps": []}, "must be a placement such as"),
        ({"replicas": {"a": {"stage": []}}, "steps": []}, "stage of replica a must be a string"),
        ({"replicas": {"a": {"leader": "a", "term": 0}}, "steps": []}, "must be at least 1 for a leader"),
        (
            {"replicas": {"a": {"segments": [{"id": "A", "logs": {"x": 1}}]}}, "steps": []},
            "by the number of their term",
        ),
        ({"rules": [], "replicas": {}, "steps": []}, "rules must be a string"),
        ({"replicas": {"a": {}}, "steps": [{"step": "deliver", "message": 7}]}, "there is no message 7"),
        ({"replicas": {"a": {"damaged": ["A"]}}, "steps": []}, "replica a has no damaged file A"),
        ({"replicas": {"a": {"wrong": {}}}, "steps": []}, "wrong of replica a must be a list"),
    ],
)
def test_wrong_input_is_one_line_and_an_exit_code(given: Any, says: str) -> None:
    text = given if isinstance(given, str) else json.dumps(given)
    done = CliRunner().invoke(main, ["-"], input=text)
    assert (done.exit_code, done.stdout) == (WRONG_INPUT, "")
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("name", ["wipe", "damage", "check"])
def test_an_output_is_an_input(name: str) -> None:
    given = json.loads(EXAMPLES[name][0])
    again = run({"rules": given["rules"], "replicas": run(given)["replicas"], "steps": []})
    assert again["replicas"] == run(given)["replicas"]


def test_an_id_that_a_leader_makes_is_no_word_of_the_input() -> None:
    segments: list[dict[str, Any]] = [{"id": one, "base": None, "major": True, "rows": []} for one in ("A", "B", "C")]
    replica = {"leader": "a", "root": "C", "segments": segments, "memory": ["k1=1"]}
    out = run({"replicas": {"a": replica}, "steps": [{"step": "flush", "replica": "a"}]})
    assert len({one["id"] for one in out["replicas"]["a"]["segments"]}) == 4


@pytest.mark.parametrize("schedule", [Schedule(8, length=120), FamilySchedule(9)], ids=["tablet", "families"])
def test_the_runner_plays_a_random_schedule_again(schedule: Schedule | FamilySchedule) -> None:
    schedule.run()
    assert {"damage", "check", "mend"} <= {step["step"] for step in schedule.steps}
    played = run(json.loads(json.dumps(schedule.as_input())))
    assert played["replicas"] == schedule.play.codec.write(schedule.play.world)


@pytest.mark.parametrize("kind", ["--seeds", "--families"])
def test_the_command_plays_seeds(kind: str) -> None:
    done = CliRunner().invoke(main, [kind, "3", "--first", "7"])
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "3 schedules, 0 break a law\n")
