"""The sections of the processes in the settings file: master, tserver, replay process.

:class:`~bookkeeper.config.sections.Settings` contains them. Each field has a meaning, a unit and the reason for its
default.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bookkeeper.config.setting import (
    KIB,
    MIB,
    Announced,
    AnyPort,
    Bytes,
    Count,
    Millis,
    Port,
    Section,
    Text,
    check_announced,
    setting,
    unit,
)


class MasterSettings(Section, frozen=True):
    """The master's address and its thread."""

    host: Text = setting(
        "127.0.0.1",
        "Host of the master's fixed address, which it binds; 0.0.0.0: every address",
        "as for rpc.bind_host",
    )
    port: Port = setting(
        9797,
        "Port of the master's fixed address, which it binds; each cluster on a machine needs its own",
        "init chooses a free port for each cluster",
    )
    announced_host: Announced = setting(
        "",
        "Name or address of this machine that the master announces: clients and peers call it, as part of the quorum; "
        "empty: master.host",
        "as for rpc.announced_host",
    )
    announced_port: AnyPort = setting(
        0, "Port that the master announces; 0: master.port", "without a translation of addresses both are the same"
    )
    scan_interval_ms: Millis = setting(
        5_000,
        "Time between cycles without a nudge",
        "a lost nudge costs this much latency, and an idle scan is cheap",
    )
    cycle_min_interval_ms: Millis = setting(
        50,
        "Minimum time between the starts of two cycles, also with many nudges",
        "bounds the load on the books, and adds little to the lag of a record",
    )
    gc_interval_ms: Millis = setting(
        10_000, "Time between runs of the garbage collector", "only disk space waits for it"
    )
    backoff_base_ms: Millis = setting(
        200,
        "Time before the first retry towards a failing peer; doubles, with jitter",
        "a restarting process is back soon",
    )
    backoff_max_ms: Millis = setting(
        30_000,
        "Maximum time between retries",
        "the longest time until the master notices that a peer is back",
    )
    work_queue_files_max: Count = setting(
        1_000, "Maximum files assigned to workers at a time", "further files wait in the books and use no memory here"
    )
    work_items_max: Count = setting(256, "Ranges in one assign_work call", "keeps messages small")
    assigner: Literal["sequential", "unordered"] = setting(
        "sequential",
        "sequential: the oldest unreplicated file of a target goes first; unordered: any file may go first",
        "a backlog drains from its old end; both keep the order of each tablet's records",
    )

    def __post_init__(self) -> None:
        """Raise ValueError when values do not go together."""
        check_announced("host", self.host, self.announced_host)

    @property
    def address(self) -> str:
        """``host:port`` as announced, an IPv6 host in brackets: the quorum of a cluster with one master."""
        host = self.announced_host or self.host
        return f"{f'[{host}]' if ':' in host else host}:{self.announced_port or self.port}"


