"""The text of a user becomes a value, or a usage error that shows it."""

from __future__ import annotations

from collections.abc import Callable

import click
import pytest

from bookkeeper.model import LocalityGroup
from shell import parameters
from shell.parameters import ColumnChoice


def test_words_become_values() -> None:
    assert parameters.rows(r"a,b\x2cc,d") == [b"a", b"b,c", b"d"]
    assert parameters.group("geo=lat,lon") == LocalityGroup("geo", (b"lat", b"lon"))
    assert parameters.key_value("a.b=c=d") == ("a.b", "c=d")
    assert parameters.key_value("a=") == ("a", "")
    assert parameters.columns(r"geo,label:name,x:,y\x3az") == [
        ColumnChoice(b"geo", None),
        ColumnChoice(b"label", b"name"),
        ColumnChoice(b"x", b""),
        ColumnChoice(b"y:z", None),
    ]


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parameters.rows, "a,,b"),
        (parameters.rows, ""),
        (parameters.group, "geo"),
        (parameters.group, "geo="),
        (parameters.group, "=lat"),
        (parameters.group, "geo=lat,"),
        (parameters.key_value, "key"),
        (parameters.key_value, "=value"),
        (parameters.columns, "a,"),
    ],
)
def test_an_error_shows_the_typed_text(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(click.BadParameter) as caught:
        parse(text)
    assert repr(text) in caught.value.message or repr(text.partition("=")[2]) in caught.value.message
