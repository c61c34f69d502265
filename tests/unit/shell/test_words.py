"""Rows and values as a command prints them can be typed, and mean the same bytes."""

from __future__ import annotations

import shlex

import click
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shell.output import parse_bytes, printable
from shell.words import CellCommand, split_words


@given(st.binary(min_size=1).filter(lambda raw: not set(raw) & set(b" '\"") and raw[:1] != b"#"))
@example(b"a\x00b")
@example(b"\\x41")
@example(b"a#b")
@example(b"-7.45")
def test_what_is_printed_can_be_typed_without_quotes(raw: bytes) -> None:
    assert [parse_bytes(word) for word in split_words(f"insert {printable(raw)} f")] == [b"insert", raw, b"f"]


@given(st.binary(min_size=1))
def test_what_is_printed_can_be_typed_in_quotes(raw: bytes) -> None:
    (word,) = split_words(shlex.quote(printable(raw)))
    assert parse_bytes(word) == raw


PLAIN = st.text(st.sampled_from("ab '\"\\\t#"), max_size=12)


@given(PLAIN)
def test_other_lines_have_the_words_of_a_unix_shell(line: str) -> None:
    def words_of_posix() -> list[str] | None:
        try:
            return shlex.split(line)
        except ValueError:
            return None

    if "#" in line:
        return
    expected = words_of_posix()
    if expected is None:
        with pytest.raises(ValueError, match=r"No (closing quotation|escaped character)"):
            split_words(line)
    else:
        assert split_words(line) == expected


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", []),
        ("# insert t a", []),
        ("insert t a#b # the rest", ["insert", "t", "a#b"]),
        (r"insert t \x00\x7f 'a\x00' " + r'"b\x00 \"c\""', ["insert", "t", r"\x00\x7f", r"a\x00", r'b\x00 "c"']),
        (r"a\ b \'c", ["a b", "'c"]),
        (r"\\x41 ''", [r"\x41", ""]),
        (r"\xZZ", [r"\xZZ"]),
    ],
)
def test_words_of_lines(line: str, words: list[str]) -> None:
    assert split_words(line) == words


@click.command(cls=CellCommand)
@click.argument("value", type=parse_bytes)
@click.option("--timestamp", type=int)
@click.option("--if-absent", is_flag=True)
def write(value: bytes, timestamp: int | None, if_absent: bool) -> None:
    click.echo(f"{value!r} {timestamp} {if_absent}")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["-7.45"], "b'-7.45' None False"),
        (["-.5", "--timestamp", "-3"], "b'-.5' -3 False"),
        (["--timestamp=-3", "--if-absent", "-1"], "b'-1' -3 True"),
        (["--", "-x"], "b'-x' None False"),
    ],
)
def test_a_negative_number_is_a_value(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    write.main(words, standalone_mode=False)
    assert capsys.readouterr().out.strip() == told


def test_another_dash_is_an_option() -> None:
    with pytest.raises(click.NoSuchOption):
        write.main(["-v"], standalone_mode=False)
