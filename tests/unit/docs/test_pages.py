"""Pages as sessions: commands, outputs, and outputs of the same shape."""

from __future__ import annotations

import click
import pytest

from docs.extension.commands import leaves
from tests.docs.page import PAGES, Step, same_shape, shape, steps, with_outputs

PAGE = """# A page

```console
$ bookkeeper shell west tables
NAME  TABLE ID
old   1
$ echo $?
```

Text.

```text
$ not run
```

```console
$ last
```
"""


def test_a_page_is_the_commands_of_its_console_blocks_and_their_outputs() -> None:
    assert steps(PAGE) == [
        Step(4, "bookkeeper shell west tables", ("NAME  TABLE ID", "old   1")),
        Step(7, "echo $?", ()),
        Step(17, "last", ()),
    ]
    with pytest.raises(ValueError, match="line 2: a console block begins with a command"):
        steps("```console\noutput\n```\n")


def test_outputs_are_replaced_and_nothing_else() -> None:
    written = with_outputs(PAGE, [["NAME", "new"], ["0"], []])
    assert written == PAGE.replace("NAME  TABLE ID\nold   1\n", "NAME\nnew\n").replace("echo $?\n", "echo $?\n0\n")
    assert with_outputs(written, [step.output for step in steps(written)]) == written


def test_what_differs_from_run_to_run_has_no_shape() -> None:
    one = "tserver-3-663efd62 127.0.0.1:31 2026-11-22T04:08:46.786Z  64fc22ec-d17c-4b4f-8e0f-9b2c85314e1a 1,234 0.5"
    two = "tserver-14-0c9d0e0f 127.0.0.1:65000 2026-11-23T00:00:00Z 64fc22ec-0000-4b4f-8e0f-9b2c85314e1a   7 12"
    assert shape([one]) == shape([two]) == ["<session> <address> <time> <uuid> <n> <n>"]
    assert shape(["a 1", "a 2", "b"]) == ["a <n>", "b"]


@pytest.mark.parametrize(
    ("recorded", "printed", "same"),
    [
        (["written"], ["written"], True),
        (["written"], ["deleted"], False),
        (["written"], [], False),
        ([], ["written"], False),
        (["NAME  ID", "mine  1"], ["NAME   ID", "a      1", "mine   2", "other  3"], True),
        (["NAME  ID", "mine  1"], ["NAME   ID", "other  3"], False),
        (["NAME  ID", "mine  1"], ["NAME  KIND", "mine  1"], False),
        (["Name", "mine"], ["Name", "other", "mine"], False),
    ],
)
def test_a_table_may_have_rows_of_others_and_all_else_is_the_same(
    recorded: list[str], printed: list[str], same: bool
) -> None:
    assert same_shape(recorded, printed) == same


TEXT = "\n".join(page.read_text() for page in PAGES)
EXAMPLES = [step.words for page in PAGES for step in steps(page.read_text())]


def _is_example(path: str, words: list[str]) -> bool:
    """Whether a command line runs the command of a path; ``shell X`` has a cluster between the two."""
    first, *rest = path.split()
    given = words[2:] if words[:1] == ["bookkeeper"] and words[1:2] == ["shell"] else None
    if first == "shell" and rest:
        return given is not None and given[1 : 1 + len(rest)] == rest
    return words[: 1 + len(path.split())] == ["bookkeeper", *path.split()]


@pytest.mark.parametrize("path", leaves())
def test_every_command_is_in_the_docs_with_real_output(path: str) -> None:
    heading, words = path.removeprefix("shell "), path.replace("shell ", "shell west ")
    how = (
        f"add to the fitting page in docs/commands: a heading ## {heading}, a block ```{{generated}} command {path}, "
        f"and a ```console block with the line $ bookkeeper {words} …; then run python -m tests.docs PAGE, which "
        "writes down what it prints"
    )
    assert f"```{{generated}} command {path}\n" in TEXT, f"{path} is not documented: {how}"
    assert any(_is_example(path, words) for words in EXAMPLES), f"{path} has no example: {how}"


@pytest.mark.parametrize(("path", "command"), leaves().items())
def test_every_command_and_every_option_explains_itself(path: str, command: click.Command) -> None:
    assert command.help, f"{path} has no docstring"
    for option in command.params:
        known = not isinstance(option, click.Option) or option.help or option.metavar
        assert known, f"{path}: say in help= what {option.name} is"
