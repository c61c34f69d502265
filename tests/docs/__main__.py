"""``python -m tests.docs [PAGE]...``: runs the pages on two clusters of its own, and writes their output into them.

Each page keeps its commands and gets every output as it was printed; then read the difference. A command whose line is
new needs nothing below it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from tests.docs.page import PAGES, with_outputs
from tests.docs.stage import Stage
from tests.support.cluster import Cluster


@click.command()
@click.argument("pages", nargs=-1, type=click.Path(path_type=Path, exists=True))
def main(pages: tuple[Path, ...]) -> None:
    """Record the named pages, or all."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        with Cluster(place / "c" / "west", "west") as west, Cluster(place / "c" / "east", "east") as east:
            for page in pages or PAGES:
                text = page.read_text()
                done = Stage(place / page.stem, {"west": west, "east": east}).perform(text)
                page.write_text(with_outputs(text, [found.printed for found in done]))
                failed = [found.step.command for found in done if found.code]
                click.echo(f"{page}: {len(done)} commands" + "".join(f"\n  failed: {line}" for line in failed))


if __name__ == "__main__":
    main()
