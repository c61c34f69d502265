"""Every end of a command has its exit code, and every error one line."""

from __future__ import annotations

import json

import click
import pytest

from bookkeeper.errors import BookkeeperError, NotFoundError, NotLeaderError, NotReadyError, UnavailableError
from shell.commands import commands
from shell.failures import ExitCode, WaitTimedOutError, run
from shell.main import bookkeeper


def _failing(error: BaseException | None) -> click.Command:
    def end(number: int) -> None:
        assert number == 7
        if error is not None:
            raise error

    return click.Command("end", callback=end, params=[click.Argument(["number"], type=int)])


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (None, ExitCode.OK),
        (NotFoundError("no table x; list them"), ExitCode.FAILED),
        (BookkeeperError("whatever"), ExitCode.FAILED),
        (UnavailableError("no answer\nfrom there"), ExitCode.UNAVAILABLE),
        (NotLeaderError("not me"), ExitCode.UNAVAILABLE),
        (NotReadyError("not read yet"), ExitCode.UNAVAILABLE),
        (WaitTimedOutError("waited 3 s"), ExitCode.TIMED_OUT),
        (click.UsageError("wrong"), ExitCode.USAGE),
        (click.FileError("f", "gone"), ExitCode.FAILED),
    ],
)
def test_each_error_has_its_exit_code_and_one_line(
    error: Exception | None, code: ExitCode, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(_failing(error), ["7"]) == code
    err = capsys.readouterr().err
    assert err.count("\n") == (error is not None)
    assert err.startswith("error: ") == (error is not None)


def test_a_wrong_command_line_names_the_argument_and_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(_failing(None), ["seven"]) == ExitCode.USAGE
    err = capsys.readouterr().err
    assert "'NUMBER': 'seven' is not a valid integer" in err
    assert "end --help" in err


def test_errors_for_programs_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(_failing(NotFoundError("no table x; list them")), ["7"], as_json=True) == ExitCode.FAILED
    assert json.loads(capsys.readouterr().err) == {"error": "not_found", "message": "no table x; list them"}


def test_an_interrupt_has_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(_failing(KeyboardInterrupt()), ["7"]) == ExitCode.INTERRUPTED
    assert "Traceback" not in capsys.readouterr().err


def test_a_defect_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        run(_failing(ZeroDivisionError()), ["7"])


@pytest.mark.parametrize(("group", "words"), [(bookkeeper, []), (bookkeeper, ["secret"]), (commands, ["replication"])])
def test_a_group_alone_prints_its_help(
    group: click.Group, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(group, words) == ExitCode.OK
    out, err = capsys.readouterr()
    assert out.startswith("Usage: ")
    assert "Commands:\n" in out
    assert err == ""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["shell", "nosuch", "tables"], ExitCode.FAILED, "there is no directory nosuch"),
        (["shell", "127.0.0.1:1", "--secret-file", "f", "tables"], ExitCode.USAGE, "bookkeeper shell --secret-file"),
        (["init", "west", "--name", "a b"], ExitCode.FAILED, "up to 64 letters, digits"),
    ],
)
def test_a_wrong_cluster_is_a_clear_error(
    words: list[str], code: ExitCode, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(bookkeeper, words) == code
    assert said in capsys.readouterr().err
