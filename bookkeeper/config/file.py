"""The settings file of a cluster: reads it, writes a new one, and lists the problems of one.

Only ``bookkeeper init`` writes the file, atomically; no process changes it. Reading returns :class:`Settings`, or every
:class:`Problem` of the file with its place, its reason and the next step.
"""

from __future__ import annotations

import difflib
import json
import os
import textwrap
import tomllib
import uuid
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert
from msgspec.structs import asdict

from bookkeeper.config.sections import Sections, Settings
from bookkeeper.config.setting import Section, expected, explain, fields_of, is_section
from bookkeeper.durable_files import sync_directory
from bookkeeper.errors import ExistsError, InvalidInputError, NotFoundError

SETTINGS_FILE = "bookkeeper.toml"
SHARED = ("instance", "metadata", "coordination", "security", "replication", "files")
"""Sections that all hosts of a cluster have in common."""
SHARED_SETTINGS = ("replicas.election", "storage.volume")
"""Settings of other sections that all hosts have in common."""

OF_A_MACHINE = (
    "coordination.url",
    "coordination.tls_ca",
    "coordination.tls_certificate",
    "coordination.tls_key",
    "security.tls_certificate",
    "security.tls_key",
    "security.tls_ca",
    "files.roots",
)
"""Settings of shared sections that hosts on several machines may have different: addresses of servers, and files."""

OF_A_HOST = (
    "host.",
    "standalone.",
    "rpc.bind_host",
    "rpc.announced_host",
    "master.host",
    "master.port",
    "master.announced_",
    "monitor.host",
    "monitor.port",
    "monitor.announced_",
    "tserver.port",
    "tserver.announced_",
    "replay.port",
)
"""The beginnings of the names of settings that each host has for itself."""

_COMMENT_WIDTH = 100


class Problem(Struct, frozen=True):
    """One problem of a settings file. ``key`` is ``section.key``, a section, or "" for the complete file."""

    file: Path
    key: str
    reason: str
    next_step: str

    @property
    def text(self) -> str:
        """One line without the file."""
        return f"{self.key}: {self.reason}" if self.key else self.reason


