"""The context of all operations (stores, tservers, peers, settings), and the decoding of their JSON arguments."""

from __future__ import annotations

import logging
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Sequence
from typing import cast

from msgspec import Struct

from bookkeeper.clock import Clock, SteadyWall
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_tree import ClusterConfig, TableConfig
from bookkeeper.errors import NotFoundError, UnavailableError, unavailable
from bookkeeper.master.calls.peer_masters import PeerMasters
from bookkeeper.master.calls.tservers import TServers
from bookkeeper.master.fate.engine import Args
from bookkeeper.master.reign.reign_stores import ReignStores
from bookkeeper.metadata.values import Json
from bookkeeper.model import LocalityGroup
from bookkeeper.security.file_roots import FileRoots
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.storage.tablet.tablet_settings import BatchLimits
from bookkeeper.storage.volume.volume_protocol import Volume

LOG = logging.getLogger(__name__)


class OperationSettings(Struct, frozen=True):
    """The settings that operations need, and the secrets for peers. Imports and exports may use the directories of
    ``files``. ``has_volume``: all hosts reach a common Volume.
    """

    own_instance_id: str
    stream_grace_ms: int
    paths_apart_ms: float
    batch_limits: BatchLimits
    files: FileRoots
    repair_after_ms: float
    has_volume: bool
    secrets: SecretStore

    @classmethod
    def of(cls, settings: Settings) -> OperationSettings:
        """From the settings of a cluster."""
        return cls(
            own_instance_id=settings.instance.instance_id,
            stream_grace_ms=stream_grace_ms(settings),
            paths_apart_ms=settings.tserver.paths_apart_ms,
            batch_limits=batch_limits(settings),
            files=FileRoots.of(settings),
            repair_after_ms=settings.replicas.repair_after_ms,
            has_volume=settings.storage.volume != "none",
            secrets=SecretStore(settings.cluster_directory),
        )


class MasterHooks(Struct, frozen=True):
    """Callbacks of operations into the other parts of the master.

    ``wake`` starts a full cycle. ``repair`` begins the next steps of the repair of replicas. ``tablets_changed`` makes
    the master's thread read the tablets from one row key (included) to another (excluded) again, after the operation
    has written them. ``let_go`` stops the placement of the tablets of these rows before it returns. ``begin`` begins
    another operation (kind, arguments).
    """

    wake: Callable[[], None]
    repair: Callable[[], None]
    tablets_changed: Callable[[bytes, bytes], None]
    let_go: Callable[[Collection[bytes]], None]
    begin: Callable[[str, Args], object]


class Context(Struct, frozen=True):
    """The stores, clients, clocks and settings of operations. ``age_clock`` measures the age of data that an operation
    deletes for its age. Thread-safe.
    """

    stores: ReignStores
    tservers: TServers
    peers: PeerMasters
    clock: Clock
    age_clock: SteadyWall
    settings: OperationSettings
    hooks: MasterHooks

    def config(self) -> ClusterConfig:
        """The configuration now. Raises TransientError, CorruptionError."""
        return self.stores.config()


def batch_limits(settings: Settings) -> BatchLimits:
    """The limits of an imported record: those of a written one."""
    tserver = settings.tserver
    return BatchLimits(
        tserver.row_bytes_max,
        tserver.row_bytes_max,
        tserver.value_bytes_max,
        future_ms=tserver.future_timestamp_max_ms,
    )


def stream_grace_ms(settings: Settings) -> int:
    """Rule R20: no message of a stream lives longer than its session's idle timeout, a lease and the margin."""
    coordination = settings.coordination
    return settings.tserver.stream_idle_timeout_ms + coordination.session_lease_ms + coordination.session_margin_ms


def text(args: Args, name: str) -> str:
    """A text argument."""
    return cast(str, args[name])


def texts(args: Args, name: str) -> list[str]:
    """A list of texts."""
    return [cast(str, item) for item in cast("list[Json]", args[name])]


def number(args: Args, name: str) -> int:
    """A whole number."""
    return cast(int, args[name])


def optional_texts(args: Args, name: str) -> list[str] | None:
    """A list of texts, or None."""
    return None if args[name] is None else texts(args, name)


def encode_bytes(values: Collection[bytes]) -> list[Json]:
    """Bytes as base64 texts of JSON."""
    return [b64encode(value).decode() for value in values]


def decode_bytes(values: Sequence[str]) -> list[bytes]:
    """Inverse of :func:`encode_bytes`."""
    return [b64decode(value) for value in values]


def encode_groups(groups: Sequence[LocalityGroup]) -> list[Json]:
    """Locality groups as JSON."""
    return [{"name": group.name, "families": encode_bytes(group.families)} for group in groups]


def decode_groups(args: Args) -> list[LocalityGroup]:
    """Inverse of :func:`encode_groups`, from the argument ``groups``."""
    items = cast("list[dict[str, Json]]", args["groups"])
    return [LocalityGroup(text(item, "name"), tuple(decode_bytes(texts(item, "families")))) for item in items]


def online_table(config: ClusterConfig, name: str) -> TableConfig:
    """The table of this name. Raises NotFoundError if there is none, or if it is being created or deleted."""
    table = config.table_named(name)
    if table.state != "online":
        raise NotFoundError(f"table {name} is not online ({table.state}); try again later")
    return table


def check_group_names(table: TableConfig, groups: Collection[str]) -> None:
    """Raise NotFoundError on a group that the table does not have."""
    unknown = sorted(set(groups) - set(table.group_names()))
    if unknown:
        raise NotFoundError(
            f"table {table.name} has no locality group {', '.join(unknown)}; it has {', '.join(table.group_names())}"
        )


def remove_files(volume: Volume, directory: str) -> None:
    """Delete every file below a directory that no attempt of an operation uses any more. Raises UnavailableError."""
    try:
        volume.remove_tree(directory)
    except OSError as error:
        raise unavailable(f"the files in {directory} can't be deleted", error) from error


def drop_files(volume: Volume, directory: str) -> None:
    """As :func:`remove_files` for an operation that fails: an error is logged, because the operation must end."""
    try:
        remove_files(volume, directory)
    except UnavailableError as error:
        LOG.warning("%s: it takes disk space until its table is deleted", error.message)
