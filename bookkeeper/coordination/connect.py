"""Opens the coordination store that the settings name."""

from __future__ import annotations

from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.embedded import EmbeddedCoordination


def open_coordination(settings: Settings, clock: Clock | None = None) -> Coordination:
    """The store of ``settings.coordination.url``; raises TransientError when it can't be reached."""
    return EmbeddedCoordination(settings.coordination_dir, settings.coordination, clock)
