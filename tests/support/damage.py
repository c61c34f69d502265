"""Damage to a file by a bad disk, a cut or a wrong copy: for fuzzing readers of files.

Arrives: the bytes of a whole file. Leaves: other bytes, by one to three accidents; sometimes they are the same.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

Accident = Callable[[bytes], bytes]


@st.composite
def _accident(draw: st.DrawFn, size: int, foreign: bytes) -> Accident:
    at = draw(st.integers(0, size))
    length = draw(st.sampled_from([1, 4, 8, 64, 4096]) | st.integers(1, size or 1))
    end = at + length
    garbage = draw(st.binary(min_size=1, max_size=64))
    bit = draw(st.integers(0, 7))
    accidents: list[Accident] = [
        lambda raw: raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :] if at < len(raw) else raw,
        lambda raw: raw[:at] + bytes(len(raw[at:end])) + raw[end:],
        lambda raw: raw[:at],
        lambda raw: raw[:at] + garbage + raw[at + len(garbage) :],
        lambda raw: raw[:at] + garbage + raw[at:],
        lambda raw: raw[:at] + raw[end:],
        lambda raw: raw[:at] + raw[at:end] + raw[at:],
        lambda raw: raw + garbage,
        lambda raw: raw[:at] + foreign[at:end] + raw[end:],
        lambda raw: raw[:at] + foreign[at:],
    ]
    return draw(st.sampled_from(accidents))


@st.composite
def damaged(draw: st.DrawFn, whole: bytes, foreign: bytes) -> bytes:
    """``whole`` after some accidents: flipped bits, zeros, cuts, garbage, parts twice or of another such file."""
    for _ in range(draw(st.integers(1, 3))):
        whole = draw(_accident(len(whole), foreign))(whole)
    return whole
