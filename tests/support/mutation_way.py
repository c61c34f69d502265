"""The way of one mutation, from ``BatchWriter.add`` on cluster west to the commit on cluster east, as it is run.

``python -m tests.support.mutation_way`` starts both clusters in this process, without Spark, replicates one mutation so
that everything is open, and traces the next one. It prints each *step* and their sums.

A step is a call from a function of one module of ours into a function of another one which carries the mutation: an
argument, or the value that it returns, holds the bytes of the mutation's value. It may hold them in a container, an
Arrow object, a protobuf message, a frozen object, or an object without methods of its own. The object whose method is
called carries the mutation when one of its fields does without a container; so a submission is a step, and a tablet
that has the mutation in its memory is none. Not steps: constructors that a dataclass generates, properties, and the
functions of :data:`FILL`. Steps in succession that name the same function are one. The last step is the last one
on east. From the acknowledgement on until the log is read for the peer no call carries the mutation: only the name of
its log and an offset travel, and these calls are not listed.

Each step stands under the place that ran it: the client, west, or east. A *return* is a step into a module that the
mutation had entered and left before at the same place. A step *up* is a call from a room into one that stands above it.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

import pyarrow as pa
from google.protobuf.message import Message
from msgspec import Struct

from bookkeeper.client import Mutation
from tests.support.local_pair import LocalCluster, local_cluster

VALUE = b"the value of the traced mutation"
ROOMS = ("bookkeeper.", "combiners.", "shell.")
FLOORS = (
    ("combiners", "config", "errors", "clock", "model", "origins", "sqlite_file"),
    ("runtime",),
    ("security", "storage"),
    ("rpc",),
    ("coordination", "metadata", "monitor"),
    ("bulk",),
    ("client",),
    ("peers",),
    ("replay",),
    ("master", "tserver"),
    ("standalone",),
    ("shell",),
)
"""From the lowest to the highest one, as the contracts of import-linter have them."""

FILL = ("receive_some", "Connection.receive")
"""They fill a buffer from a socket. It may still have what was in it before."""

DEPTH_MAX = 6
LIMIT_S = 60.0
POLL_S = 0.01


class Step(NamedTuple):
    """A function that the mutation entered, or came out of, and the place that ran it."""

    place: str
    module: str
    function: str
    goes_up: bool


@dataclass(slots=True)
class Way:
    """The steps of one mutation, in order."""

    steps: list[Step]

    @property
    def functions(self) -> int:
        """Different functions at different places."""
        return len({step[:3] for step in self.steps})

    @property
    def modules(self) -> int:
        """Different modules at different places."""
        return len({step[:2] for step in self.steps})

    @property
    def returns(self) -> int:
        """How often the mutation came back to a module that it had left, at the same place."""
        found = 0
        for place in dict.fromkeys(step.place for step in self.steps):
            visits = [module for module, _ in groupby(step.module for step in self.steps if step.place == place)]
            found += len(visits) - len(set(visits))
        return found

    def __str__(self) -> str:
        up = sum(step.goes_up for step in self.steps)
        sums = f"{len(self.steps)} steps, {self.functions} functions, {self.modules} modules, {self.returns} returns"
        return f"{sums} to a module already left, {up} calls up into a higher room"


@dataclass(slots=True)
class Tracer:
    """Sees each call of each thread that starts while :meth:`watching`; notes steps while it is :attr:`on`."""

    on: bool = False
    steps: list[Step] = field(default_factory=list)
    places: dict[threading.Thread, str] = field(default_factory=dict)
    place: str = "client"
    """Of threads that this one starts."""
    _entered: dict[FrameType, bool] = field(default_factory=dict)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Until the end of the block. A thread belongs to the place of the thread that started it."""
        started = threading.Thread.start

        def start(thread: threading.Thread) -> None:
            self.places[thread] = self._place()
            started(thread)

        threading.setprofile(self._see)
        sys.setprofile(self._see)
        try:
            with patch.object(threading.Thread, "start", start):
                yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _place(self) -> str:
        return self.places.get(threading.current_thread(), self.place)

    def _see(self, frame: FrameType, event: str, returned: object) -> None:
        if not self.on or event not in ("call", "return"):
            return
        module = frame.f_globals.get("__name__", "")
        caller = caller_of(frame)
        if not module.startswith(ROOMS) or module == caller or not is_function(frame):
            return
        if event == "call":
            is_step = carries(arguments_of(frame)) or carries(own_values_of(frame))
            if is_step:
                self._entered[frame] = True
        else:
            is_step = not self._entered.pop(frame, False) and carries([returned])
        if is_step:
            goes_up = bool(caller) and floor_of(module) > floor_of(caller)
            self.steps.append(Step(self._place(), module, frame.f_code.co_qualname, goes_up))


