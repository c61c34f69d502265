"""The master's cycle beside a bare scan of the same rows, with the books in a real HBase.

The figure is a full cycle at several numbers of outstanding files. When no HBase can run, there is no figure, and the
reason is on standard output. The seconds are elapsed ones: most of them are HBase's, on both sides.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import click

from tests.benchmarks.figure import Figure
from tests.benchmarks.master_cycle import full_cycle, measure
from tests.support.hbase import HBaseUnavailableError, running_hbase

FILES = (3_000, 10_000)
LARGE_FILES = (*FILES, 100_000)
ROUNDS = 4
CYCLE_RATIO_MAX = 1.3


def run(large: bool = False) -> list[Figure]:
    """A full cycle; large, three minutes of CPU, most of them to write the rows, and as long for HBase."""
    figures = []
    with tempfile.TemporaryDirectory() as place_of_all:
        directory = Path(place_of_all)
        try:
            with running_hbase(directory / "hbase") as hbase:
                for files in LARGE_FILES if large else FILES:
                    books = {"metadata.url": f"hbase://{hbase.host}:{hbase.thrift_port}/bench{files}"}
                    place = directory / f"west{files}"
                    found = measure(place, files, rounds=ROUNDS, overrides=books, clock=time.monotonic)
                    name = f"master full cycle in HBase, {files:,} outstanding files"
                    figures.append(full_cycle(name, found, files, CYCLE_RATIO_MAX, "s"))
        except HBaseUnavailableError as reason:
            click.echo(str(reason))
    return figures
