"""The edges of the product that a simulation replaces, and nothing else.

One line an edge: the module that uses it and its name there, and its replacement. A switch of ``tests.support.faults``
that is turned in a simulation also replaces the edges that wrap its function.
"""

from __future__ import annotations

import importlib
import pkgutil
import random
import tempfile
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from bookkeeper.bulk import import_log
from bookkeeper.clock import thread_cpu_ns
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.zookeeper import zookeeper
from bookkeeper.coordination.zookeeper.ensemble import Ensemble, call_limit_ms
from bookkeeper.log_homes import log_recovery
from bookkeeper.master import leadership
from bookkeeper.master import process as master_process
from bookkeeper.master import service as master_service
from bookkeeper.master.books import books_cycle
from bookkeeper.master.calls import tservers
from bookkeeper.master.calls.keyed_executors import KeyedExecutors
from bookkeeper.master.calls.tservers import TServers
from bookkeeper.master.cycle import check_ins, work_dispatch
from bookkeeper.master.fate import engine
from bookkeeper.master.fate.engine import FateEngine
from bookkeeper.master.gc import gc_pace, gc_runner
from bookkeeper.master.operations import bulk_import
from bookkeeper.master.placement.placement import Placement
from bookkeeper.metadata import flight
from bookkeeper.peers import bookkeeper as peers_bookkeeper
from bookkeeper.peers.segment_files import missing_parts
from bookkeeper.replay.stream import range_shipping
from bookkeeper.rpc.dispatch import caller
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.rpc.rpc_server import RpcServer
from bookkeeper.runtime import session_retries, threads
from bookkeeper.runtime.process_exit import end_process
from bookkeeper.security.access import Entrance, entrance_of
from bookkeeper.storage.replicas import host_store, incoming_files
from bookkeeper.storage.replicas.host_store import HostStore
from bookkeeper.storage.tablet.compaction import due_merges
from bookkeeper.storage.tablet.tablet_data import TabletData
from bookkeeper.storage.volume import file_ops, local_volume
from bookkeeper.storage.volume.file_ops import FileOps
from bookkeeper.storage.volume.local_volume import LocalVolume, raise_fence
from bookkeeper.storage.volume.sources import map_file
from bookkeeper.storage.wal.reading.block_reader import read_blocks, read_headers
from bookkeeper.storage.wal.reading.wal_recovery import delete_log, file_summary, recover
from bookkeeper.storage.wal.writing import wal_writer
from bookkeeper.storage.wal.writing.seal import is_fenced, read_seal
from bookkeeper.storage.wal.writing.wal_writer import WalWriter
from bookkeeper.tserver import assembly
from bookkeeper.tserver import process as tserver_process
from bookkeeper.tserver import service as tserver_service
from bookkeeper.tserver.assembly import commit_limits
from bookkeeper.tserver.bulk import (
    bulk_loader,
    hosted_files,
    relay_log,
    segment_receiver,
    segment_uploads,
    session_holds,
)
from bookkeeper.tserver.bulk.bulk_loader import Follow
from bookkeeper.tserver.bulk.segment_uploads import Upload
from bookkeeper.tserver.commit import submission_queue, wal_opener
from bookkeeper.tserver.commit.commit_limits import CommitLimits
from bookkeeper.tserver.leading import copy_pace
from bookkeeper.tserver.maintenance import compactor, tablet_opener
from bookkeeper.tserver.receive import receive_streams, slice_delivery, slice_retry
from bookkeeper.tserver.replicas import replica_collector, replica_receiver, served_logs
from bookkeeper.tserver.replicas.replica_receiver import _Transfer
from bookkeeper.tserver.write import configuration
from tests.support.inputs_here import APART, read_here
from tests.support.replacement import Binding, Target, replaced
from tests.support.simulation import network, primitives
from tests.support.simulation.disk import SimTempfile, read_file, with_pause
from tests.support.simulation.ensemble import SimEnsemble
from tests.support.simulation.host_disk import SimHostOps, SimIncarnation, judged_delete, judged_remove
from tests.support.simulation.imports import NewbornWriter, NotedFollow, SimUpload, SimUuid, small_parts_of
from tests.support.simulation.late_writes import LATE_MAX_MS
from tests.support.simulation.primitives import SimExecutor, SimExecutors, SimFuture, SimThreading
from tests.support.simulation.tablets import SimTabletData, eager_merges
from tests.support.simulation.transfers import SimTransfer
from tests.support.simulation.wal import SimWalWriter, watched_delete, watched_recover

ROOMS = ("master", "tserver", "storage.replicas")
"""Rooms whose threads, locks and conditions are those of tasks."""


def threaded() -> list[ModuleType]:
    """Every module of these rooms, of ``runtime`` and of the store in ZooKeeper that uses threads."""
    found: list[ModuleType] = [session_retries, threads, zookeeper]
    for room in ROOMS:
        package = importlib.import_module(f"bookkeeper.{room}")
        walked = pkgutil.walk_packages(package.__path__, f"bookkeeper.{room}.")
        names = sorted(info.name for info in walked if not info.name.endswith("__main__"))
        found += [module for module in map(importlib.import_module, names) if hasattr(module, "threading")]
    return found


class SimFateEngine(FateEngine):
    """Its two locks are those of tasks: a class keeps the factories that it was defined with."""

    def __post_init__(self) -> None:
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


