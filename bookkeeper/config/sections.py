"""The sections of the settings file, their fields and their defaults, as one frozen :class:`Settings` tree.

Every key is known, of the right type and in range. Each field has a meaning, a unit and the reason for its default: see
:mod:`bookkeeper.config.setting`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote, unquote

from msgspec import Meta

from bookkeeper.config.processes import MasterSettings, ReplaySettings, TServerSettings
from bookkeeper.config.setting import (
    KIB,
    MIB,
    Announced,
    Bytes,
    Count,
    Millis,
    Name,
    Section,
    Text,
    check_announced,
    required,
    setting,
    unit,
)

HOST_WORDS = "up to 31 lower-case letters, digits and '-', with a letter or digit first"


class InstanceSettings(Section, frozen=True):
    """The identity of this cluster."""

    name: Name = required(
        "Display name of this cluster (instance.replication.name); several clusters may have the same"
    )
    instance_id: Name = required("Permanent identity, made by init, for provenance and handshakes; never change it")


OWN_GATEWAY = "hbase+zk://"
"""The metadata URL of an HBase to which each host runs a gateway of its own begins so."""


class MetadataSettings(Section, frozen=True):
    """The store of the books."""

    url: Annotated[
        str,
        Meta(
            pattern=r"^(sqlite:///.+|hbase://[^/]+:\d+/[^/]+|hbase\+zk://[^/,]+:\d+(,[^/,]+:\d+)*/[^/]+)\Z",
            description="sqlite:///FILE, hbase+zk://HOST:PORT,HOST:PORT/PREFIX or hbase://HOST:PORT/PREFIX",
        ),
    ] = setting(
        "sqlite:///metadata.db",
        "sqlite:///FILE (relative to the cluster's directory); hbase+zk://HOST:PORT,HOST:PORT/PREFIX (the ZooKeeper "
        "servers of an HBase cluster: each host runs a Thrift gateway of its own); or hbase://HOST:PORT/PREFIX (a "
        "Thrift gateway that somebody else runs); percent-escaped. init makes the table there, and processes refuse "
        "any other table",
        "SQLite needs no other process, and an acknowledged write is on disk; with HBase in a single JVM it is not",
    )
    region_session_ms: Millis = setting(
        90_000,
        "zookeeper.session.timeout of HBase: for so long a region server may stand still and then apply a write",
        "HBase's own default; the books of deleted files stay for this time, so a smaller value here is wrong if "
        "HBase's is larger",
    )


def hbase_quorum(url: str) -> str:
    """The ZooKeeper servers that a metadata URL names, as ``HOST:PORT,HOST:PORT``; "" for another URL."""
    return url.removeprefix(OWN_GATEWAY).partition("/")[0] if url.startswith(OWN_GATEWAY) else ""


COORDINATION_URL = r"^(embedded:.+|zk://[^/\s@]+(/[A-Za-z0-9_-][A-Za-z0-9._-]*)+)\Z"
"""An address of a coordination store. It has no place for a password."""


class CoordinationSettings(Section, frozen=True):
    """Sessions, leadership and the shared configuration tree."""

    url: Annotated[
        str, Meta(pattern=COORDINATION_URL, description="embedded:DIRECTORY or zk://HOST:PORT[,HOST:PORT...]/ROOT")
    ] = setting(
        "embedded:coordination",
        "embedded:DIRECTORY (relative to the cluster's directory): all processes of the cluster on one machine; "
        "zk://HOST:PORT,HOST:PORT/ROOT: nodes below ROOT in a ZooKeeper ensemble",
        "one machine needs no other service",
    )
    store_id: str = setting(
        "",
        "Id that init gave to the root in ZooKeeper; a process refuses a root with another one",
        "an embedded store has none",
    )
    user: str = setting(
        "",
        "User of ZooKeeper (SASL with DIGEST-MD5), who alone may open the nodes, except that everybody may read the "
        "addresses of masters; the password is in "
        "secrets/zookeeper.password of the cluster's directory, mode 0600; empty: none, and everybody who reaches "
        "ZooKeeper may change the cluster",
        "an embedded store is a file",
    )
    tls_ca: str = setting(
        "",
        "PEM file of the CA that signed ZooKeeper's certificates, which are for its addresses; empty: no TLS to "
        "ZooKeeper",
        "ZooKeeper has none unless it is set up",
    )
    tls_certificate: str = setting(
        "", "PEM file of a certificate to show to ZooKeeper", "ZooKeeper asks for one only if it is set up to"
    )
    tls_key: str = setting("", "PEM file of that certificate's key, mode 0600", "there is no certificate")
    session_lease_ms: Millis = setting(
        8_000,
        "Time without a renewal until a process that still exists counts as dead",
        "a killed process counts as dead at once; the lease is for stopped or hung processes, and a busy two-core "
        "machine may miss seven renewals",
    )
    session_renew_ms: Millis = setting(
        1_000, "Time between renewals; at most a third of the lease", "one small write a second costs nothing"
    )
    session_margin_ms: Millis = setting(
        1_000,
        "Time that other processes wait after the end of a lease",
        "an acknowledgement checked at the end of the lease is sent by then",
    )
    busy_timeout_ms: Millis = setting(
        5_000,
        "Time to wait for the store while another process writes to it",
        "a write takes milliseconds, and an answer must come before the lease is over",
    )

    def __post_init__(self) -> None:
        """Raise ValueError when values do not go together."""
        if self.session_renew_ms * 3 > self.session_lease_ms:
            raise ValueError("session_renew_ms must be at most a third of session_lease_ms")
        if bool(self.tls_certificate) != bool(self.tls_key) or (self.tls_key and not self.tls_ca):
            raise ValueError("tls_certificate and tls_key go together, and with tls_ca")
        if (self.user or self.tls_ca or self.store_id) and not self.url.startswith("zk:"):
            raise ValueError("store_id, user and tls_ca are for a url that begins with zk://")


Memory = Annotated[int, Meta(ge=0, le=2**40, extra=unit("bytes"))]


class RpcSettings(Section, frozen=True):
    """Calls between processes."""

    bind_host: str = setting(
        "127.0.0.1",
        "Address that the servers of tservers and the replay process bind; 0.0.0.0: every address",
        "the cluster is on one machine; traffic over a network must be encrypted (security.tls_certificate)",
    )
    announced_host: Announced = setting(
        "",
        "Name or address of this machine that tservers and the replay process announce: other processes, clients and "
        "peers call it, and a certificate is for it; empty: rpc.bind_host",
        "without a translation of addresses both are the same",
    )
    frame_bytes_max: Annotated[int, Meta(ge=64 * KIB, le=1024 * MIB, extra=unit("bytes"))] = setting(
        32 * MIB, "Maximum size of a frame, sent or received", "four times the largest usual message"
    )
    secret_memory_bytes: Memory = setting(
        0,
        "Memory for large messages (above 64 KiB), incoming and outgoing, of all connections of one server with the "
        "same secret; beyond it calls fail with overloaded; 0: four times frame_bytes_max",
        "32 usual messages, and callers with another secret still find memory",
    )
    memory_bytes: Memory = setting(
        0,
        "Memory for large messages of all connections of one server; 0: eight times frame_bytes_max",
        "64 usual messages, twice the threads that serve them",
    )
    threads_max: Count = setting(
        32, "Threads that serve calls in one process", "they mostly wait for a disk, not for a core"
    )
    connections_max: Count = setting(
        512,
        "Maximum open connections of one server; it closes further ones and logs a line",
        "a client has few connections, and a process may usually open 1,024 descriptors",
    )
    connect_timeout_ms: Millis = setting(2_000, "Time to wait for a connection", "a lost SYN is sent again after 1 s")
    handshakes_max: Count = setting(
        64,
        "Maximum unfinished handshakes of one server; beyond it the oldest connection closes",
        "a handshake takes milliseconds, so the oldest of so many connections is silent",
    )
    handshake_timeout_ms: Millis = setting(
        5_000,
        "Time from the start of a connection to the end of its handshake; then the connection closes",
        "a thousand times its usual duration, for a network that loses packets",
    )
    timeout_ms: Millis = setting(
        30_000,
        "Time to wait for the answer to a call without a time-out of its own",
        "longer than a busy disk takes, shorter than a user waits",
    )
    frame_timeout_ms: Millis = setting(
        10_000,
        "Time from the first byte of a frame to its last, either direction; then the connection closes",
        "the largest frame takes that long at 3 MiB/s",
    )
    idle_timeout_ms: Millis = setting(
        600_000,
        "Time after which a server closes an unused connection",
        "clients reconnect without an error, and forgotten connections do not accumulate",
    )

    def __post_init__(self) -> None:
        """Raise ValueError when values do not go together."""
        check_announced("bind_host", self.bind_host, self.announced_host)
        for name in ("secret_memory_bytes", "memory_bytes"):
            if 0 < getattr(self, name) < self.frame_bytes_max:
                raise ValueError(f"{name} must be at least frame_bytes_max, or 0")


class SecuritySettings(Section, frozen=True):
    """Authentication and encryption (docs/security.md)."""

    authentication: Literal["secret", "none"] = setting(
        "secret",
        "secret: every connection begins with a proof that both sides have a shared secret, see DIR/secrets; none: "
        "every caller that reaches a port has all rights",
        "attackers find open ports",
    )
    tls_certificate: str = setting(
        "",
        "PEM file of this cluster's certificate (relative to the cluster's directory), which names its addresses; "
        "empty: no TLS",
        "traffic on one machine needs no encryption",
    )
    tls_key: str = setting("", "PEM file of the certificate's key, mode 0600", "there is no TLS")
    tls_ca: str = setting(
        "", "PEM file of the CAs that sign the certificates of this cluster, its clients and peers", "there is no TLS"
    )
    tls_clients: Literal["any", "certified"] = setting(
        "any",
        "any: a caller proves a secret; certified: it also needs a certificate signed by tls_ca",
        "the secret identifies the caller",
    )
    beyond_loopback: Literal["tls", "plaintext"] = setting(
        "tls",
        "tls: processes and the monitor bind addresses beyond loopback only with TLS; plaintext: also without TLS, and "
        "every machine on the network can read the traffic",
        "an operator must decide that a network is trusted",
    )

    def __post_init__(self) -> None:
        """Raise ValueError when values do not go together."""
        if len({bool(self.tls_certificate), bool(self.tls_key), bool(self.tls_ca)}) > 1:
            raise ValueError("tls_certificate, tls_key and tls_ca go together: set all of them, or none")


class ReplicationSettings(Section, frozen=True):
    """The treatment of records that can't be replicated."""

    quarantine: Literal["manual", "auto"] = setting(
        "manual",
        "manual: a range of records that fails permanently blocks its queue until an operator decides, and the status "
        "shows the reason; auto: the range is quarantined, its file is retained, and its queue continues",
        "order matters more than time: an operator decides whether a range may come later, or never",
    )
    quarantine_tries: Count = setting(
        5,
        "Consecutive permanent failures of the same blocks before they count as blocking",
        "with the growing pauses between tries a peer has half a minute for a repair or an upgrade",
    )


