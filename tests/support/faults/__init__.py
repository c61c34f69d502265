"""Fault switches: each changes the source of one function so that a rule is broken, and a test shows the failure.

A switch is a name in :data:`FAULTS`; ``with fault("late-renewal-counts"): ...`` runs with the change.
``tests.support.faults.switch`` has the mechanism. There is one table of switches for each part of the product.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.faults.borders import BORDERS
from tests.support.faults.bounds import BOUNDS
from tests.support.faults.client import CLIENT
from tests.support.faults.coordination import COORDINATION
from tests.support.faults.entrance import ENTRANCE
from tests.support.faults.failover import FAILOVER
from tests.support.faults.holds import HOLDS
from tests.support.faults.leading import LEADING
from tests.support.faults.log import LOG
from tests.support.faults.log_homes import LOG_HOMES
from tests.support.faults.machines import MACHINES
from tests.support.faults.master import MASTER
from tests.support.faults.memory import REMEMBERED
from tests.support.faults.operations import OPERATIONS
from tests.support.faults.paths import PATHS
from tests.support.faults.replicas import REPLICAS
from tests.support.faults.rules import RULES
from tests.support.faults.shipping import SHIPPING
from tests.support.faults.storage import STORAGE
from tests.support.faults.switch import MUTANT_VARIABLE, Switch, TextGoneError, turned
from tests.support.faults.tserver import TSERVER
from tests.support.faults.zookeeper import ZOOKEEPER

FAULTS: dict[str, Switch] = {
    **COORDINATION,
    **LOG,
    **TSERVER,
    **MASTER,
    **OPERATIONS,
    **STORAGE,
    **LEADING,
    **LOG_HOMES,
    **REPLICAS,
    **RULES,
    **BORDERS,
    **SHIPPING,
    **ENTRANCE,
    **PATHS,
    **CLIENT,
    **BOUNDS,
    **FAILOVER,
    **HOLDS,
    **ZOOKEEPER,
    **MACHINES,
}


@contextmanager
def fault(name: str) -> Iterator[None]:
    """Run with a switch, or with several, ``one and another``, if each of their rules alone keeps a law."""
    REMEMBERED.clear()
    try:
        changes = turned(*map(FAULTS.__getitem__, name.split(" and ")))
        with changes:
            yield
    except TextGoneError as gone:
        if MUTANT_VARIABLE not in os.environ:
            raise
        pytest.skip(f"the mutant has the text of the switch {name}: {gone}")