EDGES: tuple[tuple[Target, Any], ...] = (
    *((Binding(module, threading), SimThreading) for module in threaded()),
    (Binding(zookeeper, Ensemble), SimEnsemble),
    (Binding(zookeeper, call_limit_ms), lambda settings: settings.session_lease_ms // 5),
    (Binding(import_log, WalWriter), NewbornWriter),
    (Binding(submission_queue, Future), SimFuture),
    (Binding(wal_writer, is_fenced), with_pause("look for a fence of", is_fenced)),
    (Binding(host_store, FileOps), SimHostOps),
    (Binding(host_store, uuid), SimIncarnation),
    (Binding(host_store, ThreadPoolExecutor), SimExecutor),
    (HostStore.remove, judged_remove(HostStore.remove)),
    (LocalVolume.delete, judged_delete(LocalVolume.delete)),
    (Binding(file_ops, tempfile), SimTempfile),
    (Binding(local_volume, FileOps), SimHostOps),
    (Binding(local_volume, map_file), read_file),
    (Binding(local_volume, raise_fence), with_pause("raise the fence of", raise_fence)),
    (Binding(engine, "FAILED_RETENTION_NS"), 5_000_000_000),
    (Binding(threads, end_process), primitives.end_process),
    (Binding(leadership, KeyedExecutors), SimExecutors),
    (Binding(leadership, FateEngine), SimFateEngine),
    (Binding(leadership, "FATE_THREADS"), 2),
    (Binding(leadership, Placement), SimPlacement),
    (Binding(leadership, "SESSIONS_POLL_MS"), 400),
    (Binding(gc_pace, thread_cpu_ns), lambda: 0),
    (Binding(copy_pace, thread_cpu_ns), lambda: 0),
    (Binding(check_ins, "BUSY_MS"), 5_000),
    (Binding(check_ins, "IDLE_MS"), 3_600_000),
    (Binding(flight, "LAST_RETRY_MS"), LATE_MAX_MS),
    (Binding(bulk_import, uuid), SimUuid),
    (APART, read_here),
    (Binding(master_process, "CAMPAIGN_AGAIN_MS"), 500),
    (Binding(master_process, RpcServer), network.SimServer),
    (Binding(master_process, RpcPool), network.SimPool),
    (Binding(master_process, entrance_of), lambda _settings: Entrance()),
    (Binding(master_service, caller), network.caller),
    (Binding(work_dispatch, "RESEND_NS"), 5_000_000_000),
    (Binding(books_cycle, read_seal), with_pause("read the seal of", read_seal)),
    (Binding(log_recovery, recover), with_pause("recover", watched_recover(recover))),
    (Binding(books_cycle, file_summary), with_pause("count", file_summary)),
    (Binding(served_logs, recover), with_pause("recover", watched_recover(recover))),
    (Binding(gc_runner, delete_log), with_pause("delete", watched_delete(delete_log))),
    (Binding(tservers, ThreadPoolExecutor), SimExecutor),
    (TServers.entries_of, with_pause("list logs of", TServers.entries_of)),
    (Binding(tserver_process, RpcServer), network.SimServer),
    (Binding(tserver_process, RpcPool), network.SimPool),
    (Binding(tserver_process, entrance_of), lambda _settings: Entrance()),
    (Binding(wal_opener, WalWriter), SimWalWriter),
    (Binding(assembly, commit_limits), write_ahead),
    (Binding(assembly, random), primitives.SimRandomModule),
    (Binding(tserver_process, random), primitives.SimRandomModule),
    (Binding(tserver_process, "LEASE_CHECK_MS"), 1_000),
    (Binding(assembly, "SEALED_LOG_AGE_MS"), 1_000),
    (Binding(compactor, due_merges), eager_merges),
    (Binding(compactor, "CHECK_INTERVAL_MS"), 5_000),
    (Binding(compactor, "TICK_MS"), 2_000),
    (Binding(configuration, "CHECK_INTERVAL_MS"), 1_000),
    (Binding(tserver_service, caller), network.caller),
    (Binding(slice_delivery, ThreadPoolExecutor), SimExecutor),
    (Binding(slice_retry, "WAIT_MS"), 400),
    (Binding(receive_streams, Future), SimFuture),
    (Binding(bulk_loader, Follow), NotedFollow),
    (Binding(hosted_files, uuid), SimUuid),
    (Binding(session_holds, uuid), SimUuid),
    (Binding(segment_uploads, Upload), SimUpload),
    (Binding(segment_uploads, uuid), SimUuid),
    (Binding(relay_log, uuid), SimUuid),
    (Binding(segment_receiver, ThreadPoolExecutor), SimExecutor),
    (Binding(replica_collector, "SELDOM_MS"), 3_000),
    (Binding(replica_receiver, "PARTS_KEPT_S"), -1e12),
    (Binding(replica_receiver, _Transfer), SimTransfer),
    (Binding(incoming_files, "WINDOW_BYTES"), 100),
    (Binding(tablet_opener, TabletData), SimTabletData),
    (Binding(tablet_opener, read_headers), with_pause("read", read_headers)),
    (Binding(tablet_opener, read_seal), with_pause("read the seal of", read_seal)),
    (Binding(peers_bookkeeper, Future), SimFuture),
    (Binding(peers_bookkeeper, missing_parts), small_parts_of),
    (Binding(peers_bookkeeper, RpcPool), network.SimPool),
    (Binding(peers_bookkeeper, ThreadPoolExecutor), SimExecutor),
    (Binding(range_shipping, read_blocks), with_pause("read", read_blocks)),
)


@contextmanager
def simulated() -> Iterator[None]:
    """Run with simulated edges."""
    with ExitStack() as stack:
        for target, replacement in EDGES:
            stack.enter_context(replaced(target, replacement))
        yield
