"""The edges of the product that a simulation replaces, and nothing else.

A line an edge: where it is looked up, what stands there. Switches of ``tests.support.faults`` are laid over these.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from bookkeeper.config import Settings
from bookkeeper.master.calls.tservers import TServers
from bookkeeper.master.fate.engine import FateEngine
from bookkeeper.master.placement.placement import Placement
from bookkeeper.security.access import Entrance
from bookkeeper.storage.wal import delete_log, file_summary, read_blocks, read_headers, read_seal, recover
from bookkeeper.storage.wal.writing.seal import is_fenced, raise_fence
from bookkeeper.tserver.assembly import commit_limits
from bookkeeper.tserver.commit.commit_limits import CommitLimits
from tests.support.simulation import network, primitives
from tests.support.simulation.disk import SimFileOps, read_file, with_pause
from tests.support.simulation.imports import NewbornWriter, NotedFollow, SimUpload, SimUuid, small_parts_of
from tests.support.simulation.primitives import SimExecutor, SimExecutors, SimFuture, SimThreading
from tests.support.simulation.tablets import SimTabletData, eager_merges
from tests.support.simulation.wal import SimWalWriter, watched_delete, watched_recover

FLIGHT_MS = 15_000
"""How long a write to the books may be in flight (R4): longer than a schedule suspends any process."""

ROOMS = ("master", "tserver")
"""Rooms whose threads, locks and conditions are those of tasks."""


def threaded() -> list[str]:
    """Every module of these rooms and of ``runtime`` that uses threads."""
    found = [
        "runtime.session_retries",
        "runtime.threads",
    ]
    for room in ROOMS:
        package = importlib.import_module(f"bookkeeper.{room}")
        walked = pkgutil.walk_packages(package.__path__, f"bookkeeper.{room}.")
        names = sorted(info.name for info in walked if not info.name.endswith("__main__"))
        modules = [(name, importlib.import_module(name)) for name in names]
        found += [name.removeprefix("bookkeeper.") for name, module in modules if hasattr(module, "threading")]
    return found


class SimFateEngine(FateEngine):
    """Its two locks are those of tasks: a dataclass keeps the factories that it was defined with."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._changed = primitives.SimCondition()  # type: ignore[assignment]
        self._submitting = primitives.SimLock()  # type: ignore[assignment]


class SimPlacement(Placement):
    """The same: one of its locks is held while locations are written."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._placing = primitives.SimLock()  # type: ignore[assignment]


def write_ahead(settings: Settings) -> CommitLimits:
    """The settings' limits, but a group is written as soon as any submission waits."""
    return replace(commit_limits(settings), ahead_bytes_min=1)