class MonitorSettings(Section, frozen=True):
    """The pages that every master serves (docs/monitor.md)."""

    host: Text = setting(
        "127.0.0.1",
        "Address that the monitor binds; 0.0.0.0: every address",
        "no other machine can reach it",
    )
    announced_host: Announced = setting(
        "", "Name or address of this machine in the monitor's URL; empty: monitor.host", "both are the same"
    )
    port: Annotated[int, Meta(ge=0, le=65535)] = setting(
        0,
        "Port of the monitor; 0 = no monitor; each cluster on a machine needs its own",
        "init chooses a free port for each cluster",
    )
    authentication: Literal["secret", "none"] = setting(
        "secret",
        "secret: a viewer needs the token that bookkeeper monitor DIR prints; none: every viewer that reaches the port "
        "sees names, numbers and errors of this cluster",
        "attackers find open ports",
    )
    sample_interval_ms: Millis = setting(
        2_000,
        "Time between samples of the master while the monitor is in use",
        "a viewer sees changes soon, and a sample takes milliseconds",
    )

    def __post_init__(self) -> None:
        """Raise ValueError when values do not go together."""
        check_announced("host", self.host, self.announced_host)


class FilesSettings(Section, frozen=True):
    """Files of importdirectory, exporttable, importtable and parquet:// peers."""

    roots: tuple[str, ...] = setting(
        ("exchange",),
        "Directories below which the cluster reads and writes such files, symbolic links resolved: absolute, or "
        "relative to the cluster's directory; a URI for another filesystem (s3://bucket/prefix)",
        "users of a cluster must not read and write all files that its processes can",
    )

    def __post_init__(self) -> None:
        """Raise ValueError when values do not go together."""
        for root in self.roots:
            if not root or "\0" in root or ".." in root.split("/"):
                raise ValueError(f"files.roots has {root!r}: enter directories, or URIs of directories, without ..")


