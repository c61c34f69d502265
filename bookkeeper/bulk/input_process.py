"""A process that reads the files of one import for the master, with a limit on its memory.

Clients name the files, and a small file may decode to any size: pages are compressed, and a dictionary repeats a value
for two bits a row. The process sends checked batches of bounded size through a pipe (an Arrow IPC stream), so that such
a file costs this process its memory, and not the master. It ends when the master does, because nobody reads the pipe.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
from msgspec import Struct

from bookkeeper.bulk.import_inputs import read_inputs
from bookkeeper.errors import BookkeeperError, InvalidInputError
from bookkeeper.model import MUTATION_SCHEMA
from bookkeeper.rpc.contract.faults import from_fault, to_fault
from bookkeeper.rpc.contract.messages import Fault
from bookkeeper.security.file_roots import FileRoots
from bookkeeper.storage.tablet.tablet_settings import BatchLimits

MEMORY_BYTES_MAX = 1 << 30
"""Memory of the process beyond what its start needs."""

MODULE = "bookkeeper.bulk.input_process"

LEFT = b"left"
"""The name of the bytes that are left, beside each batch in the pipe."""

EXIT_FAILED = 3
"""Exit code after an error of the input, which stands in standard error."""

ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
"""Pools of Arrow reserve addresses far beyond what they use, and each thread of a library an arena."""


class InputJob(Struct, frozen=True):
    """The arguments of :func:`bookkeeper.bulk.import_inputs.read_inputs`, and the memory of the process."""

    directory: str
    time_ms: int
    limits: BatchLimits
    roots: tuple[str, ...]
    latest_ms: int | None = None
    memory_bytes_max: int = MEMORY_BYTES_MAX


def read_apart(job: InputJob, report: Callable[[int], None]) -> Generator[pa.RecordBatch]:
    """The batches of :func:`~bookkeeper.bulk.import_inputs.read_inputs`, its reports of the bytes that are left, and
    its errors, from a process of their own. Raises InvalidInputError, too, when the process ends before the files do:
    they need more memory than it may take.
    """
    command, pipe = [sys.executable, "-m", MODULE], subprocess.PIPE
    environment = {**os.environ, **ENVIRONMENT}
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdin.write(msgspec.json.encode(job))
            process.stdin.close()
            try:
                with pa.ipc.open_stream(process.stdout) as stream:
                    yield from _received(stream, report)
            except (pa.ArrowException, OSError) as error:  # the stream was cut
                said = process.stderr.read()
                raise _error_of(job, process.wait(), said) from error
            code = process.wait()
            if code:
                raise _error_of(job, code, process.stderr.read())
        finally:
            process.kill()


def _received(stream: pa.ipc.RecordBatchStreamReader, report: Callable[[int], None]) -> Iterator[pa.RecordBatch]:
    while True:
        try:
            batch, facts = stream.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        report(int(facts[LEFT]))
        yield batch


def _error_of(job: InputJob, code: int, said: bytes) -> BookkeeperError:
    if code == EXIT_FAILED:
        return from_fault(msgspec.json.decode(said, type=Fault))
    last_line = said.decode(errors="replace").strip().rpartition("\n")[2]
    return InvalidInputError(
        f"the files of {job.directory} can't be imported: the process that read them ended with {code}"
        f"{f' ({last_line})' if last_line else ''}; they may need more than {job.memory_bytes_max >> 20} MiB: "
        "write them with smaller row groups"
    )


def limit_memory(bytes_max: int) -> None:
    """Let this process take at most so much more memory than it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + bytes_max
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main() -> int:
    """Read a job from standard input, and write its batches to standard output."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=InputJob)
    pa.set_cpu_count(1)
    limit_memory(job.memory_bytes_max)
    roots = FileRoots(tuple(map(Path, job.roots)))
    try:
        with pa.ipc.new_stream(sys.stdout.buffer, MUTATION_SCHEMA) as stream:
            left: list[int] = []
            for batch in read_inputs(Path(job.directory), job.time_ms, job.limits, roots, job.latest_ms, left.append):
                stream.write_batch(batch, {LEFT: str(left.pop())})
    except BookkeeperError as error:
        sys.stderr.buffer.write(msgspec.json.encode(to_fault(error)))
        return EXIT_FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
