"""Text and JSON carry the same facts, and any bytes can be printed and typed back."""

from __future__ import annotations

import json

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shell.output import Output, parse_bytes, printable

ROWS = [
    {"name": "cities", "bytes": 12, "lag": 0.25, "groups": ["geo", "label"], "properties": {}, "up": True},
    {"name": "q", "bytes": 3_456, "lag": 12.0, "groups": [], "properties": {"k": "v"}, "up": None},
]
COLUMNS = ("name", "bytes", "lag", "groups", "properties", "up")


@given(st.binary())
def test_every_key_can_be_printed_and_typed_back(raw: bytes) -> None:
    text = printable(raw)
    assert text.isascii()
    assert text.isprintable()
    assert parse_bytes(text) == raw


def test_typed_text_is_utf_8() -> None:
    assert parse_bytes("Zürich") == "Zürich".encode()
    assert parse_bytes(r"a\x00b\xFF") == b"a\x00b\xff"


@pytest.mark.parametrize("text", [r"\x", r"\x1", r"a\xg0", r"\x+1", r"\x 1"])
def test_a_broken_escape_is_named(text: str) -> None:
    with pytest.raises(click.BadParameter, match="two hexadecimal digits"):
        parse_bytes(text)


def test_text_columns_are_aligned_and_numbers_stand_right(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).records(ROWS, COLUMNS, "nothing")
    assert capsys.readouterr().out.splitlines() == [
        "NAME    BYTES   LAG  GROUPS     PROPERTIES  UP",
        "cities     12   0.2  geo,label  -           yes",
        "q        3456  12.0  -          k=v         -",
    ]


def test_json_has_the_same_facts(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=True).records(ROWS, COLUMNS, "nothing")
    assert json.loads(capsys.readouterr().out) == ROWS


def test_an_empty_list_is_a_sentence_in_text_and_empty_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).records([], COLUMNS, "no tables")
    Output(as_json=True).records([], COLUMNS, "no tables")
    assert capsys.readouterr().out == "no tables\n[]\n"