class HostSettings(Section, frozen=True):
    """The host: this directory, as one of those on which a cluster runs."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,30}\Z", description=HOST_WORDS)] = setting(
        "host1",
        "Permanent name of this host, which no other host of the cluster ever gets; never change it",
        "the first host of a cluster",
    )
    zone: Annotated[str, Meta(pattern=r"^([a-z0-9][a-z0-9-]{0,30})?\Z", description=f"empty, or {HOST_WORDS}")] = (
        setting(
            "",
            "Zone of this host: a rack, a room or a disk that several hosts lose together. Replicas of a tablet go to "
            "different zones while there are enough; empty: the host is a zone of its own",
            "nothing is known of a machine until its owner says it",
        )
    )
    cluster: str = setting(
        "",
        "Directory of the cluster that this host has joined (relative to this directory), which holds books, logs, "
        "shared segments and secrets; empty: this directory",
        "the first host of a cluster holds them itself",
    )


class StorageSettings(Section, frozen=True):
    """The place of new files."""

    volume: Literal["directory", "none"] = setting(
        "directory",
        "Place that all hosts reach. directory: the cluster's directory, so all hosts are on one machine; none: there "
        "is none, so hosts may be on several machines: tables have two replicas or more, logs lie on the hosts, and "
        "imports and exports are refused. All hosts of a cluster need the same; never change it",
        "one machine needs no other service",
    )
    logs: Literal["shared", "host"] = setting(
        "shared",
        "Place of the logs of tservers that start from now on: shared = the cluster's Volume, host = the disk of the "
        "tserver's own host (of the one tserver that holds the host's replicas; others use the Volume)",
        "any host can read a log on the Volume, also when the host that wrote it is away",
    )


class ReplicasSettings(Section, frozen=True):
    """The repair of tables with several replicas (``table.replicas``), and the check of their files."""

    repair_after_ms: Millis = setting(
        300_000,
        "Time that a host is away until other hosts get its replicas",
        "a restart of a machine takes less, and a copy of all its replicas takes longer",
    )
    joins_max: Count = setting(
        4,
        "Replicas that join at a time, in the whole cluster",
        "a copy of a tablet takes the disk and the network of its leader",
    )
    copy_share_percent: Annotated[int, Meta(ge=1, le=100)] = setting(
        1,
        "CPU time, as a part of one core, that copies of large files to one other host take on a host whose clients "
        "write; 100: no limit",
        "a copy can wait for clients, and it still goes on",
    )
    check_interval_ms: Millis = setting(
        86_400_000,
        "Time between two rounds in which a host compares all its segment files with their checksums",
        "a damaged file is found while other hosts still have sound copies, also when nobody reads it",
    )
    check_bytes_max: Bytes = setting(
        8 * MIB,
        "Most bytes that such a round reads in a second",
        "reads and writes do not notice it, and a disk of a terabyte takes a day and a half",
    )
    election: Literal["master", "coordination"] = setting(
        "master",
        "The election of a tablet's leader. master: the master asks the hosts and takes the newest state, then the "
        "host with the fewest tablets; coordination: hosts stand in the coordination store, and the newest state wins, "
        "then the host that came first. All hosts of a cluster need the same; a process with another one does not "
        "start",
        "leaders are spread at once, and no host writes to the coordination store",
    )


class StandaloneSettings(Section, frozen=True):
    """The processes that ``bookkeeper standalone`` starts."""

    tservers: Annotated[int, Meta(ge=1, le=64)] = setting(
        1, "Tservers to run; each is a process of its own", "the smallest cluster that works"
    )
    hosts: Annotated[int, Meta(ge=1, le=16)] = setting(
        1,
        "Hosts of the cluster to run on this machine: this directory, and others below its directory hosts/, which are "
        "made when they are missing",
        "one machine loses all its hosts together; several are for tables with replicas, and for tests",
    )
    processes: Annotated[tuple[Literal["master", "tserver", "replay"], ...], Meta(min_length=1)] = setting(
        ("master", "tserver", "replay"),
        "Kinds of processes to run here; a cluster needs one master, and one replay process for each machine",
        "the first host of a cluster runs all of them",
    )
    gateway_port: Annotated[int, Meta(ge=0, le=65535)] = setting(
        0,
        "Port on 127.0.0.1 of this host's own Thrift gateway, which runs where metadata.url begins with hbase+zk; init "
        "chooses one",
        "without such a URL there is no gateway",
    )


class Sections(Section, frozen=True):
    """All sections of the file."""

    instance: InstanceSettings
    metadata: MetadataSettings = MetadataSettings()
    coordination: CoordinationSettings = CoordinationSettings()
    rpc: RpcSettings = RpcSettings()
    security: SecuritySettings = SecuritySettings()
    master: MasterSettings = MasterSettings()
    tserver: TServerSettings = TServerSettings()
    replay: ReplaySettings = ReplaySettings()
    replication: ReplicationSettings = ReplicationSettings()
    monitor: MonitorSettings = MonitorSettings()
    files: FilesSettings = FilesSettings()
    host: HostSettings = HostSettings()
    storage: StorageSettings = StorageSettings()
    replicas: ReplicasSettings = ReplicasSettings()
    standalone: StandaloneSettings = StandaloneSettings()

    def __post_init__(self) -> None:
        """Raise ValueError when values do not go together."""
        if hbase_quorum(self.metadata.url) and not self.standalone.gateway_port:
            raise ValueError("standalone.gateway_port must be a port, because metadata.url names ZooKeeper servers")
        if self.tserver.port and self.standalone.tservers > 1:
            raise ValueError("tserver.port is the port of one tserver: set standalone.tservers to 1, or leave it at 0")
        if self.storage.volume == "none" and (reasons := self._without_volume()):
            raise ValueError(f"storage.volume is none, which needs {', '.join(reasons)}")
        largest = max(self.replay.message_bytes, self.tserver.value_bytes_max, self.tserver.scan_page_bytes_max)
        if largest * 2 > self.rpc.frame_bytes_max:
            raise ValueError(
                "rpc.frame_bytes_max must be at least twice replay.message_bytes, tserver.value_bytes_max "
                "and tserver.scan_page_bytes_max"
            )

    def _without_volume(self) -> list[str]:
        """The settings that hosts without a common directory need, and that are missing here."""
        wanted = {
            "coordination.url = zk://...": self.coordination.url.startswith("zk:"),
            "metadata.url = hbase+zk://...": not self.metadata.url.startswith("sqlite:"),
            'storage.logs = "host"': self.storage.logs == "host",
            "standalone.tservers = 1 (further ones have no place for their logs)": self.standalone.tservers == 1,
            "standalone.hosts = 1": self.standalone.hosts == 1,
            "no host.cluster": not self.host.cluster,
        }
        return [words for words, is_so in wanted.items() if not is_so]


class Settings(Sections, frozen=True, kw_only=True):
    """The settings, and the absolute path of their directory, which is one host of the cluster."""

    directory: Path

    @property
    def cluster_directory(self) -> Path:
        """The directory of books, logs, shared segments and secrets; :attr:`directory` unless the host has joined."""
        return Path(os.path.normpath(self.directory / self.host.cluster)) if self.host.cluster else self.directory

    @property
    def metadata_url(self) -> str:
        """The metadata URL with an absolute path (``sqlite:////abs/metadata.db``), ``hbase://`` as it stands, or the
        ``hbase://`` of this host's own gateway.
        """
        if self.hbase_quorum:
            prefix = self.metadata.url.rpartition("/")[2]
            return f"hbase://127.0.0.1:{self.standalone.gateway_port}/{prefix}"
        scheme, _, tail = self.metadata.url.partition(":///")
        return (
            f"sqlite:///{quote(str(self.cluster_directory / unquote(tail)))}"
            if scheme == "sqlite"
            else self.metadata.url
        )

    @property
    def hbase_quorum(self) -> str:
        """The ZooKeeper servers of the HBase to which this host runs a gateway of its own; "" without one."""
        return hbase_quorum(self.metadata.url)

    @property
    def coordination_dir(self) -> Path | None:
        """Directory of the embedded coordination store; None when the store is elsewhere."""
        scheme, _, place = self.coordination.url.partition(":")
        return self.cluster_directory / place if scheme == "embedded" else None

    @property
    def quorum(self) -> str:
        """Where clients and peers find the masters of this cluster: its root in ZooKeeper, else this host's master."""
        return self.coordination.url if self.coordination_dir is None else self.master.address

    @property
    def leases_dir(self) -> Path:
        """Directory of the lease files of this host's processes, when the coordination store is elsewhere."""
        return self.directory / "run" / "sessions"

    @property
    def seen_store_file(self) -> Path:
        """The file with the age of a coordination store elsewhere, as this host has seen it."""
        return self.directory / "run" / "seen_store.json"

    @property
    def wal_dir(self) -> Path:
        """Directory of ``<session id>/<n>.wal``."""
        return self.cluster_directory / "wal"

    @property
    def tables_dir(self) -> Path:
        """Directory of ``<table id>/<tablet dir>/<file>.parquet``."""
        return self.cluster_directory / "tables"

    @property
    def logs_dir(self) -> Path:
        """Directory with one log file for each process that standalone runs on this host."""
        return self.directory / "logs"

    @property
    def replicas_dir(self) -> Path:
        """Directory of this host's incarnation, and of the replicas that it holds."""
        return self.directory / "replicas"
