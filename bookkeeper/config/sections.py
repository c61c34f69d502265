"""The sections of the settings file, their fields and their defaults.

Arrives: parsed TOML. Leaves: one frozen :class:`Settings` tree in which every key is known, of the right type and in
range. Each field's description says what it means, its unit, and why that default; it is also the comment in the file.
Source: design section 9; style rule 13.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field, model_validator

_KIB = 1024
_MIB = 1024 * _KIB

_Count = Annotated[int, Field(ge=1, le=1_000_000_000)]
_Millis = Annotated[int, Field(ge=1, le=7 * 24 * 3600 * 1000)]
_Bytes = Annotated[int, Field(ge=1, le=2**40)]
_Port = Annotated[int, Field(ge=1, le=65535)]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class _Section(BaseModel):
    """Frozen, strict (no number in quotes), no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class InstanceSettings(_Section):
    """Who this cluster is."""

    name: _Name = Field(description="Name of this cluster for people (instance.replication.name). Names may repeat.")
    instance_id: _Name = Field(
        description="Identity for ever, made by init: provenance and handshakes use it. Keep it."
    )


class MetadataSettings(_Section):
    """Where the books are kept."""

    url: str = Field(
        default="sqlite:///metadata.db",
        pattern=r"^(sqlite:///.+|hbase://[^/]+:\d+/[^/]+)$",
        description="sqlite:///FILE (relative to this directory) or hbase://HOST:PORT/PREFIX (HBase's Thrift "
        "server), percent-escaped. SQLite needs no other process.",
    )


class CoordinationSettings(_Section):
    """Sessions, leadership and the shared configuration tree."""

    url: str = Field(
        default="embedded:coordination",
        pattern=r"^embedded:.+$",
        description="embedded:DIRECTORY (relative to this directory): all processes of the cluster on one machine.",
    )
    session_lease_ms: _Millis = Field(
        default=8_000,
        description="ms without a renewal until a process that still exists counts as dead. A killed one counts as "
        "dead at once; this is for stopped or hung ones: seven renewals may be missed on a busy two-core machine.",
    )
    session_renew_ms: _Millis = Field(default=1_000, description="ms between renewals; at most a third of the lease.")
    session_margin_ms: _Millis = Field(
        default=1_000,
        description="ms that others wait beyond a lease, so that an acknowledgement checked just in time has left.",
    )
    busy_timeout_ms: _Millis = Field(
        default=5_000, description="ms to wait for the store while another process writes to it."
    )

    @model_validator(mode="after")
    def _renewals_fit(self) -> Self:
        if self.session_renew_ms * 3 > self.session_lease_ms:
            raise ValueError("session_renew_ms must be at most a third of session_lease_ms")
        return self


class RpcSettings(_Section):
    """Calls between processes."""

    bind_host: str = Field(
        default="127.0.0.1", description="Address that servers bind and announce. Local by default: no auth."
    )
    frame_bytes_max: Annotated[int, Field(ge=64 * _KIB, le=1024 * _MIB)] = Field(
        default=32 * _MIB, description="Largest frame accepted or sent, in bytes; four times the largest usual message."
    )
    threads_max: _Count = Field(
        default=32,
        description="Threads that serve calls in one process; waiting for a disk, not for a core, is the usual state.",
    )
    connections_max: _Count = Field(
        default=512, description="Open connections of one server; more are turned away with a log line."
    )
    connect_timeout_ms: _Millis = Field(
        default=2_000, description="ms to wait for a connection; a lost SYN is sent again after 1 s."
    )
    timeout_ms: _Millis = Field(
        default=30_000, description="ms to wait for the answer to a call, unless the call says otherwise."
    )
    frame_timeout_ms: _Millis = Field(
        default=10_000,
        description="ms from the first byte of a frame to its last, either direction; then the connection closes.",
    )
    idle_timeout_ms: _Millis = Field(
        default=600_000,
        description="ms after which a server closes a connection that nobody used; clients reconnect unnoticed.",
    )


