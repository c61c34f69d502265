"""The shared configuration as one frozen value: the identity of this cluster, tables, peers, targets, users and hosts.

:func:`read_config` returns a :class:`ClusterConfig` of one generation. A record that does not parse raises
CorruptionError and an unreadable store TransientError; neither means "nothing configured" (rule R6).

Tree: ``/instance`` {id, name} · ``/settings`` {settings} · ``/election`` {election} · ``/read_only`` {read_only} ·
``/names/<table name>`` table id · ``/tables/<id>`` {id, name, state, groups, properties, targets} ·
``/clusters/<alias>`` {quorum, instance_id, name} · ``/users/<name>`` {authorizations} · ``/hosts/<name>`` {place, id} ·
``/holders/<host>`` {nodes} · ``/host_settings/<host>`` {settings} · ``/draining/<host>`` {draining} ·
``/counters/<name>`` a number. Values are compact JSON with sorted keys. ``/names`` only claims the name of a table,
which its record under ``/tables`` has, too. Rules: R5, R6, R13 and R23.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Literal, cast, get_args
from urllib.parse import quote, unquote

from msgspec import Struct, field

from bookkeeper.coordination.coordination_protocol import Coordination, Versioned
from bookkeeper.errors import CorruptionError, NotFoundError
from bookkeeper.model import DEFAULT_GROUP, BlockTarget, LocalityGroup, Target, TargetKey

INSTANCE_PATH = "/instance"
SETTINGS_PATH = "/settings"
ELECTION_PATH = "/election"
READ_ONLY_PATH = "/read_only"
NAMES = "/names/"
TABLES = "/tables/"
CLUSTERS = "/clusters/"
USERS = "/users/"
HOSTS = "/hosts/"
HOLDERS = "/holders/"
HOST_SETTINGS = "/host_settings/"
DRAINING = "/draining/"
COUNTERS = "/counters/"

TableState = Literal["creating", "online", "deleting"]


class Instance(Struct, frozen=True):
    """This cluster: its permanent identity, and its display name."""

    instance_id: str
    name: str


class PeerCluster(Struct, frozen=True):
    """A peer: its local alias, its quorum ``host:port,...``, and the instance that answered there (R23)."""

    alias: str
    quorum: str
    instance_id: str
    name: str


class HostRecord(Struct, frozen=True):
    """A host: its directory, and its id when it shares no directory with others; "" = its directory identifies it."""

    place: str
    host_id: str = ""


class TableConfig(Struct, frozen=True):
    """One table. ``groups`` are its named groups; all other families are in the group ``default``."""

    table_id: str
    name: str
    state: TableState
    groups: tuple[LocalityGroup, ...]
    properties: Mapping[str, str]
    targets: tuple[Target, ...]

    def group_names(self) -> tuple[str, ...]:
        """All groups, ``default`` last."""
        return (*(group.name for group in self.groups), DEFAULT_GROUP)


class ClusterConfig(Struct, frozen=True):
    """The complete configuration at ``generation``. ``instance`` is None before the first start of the cluster.

    ``read_only``: users can't write to any table; a property of a table refuses writes to that table. ``users``: the
    authorizations of each user that has some. ``hosts``: the directory of each host, relative to that of the cluster if
    it lies below it. ``host_ids``: the id of each host that shares no directory with others; its place is a path on its
    own machine. ``draining``: hosts that are to hold no replica. ``election``: how all processes elect the leader
    of a tablet (``replicas.election``); None before the first start. ``settings``: the values, by dotted name, of those
    that all hosts have in common; None where they read them from one directory.
    """

    generation: int
    instance: Instance | None
    clusters: Mapping[str, PeerCluster]
    tables: Mapping[str, TableConfig]
    read_only: bool = False
    users: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    draining: frozenset[str] = frozenset()
    election: str | None = None
    host_ids: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] | None = None

    def table(self, table_id: str) -> TableConfig:
        """A table by id; raises NotFoundError."""
        if table_id not in self.tables:
            raise NotFoundError(f"no table with id {table_id}")
        return self.tables[table_id]

    def table_named(self, name: str) -> TableConfig:
        """A table by name, in any state; raises NotFoundError."""
        for table in self.tables.values():
            if table.name == name:
                return table
        raise NotFoundError(f"no table {name}; the command tables lists all tables")

    def cluster(self, alias: str) -> PeerCluster:
        """A peer by alias; raises NotFoundError."""
        if alias not in self.clusters:
            raise NotFoundError(f"no cluster {alias}; define it first: definecluster {alias} HOST:PORT")
        return self.clusters[alias]

    def targets_of(self, table_id: str) -> tuple[Target, ...]:
        """Configured targets of a table, () for a missing one (rule R9)."""
        table = self.tables.get(table_id)
        return () if table is None else table.targets

    def block_targets_of(self, table_id: str) -> tuple[BlockTarget, ...]:
        """The block targets of each new block of this table (rule R13)."""
        return tuple(BlockTarget(target.key, target.groups) for target in self.targets_of(table_id))

    def replicated_tables(self) -> tuple[str, ...]:
        """Ids of the tables with at least one target, sorted."""
        return tuple(sorted(table_id for table_id, table in self.tables.items() if table.targets))


def read_config(coordination: Coordination) -> ClusterConfig:
    """Read the complete configuration at one generation. Raises CorruptionError, TransientError."""
    return parse_config(*coordination.tree())


def parse_config(generation: int, entries: Mapping[str, Versioned]) -> ClusterConfig:
    """Parse a complete tree, strictly; raises CorruptionError with the path."""
    single: dict[str, Any] = {}
    clusters: dict[str, PeerCluster] = {}
    tables: dict[str, TableConfig] = {}
    users: dict[str, tuple[str, ...]] = {}
    hosts: dict[str, HostRecord] = {}
    draining: set[str] = set()
    for path, versioned in entries.items():
        if path in _SINGLE:
            single[path] = _SINGLE[path](path, versioned.value)
        elif path.startswith(CLUSTERS):
            clusters[path_name(path, CLUSTERS)] = parse_cluster(path, versioned.value)
        elif path.startswith(TABLES):
            tables[path_name(path, TABLES)] = parse_table(path, versioned.value)
        elif path.startswith(USERS):
            users[path_name(path, USERS)] = parse_user(path, versioned.value)
        elif path.startswith(HOSTS):
            hosts[path_name(path, HOSTS)] = parse_host(path, versioned.value)
        elif path.startswith(DRAINING):
            if parse_draining(path, versioned.value):
                draining.add(path_name(path, DRAINING))
        elif not path.startswith((NAMES, COUNTERS, HOLDERS, HOST_SETTINGS)):
            raise CorruptionError(f"configuration {path}: unknown path")
    return ClusterConfig(
        generation,
        single.get(INSTANCE_PATH),
        MappingProxyType(clusters),
        MappingProxyType(tables),
        single.get(READ_ONLY_PATH, False),
        MappingProxyType(users),
        MappingProxyType({name: host.place for name, host in hosts.items()}),
        frozenset(draining),
        single.get(ELECTION_PATH),
        MappingProxyType({name: host.host_id for name, host in hosts.items() if host.host_id}),
        single.get(SETTINGS_PATH),
    )


# ---- paths


def table_path(table_id: str) -> str:
    """Path of a table's record."""
    return TABLES + quote(table_id, safe="")


