"""A message repeats little of an input, in any form of quotation."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shell.output import printable
from shell.shortening import MESSAGE_MAX, QUOTED_MAX, shortened

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FF), min_size=1, max_size=40)


def test_short_words_and_other_long_text_stay() -> None:
    path = "/srv/" + "directory/" * 60
    message = f"no table x; {path} is full"
    assert shortened(message, ["x", "scan"]) == message


def test_a_long_word_is_cut_in_its_middle_and_its_length_is_shown() -> None:
    word = "a" * 5_000 + "end"
    assert shortened(f"no table {word}; list them", [word]) == (
        f"no table {'a' * 120}…(5003 characters)…{'a' * 37}end; list them"
    )


def test_a_part_of_a_word_is_cut_too() -> None:
    word = "good," + "b" * 3_000 + ",good"
    message = shortened(f"the split {'b' * 3_000} is too long", [word])
    assert message == f"the split {'b' * 120}…(3000 characters)…{'b' * 40} is too long"


@given(TEXT, TEXT, st.integers(10, 300), st.sampled_from([str, repr, lambda text: repr(text.encode())]))
def test_every_form_of_quotation_is_cut(before: str, piece: str, times: int, quote: object) -> None:
    assert callable(quote)
    word = piece * times
    quoted = quote(word)
    message = shortened(f"{before}: {quoted}!", [word])
    if len(quoted) > 2 * QUOTED_MAX and len(word) > QUOTED_MAX:
        assert len(message) <= len(before) + QUOTED_MAX + 30
    assert message.startswith(before[:1])
    assert message.endswith("!")


def test_escaped_bytes_are_recognised() -> None:
    word = r"\x00" * 2_000
    assert len(shortened(f"row {bytes(2_000)!r} is too long", [word])) < QUOTED_MAX + 60
    assert len(shortened(f"row {printable(bytes(2_000))} is too long", [word])) < QUOTED_MAX + 60


def test_every_message_is_bounded() -> None:
    message = shortened("files: " + "f " * 50_000, [])
    assert len(message) <= MESSAGE_MAX
    assert message.startswith("files: f f")
    assert "(100007 characters)" in message
