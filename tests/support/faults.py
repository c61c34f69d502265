"""Fault switches: each replaces one small function by a variant that breaks a rule: a test then shows its law at work.

A switch is a name in :data:`FAULTS`. ``with fault("late-renewal-counts"): ...`` runs with the broken variant.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from bookkeeper.coordination.config_tree import ClusterConfig


@dataclass(frozen=True, slots=True)
class Fault:
    """``attribute`` of ``module`` (dots reach into a class) is replaced; ``breaks`` names the rule."""

    module: str
    attribute: str
    broken: Callable[..., Any]
    breaks: str


@contextmanager
def fault(name: str) -> Iterator[None]:
    """Run with the broken variant."""
    switch = FAULTS[name]
    *holders, attribute = switch.attribute.split(".")
    holder: Any = importlib.import_module(switch.module)
    for part in holders:
        holder = getattr(holder, part)
    with patch.object(holder, attribute, switch.broken):
        yield


FAULTS: dict[str, Fault] = {
    "late-renewal-counts": Fault(
        "bookkeeper.coordination.embedded_session",
        "renewal_counts",
        lambda previous_until_ns, written_ns: True,  # noqa: ARG005
        "R15: a process that was stopped and resumed takes up a lease that others saw run out",
    ),
    "no-lease-margin": Fault(
        "bookkeeper.coordination.embedded",
        "is_dead",
        lambda sight, boot_id, now_ns, margin_ns: now_ns > sight.record.expires_ns - 10**9,  # noqa: ARG005
        "R15: a process is taken for dead while it may still acknowledge",
    ),
    "death-not-written-down": Fault(
        "bookkeeper.coordination.embedded",
        "EmbeddedCoordination._write_dead",
        lambda self, session_id: None,  # noqa: ARG005
        "R15: a session seen dead comes back with a late renewal",
    ),
    "epoch-starts-again": Fault(
        "bookkeeper.coordination.embedded",
        "next_epoch",
        lambda previous: 1,  # noqa: ARG005
        "R8: a new leader's writes are hidden under those of an older one",
    ),
    "unreadable-means-empty": Fault(
        "bookkeeper.coordination.config_tree",
        "parse_config",
        lambda generation, entries: ClusterConfig(generation, None, {}, {}),  # noqa: ARG005
        "R6: a configuration that does not parse counts as nothing configured",
    ),
}