class MasterSettings(_Section):
    """The master's address and its thread (design section 6)."""

    host: str = Field(
        default="127.0.0.1", min_length=1, description="Host of the master's fixed address: what peers call quorum."
    )
    port: _Port = Field(
        default=9797, description="Port of the master's fixed address; each cluster on a machine needs its own."
    )
    scan_interval_ms: _Millis = Field(
        default=5_000, description="ms between cycles when nobody nudges; a lost nudge costs this much latency."
    )
    cycle_min_interval_ms: _Millis = Field(
        default=50,
        description="ms between the starts of two cycles, however many nudges arrive: bounds the load on the books.",
    )
    gc_interval_ms: _Millis = Field(
        default=10_000, description="ms between runs of the garbage collector; only disk space waits."
    )
    backoff_base_ms: _Millis = Field(
        default=200, description="ms before the first retry towards a failing peer; doubles, with jitter."
    )
    backoff_max_ms: _Millis = Field(
        default=30_000,
        description="ms between retries at most: how late a peer that came back is noticed in the worst case.",
    )
    work_queue_files_max: _Count = Field(
        default=1_000,
        description="Files handed to workers at once; the others wait in the books and cost no memory here.",
    )
    work_items_max: _Count = Field(default=256, description="Ranges in one assign_work call, to keep messages small.")
    assigner: Literal["sequential", "unordered"] = Field(
        default="sequential",
        description="sequential: the files of one target in order of creation; unordered: side by side.",
    )

    @property
    def address(self) -> str:
        """``host:port``, the quorum of a cluster with one master."""
        return f"{self.host}:{self.port}"


class TServerSettings(_Section):
    """Logs, memory and the replication worker of a tserver."""

    wal_roll_bytes: _Bytes = Field(
        default=256 * _MIB, description="A WAL is rolled beyond this many bytes; bounds recovery time."
    )
    wal_roll_age_ms: _Millis = Field(
        default=3_600_000,
        description="A WAL with data is rolled beyond this age in ms, so that a quiet cluster lets files go.",
    )
    wal_sync_interval_ms: _Millis = Field(
        default=100,
        description="ms between background syncs of data that no caller waits for; only synced data is replicated.",
    )
    needed_interval_ms: _Millis = Field(
        default=20,
        description="ms between updates of needed offsets in the books: the batching part of replication latency.",
    )
    commit_queue_bytes_max: _Bytes = Field(
        default=128 * _MIB,
        description="Bytes waiting for the commit thread; beyond it writers are told to back off (overloaded).",
    )
    memtable_flush_bytes: _Bytes = Field(
        default=64 * _MIB, description="A tablet's memtable is flushed to segments beyond this many bytes."
    )
    row_bytes_max: _Bytes = Field(
        default=64 * _KIB,
        description="Largest row, family, qualifier or visibility, in bytes: keys are held in memory and compared.",
    )
    value_bytes_max: _Bytes = Field(default=8 * _MIB, description="Largest value in bytes: one must fit in a message.")
    scan_page_bytes_max: _Bytes = Field(
        default=4 * _MIB, description="Largest page of a scan in bytes, whatever the reader asks for."
    )
    stream_idle_timeout_ms: _Millis = Field(
        default=60_000,
        description="ms after which an idle incoming stream must be opened again; bounds a message's life (R20).",
    )
    lane_ranges_max: _Count = Field(
        default=256, description="Ranges queued for one peer cluster; beyond it assign_work answers overloaded."
    )


