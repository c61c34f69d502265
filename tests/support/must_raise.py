"""How a test says which law it holds: when the law breaks, the text of the AssertionError names it.

A red twin runs the same test with a switch of :mod:`tests.support.faults`, and expects that text and no other.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

RefusalT = TypeVar("RefusalT", bound=Exception)


@contextmanager
def must_raise(
    refusal: type[RefusalT], broken: str, *, match: str | None = None
) -> Iterator[pytest.ExceptionInfo[RefusalT]]:
    """``pytest.raises``, but where nothing is raised the AssertionError says ``broken``: what is wrong then."""
    with pytest.raises(refusal, match=match) as refused:  # noqa: PT012
        yield refused
        raise AssertionError(broken)
