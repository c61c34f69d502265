"""All operations and commands that crash and doubt tests play, and what they come to when nothing goes wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bookkeeper.bulk.exported_table import Exported
from bookkeeper.bulk.manifest import NAME
from bookkeeper.master.cycle import replicate_file
from bookkeeper.master.fate.engine import FAILED_RETENTION_NS, Args
from bookkeeper.metadata import keys
from tests.support.hosted_scenes import HOSTED
from tests.support.masters import LocalMaster
from tests.support.operation_scenes import SCENES, EndState, Play, Scene, end_state, scene_at
from tests.support.repair_scenes import COMMANDS
from tests.support.volumes import MACHINE, name_at

OPERATIONS: Mapping[str, Play] = {**SCENES, **HOSTED}
"""Plays of one operation each."""

PLAYS: Mapping[str, Play] = {**OPERATIONS, **COMMANDS}

REQUESTS = [name for name in PLAYS if name != replicate_file.KIND]
"""Plays that a user begins."""


@dataclass
class Outcomes:
    """The states before and after each play that nothing interrupts. Each is played once, at its first question."""

    directory: Path
    peer: LocalMaster
    _known: dict[str, tuple[EndState, EndState]] = field(init=False, default_factory=dict)

    def of(self, name: str) -> tuple[EndState, EndState]:
        """Raises AssertionError if the play leaves something behind, or changes something when it is played again."""
        if name not in self._known:
            with scene_at(self.directory / name / "west", self.peer) as scene:
                args = PLAYS[name].prepare(scene)
                before = end_state(scene)
                PLAYS[name].run(scene, args)
                failed = [f"{running.op.type}: {running.error}" for running in scene.master.fate.pending()]
                assert not failed, f"{name} does not end well: {failed}"
                assert left_behind(scene) == [], f"{name} leaves something behind"
                after = end_state(scene)
                run_again(name, scene, args)
                assert end_state(scene) == after, f"{name} changes something when it is run again"
            self._known[name] = before, after
        return self._known[name]


def run_again(name: str, scene: Scene, args: Args) -> None:
    """Repeat a request; a failure is forgotten after its time."""
    PLAYS[name].run(scene, args)
    scene.world.clock.jump(FAILED_RETENTION_NS // 1_000_000 + 1)
    scene.master.run_fate()


def left_behind(scene: Scene) -> list[str]:
    """Operations, holds and receipts in the books, and the files of an export that its manifest does not name."""
    own, settings = scene.world.settings.instance.instance_id, scene.world.settings
    sections = (keys.section(keys.FATE_PREFIX), keys.section(keys.HOLD_PREFIX), keys.recv_section(own))
    rows = [repr(row.key) for section in sections for row in scene.world.table.scan(*section)]
    pins = [path.name for path in settings.tables_dir.glob("*/export-*")]
    exported = sorted(path.name for path in (settings.directory / "exported").glob("*"))
    named = Exported.read(MACHINE, name_at(settings.directory / "exported")).checksums if exported else {}
    return [*rows, *pins, *(name for name in exported if name not in (NAME, *named))]
