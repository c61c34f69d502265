"""Writes to the books that are on their way when their callers give up or end (rule R4).

Between a process and the store there are a gateway, a network and a region server, and each of them may stand still.
The caller gets no answer, or dies; its write arrives later, or never. Each row of a put and each cell of a delete comes
by itself. Arrives: such writes. Leaves: tasks that bring them to the books.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from bookkeeper.errors import UnavailableError
from tests.support.simulation.kernel import Kernel, Process

LATE_MAX_MS = 13_000
"""How long a write is on its way at most when its caller is gone: the share of gateway and store in the time of R4."""

FLIGHT_MS = LATE_MAX_MS + 2_000
"""The time of R4 in a simulation: beside that share, a writer may stand still for twice the lease and the margin."""

ODDS = (0.0, 0.01, 0.03)
"""How often a caller gets no answer."""

ARRIVING = (0.3, 0.8)
"""How many of the writes without an answer arrive."""


@dataclass(frozen=True)
class Step:
    """A write that happens at one moment: a row of a put, or a cell of a delete."""

    label: str
    act: Callable[[], None]


def always(_label: str) -> bool:
    """Each caller gets its answer."""
    return True


def never(_label: str) -> int | None:
    """A write without an answer does not arrive."""
    return None


@dataclass(eq=False)
class Way:
    """How writes come to the books. ``answers``: whether the caller of a step gets its answer. ``delay_ns``: how long
    after its beginning a step arrives whose caller is gone; None: never.
    """

    answers: Callable[[str], bool] = always
    delay_ns: Callable[[str], int | None] = never
    under_way: int = 0

    def calm(self) -> None:
        """No more faults; what is on its way arrives."""
        self.answers, self.delay_ns = always, never

    def answer(self, label: str) -> None:
        """Raise UnavailableError when the caller gets none."""
        if not self.answers(label):
            raise UnavailableError("the books do not answer in time")

    def send(self, kernel: Kernel, steps: Sequence[Step], begun_ns: int) -> None:
        """The caller is gone before these steps."""
        for step in steps:
            delay_ns = self.delay_ns(step.label)
            if delay_ns is not None and begun_ns + delay_ns > kernel.now_ns:
                self.under_way += 1
                self._bring(kernel, step, begun_ns + delay_ns)

    def _bring(self, kernel: Kernel, step: Step, at_ns: int) -> None:
        def arrive() -> None:
            kernel.wait(f"arrive: {step.label}", lambda: kernel.now_ns >= at_ns, at_ns - kernel.now_ns)
            step.act()
            self.under_way -= 1

        kernel.spawn(Process("the way", ""), "late", arrive)


def drawn_way(seed: int, cluster: str, late_max_ms: int = LATE_MAX_MS) -> Way:
    """The way of a random schedule."""
    rng = Random(f"late writes {seed} {cluster}")
    odds, arriving = rng.choice(ODDS), rng.choice(ARRIVING)

    def delay_ns(_label: str) -> int | None:
        return rng.randrange(late_max_ms) * 1_000_000 if rng.random() < arriving else None

    return Way(lambda _label: rng.random() >= odds, delay_ns)