def edges() -> list[tuple[str, str, Any]]:
    """Module below ``bookkeeper``, name there, replacement."""
    found: list[tuple[str, str, Any]] = [(module, "threading", SimThreading) for module in threaded()]
    found += [
        ("bulk.import_log", "WalWriter", NewbornWriter),
        ("tserver.commit.submission_queue", "Future", SimFuture),
        ("tserver.commit.active_wal", "is_fenced", with_pause("look for a fence of", is_fenced)),
        ("storage.wal.reading.wal_recovery", "FileOps", SimFileOps),
        ("storage.wal.reading.wal_recovery", "map_file", read_file),
        ("storage.wal.reading.wal_recovery", "raise_fence", with_pause("raise the fence of", raise_fence)),
        ("storage.wal.writing.wal_writer", "FileOps", SimFileOps),
        ("storage.wal.wal_files", "map_file", read_file),
        ("master.fate.engine", "FAILED_RETENTION_NS", 5_000_000_000),
        ("runtime.threads", "end_process", primitives.end_process),
        ("master.leadership", "KeyedExecutors", SimExecutors),
        ("master.leadership", "FateEngine", SimFateEngine),
        ("master.leadership", "FATE_THREADS", 2),
        ("master.leadership", "Placement", SimPlacement),
        ("master.leadership", "SESSIONS_POLL_MS", 400),
        ("master.gc.gc_pace", "thread_cpu_ns", lambda: 0),
        ("master.leadership", "books_flight_ms", lambda _settings: FLIGHT_MS),
        ("master.operations.bulk_import", "uuid", SimUuid),
        ("master.process", "CAMPAIGN_AGAIN_MS", 500),
        ("master.process", "RpcServer", network.SimServer),
        ("master.process", "RpcPool", network.SimPool),
        ("master.process", "entrance_of", lambda _settings: Entrance()),
        ("master.service", "caller", network.caller),
        ("master.cycle.work_dispatch", "RESEND_NS", 5_000_000_000),
        ("master.books.books_cycle", "read_seal", with_pause("read the seal of", read_seal)),
        ("master.books.books_cycle", "recover", with_pause("recover", watched_recover(recover))),
        ("master.books.books_cycle", "file_summary", with_pause("count", file_summary)),
        ("master.books.tserver_recovery", "recover", with_pause("recover", watched_recover(recover))),
        ("master.gc.gc_runner", "delete_log", with_pause("delete", watched_delete(delete_log))),
        ("master.calls.tservers", "ThreadPoolExecutor", SimExecutor),
        ("master.calls.tservers", "TServers.entries_of", with_pause("list logs of", TServers.entries_of)),
        ("tserver.process", "RpcServer", network.SimServer),
        ("tserver.process", "RpcPool", network.SimPool),
        ("tserver.process", "entrance_of", lambda _settings: Entrance()),
        ("tserver.commit.wal_opener", "WalWriter", SimWalWriter),
        ("tserver.assembly", "commit_limits", write_ahead),
        ("tserver.process", "random", primitives.SimRandomModule),
        ("tserver.process", "LEASE_CHECK_MS", 1_000),
        ("tserver.assembly", "books_flight_ms", lambda _settings: FLIGHT_MS),
        ("tserver.assembly", "SEALED_LOG_AGE_MS", 1_000),
        ("tserver.maintenance.compactor", "due_merges", eager_merges),
        ("tserver.maintenance.compactor", "CHECK_INTERVAL_MS", 5_000),
        ("tserver.maintenance.compactor", "TICK_MS", 2_000),
        ("tserver.write.configuration", "CHECK_INTERVAL_MS", 1_000),
        ("tserver.service", "caller", network.caller),
        ("tserver.receive.slice_delivery", "ThreadPoolExecutor", SimExecutor),
        ("tserver.receive.slice_retry", "WAIT_MS", 400),
        ("tserver.receive.receive_streams", "Future", SimFuture),
        ("tserver.bulk.bulk_loader", "Follow", NotedFollow),
        ("tserver.bulk.bulk_loader", "uuid", SimUuid),
        ("tserver.bulk.segment_uploads", "Upload", SimUpload),
        ("tserver.bulk.segment_uploads", "uuid", SimUuid),
        ("tserver.bulk.relay_log", "uuid", SimUuid),
        ("tserver.bulk.segment_receiver", "ThreadPoolExecutor", SimExecutor),
        ("tserver.maintenance.tablet_opener", "TabletData", SimTabletData),
        ("tserver.maintenance.tablet_opener", "read_headers", with_pause("read", read_headers)),
        ("tserver.maintenance.tablet_opener", "read_seal", with_pause("read the seal of", read_seal)),
        ("peers.bookkeeper", "Future", SimFuture),
        ("peers.bookkeeper", "missing_parts", small_parts_of),
        ("peers.bookkeeper", "RpcPool", network.SimPool),
        ("peers.bookkeeper", "ThreadPoolExecutor", SimExecutor),
        ("replay.stream.range_shipping", "read_blocks", with_pause("read", read_blocks)),
    ]
    return found


@contextmanager
def simulated() -> Iterator[None]:
    """Run with simulated edges."""
    with ExitStack() as stack:
        for module, name, replacement in edges():
            *holders, attribute = name.split(".")
            holder: Any = importlib.import_module(f"bookkeeper.{module}")
            for part in holders:
                holder = getattr(holder, part)
            stack.enter_context(patch.object(holder, attribute, replacement))
        yield