def is_function(frame: FrameType) -> bool:
    """Whether it is no property, is in a source file, and has data from the beginning."""
    code = frame.f_code
    own = frame.f_locals.get("self") if "self" in code.co_varnames[:1] else None
    is_property = isinstance(getattr(type(own), code.co_name, None), property | cached_property)
    return not is_property and not code.co_filename.startswith("<") and code.co_qualname not in FILL


def caller_of(frame: FrameType) -> str:
    """The nearest module of ours that called; "" at the beginning of a thread."""
    above = frame.f_back
    while above is not None:
        name = str(above.f_globals.get("__name__", ""))
        if name.startswith(ROOMS):
            return name
        above = above.f_back
    return ""


def floor_of(module: str) -> int:
    """The number of its floor, from the lowest one on."""
    room = module.removeprefix("bookkeeper.").partition(".")[0]
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


def arguments_of(frame: FrameType) -> Iterable[object]:
    """What a function was called with, without the object whose method it is."""
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return [frame.f_locals.get(name) for name in code.co_varnames[:count] if name not in ("self", "cls")]


def own_values_of(frame: FrameType) -> Iterable[object]:
    """The fields of the object whose method a function is, without containers."""
    own = frame.f_locals.get("self") if "self" in frame.f_code.co_varnames[:1] else None
    return [value for value in fields_of(own) if not isinstance(value, Mapping | list | tuple | set | frozenset)]


def carries(values: Iterable[object], depth: int = 0) -> bool:
    """Whether one of the values holds :data:`VALUE`."""
    return depth < DEPTH_MAX and any(_holds(value, depth) for value in values)


def _holds(value: Any, depth: int) -> bool:
    if value is None or isinstance(value, str | int | float | type):
        return False
    if isinstance(value, bytes | bytearray):
        return VALUE in value
    if isinstance(value, memoryview | pa.Buffer):
        return VALUE in bytes(value)
    if isinstance(value, pa.RecordBatch | pa.Table):
        return carries(value.columns, depth + 1)
    if isinstance(value, pa.ChunkedArray):
        return carries(value.chunks, depth + 1)
    if isinstance(value, pa.Array):
        return VALUE in b"".join(bytes(buffer) for buffer in value.buffers() if buffer is not None)
    if isinstance(value, Message):
        return VALUE in value.SerializeToString()
    if isinstance(value, Mapping):
        return carries(value.values(), depth + 1)
    if isinstance(value, list | tuple | set | frozenset):
        return carries(value, depth + 1)
    if type(value).__module__.startswith(ROOMS) and is_record(type(value)):
        return carries(fields_of(value), depth + 1)
    return False


def is_record(kind: type) -> bool:
    """Whether the instances are frozen, have no methods, or are what a client writes."""
    frozen = issubclass(kind, Struct) and kind.__struct_config__.frozen
    methods = [name for name, found in vars(kind).items() if callable(found) and not name.startswith("__")]
    return frozen or not methods or kind.__module__ == Mutation.__module__


def fields_of(value: object) -> Iterable[object]:
    """The values of an object's fields."""
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    return [getattr(value, name, None) for name in names] + list(getattr(value, "__dict__", {}).values())


def replicate(west: LocalCluster, row: bytes, value: bytes) -> None:
    """Write a mutation on west; returns when east has acknowledged it."""
    known, never = len(west.replay.results), threading.Event()
    with west.client.writer("t") as writer:
        writer.add(Mutation(row).put(b"f", b"q", value))
    for _ in range(int(LIMIT_S / POLL_S)):
        if any(not result.error for result in west.replay.results[known:]):
            return
        never.wait(POLL_S)
    raise TimeoutError(f"east did not get the mutation in {LIMIT_S:.0f} s")


def way_of_a_mutation(directory: Path) -> Way:
    """Run both clusters in a directory and trace one mutation."""
    tracer = Tracer()
    with tracer.watching(), ExitStack() as running:
        tracer.place = "east"
        east = running.enter_context(local_cluster(directory / "east"))
        tracer.place = "west"
        west = running.enter_context(local_cluster(directory / "west"))
        for cluster in (east, west):
            cluster.client.tables.create("t")
        west.client.replication.define_cluster("east", east.quorum)
        west.client.replication.enable("t", "east")
        tracer.place = "client"
        for row in (b"first", b"second"):
            replicate(west, row, b"")
        tracer.on = True
        replicate(west, b"traced", VALUE)
        tracer.on = False
    last = max(number for number, step in enumerate(tracer.steps) if step.place == "east")
    return Way([step for step, _ in groupby(tracer.steps[: last + 1])])


def main() -> None:
    """Print the way."""
    with tempfile.TemporaryDirectory() as directory:
        way = way_of_a_mutation(Path(directory))
    for number, step in enumerate(way.steps, 1):
        cells = [f"{number:3}", f"{step.place:6}", step.module, step.function, *(["(up)"] if step.goes_up else [])]
        print(" ".join(cells))
    print(f"\n{way}")


if __name__ == "__main__":
    main()
