"""The commands ``bookkeeper init`` and ``bookkeeper standalone``: they make a cluster or a host, and run it."""

from __future__ import annotations

import tomllib
from pathlib import Path

import click
from msgspec.structs import replace

from bookkeeper.config.file import load_settings
from bookkeeper.config.sections import Settings
from bookkeeper.errors import InvalidInputError
from bookkeeper.security.private_files import keep_private
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.standalone.foreground import run_standalone
from bookkeeper.standalone.joining import join_cluster
from bookkeeper.standalone.machine_joining import join_by_zookeeper
from shell.output import Output, Record
from shell.parameters import DIRECTORY, DIRECTORY_OR_ROOT, INT_COUNT, PORT, key_value


@click.command()
@click.argument("directory", type=DIRECTORY, metavar="DIR")
@click.option("--name", help="Name of the new cluster, for people.")
@click.option(
    "--join",
    "cluster",
    type=DIRECTORY_OR_ROOT,
    metavar="CLUSTER",
    help="Make a host, not a new cluster: of the one in this directory, or of the one in ZooKeeper at "
    "zk://HOST:PORT,.../ROOT, whose hosts share no directory.",
)
@click.option(
    "--secret-file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="With --join zk://...: the file that `bookkeeper secret export` wrote on another host, mode 0600.",
)
@click.option(
    "--replace",
    "in_place",
    is_flag=True,
    help="With --join zk://... and --host: the directory of that host is lost, and DIR takes its place, empty.",
)
@click.option("--host", metavar="NAME", help="Name of the host; default: host1, with --join host2, host3, ...")
@click.option(
    "--master-port", type=PORT, help="Port of the master; default: a free port, which init writes into the settings."
)
@click.option("--tservers", type=INT_COUNT, default=1, show_default=True, help="Tablet servers to run.")
@click.option(
    "--metadata",
    "metadata_url",
    metavar="URL",
    help="hbase+zk://ZK:PORT,ZK:PORT/PREFIX, hbase://HOST:PORT/PREFIX or sqlite:///FILE.",
)
@click.option(
    "--zookeeper-password",
    "password_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="File, mode 0600, with the password of coordination.user; init copies it to the secrets of DIR.",
)
@click.option(
    "--set", "overrides", type=key_value, multiple=True, metavar="SECTION.KEY=VALUE", help="Further settings."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def init(
    directory: Path,
    name: str | None,
    cluster: Path | str | None,
    secret_file: Path | None,
    in_place: bool,
    host: str | None,
    master_port: int | None,
    tservers: int,
    metadata_url: str | None,
    password_file: Path | None,
    overrides: tuple[tuple[str, str], ...],
    as_json: bool,
) -> None:
    """Make a cluster in DIR, or with --join another host of a cluster; no process starts.

    A host has its own directory, with the settings of the cluster, its logs and its replicas. Its name belongs to that
    directory for ever. A host that joins by ZooKeeper has secrets of its own, too, and may be on another machine; the
    cluster was made with --set storage.volume=none then.
    """
    keep_private()
    further = {key: _toml_value(text) for key, text in overrides}
    if cluster is not None:
        _refuse_with_join(name, metadata_url, further)
        values = {"standalone.tservers": tservers, **further}
        if isinstance(cluster, str):
            if secret_file is None:
                raise click.UsageError("--join zk://... needs --secret-file FILE (bookkeeper secret export DIR FILE)")
            if in_place and host is None:
                raise click.UsageError("--replace needs --host NAME, the host whose directory is lost")
            settings = join_by_zookeeper(
                directory, cluster, secret_file, host, master_port, values, password_file, in_place=in_place
            )
        elif secret_file is not None or password_file is not None or in_place:
            raise click.UsageError(
                "--secret-file, --zookeeper-password and --replace go with --join zk://..., not with a directory"
            )
        else:
            settings = join_cluster(directory, cluster, host, master_port, values)
        text = f"host {settings.host.name} of cluster {settings.instance.name} made in {settings.directory}"
    else:
        if secret_file is not None or in_place:
            raise click.UsageError("--secret-file and --replace go with --join zk://...: a new cluster is on its own")
        if name is None:
            raise click.UsageError("a new cluster needs --name NAME, a host of an existing one --join CLUSTER")
        own_host = {} if host is None else {"host.name": host}
        settings = init_cluster(
            directory, name, master_port, tservers, metadata_url, {**own_host, **further}, password_file
        )
        text = f"cluster {name} made in {settings.directory}; its quorum is {settings.quorum}"
    Output(as_json).result(f"{text}; start it: bookkeeper standalone {directory}", _init_record(settings))


def _refuse_with_join(name: str | None, metadata_url: str | None, further: dict[str, object]) -> None:
    if name is not None or metadata_url is not None:
        raise click.UsageError("--name and --metadata are for a new cluster; a host has those of the cluster it joins")
    if named := sorted({"host.name", "host.cluster"} & further.keys()):
        raise InvalidInputError(f"--set {named[0]} goes with no --join; name the host with --host NAME")


def _init_record(settings: Settings) -> Record:
    return {
        "directory": str(settings.directory),
        "name": settings.instance.name,
        "instance_id": settings.instance.instance_id,
        "host": settings.host.name,
        "cluster": str(settings.cluster_directory),
        "quorum": settings.quorum,
        "tservers": settings.standalone.tservers,
        "metadata": settings.metadata_url,
    }


@click.command()
@click.argument("directory", type=DIRECTORY, metavar="DIR")
@click.option(
    "--hosts",
    type=click.IntRange(1, 16),
    help="Hosts to run on this machine: the one in DIR, and others in DIR/hosts, which it makes when they are missing; "
    "default: standalone.hosts of the settings.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def standalone(directory: Path, hosts: int | None, as_json: bool) -> None:
    """Run the cluster in DIR until Ctrl-C or SIGTERM: one master, its tablet servers, one replay process.

    In the directory of a host that has joined a cluster it runs that host: a master, which leads when the first one is
    away, and its tablet servers. It prints a line when the cluster answers with all tablet servers, and a line whenever
    it restarts a process.
    """
    output, settings = Output(as_json), load_settings(directory)
    if hosts is not None:
        chosen = replace(settings.standalone, hosts=hosts)
        settings = replace(settings, standalone=chosen)
    run_standalone(settings, lambda text: output.line({"message": text}, text))


def _toml_value(text: str) -> object:
    """The value of a setting as TOML; text that is not TOML is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
