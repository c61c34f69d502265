"""``init DIR --join zk://...``: makes a host on a machine that shares no directory with the other hosts.

The host takes the settings that all hosts have in common from the configuration tree, and the identity of the cluster
and its secrets from a file that the operator carries over (:mod:`bookkeeper.security.join_file`). All else is its own:
ports, secrets, logs, replicas. :func:`join_by_zookeeper` checks everything first, the books too. Then it makes the id
of the host, claims its name, and writes the settings file last, which claims the directory: a join that is interrupted
in between is repeated, and has its name again.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import new_settings, settings_of_host, write_settings
from bookkeeper.config.host_id import HOST_ID_FILE, make_host_id, read_host_id
from bookkeeper.config.sections import Settings, hbase_quorum
from bookkeeper.coordination.config_tree import ClusterConfig, read_config
from bookkeeper.coordination.connect import keep_password, open_zookeeper
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.host_names import claim_any_name, claim_name, replace_host
from bookkeeper.errors import ExistsError, InvalidInputError, NotFoundError, RefusedError
from bookkeeper.security.join_file import JoinFile, read_join_file
from bookkeeper.security.private_files import DIRECTORY_MODE
from bookkeeper.security.secret_store import SECRETS_DIR
from bookkeeper.standalone.books import check_books
from bookkeeper.standalone.hbase.gateway import GATEWAY_PORT, gateway_for
from bookkeeper.standalone.joining import refuse_place
from bookkeeper.standalone.ports import free_ports

_FRESH_DISK = {"lost+found"}
_OF_A_JOIN = _FRESH_DISK | {HOST_ID_FILE, f".{HOST_ID_FILE}", SECRETS_DIR}
"""What a join that was interrupted may have left."""

NEW_CLUSTER = (
    "a cluster with hosts on several machines begins with: bookkeeper init DIR --name NAME --set storage.volume=none "
    "--set coordination.url=zk://... --metadata hbase+zk://..."
)


def join_by_zookeeper(
    directory: Path | str,
    url: str,
    secret_file: Path,
    name: str | None = None,
    master_port: int | None = None,
    overrides: Mapping[str, object] | None = None,
    password_file: Path | None = None,
    *,
    in_place: bool = False,
) -> Settings:
    """Make a host of the cluster below ``url`` (``zk://HOST:PORT,.../ROOT``), and return its settings. Without ``name``
    it is the first free one of ``host2``, ``host3`` and so on. ``in_place``: the directory of the host ``name`` is
    lost, and the new one takes its place. ``password_file`` has the password of the user of ZooKeeper that
    ``secret_file`` names, and is copied to the secrets.

    Changes nothing when it raises RefusedError (a file that others can read, a cluster whose hosts must share a
    directory, a root of another cluster, a host to replace that lives), NotFoundError (a file, the root, Java, the host
    to replace), InvalidInputError (a bad value, or a setting that differs from that of the cluster), ExistsError (the
    directory is used, or the name belongs to another host), CorruptionError, or TransientError (a store does not
    answer).
    """
    home, join, given = Path(directory).absolute(), read_join_file(secret_file), dict(overrides or {})
    refuse_place(home)
    first = _settings_to_look(home, url, join, given)
    with closing(open_zookeeper(first, password_file=password_file)) as coordination:
        config = read_config(coordination)
        shared = shared_of(config, join)
        ports = _own_ports(shared, master_port)
        values = {**ports, **given, "coordination.url": url}
        settings = settings_of_host(shared, home, name or "host2", values)
        with gateway_for(settings, SystemClock()):
            check_books(settings, coordination)
        _refuse_files(home)
        try:
            name = _claim(coordination, home, name, in_place)
            join.write_secrets(home)
            keep_password(settings, password_file)
            settings = settings_of_host(shared, home, name, values)
            write_settings(settings)
            settings.logs_dir.mkdir(mode=DIRECTORY_MODE, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(f"{home} can't hold a host ({error.strerror}); choose another directory") from error
    return settings


def _settings_to_look(home: Path, url: str, join: JoinFile, given: Mapping[str, object]) -> Settings:
    """Settings that open the coordination store, and nothing else. Raises InvalidInputError."""
    access = {key: value for key, value in given.items() if key.startswith("coordination.")}
    named = {"coordination.store_id": join.store_id, "coordination.user": join.user, **access, "coordination.url": url}
    return new_settings(home, join.name, instance_id=join.instance_id, overrides=named)


def shared_of(config: ClusterConfig, join: JoinFile) -> dict[str, object]:
    """The settings that all hosts have in common, by dotted name. Raises RefusedError when no host of another machine
    can join the cluster, or the file is of another cluster.
    """
    if config.instance is None or config.instance.instance_id != join.instance_id or config.settings is None:
        found = "no cluster" if config.instance is None else f"instance {config.instance.instance_id}"
        raise RefusedError(
            f"the secrets are of instance {join.instance_id}, and this root has {found}: name the root of "
            f"{join.name}, or a file that was made on one of its hosts"
        )
    shared = {**config.settings, **({"replicas.election": config.election} if config.election else {})}
    reasons = []
    if str(shared.get("metadata.url")).startswith("sqlite:"):
        reasons.append("its books are a file of SQLite, which no other machine reaches")
    if shared.get("storage.volume") != "none":
        reasons.append("its logs and tables lie in the directory of its first host (storage.volume)")
    if reasons:
        raise RefusedError(
            f"{join.name} takes hosts of one machine alone (init DIR --join DIRECTORY): {' and '.join(reasons)}; "
            f"{NEW_CLUSTER}"
        )
    return shared


def _own_ports(shared: Mapping[str, object], master_port: int | None) -> dict[str, object]:
    free_port, monitor_port, gateway_port = free_ports(3)
    ports: dict[str, object] = {
        "master.port": free_port if master_port is None else master_port,
        "monitor.port": monitor_port,
        "storage.logs": "host",
    }
    return ports | ({GATEWAY_PORT: gateway_port} if hbase_quorum(str(shared.get("metadata.url"))) else {})


def _claim(coordination: Coordination, home: Path, name: str | None, in_place: bool) -> str:
    """Make the id of the host, and claim its name. A name that is refused leaves no id behind."""
    is_new = read_host_id(home) is None
    host_id = make_host_id(home)
    try:
        if name is None:
            return claim_any_name(coordination, str(home), host_id)
        claim = replace_host if in_place else claim_name
        claim(coordination, name, str(home), host_id)
    except (ExistsError, NotFoundError, RefusedError):
        if is_new:
            (home / HOST_ID_FILE).unlink()
        raise
    return name


def _refuse_files(home: Path) -> None:
    """Raise ExistsError unless the directory is empty, or what an interrupted join left."""
    if not home.is_dir():
        return
    allowed = _FRESH_DISK if read_host_id(home) is None else _OF_A_JOIN
    others = {path.name for path in home.iterdir()} - allowed
    if others:
        raise ExistsError(f"{home} is not empty ({', '.join(sorted(others)[:3])}); choose an empty directory")
