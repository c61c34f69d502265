"""The sections of the settings file, their fields and their defaults.

Arrives: parsed TOML. Leaves: one frozen :class:`Settings` tree in which every key is known, of the right type and in
range. Each field says what it means, its unit, and why that default: see :mod:`bookkeeper.config.setting`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import quote, unquote

from pydantic import Field, model_validator

from bookkeeper.config.processes import MasterSettings, ReplaySettings, TServerSettings
from bookkeeper.config.setting import KIB, MIB, Count, Millis, Name, Section, Unit, given, setting


class InstanceSettings(Section):
    """Who this cluster is."""

    name: Name = given("Name of this cluster for people (instance.replication.name); names may repeat")
    instance_id: Name = given("Identity for ever, made by init: provenance and handshakes use it; keep it")


class MetadataSettings(Section):
    """Where the books are kept."""

    url: str = setting(
        "sqlite:///metadata.db",
        "sqlite:///FILE (relative to this directory) or hbase://HOST:PORT/PREFIX (HBase's Thrift server), "
        "percent-escaped; init makes the table there, and no other one is ever taken for it",
        "SQLite needs no other process, and syncs what it acknowledges; an HBase in a single JVM does not",
        pattern=r"^(sqlite:///.+|hbase://[^/]+:\d+/[^/]+)$",
    )


class CoordinationSettings(Section):
    """Sessions, leadership and the shared configuration tree."""

    url: str = setting(
        "embedded:coordination",
        "embedded:DIRECTORY (relative to this directory): all processes of the cluster on one machine",
        "the only kind there is",
        pattern=r"^embedded:.+$",
    )
    session_lease_ms: Millis = setting(
        8_000,
        "Time without a renewal until a process that still exists counts as dead",
        "a killed one counts as dead at once, this is for stopped or hung ones, and seven renewals may be missed on a "
        "busy two-core machine",
    )
    session_renew_ms: Millis = setting(
        1_000, "Time between renewals; at most a third of the lease", "one small write a second costs nothing"
    )
    session_margin_ms: Millis = setting(
        1_000,
        "Time that others wait beyond a lease",
        "an acknowledgement that was checked just in time has left by then",
    )
    busy_timeout_ms: Millis = setting(
        5_000,
        "Time to wait for the store while another process writes to it",
        "a write takes milliseconds, and an answer must come before the lease is over",
    )

    @model_validator(mode="after")
    def _renewals_fit(self) -> Self:
        if self.session_renew_ms * 3 > self.session_lease_ms:
            raise ValueError("session_renew_ms must be at most a third of session_lease_ms")
        return self


Memory = Annotated[int, Field(ge=0, le=2**40), Unit("bytes")]


class RpcSettings(Section):
    """Calls between processes."""

    bind_host: str = setting(
        "127.0.0.1",
        "Address that servers bind and announce",
        "the cluster is on one machine; what goes over a network has to be encrypted (security.tls_certificate)",
    )
    frame_bytes_max: Annotated[int, Field(ge=64 * KIB, le=1024 * MIB), Unit("bytes")] = setting(
        32 * MIB, "Largest frame that is accepted or sent", "four times the largest usual message"
    )
    secret_memory_bytes: Memory = setting(
        0,
        "Memory of large messages (above 64 KiB) that all connections of one server with the same secret hold, on "
        "their way in or out; beyond it calls are told to back off (overloaded); 0: four times frame_bytes_max",
        "32 usual messages, and whoever has another secret finds room, too",
    )
    memory_bytes: Memory = setting(
        0,
        "The same for all connections of one server; 0: eight times frame_bytes_max",
        "64 usual messages, twice the threads that serve them",
    )
    threads_max: Count = setting(
        32, "Threads that serve calls in one process", "waiting for a disk, not for a core, is their usual state"
    )
    connections_max: Count = setting(
        512,
        "Open connections of one server; more are turned away with a log line",
        "a client keeps few, and 1,024 descriptors are what a process may usually open",
    )
    connect_timeout_ms: Millis = setting(2_000, "Time to wait for a connection", "a lost SYN is sent again after 1 s")
    handshakes_max: Count = setting(
        64,
        "Connections of one server whose handshake is not over; beyond it the oldest one is closed",
        "a handshake takes milliseconds, so whoever is the oldest of so many is silent",
    )
    handshake_timeout_ms: Millis = setting(
        5_000,
        "Time from the start of a connection to the end of its handshake; then the connection closes",
        "a thousand times what it takes, for a network that loses packets",
    )
    timeout_ms: Millis = setting(
        30_000,
        "Time to wait for the answer to a call, unless the call says otherwise",
        "longer than a busy disk takes, shorter than a person waits",
    )
    frame_timeout_ms: Millis = setting(
        10_000,
        "Time from the first byte of a frame to its last, either direction; then the connection closes",
        "the largest frame takes that long at 3 MiB/s",
    )
    idle_timeout_ms: Millis = setting(
        600_000,
        "Time after which a server closes a connection that nobody used",
        "clients reconnect unnoticed, and the forgotten ones do not pile up",
    )

    @model_validator(mode="after")
    def _frames_find_memory(self) -> Self:
        for name in ("secret_memory_bytes", "memory_bytes"):
            if 0 < getattr(self, name) < self.frame_bytes_max:
                raise ValueError(f"{name} must be at least frame_bytes_max, or 0")
        return self


class SecuritySettings(Section):
    """Who may come in (docs/security.md)."""

    authentication: Literal["secret", "none"] = setting(
        "secret",
        "secret: every connection begins with a proof that both sides have a shared secret, see DIR/secrets; none: "
        "whoever reaches a port may do everything",
        "a port that somebody can reach is found",
    )
    tls_certificate: str = setting(
        "",
        "PEM file of this cluster's certificate (relative to this directory), which names its addresses; empty: no TLS",
        "on one machine nobody listens in between",
    )
    tls_key: str = setting("", "PEM file of the certificate's key, mode 0600", "there is no TLS")
    tls_ca: str = setting(
        "", "PEM file of the CAs that sign the certificates of this cluster, its clients and peers", "there is no TLS"
    )
    tls_clients: Literal["any", "certified"] = setting(
        "any",
        "any: who calls shows a secret; certified: and a certificate that tls_ca has signed",
        "a secret says who it is",
    )
    beyond_loopback: Literal["tls", "plaintext"] = setting(
        "tls",
        "tls: processes and the monitor bind addresses beyond loopback only with TLS; plaintext: without it, too, and "
        "whoever is on the network reads everything",
        "a network on which nobody listens is a thing to be sure of",
    )

    @model_validator(mode="after")
    def _files_go_together(self) -> Self:
        if len({bool(self.tls_certificate), bool(self.tls_key), bool(self.tls_ca)}) > 1:
            raise ValueError("tls_certificate, tls_key and tls_ca go together: set all of them, or none")
        return self


class ReplicationSettings(Section):
    """What happens to records that can't be replicated."""

    quarantine: Literal["manual", "auto"] = setting(
        "manual",
        "manual: a range of records that fails for good blocks its queue until a person decides, and the status says "
        "why and how; auto: it is set aside, its file is kept, and what follows it goes on",
        "order matters more than time: a range that comes later, or never, is for a person to judge",
    )
    quarantine_tries: Count = setting(
        5,
        "Times that the same blocks have to fail for good, in a row, before they count as blocking",
        "a peer that is being repaired or upgraded gets half a minute, with the growing pauses between tries",
    )


