"""Commands about the settings file of a cluster: ``config check`` and ``config show``. They start and change nothing.

``check`` prints every problem of the settings file and the stores that it names. ``show`` prints the settings with
which processes would start now.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import SETTINGS_FILE, Problem, check_settings, load_settings
from bookkeeper.config.sections import Sections, Settings
from bookkeeper.config.setting import SettingFacts, explain
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.embedded import COORDINATION_FILE
from bookkeeper.coordination.host_starts import refuse_older_store
from bookkeeper.coordination.shared_settings import replace_settings, unlike_hosts
from bookkeeper.errors import BookkeeperError, RefusedError
from bookkeeper.metadata.flight import LAST_RETRY_MS
from bookkeeper.security.exposure import refuse_plaintext
from bookkeeper.standalone.books import REQUEST_MS, RETRY_MS, check_books, check_writes
from bookkeeper.standalone.directory import refuse_missing_secrets
from bookkeeper.standalone.hbase.books_table import DURABILITY, FSYNC, check_settings_of_table, table_settings
from bookkeeper.standalone.hbase.gateway import gateway_for
from bookkeeper.standalone.one_machine import refuse_network
from bookkeeper.storage.replicas.host_store import read_starts
from shell.failures import ExitCode
from shell.output import Output, Record

_DIRECTORY = click.argument("directory", type=click.Path(path_type=Path), metavar="DIR")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def config() -> None:
    """Check and print the settings of a cluster; it need not run."""


@config.command()
@_DIRECTORY
@_JSON
def check(directory: Path, as_json: bool) -> int:
    """Check the settings file in DIR, its addresses and its books.

    It warns of hosts on other machines that started with other settings. Exit code 0 when processes would start.
    Otherwise exit code 1, and a line for each problem: file, key, reason, next step.
    """
    output, problems, notes = Output(as_json), check_settings(directory), list[str]()
    if not problems:
        settings = load_settings(directory)
        problems, notes = check_exposure(settings) + check_stores(settings), [foreign_gateway(settings)]
        if not problems and settings.hbase_quorum:
            problems, note = check_table(settings)
            notes = [note]
        if not problems:
            notes += compare_hosts(settings)
    file = directory.absolute() / SETTINGS_FILE
    for note in filter(None, notes if not problems else ()):
        output.warning(note, {"file": str(file)})
    if not problems or as_json:
        output.result(f"{file}: no problem", {"file": str(file), "problems": [_problem_record(p) for p in problems]})
    else:
        for problem in problems:
            click.echo(f"{file}: {problem.text}; {problem.next_step}")
    return ExitCode.FAILED if problems else ExitCode.OK


def foreign_gateway(settings: Settings) -> str:
    """What the books rest on when others run the Thrift gateway; "" when nobody does."""
    if not settings.metadata.url.startswith("hbase:"):
        return ""
    return (
        f"metadata.url: the Thrift gateway of {settings.metadata.url} is run by others: nobody may stop it for longer "
        f"than {LAST_RETRY_MS // 1000} s and let it go on (rule R4); with hbase+zk:// this host runs one of its own"
    )


def compare_hosts(settings: Settings) -> list[str]:
    """A line for each host that started with other settings; none where hosts share a directory."""
    if settings.coordination_dir is not None:
        return []
    with closing(open_coordination(settings)) as coordination:
        found = unlike_hosts(coordination, settings)
    return [f"{host} started with other settings: {'; '.join(lines)}" for host, lines in found.items()]


def check_exposure(settings: Settings) -> list[Problem]:
    """Problems with the addresses at which the settings let processes listen."""
    try:
        refuse_plaintext(settings)
    except RefusedError as error:
        reason, _, step = error.message.partition("; ")
        return [_problem(settings, "security.beyond_loopback", reason, step)]
    return []


def check_stores(settings: Settings) -> list[Problem]:
    """Problems of the stores that the settings name, as a process finds them at its start; they may be in use."""
    embedded = settings.coordination_dir
    try:
        refuse_network(settings)
    except RefusedError as error:
        reason, _, step = error.message.partition("; ")
        return [_problem(settings, "coordination.url", reason, step)]
    if embedded is not None and not (embedded / COORDINATION_FILE).is_file():
        reason = f"there is no coordination store in {embedded}"
        return [_problem(settings, "coordination.url", reason, "restore the directory of the cluster")]
    if embedded is None and (problem := check_zookeeper(settings)) is not None:
        return [problem]
    request_ms = REQUEST_MS if settings.hbase_quorum else RETRY_MS  # a gateway that starts now is slow at first
    try:
        with gateway_for(settings, SystemClock()), closing(open_coordination(settings)) as coordination:
            if (problem := check_starts(settings, coordination)) is not None:
                return [problem]
            check_books(settings, coordination, request_ms=request_ms)
            check_writes(settings, request_ms=request_ms)
    except BookkeeperError as error:
        reason, _, step = error.message.partition("; ")
        return [_problem(settings, "metadata.url", reason, step or "make the store answer")]
    return []


def check_zookeeper(settings: Settings) -> Problem | None:
    """The problem of a store in ZooKeeper, as a start finds it; None when there is none."""
    try:
        refuse_missing_secrets(settings)
        open_coordination(settings).close()
    except BookkeeperError as error:
        reason, _, step = error.message.rpartition(": ")
        return _problem(settings, "coordination.url", reason, step)
    return None


def check_starts(settings: Settings, coordination: Coordination) -> Problem | None:
    """The problem of a coordination store that is older than the disk of this host; None when it is not."""
    try:
        refuse_older_store(coordination, settings.host.name, read_starts(settings.replicas_dir))
    except RefusedError as error:
        reason, _, step = error.message.partition("; ")
        return _problem(settings, "coordination.url", reason, step)
    return None


def check_table(settings: Settings) -> tuple[list[Problem], str]:
    """Problems of the HBase table of the books, and what its safety rests on; "" when that is the table itself."""
    try:
        found = table_settings(settings)
        check_settings_of_table(settings, found)
    except BookkeeperError as error:
        reason, _, step = error.message.partition("; ")
        return [_problem(settings, "metadata.url", reason, step or "make the store answer")], ""
    if found.is_synced:
        return [], ""
    return [], (
        f"metadata.url: the table does not ask that writes are on disks before HBase acknowledges them ({DURABILITY} = "
        f"{FSYNC}): a power failure of all its datanodes takes acknowledged ones, unless hbase.wal.hsync = true at "
        "each region server"
    )


@config.command()
@_DIRECTORY
@_JSON
def share(directory: Path, as_json: bool) -> None:
    """Record the settings in DIR that all hosts have in common as those of the cluster in ZooKeeper.

    A host with others does not start. So to change one of them, stop all hosts, set the same in the bookkeeper.toml of
    each, share it from one of them, and start all. Hosts with an embedded coordination store share one directory.
    """
    settings = load_settings(directory)
    if settings.coordination_dir is not None:
        raise RefusedError(
            f"the hosts of {settings.instance.name} compare their settings with those of "
            f"{settings.cluster_directory / SETTINGS_FILE}: there is nothing to share"
        )
    with closing(open_coordination(settings)) as coordination:
        changed = replace_settings(coordination, settings)
    text = "\n".join(changed) or "the cluster has these settings already"
    Output(as_json).result(text, {"directory": str(settings.directory), "changed": changed})


def _problem(settings: Settings, key: str, reason: str, next_step: str) -> Problem:
    return Problem(settings.directory / SETTINGS_FILE, key, reason, next_step)


def _problem_record(problem: Problem) -> Record:
    return {
        "file": str(problem.file),
        "key": problem.key or None,
        "reason": problem.reason,
        "next_step": problem.next_step,
    }


@config.command()
@_DIRECTORY
@click.option("--all", "show_all", is_flag=True, help="Print settings with their default, too.")
@_JSON
def show(directory: Path, show_all: bool, as_json: bool) -> None:
    """Print the settings in DIR that differ from their default, with unit and meaning."""
    settings = load_settings(directory)
    rows = [_setting_record(settings, facts) for facts in explain(Sections)]
    shown = [row for row in rows if show_all or row["value"] != row["default"]]
    Output(as_json).records(
        shown, ("setting", "value", "unit", "default", "meaning"), "all settings have their defaults"
    )


def _setting_record(settings: Settings, facts: SettingFacts) -> Record:
    return {
        "setting": facts.name,
        "value": getattr(getattr(settings, facts.section), facts.key),
        "unit": facts.unit or None,
        "default": facts.default,
        "meaning": facts.meaning,
        "why": facts.why or None,
        "least": facts.least,
        "most": facts.most,
        "choices": list(facts.choices) or None,
    }
