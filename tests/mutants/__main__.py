"""``make mutants``: a sample of mutants, and those that no test notices.

Each judged mutant gets a line; a survivor also gets its change. The exit code is 0 with any number of survivors,
because people judge them, and 1 when the tests fail without a mutant.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import click

from tests.mutants.sites import Mutant, draw
from tests.mutants.trial import Stage, changed, copy_of, passes, stages_of

ROOT = Path(__file__).parents[2]
PACKAGES = ("bookkeeper", "combiners", "shell")
GENERATED = ("_pb2.py", *(f"bookkeeper/rpc/contract/{name}.py" for name in ("messages", "services", "tables")))


@click.command()
@click.option("--count", default=40, show_default=True, help="How many mutants.")
@click.option("--seed", type=int, default=None, help="Which ones; by default, new ones.")
@click.option("--only", default="", help="Only modules whose path begins so.")
@click.option("--deep", is_flag=True, help="Survivors meet the tests of real processes, too.")
def main(count: int, seed: int | None, only: str, deep: bool) -> None:
    """Change the code in one place at a time, and say what no test notices."""
    seed = random.SystemRandom().randrange(1 << 31) if seed is None else seed
    tree = copy_of(ROOT, ROOT / "build" / "mutants")
    texts = {module: (tree / module).read_text(encoding="utf-8") for module in modules_of(tree, only)}
    if not texts:
        sys.exit(f"no module begins with {only!r}")
    click.echo(f"seed {seed}: {count} mutants of {len(texts)} modules")
    survivors = Jury(tree, deep).survivors(draw(texts, count, seed))
    click.echo(f"{len(survivors)} of {count} survive (seed {seed})")


def modules_of(tree: Path, only: str) -> list[str]:
    """The modules of the product that people wrote, as paths below the checkout."""
    found = (str(path.relative_to(tree)) for package in PACKAGES for path in (tree / package).rglob("*.py"))
    return sorted(name for name in found if not name.endswith(GENERATED) and name.startswith(only))


@dataclass(slots=True)
class Jury:
    """Gives mutants to the tests. Each stage has to pass without a mutant before its word counts."""

    tree: Path
    deep: bool
    _sworn: set[Stage] = field(default_factory=set)

    def survivors(self, mutants: Sequence[Mutant]) -> list[Mutant]:
        """The mutants that no stage notices."""
        found = []
        for number, mutant in enumerate(mutants, 1):
            stage = self._noticed_by(mutant)
            click.echo(f"{number:4} {mutant.module}: {'SURVIVES' if stage is None else f'noticed by {stage.name}'}")
            if stage is None:
                click.echo(mutant.diff)
                found.append(mutant)
        return found

    def _noticed_by(self, mutant: Mutant) -> Stage | None:
        for stage in stages_of(mutant.module, self.tree, deep=self.deep):
            self._swear_in(stage)
            with changed(self.tree / mutant.module, mutant.text):
                if not passes(stage, self.tree):
                    return stage
        return None

    def _swear_in(self, stage: Stage) -> None:
        if stage not in self._sworn and not passes(stage, self.tree):
            sys.exit(f"{' '.join(stage.arguments)} fails without a mutant: see build/mutants/pytest.log")
        self._sworn.add(stage)


if __name__ == "__main__":
    main()