class MonitorSettings(Section):
    """The page that every master serves (docs/monitor.md)."""

    host: str = setting(
        "127.0.0.1",
        "Address that the monitor binds",
        "what is not reached is not attacked",
        min_length=1,
    )
    port: Annotated[int, Field(ge=0, le=65535)] = setting(
        0,
        "Port of the monitor; 0 = there is none; each cluster on a machine needs its own",
        "init chooses a free one for each cluster",
    )
    authentication: Literal["secret", "none"] = setting(
        "secret",
        "secret: who looks shows a token that bookkeeper monitor DIR prints; none: whoever reaches the port may "
        "look at names, numbers and errors of this cluster",
        "a port that somebody can reach is found",
    )
    sample_interval_ms: Millis = setting(
        2_000,
        "Time between looks at the master while somebody looks at the monitor",
        "a person sees it move, and one look costs milliseconds",
    )


class FilesSettings(Section):
    """Files that are brought and taken: importdirectory, exporttable, importtable, parquet:// peers."""

    roots: tuple[str, ...] = setting(
        ("exchange",),
        "Directories below which the cluster reads and writes such files, symbolic links resolved: absolute, or "
        "relative to this directory; a URI for another filesystem (s3://bucket/prefix)",
        "who may use a cluster can not read and write all that its processes may",
        strict=False,
    )

    @model_validator(mode="after")
    def _roots_are_places(self) -> Self:
        for root in self.roots:
            if not root or "\0" in root or ".." in root.split("/"):
                raise ValueError(f"files.roots holds {root!r}: want directories, or URIs of them, without ..")
        return self


class StandaloneSettings(Section):
    """What ``bookkeeper standalone`` starts."""

    tservers: Annotated[int, Field(ge=1, le=64)] = setting(
        1, "Tservers to run; each is a process of its own", "the smallest cluster that works"
    )


class Sections(Section):
    """The content of the file."""

    instance: InstanceSettings
    metadata: MetadataSettings = Field(default_factory=MetadataSettings)
    coordination: CoordinationSettings = Field(default_factory=CoordinationSettings)
    rpc: RpcSettings = Field(default_factory=RpcSettings)
    security: SecuritySettings = Field(default_factory=SecuritySettings)
    master: MasterSettings = Field(default_factory=MasterSettings)
    tserver: TServerSettings = Field(default_factory=TServerSettings)
    replay: ReplaySettings = Field(default_factory=ReplaySettings)
    replication: ReplicationSettings = Field(default_factory=ReplicationSettings)
    monitor: MonitorSettings = Field(default_factory=MonitorSettings)
    files: FilesSettings = Field(default_factory=FilesSettings)
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
