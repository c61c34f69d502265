"""The settings file of a cluster: reading it, writing a new one, and saying what is wrong with one.

Arrives: the directory of a cluster. Leaves: :class:`Settings`, or an error of one line that names the key and the next
step. Survives a crash: the file, written once by ``bookkeeper init`` (whole or not at all), never changed by a process.
"""

from __future__ import annotations

import difflib
import json
import os
import tomllib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bookkeeper.config.sections import Sections, Settings
from bookkeeper.errors import ExistsError, InvalidInputError, NotFoundError

SETTINGS_FILE = "bookkeeper.toml"


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
    """Settings of a new cluster, nothing written yet; raises InvalidInputError on a bad value.

    ``overrides`` are further settings by their dotted names (``{"tserver.wal_roll_bytes": 1048576}``).
    """
    given: dict[str, object] = {
        "instance.name": name,
        "instance.instance_id": instance_id or str(uuid.uuid4()),
        "standalone.tservers": tservers,
    }
    if master_port is not None:
        given["master.port"] = master_port
    if metadata_url is not None:
        given["metadata.url"] = metadata_url
    data: dict[str, object] = {}
    for dotted, value in {**given, **(overrides or {})}.items():
        section, _, key = dotted.rpartition(".")
        level = data.setdefault(section, {}) if section else data
        if not isinstance(level, dict) or not key:
            raise InvalidInputError(f"{dotted!r} does not name a setting; write SECTION.KEY")
        level[key] = value
    return _validated(data, Path(directory).absolute(), "a new cluster", "correct the arguments")


def load_settings(directory: Path | str) -> Settings:
    """Read ``DIR/bookkeeper.toml``; raises NotFoundError or InvalidInputError, one line with the next step."""
    home = Path(directory).absolute()
    path = home / SETTINGS_FILE
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFoundError(f"no {SETTINGS_FILE} in {home}; make a cluster there with: bookkeeper init DIR") from None
    except OSError as error:
        raise InvalidInputError(f"{path} can't be read ({error.strerror}); correct its permissions") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInputError(f"{path} is not TOML ({_one_line(str(error))}); correct the file") from error
    return _validated(data, home, str(path), "correct the file")


def write_settings(settings: Settings) -> Path:
    """Write the file of a new cluster, each key under its meaning; whole or not at all. Raises ExistsError."""
    path = settings.directory / SETTINGS_FILE
    settings.directory.mkdir(parents=True, exist_ok=True)
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
    _sync_directory(settings.directory)
    return path


def format_settings(settings: Sections) -> str:
    """TOML text of all sections, a comment above each key; :func:`load_settings` reads it back unchanged."""
    lines = ["# Settings of one cluster. Processes read them when they start."]
    for section_name in Sections.model_fields:
        section = getattr(settings, section_name)
        lines += ["", f"[{section_name}]"]
        for key, field in type(section).model_fields.items():
            lines.append(f"# {field.description}{_choices(field.annotation)}")
            lines.append(f"{key} = {json.dumps(getattr(section, key), ensure_ascii=False)}")
    return "\n".join(lines) + "\n"


def _choices(annotation: object) -> str:
    choices = [value for value in get_args(annotation) if isinstance(value, str)]
    return f" ({' | '.join(choices)})" if choices else ""


def _validated(data: dict[str, object], directory: Path, source: str, next_step: str) -> Settings:
    try:
        sections = Sections.model_validate(data)
        return Settings(directory=directory, **{name: getattr(sections, name) for name in Sections.model_fields})
    except ValidationError as error:
        problems = "; ".join(_explain(detail) for detail in error.errors())
        raise InvalidInputError(f"{source}: {problems}; {next_step}") from None


def _explain(detail: ErrorDetails) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        return _unknown_key(where)
    if detail["type"] == "missing":
        return f"{where} is missing"
    reason = _one_line(detail["msg"].removeprefix("Value error, "))
    return f"{where}: {reason}" if where else reason


def _unknown_key(where: str) -> str:
    section_name, _, _ = where.rpartition(".")
    section_keys = {name: _keys(name, field.annotation) for name, field in Sections.model_fields.items()}
    siblings = section_keys.get(section_name, list(section_keys))
    everything = [key for keys in section_keys.values() for key in keys]
    elsewhere = [key for key in everything if key.rpartition(".")[2] == where.rpartition(".")[2]]
    near = elsewhere or difflib.get_close_matches(where, siblings, n=1, cutoff=0.5)
    hint = f", did you mean {near[0]}?" if near else f", known are: {', '.join(siblings)}"
    return f"unknown setting {where}{hint}"


def _keys(section_name: str, annotation: object) -> list[str]:
    fields = annotation.model_fields if isinstance(annotation, type) and issubclass(annotation, BaseModel) else {}
    return [f"{section_name}.{key}" for key in fields]


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