class TServerSettings(Section, frozen=True):
    """Logs, memory and the replication worker of a tserver."""

    port: AnyPort = setting(
        0,
        "Port that the tserver binds; 0: any free one. A host with several tservers has free ones",
        "the coordination store has the address, and firewalls are for several machines",
    )
    announced_port: AnyPort = setting(
        0, "Port that the tserver announces; 0: the one that it binds", "as for master.announced_port"
    )
    wal_roll_bytes: Bytes = setting(
        1024 * MIB,
        "A WAL is rolled beyond this size",
        "as in Accumulo; recovery reads at most two seconds, and a slow peer retains at most one file more; at the end "
        "of each file a backlog waits for the master",
    )
    wal_roll_age_ms: Millis = setting(
        3_600_000, "A WAL with data is rolled beyond this age", "a quiet cluster can delete its files, too"
    )
    wal_sync_interval_ms: Millis = setting(
        100,
        "Time between background syncs of data that no caller waits for; only synced data is replicated",
        "ten syncs a second are a small load for a disk, and the lag of writes without sync stays like that of others",
    )
    needed_interval_ms: Millis = setting(
        20,
        "Time between updates of needed offsets in the books",
        "it is a part of the replication lag of runs, and allows at most fifty writes a second; while tasks that "
        "follow ship all records at once, there are five",
    )
    disk_reserve_bytes: Bytes = setting(
        64 * MIB,
        "Free space that writes leave on the disk of the logs; with less they fail with no_space",
        "books, segments and seals still find space, so replication goes on and logs are deleted, which frees the disk",
    )
    commit_queue_bytes_max: Bytes = setting(
        128 * MIB,
        "Maximum bytes that wait for the commit thread; beyond it writes fail with overloaded",
        "a few large batches of several writers, in bounded memory",
    )
    memtable_flush_bytes: Bytes = setting(
        64 * MIB,
        "A tablet's memtable is flushed to segments beyond this size",
        "few large segments, and little enough memory for tens of busy tablets",
    )
    row_bytes_max: Bytes = setting(
        64 * KIB, "Maximum size of a row, family, qualifier or visibility", "keys are compared in memory"
    )
    value_bytes_max: Bytes = setting(8 * MIB, "Largest value", "one must fit in a message")
    future_timestamp_max_ms: Annotated[int, Meta(ge=0, le=100 * 366 * 24 * 3_600_000, extra=unit("ms"))] = setting(
        24 * 3_600_000,
        "Maximum time by which a timestamp may be ahead of this cluster's clock, in writes, imports and replicated "
        "records; 0: no limit",
        "a delete far in the future hides a cell for ever, and a maintained clock is never wrong by a day",
    )
    scan_page_bytes_max: Bytes = setting(
        4 * MIB,
        "Maximum size of a page of a scan, also if the reader asks for more",
        "both sides have a page in memory",
    )
    stream_idle_timeout_ms: Millis = setting(
        60_000,
        "Time after which an idle incoming stream must be opened again",
        "bounds the lifetime of a message (R20) for one more call a minute",
    )
    streams_max: Count = setting(
        20_000,
        "Maximum open streams of all peers at one tserver; beyond it a peer's calls fail with overloaded",
        "each file of a source for a target is a stream and takes a kilobyte",
    )
    peer_streams_max: Count = setting(
        5_000,
        "Maximum open streams of one peer at one tserver",
        "a backlog of thousands of files, and space for three other peers",
    )
    paths_apart_ms: Millis = setting(
        7 * 24 * 3_600_000,
        "Time after which the memory of records that came by several paths no longer waits for a cluster that can't be "
        "asked or is unknown; it waits without limit for clusters that answer or are only unreachable",
        "a cluster that is gone permanently retains no memory, and one that is repaired within days sends no record "
        "twice",
    )
    lane_ranges_max: Count = setting(
        256,
        "Maximum ranges queued for one peer cluster; beyond it assign_work fails with overloaded",
        "as many as one assign_work call has, and a dead peer takes little memory",
    )


class ReplaySettings(Section, frozen=True):
    """The Spark process that ships ranges."""

    port: AnyPort = setting(
        0, "Port that the replay process binds and announces; 0: any free one", "as for tserver.port"
    )
    spark_master: Text = setting(
        "local[*]",
        "Spark master, on this machine: its driver listens on the loopback address only",
        "needs no other software",
    )
    heap_mib: Annotated[int, Meta(ge=480, le=1024 * 1024, extra=unit("MiB"))] = setting(
        512, "Heap of the driver's JVM", "the data passes through Python, not through the heap"
    )
    tasks_max: Annotated[int, Meta(ge=2, le=4096)] = setting(
        8, "Task slots of local[*], 180 MB each", "more than cores, because a task mostly waits for a peer"
    )
    followers_max: Annotated[int, Meta(ge=0, le=12)] = setting(
        8,
        "Tasks that stay and ship each record at once, one for each tserver and peer; runs ship for others. A Spark "
        "master other than local[*] needs twice as many slots, beside those of runs. 0: none",
        "four tservers with two peers; each one keeps a thread of this process, and one of its tserver",
    )
    run_budget_ms: Millis = setting(
        4_000,
        "Time after which a run returns its progress",
        "long enough to amortise the job, short enough that the books, other tables of the peer and the operator see "
        "progress",
    )
    message_bytes: Bytes = setting(
        4 * MIB, "Size of one message to a peer", "a backlog drains a sixth faster than with 2 MiB; more costs memory"
    )
    message_retries: Annotated[int, Meta(ge=0, le=100)] = setting(
        4,
        "Retries of one message before the range counts as failed and the master backs off",
        "together they wait up to 1.5 s, about the time of a tserver's restart",
    )
    retry_base_ms: Millis = setting(
        100, "Time before the first of these retries; doubles, with jitter", "a busy peer has less load by then"
    )
    retry_max_ms: Millis = setting(2_000, "Maximum time between these retries", "a waiting task occupies its slot")
    message_timeout_ms: Millis = setting(
        30_000, "Time to wait for a peer's acknowledgement of one message", "its disk may be busy"
    )
    run_timeout_ms: Millis = setting(
        180_000,
        "Time to wait for one replay call; then the process counts as hung and is replaced",
        "a run's budget, plus all retries of a message with late answers",
    )
    start_timeout_ms: Millis = setting(
        300_000, "Time to wait for the Spark session", "it takes 10 s on an idle machine, two minutes on a busy one"
    )
    journal_bytes: Bytes = setting(
        64 * MIB,
        "Maximum size of logs/shipped.jsonl and its older parts; beyond it the oldest quarter is deleted",
        "about 150,000 ranges, and only displayed sums depend on it",
    )
