"""The sections of the processes in the settings file: master, tserver, replay process.

Arrives: parsed TOML. Leaves: frozen sections, parts of :class:`~bookkeeper.config.sections.Settings`. Each field says
what it means, its unit, and why that default.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from bookkeeper.config.setting import KIB, MIB, Bytes, Count, Millis, Port, Section, Unit, setting


class MasterSettings(Section):
    """The master's address and its thread."""

    host: str = setting(
        "127.0.0.1",
        "Host of the master's fixed address: what peers call quorum",
        "as rpc.bind_host",
        min_length=1,
    )
    port: Port = setting(
        9797,
        "Port of the master's fixed address; each cluster on a machine needs its own",
        "any free one will do, and init chooses one for each cluster",
    )
    scan_interval_ms: Millis = setting(
        5_000,
        "Time between cycles when nobody nudges",
        "a lost nudge costs this much latency, and an idle scan is cheap",
    )
    cycle_min_interval_ms: Millis = setting(
        50,
        "Time between the starts of two cycles, however many nudges arrive",
        "bounds the load on the books, and adds little to the lag of a row",
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
        "Time between retries at most",
        "how late a peer that came back is noticed in the worst case",
    )
    work_queue_files_max: Count = setting(
        1_000, "Files handed to workers at once", "the others wait in the books and cost no memory here"
    )
    work_items_max: Count = setting(256, "Ranges in one assign_work call", "keeps messages small")
    assigner: Literal["sequential", "unordered"] = setting(
        "sequential",
        "sequential: of the files that a target lacks, the oldest goes first; unordered: any",
        "a backlog drains from its old end; either keeps the order of each tablet's records",
    )

    @property
    def address(self) -> str:
        """``host:port``, the quorum of a cluster with one master."""
        return f"{self.host}:{self.port}"


class TServerSettings(Section):
    """Logs, memory and the replication worker of a tserver."""

    wal_roll_bytes: Bytes = setting(
        1024 * MIB,
        "A WAL is rolled beyond this size",
        "as in Accumulo; bounds what recovery has to read, two seconds, and how much one slow peer pins; at the end "
        "of each file a backlog waits for the master's word",
    )
    wal_roll_age_ms: Millis = setting(
        3_600_000, "A WAL with data is rolled beyond this age", "a quiet cluster lets files go too"
    )
    wal_sync_interval_ms: Millis = setting(
        100,
        "Time between background syncs of data that no caller waits for; only synced data is replicated",
        "ten syncs a second cost a disk little, and writers without sync get a lag like the others'",
    )
    needed_interval_ms: Millis = setting(
        20,
        "Time between updates of needed offsets in the books",
        "the batching part of the replication lag: fifty writes a second at most",
    )
    disk_reserve_bytes: Bytes = setting(
        64 * MIB,
        "Space that writes leave free on the disk of the logs; when less is left they are refused (no_space)",
        "books, segments and seals find room then; replication goes on, logs are let go, a full disk may mend itself",
    )
    commit_queue_bytes_max: Bytes = setting(
        128 * MIB,
        "Size of what waits for the commit thread; beyond it writers are told to back off (overloaded)",
        "a few large batches of several writers, and bounded memory",
    )
    memtable_flush_bytes: Bytes = setting(
        64 * MIB,
        "A tablet's memtable is flushed to segments beyond this size",
        "segments large enough to be few, memory small enough for tens of busy tablets",
    )
    row_bytes_max: Bytes = setting(
        64 * KIB, "Largest row, family, qualifier or visibility", "keys are held in memory and compared"
    )
    value_bytes_max: Bytes = setting(8 * MIB, "Largest value", "one must fit in a message")
    future_timestamp_max_ms: Annotated[int, Field(ge=0, le=100 * 366 * 24 * 3_600_000), Unit("ms")] = setting(
        24 * 3_600_000,
        "How far a timestamp may lie ahead of this cluster's clock: in what users write and import, and in what peers "
        "send; 0: any",
        "a delete far ahead hides a cell for ever, and no clock that anybody looks after is wrong by a day",
    )
    scan_page_bytes_max: Bytes = setting(
        4 * MIB, "Largest page of a scan, whatever the reader asks for", "a page is held in memory on both sides"
    )
    stream_idle_timeout_ms: Millis = setting(
        60_000,
        "Time after which an idle incoming stream must be opened again",
        "bounds how long a message may live (R20), at one more call a minute",
    )
    streams_max: Count = setting(
        20_000,
        "Streams of all peers that may be open at one tserver; beyond it a peer is told to back off (overloaded)",
        "a file of a source for one target is one stream; each takes a kilobyte",
    )
    peer_streams_max: Count = setting(
        5_000, "The same for each peer", "a backlog of thousands of files, and three other peers find places, too"
    )
    paths_apart_ms: Millis = setting(
        7 * 24 * 3_600_000,
        "Time after which it counts no more, for what came by several paths, that a cluster can't be asked or is not "
        "heard of; clusters that answer, or are only away, are waited for without end",
        "a cluster that is gone for good leaves nothing behind for ever; one that is mended within days brings nothing "
        "twice",
    )
    lane_ranges_max: Count = setting(
        256,
        "Ranges queued for one peer cluster; beyond it assign_work answers overloaded",
        "as many as one assign_work call brings, and a dead peer holds little memory",
    )


class ReplaySettings(Section):
    """The Spark process that ships ranges."""

    spark_master: str = setting(
        "local[*]",
        "Spark master; a cluster's URL needs WALs on a filesystem that its workers share",
        "needs nothing else to run",
        min_length=1,
    )
    heap_mib: Annotated[int, Field(ge=480, le=1024 * 1024), Unit("MiB")] = setting(
        512, "Heap of the driver's JVM", "the data passes through Python, not through the heap"
    )
    tasks_max: Annotated[int, Field(ge=2, le=4096)] = setting(
        8, "Task slots of local[*], 180 MB each", "more than cores, because a slot mostly waits for a peer"
    )
    run_budget_ms: Millis = setting(
        4_000,
        "Time after which a run comes back with what it shipped so far",
        "long enough to amortise the job, short enough that the books, other tables of the peer and the operator see "
        "progress",
    )
    message_bytes: Bytes = setting(
        4 * MIB, "Size of one message to a peer", "a backlog drains a sixth faster than with 2 MiB; more costs memory"
    )
    message_retries: Annotated[int, Field(ge=0, le=100)] = setting(
        4,
        "Tries again for one message before the range is reported as failed and the master backs off",
        "together they wait up to 1.5 s, about as long as a tserver takes to come back",
    )
    retry_base_ms: Millis = setting(
        100, "Time before the first of these retries; doubles, with jitter", "a busy peer has caught its breath"
    )
    retry_max_ms: Millis = setting(2_000, "Time between these retries at most", "a task slot is held meanwhile")
    message_timeout_ms: Millis = setting(
        30_000, "Time to wait for a peer's acknowledgement of one message", "its disk may be busy"
    )
    run_timeout_ms: Millis = setting(
        180_000,
        "Time to wait for one replay call; then the process counts as hung and is replaced",
        "a run's budget, and every retry of a message that is answered late",
    )
    start_timeout_ms: Millis = setting(
        300_000, "Time to wait for the Spark session", "it takes 10 s on an idle machine, two minutes on a busy one"
    )
    journal_bytes: Bytes = setting(
        64 * MIB,
        "Size of logs/shipped.jsonl and its older parts; the oldest quarter is forgotten beyond it",
        "about 150,000 ranges, and nothing but sums for people depends on it",
    )
