"""The output of the demo: progress bars on a terminal, or plain lines with the same facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from bookkeeper.clock import Clock


class Phase:
    """The progress of one phase: a bar, or ``plain_lines`` lines without a terminal."""

    def __init__(self, screen: Screen, progress: Progress | None, title: str, total: int, plain_lines: int) -> None:
        self._plain_lines = plain_lines
        self._screen, self._progress, self._title, self._total = screen, progress, title, total
        self._task = progress.add_task(title, total=total) if progress is not None else None
        self._next = 1

    def update(self, done: int, note: str = "", total: int | None = None) -> None:
        """Show that ``done`` of the total are done; ``total`` replaces the former total."""
        self._total = self._total if total is None else total
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, completed=done, total=self._total, description=f"{self._title}  {note}")
        elif self._plain_lines and done >= self._total * self._next / self._plain_lines:
            self._next = int(done * self._plain_lines / max(1, self._total)) + 1
            self._screen.log(f"{self._title}: {done:,} of {self._total:,}  {note}".rstrip())

    def watch(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same batches; each adds its records to the progress."""
        done = 0
        for batch in batches:
            yield batch
            done += batch.num_rows
            self.update(done)


class Screen:
    """Standard output, with times since the start of the demo."""

    def __init__(self, clock: Clock, console: Console | None = None) -> None:
        self._clock = clock
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._start_ns = clock.boot_ns()

    def elapsed_s(self) -> float:
        """Seconds since the start."""
        return (self._clock.boot_ns() - self._start_ns) / 1e9

    def log(self, text: str) -> None:
        """Print a line with the time."""
        self._console.print(f"{self.elapsed_s():6.1f} s  {text}", markup=False)

    def line(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show ``text`` as busy while the block runs; nothing without a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(text):
            yield

    @contextmanager
    def phase(self, title: str, total: int, plain_lines: int = 1) -> Iterator[Phase]:
        """Show one bar while the block runs; without a terminal, ``plain_lines`` lines."""
        if not self._console.is_terminal:
            yield Phase(self, None, title, total, plain_lines)
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as progress:
            yield Phase(self, progress, title, total, plain_lines)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table, with the first column aligned left and the others right."""
        table = Table(box=None, pad_edge=False)
        for number, column in enumerate(columns):
            table.add_column(column, justify="right" if number else "left", no_wrap=True)
        for row in rows:
            table.add_row(*row)
        self._console.print(table)