def name_path(table_name: str) -> str:
    """Path of the claim of a table's name."""
    return NAMES + quote(table_name, safe="")


def cluster_path(alias: str) -> str:
    """Path of a peer's record."""
    return CLUSTERS + quote(alias, safe="")


def user_path(user: str) -> str:
    """Path of a user's record."""
    return USERS + quote(user, safe="")


def host_path(name: str) -> str:
    """Path of a host's record."""
    return HOSTS + quote(name, safe="")


def holders_path(host: str) -> str:
    """Path of the record that says which node has each session of a host."""
    return HOLDERS + quote(host, safe="")


def host_settings_path(host: str) -> str:
    """Path of the record of the settings with which a host started last."""
    return HOST_SETTINGS + quote(host, safe="")


def draining_path(host: str) -> str:
    """Path of the record that says whether a host is drained."""
    return DRAINING + quote(host, safe="")


def counter_path(name: str) -> str:
    """Path of a counter."""
    return COUNTERS + quote(name, safe="")


def path_name(path: str, prefix: str) -> str:
    """The name at the end of a path made by one of the functions above."""
    return unquote(path.removeprefix(prefix))


# ---- values


def format_json(value: object) -> bytes:
    """Compact JSON, sorted keys: equal values are equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def format_instance(instance: Instance) -> bytes:
    """Value of ``/instance``."""
    return format_json({"id": instance.instance_id, "name": instance.name})


def parse_instance(path: str, raw: bytes) -> Instance:
    """Inverse of :func:`format_instance`."""
    record = _Record(path, raw, {"id", "name"})
    return Instance(record.text("id"), record.text("name"))


def format_election(election: str) -> bytes:
    """Value of ``/election``."""
    return format_json({"election": election})


def parse_election(path: str, raw: bytes) -> str:
    """Inverse of :func:`format_election`."""
    return _Record(path, raw, {"election"}).text("election")


def format_read_only(read_only: bool) -> bytes:
    """Value of ``/read_only``; without this record users can write."""
    return format_json({"read_only": read_only})


def parse_read_only(path: str, raw: bytes) -> bool:
    """Inverse of :func:`format_read_only`."""
    read_only: bool = _Record(path, raw, {"read_only"}).member("read_only", bool)
    return read_only


def format_user(authorizations: Collection[str]) -> bytes:
    """Value of ``/users/<name>``."""
    return format_json({"authorizations": sorted(set(authorizations))})


def parse_user(path: str, raw: bytes) -> tuple[str, ...]:
    """Inverse of :func:`format_user`."""
    return _Record(path, raw, {"authorizations"}).texts("authorizations")


def format_settings(settings: Mapping[str, object]) -> bytes:
    """Value of ``/settings`` and of ``/host_settings/<host>``: by dotted name."""
    return format_json({"settings": dict(settings)})


def parse_settings(path: str, raw: bytes) -> Mapping[str, object]:
    """Inverse of :func:`format_settings`; lists in place of tuples."""
    settings: dict[str, object] = _Record(path, raw, {"settings"}).member("settings", dict)
    return MappingProxyType(settings)


def format_host(host: HostRecord) -> bytes:
    """Value of ``/hosts/<name>``."""
    return format_json({"place": host.place, **({"id": host.host_id} if host.host_id else {})})


def parse_host(path: str, raw: bytes) -> HostRecord:
    """Inverse of :func:`format_host`."""
    record = _Record(path, raw, {"place"}, {"id"})
    return HostRecord(record.text("place"), record.text("id") if record.has("id") else "")


def format_holders(nodes: Mapping[str, str]) -> bytes:
    """Value of ``/holders/<host>``: nodes by session."""
    return format_json({"nodes": dict(nodes)})


def parse_holders(path: str, raw: bytes) -> dict[str, str]:
    """Inverse of :func:`format_holders`."""
    record = _Record(path, raw, {"nodes"})
    nodes: dict[str, str] = record.member("nodes", dict)
    if not all(isinstance(node, str) for node in nodes.values()):
        raise record.error("nodes")
    return nodes


def format_draining(draining: bool) -> bytes:
    """Value of ``/draining/<host>``; a host without a record may hold replicas."""
    return format_json({"draining": draining})


def parse_draining(path: str, raw: bytes) -> bool:
    """Inverse of :func:`format_draining`."""
    draining: bool = _Record(path, raw, {"draining"}).member("draining", bool)
    return draining


def format_cluster(cluster: PeerCluster) -> bytes:
    """Value of ``/clusters/<alias>``."""
    return format_json({"quorum": cluster.quorum, "instance_id": cluster.instance_id, "name": cluster.name})


def parse_cluster(path: str, raw: bytes) -> PeerCluster:
    """Inverse of :func:`format_cluster`."""
    record = _Record(path, raw, {"quorum", "instance_id", "name"})
    alias = path_name(path, CLUSTERS)
    return PeerCluster(alias, record.text("quorum"), record.text("instance_id"), record.text("name"))


def format_table(table: TableConfig) -> bytes:
    """Value of ``/tables/<id>``."""
    return format_json(
        {
            "id": table.table_id,
            "name": table.name,
            "state": table.state,
            "groups": [
                {"name": group.name, "families": [base64.b64encode(f).decode() for f in group.families]}
                for group in table.groups
            ],
            "properties": dict(table.properties),
            "targets": [_target_json(target) for target in table.targets],
        }
    )


def parse_table(path: str, raw: bytes) -> TableConfig:
    """Inverse of :func:`format_table`."""
    record = _Record(path, raw, {"id", "name", "state", "groups", "properties", "targets"})
    table_id = record.text("id")
    if table_path(table_id) != path:
        raise record.error("id")
    properties = record.member("properties", dict)
    if not all(isinstance(value, str) for value in properties.values()):
        raise record.error("properties")
    return TableConfig(
        table_id=table_id,
        name=record.text("name"),
        state=_state(record),
        groups=tuple(_group(_Record(path, item, {"name", "families"})) for item in record.member("groups", list)),
        properties=MappingProxyType(properties),
        targets=tuple(_target(table_id, _Record(path, item, _TARGET_KEYS)) for item in record.member("targets", list)),
    )


_TARGET_KEYS = {"cluster", "remote_table_id", "remote_table", "incarnation", "groups", "peer_instance_id"}


def _target_json(target: Target) -> dict[str, object]:
    return {
        "cluster": target.key.cluster,
        "remote_table_id": target.key.remote_table_id,
        "remote_table": target.remote_table,
        "incarnation": target.key.incarnation,
        "groups": None if target.groups is None else list(target.groups),
        "peer_instance_id": target.peer_instance_id,
    }


_SINGLE: Mapping[str, Callable[[str, bytes], object]] = {
    INSTANCE_PATH: parse_instance,
    SETTINGS_PATH: parse_settings,
    ELECTION_PATH: parse_election,
    READ_ONLY_PATH: parse_read_only,
}
"""The parser of each record that is there once."""


class _Record:
    """One JSON object with these keys, and perhaps optional ones; every mismatch raises CorruptionError with the path
    and the key.
    """

    def __init__(self, path: str, raw: bytes | object, keys: set[str], optional: Collection[str] = ()) -> None:
        self._path = path
        try:
            parsed = json.loads(raw) if isinstance(raw, bytes) else raw
            format_json(parsed)  # a lone surrogate can't be written again
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict) or not keys <= set(parsed) <= keys.union(optional):
            raise CorruptionError(f"configuration {path} is not an object of {', '.join(sorted(keys))}")
        self._members: dict[str, Any] = parsed

    def error(self, key: str) -> CorruptionError:
        return CorruptionError(f"configuration {self._path}: {key} has a wrong type or value: {self._members[key]!r}")

    def member(self, key: str, kind: type[Any]) -> Any:
        value = self._members[key]
        if type(value) is not kind:
            raise self.error(key)
        return value

    def has(self, key: str) -> bool:
        return key in self._members

    def is_null(self, key: str) -> bool:
        return self._members[key] is None

    def text(self, key: str) -> str:
        value: str = self.member(key, str)
        if not value:
            raise self.error(key)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.member(key, list)
        if not all(isinstance(value, str) and value for value in values):
            raise self.error(key)
        return tuple(values)


def _state(record: _Record) -> TableState:
    if record.text("state") not in get_args(TableState):
        raise record.error("state")
    return cast(TableState, record.text("state"))


def _group(record: _Record) -> LocalityGroup:
    try:
        families = tuple(base64.b64decode(text, validate=True) for text in record.member("families", list))
    except (binascii.Error, TypeError, ValueError):
        raise record.error("families") from None
    return LocalityGroup(record.text("name"), families)


def _target(table_id: str, record: _Record) -> Target:
    groups = None if record.is_null("groups") else record.texts("groups")
    incarnation: int = record.member("incarnation", int)
    if incarnation < 1 or groups == ():
        raise record.error("incarnation" if incarnation < 1 else "groups")
    key = TargetKey(record.text("cluster"), record.text("remote_table_id"), table_id, incarnation)
    return Target(key, groups, record.text("peer_instance_id"), record.text("remote_table"))
