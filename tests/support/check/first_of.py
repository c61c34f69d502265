"""A pytest plugin: of a file that ``--first-of`` names, only the first test is run."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--first-of=FILE``, as often as wanted."""
    parser.addoption("--first-of", action="append", default=[], help="run only the first test of this file")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the others out."""
    left = set(config.getoption("--first-of"))
    kept: list[pytest.Item] = []
    passed_over: list[pytest.Item] = []
    for item in items:
        file = item.nodeid.split("::", 1)[0]
        if file in left:
            left.discard(file)
            kept.append(item)
        else:
            (passed_over if file in config.getoption("--first-of") else kept).append(item)
    config.hook.pytest_deselected(items=passed_over)
    items[:] = kept