def new_settings(
    directory: Path | str,
    name: str,
    *,
    instance_id: str | None = None,
    master_port: int | None = None,
    tservers: int = 1,
    metadata_url: str | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Settings:
    """The settings of a new cluster; writes nothing. Raises InvalidInputError on a bad value.

    ``overrides`` are further settings by their dotted names (``{"tserver.wal_roll_bytes": 1048576}``).
    """
    arguments: dict[str, object] = {
        "instance.name": name,
        "instance.instance_id": instance_id or str(uuid.uuid4()),
        "standalone.tservers": tservers,
    }
    if master_port is not None:
        arguments["master.port"] = master_port
    if metadata_url is not None:
        arguments["metadata.url"] = metadata_url
    data: dict[str, Any] = {}
    _override(data, {**arguments, **(overrides or {})})
    home = Path(directory).absolute()
    settings = _validated(data, home)
    if isinstance(settings, Settings):
        return settings
    raise InvalidInputError(f"a new cluster: {'; '.join(found.text for found in settings)}; correct the arguments")


def load_settings(directory: Path | str) -> Settings:
    """The settings in ``DIR/bookkeeper.toml``. Raises NotFoundError, InvalidInputError with all problems in a line."""
    settings = read_settings(directory)
    if isinstance(settings, Settings):
        return settings
    (first, *_) = settings
    if not first.file.is_file():
        raise NotFoundError(f"{first.reason}; {first.next_step}")
    raise InvalidInputError(f"{first.file}: {'; '.join(found.text for found in settings)}; {_next_step(settings)}")


def left_out(directory: Path | str) -> list[str]:
    """The kinds of processes that `standalone` does not start in ``DIR``; none when its settings can't be read."""
    settings = read_settings(directory)
    if not isinstance(settings, Settings):
        return []
    return [kind for kind in ("master", "tserver", "replay") if kind not in settings.standalone.processes]


def check_settings(directory: Path | str) -> list[Problem]:
    """The problems of ``DIR/bookkeeper.toml``; none when processes can start with it."""
    settings = read_settings(directory)
    return [] if isinstance(settings, Settings) else settings


def read_settings(directory: Path | str) -> Settings | list[Problem]:
    """The settings in ``DIR/bookkeeper.toml``, or all problems of that file. The cluster that a host has joined must be
    there, and agree with it on :data:`SHARED` sections and :data:`SHARED_SETTINGS`.
    """
    settings = _read_file(Path(directory).absolute())
    if isinstance(settings, Settings) and (problems := joining_problems(settings)):
        return problems
    return settings


def _read_file(home: Path) -> Settings | list[Problem]:
    path = home / SETTINGS_FILE
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return [Problem(path, "", f"no {SETTINGS_FILE} in {home}", "make a cluster there with: bookkeeper init DIR")]
    except OSError as error:
        return [Problem(path, "", f"it can't be read ({error.strerror})", "correct its permissions")]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        return [Problem(path, "", f"it is not TOML ({_one_line(str(error))})", "correct the file")]
    return _validated(data, home)


def joining_problems(settings: Settings) -> list[Problem]:
    """The problems between a host and the cluster that it has joined; none for the first host of a cluster."""
    if not settings.host.cluster:
        return []
    path, home = settings.directory / SETTINGS_FILE, settings.cluster_directory
    cluster = _read_file(home)
    step = "name the directory of this host's cluster"
    if not isinstance(cluster, Settings):
        return [Problem(path, "host.cluster", f"{home} is no cluster ({cluster[0].text})", step)]
    if cluster.host.cluster:
        reason = f"{home} is no cluster, but a host of the one in {cluster.cluster_directory}"
        return [Problem(path, "host.cluster", reason, step)]
    return [
        Problem(path, facts.name, f"it is {here}, and {there} in {home / SETTINGS_FILE}", "make both the same")
        for facts in explain(Sections)
        if (facts.section in SHARED or facts.name in SHARED_SETTINGS)
        and (here := _value(settings, facts.section, facts.key)) != (there := _value(cluster, facts.section, facts.key))
    ]


def _value(settings: Sections, section: str, key: str) -> str:
    return json.dumps(getattr(getattr(settings, section), key), ensure_ascii=False)


def joined_settings(
    cluster: Settings, directory: Path | str, name: str, overrides: Mapping[str, object] | None = None
) -> Settings:
    """The settings of a new host of ``cluster``: those of its first host, with ``overrides`` by dotted name. Writes
    nothing. Raises InvalidInputError on a bad value, and on another value of a setting that hosts have in common.
    """
    home = Path(directory).absolute()
    nested = home.is_relative_to(cluster.directory)
    where = os.path.relpath(cluster.directory, home) if nested else str(cluster.directory)
    data = {section: asdict(getattr(cluster, section)) for section in fields_of(Sections)}
    _override(
        data, {"host.name": name, "host.zone": "", "host.cluster": where, "standalone.hosts": 1, **(overrides or {})}
    )
    settings = _validated(data, home)
    problems = joining_problems(settings) if isinstance(settings, Settings) else settings
    if isinstance(settings, Settings) and not problems:
        return settings
    raise InvalidInputError(f"a new host: {'; '.join(found.text for found in problems)}; correct the arguments")


def all_values(settings: Sections) -> dict[str, object]:
    """The values of all settings by dotted name, as JSON has them: lists for tuples."""
    values = {facts.name: getattr(getattr(settings, facts.section), facts.key) for facts in explain(Sections)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def shared_values(settings: Sections) -> dict[str, object]:
    """Those of :data:`SHARED` and :data:`SHARED_SETTINGS`."""
    return {name: value for name, value in all_values(settings).items() if is_shared(name)}


def is_shared(name: str) -> bool:
    """Whether all hosts have the setting of this dotted name in common."""
    return name.partition(".")[0] in SHARED or name in SHARED_SETTINGS


def settings_of_host(
    shared: Mapping[str, object], directory: Path | str, name: str, overrides: Mapping[str, object]
) -> Settings:
    """The settings of a new host on another machine: ``shared`` by dotted name, ``overrides``, else defaults. Writes
    nothing. Raises InvalidInputError on a bad value, and on another value of a setting that hosts have in common.
    """
    data: dict[str, Any] = {}
    _override(data, {**shared, "host.name": name, **overrides})
    settings = _validated(data, Path(directory).absolute())
    if not isinstance(settings, Settings):
        raise InvalidInputError(f"a new host: {'; '.join(found.text for found in settings)}; correct the arguments")
    if other := different(shared_values(settings), shared):
        raise InvalidInputError(f"a new host: {'; '.join(other)}; all hosts have the same: correct the arguments")
    return settings


def unlike(own: Mapping[str, object], other: Mapping[str, object]) -> list[str]:
    """As :func:`different` for the settings of another host, but for those that are of one host: its name, its
    addresses, its processes.
    """
    names = [name for name in other if not name.startswith(OF_A_HOST)]
    return different(own, {name: other[name] for name in names})


def different(own: Mapping[str, object], shared: Mapping[str, object]) -> list[str]:
    """A line for each setting with another value than all hosts have in common; :data:`OF_A_MACHINE` may differ. A
    setting that one side lacks is of another version, and says nothing.
    """
    return [
        f"{name} is {json.dumps(own[name], ensure_ascii=False)} here, and {json.dumps(value, ensure_ascii=False)} there"
        for name, value in sorted(shared.items())
        if name in own and name not in OF_A_MACHINE and own[name] != value
    ]


def _override(data: dict[str, Any], values: Mapping[str, object]) -> None:
    """Put values by their dotted names into sections. Raises InvalidInputError for a name of another form."""
    for dotted, value in values.items():
        section, _, key = dotted.rpartition(".")
        level = data.setdefault(section, {}) if section else data
        if not isinstance(level, dict) or not key:
            raise InvalidInputError(f"{dotted!r} does not name a setting; write SECTION.KEY")
        level[key] = value


def write_settings(settings: Settings) -> Path:
    """Write the file of a new cluster, atomically, with a comment above each key. Raises ExistsError."""
    path = settings.directory / SETTINGS_FILE
    settings.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = settings.directory / f".{SETTINGS_FILE}.{uuid.uuid4().hex}"
    try:
        with temporary.open("x", encoding="utf-8") as out:
            out.write(format_settings(settings))
            out.flush()
            os.fsync(out.fileno())
        os.link(temporary, path)
    except FileExistsError:
        raise ExistsError(f"{path} exists: there is a cluster already; choose another directory") from None
    finally:
        temporary.unlink(missing_ok=True)
    sync_directory(settings.directory)
    return path


def format_settings(settings: Sections) -> str:
    """TOML text of all sections, a comment above each key; :func:`load_settings` reads it back unchanged."""
    lines = ["# Settings of one cluster. Processes read them when they start."]
    section = ""
    for facts in explain(Sections):
        if facts.section != section:
            section = facts.section
            lines += ["", f"[{section}]"]
        lines += _comment_lines(facts.comment)
        value = getattr(getattr(settings, section), facts.key)
        lines.append(f"{facts.key} = {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


@cache
def _comment_lines(text: str) -> tuple[str, ...]:
    """A comment, wrapped. Wrapping took half of the time of a new cluster's file."""
    return tuple(
        textwrap.wrap(text, _COMMENT_WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    )


def _validated(data: dict[str, Any], directory: Path) -> Settings | list[Problem]:
    try:
        sections = convert(data, Sections)
    except ValidationError:  # of the first problem; the operator gets all of them
        return [Problem(directory / SETTINGS_FILE, *found) for found in _problems("", Sections, data)]
    return Settings(directory=directory, **{name: getattr(sections, name) for name in fields_of(Sections)})


def _problems(section: str, kind: type[Section], data: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Key, reason and next step of every problem of a section, or of all sections (``section`` empty). Its values are
    compared with each other once each of them is right.
    """
    fields, found = fields_of(kind), False
    required = kind.__struct_fields__[: len(fields) - len(kind.__struct_defaults__)]
    for name in dict.fromkeys([*fields, *data]):
        where = f"{section}.{name}" if section else name
        problem = None
        if name not in fields:
            problem = where, f"unknown setting, {_hint(where)}", "rename it or take it out"
        elif name not in data:
            problem = (where, "it is missing", "add it") if name in required else None
        elif is_section(fields[name]) and not isinstance(data[name], dict):
            problem = where, f"it must be a section: [{name}]", "correct the file"
        elif is_section(fields[name]):
            nested = list(_problems(name, fields[name], data[name]))
            found = found or bool(nested)
            yield from nested
        elif reason := _reason(data[name], fields[name]):
            problem = where, reason, "correct the value"
        if problem is not None:
            found = True
            yield problem
    if not found and (reason := _reason(data, kind)):
        yield section, reason, "correct the value"


def _reason(value: object, kind: Any) -> str:
    """Why a value is not of this kind; empty when it is."""
    try:
        convert(value, kind)
    except ValidationError as error:
        if is_section(kind):
            return _one_line(str(error))  # of its __post_init__
        return f"it must be {expected(kind)}"
    return ""


def _hint(where: str) -> str:
    """The nearest known setting: the same key in another section, or else a similar key in its section, or in any."""
    names = [facts.name for facts in explain(Sections)]
    section, _, key = where.rpartition(".")
    siblings = [name for name in names if name.startswith(f"{section}.")] if section else list(fields_of(Sections))
    own, keys = _by_key(siblings), _by_key(names)
    near = (
        [name for name in names if name.endswith(f".{key}")]
        or [own[like] for like in difflib.get_close_matches(key, own, n=1, cutoff=0.5)]
        or [keys[like] for like in difflib.get_close_matches(key, keys, n=1, cutoff=0.7)]
    )
    return f"did you mean {near[0]}?" if near else f"known are {', '.join(siblings)}"


def _by_key(names: list[str]) -> dict[str, str]:
    return {name.rpartition(".")[2]: name for name in names}


def _next_step(problems: list[Problem]) -> str:
    """One next step for all problems."""
    steps = {problem.next_step for problem in problems}
    return steps.pop() if len(steps) == 1 else "correct the file"


def _one_line(text: str) -> str:
    return " ".join(text.split())