class ReplaySettings(_Section):
    """The Spark process that ships ranges."""

    spark_master: str = Field(
        default="local[*]", min_length=1, description="Spark master; a cluster's URL needs shared WAL files."
    )
    heap_mib: Annotated[int, Field(ge=128, le=1024 * 1024)] = Field(
        default=512,
        description="Heap of the driver's JVM in MiB; the data passes through Python, not through the heap.",
    )
    tasks_max: Annotated[int, Field(ge=2, le=4096)] = Field(
        default=8,
        description="Task slots of local[*], 180 MB each: more than cores, because a slot mostly waits for a peer.",
    )
    run_budget_ms: _Millis = Field(
        default=2_000,
        description="ms after which a run comes back with what it shipped so far: long enough to amortise the job, "
        "short enough that the books, other tables of the peer and the operator see progress.",
    )
    message_bytes: _Bytes = Field(
        default=2 * _MIB,
        description="Bytes of one message to a peer: 1 to 4 MiB measured best, more only costs memory.",
    )
    message_retries: Annotated[int, Field(ge=0, le=100)] = Field(
        default=4,
        description="Tries again for one message before the range is reported as failed and backed off by the master.",
    )
    retry_base_ms: _Millis = Field(
        default=100, description="ms before the first of these retries; doubles, with jitter."
    )
    retry_max_ms: _Millis = Field(default=2_000, description="ms between these retries at most.")
    message_timeout_ms: _Millis = Field(
        default=30_000, description="ms to wait for a peer's acknowledgement of one message; its disk may be busy."
    )
    run_timeout_ms: _Millis = Field(
        default=180_000, description="ms to wait for one replay call; then the process counts as hung and is replaced."
    )
    start_timeout_ms: _Millis = Field(
        default=300_000,
        description="ms to wait for the Spark session: 10 s on an idle machine, two minutes on a busy one.",
    )
    journal_bytes: _Bytes = Field(
        default=64 * _MIB,
        description="Bytes of logs/shipped.jsonl and its older parts, about 150,000 ranges; the oldest quarter is "
        "forgotten beyond it. Nothing but sums for people depends on it.",
    )


class StandaloneSettings(_Section):
    """What ``bookkeeper standalone`` starts."""

    tservers: Annotated[int, Field(ge=1, le=64)] = Field(
        default=1, description="Tservers to run; each is a process of its own."
    )


class Sections(_Section):
    """The content of the file."""

    instance: InstanceSettings
    metadata: MetadataSettings = Field(default_factory=MetadataSettings)
    coordination: CoordinationSettings = Field(default_factory=CoordinationSettings)
    rpc: RpcSettings = Field(default_factory=RpcSettings)
    master: MasterSettings = Field(default_factory=MasterSettings)
    tserver: TServerSettings = Field(default_factory=TServerSettings)
    replay: ReplaySettings = Field(default_factory=ReplaySettings)
    standalone: StandaloneSettings = Field(default_factory=StandaloneSettings)

    @model_validator(mode="after")
    def _messages_fit(self) -> Self:
        largest = max(self.replay.message_bytes, self.tserver.value_bytes_max, self.tserver.scan_page_bytes_max)
        if largest * 2 > self.rpc.frame_bytes_max:
            raise ValueError(
                "rpc.frame_bytes_max must be at least twice replay.message_bytes, tserver.value_bytes_max "
                "and tserver.scan_page_bytes_max"
            )
        return self


class Settings(Sections):
    """The settings and the directory they were read from (absolute)."""

    directory: Path

    @property
    def metadata_url(self) -> str:
        """The metadata URL with an absolute path (``sqlite:////abs/metadata.db``), or ``hbase://`` as it stands."""
        scheme, _, tail = self.metadata.url.partition(":///")
        return f"sqlite:///{quote(str(self.directory / unquote(tail)))}" if scheme == "sqlite" else self.metadata.url

    @property
    def coordination_dir(self) -> Path:
        """Directory of the embedded coordination store."""
        return self.directory / self.coordination.url.removeprefix("embedded:")

    @property
    def wal_dir(self) -> Path:
        """Holds ``<session id>/<n>.wal``."""
        return self.directory / "wal"

    @property
    def tables_dir(self) -> Path:
        """Holds ``<table id>/<tablet dir>/<file>.parquet``."""
        return self.directory / "tables"

    @property
    def logs_dir(self) -> Path:
        """Holds one log file for each process that standalone runs."""
        return self.directory / "logs"
