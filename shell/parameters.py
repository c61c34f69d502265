r"""Types of the parameters of commands: they turn typed words into values.

A mistake is a usage error that names the argument. ``\xHH`` stands for one byte anywhere, so a user can type every key:
a comma inside a name is ``\x2c``, a colon ``\x3a``, an equals sign ``\x3d``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import click
from click.shell_completion import CompletionItem
from msgspec import Struct

from bookkeeper.coordination.zookeeper.url import SCHEME
from bookkeeper.model import LocalityGroup
from shell.output import parse_bytes
from shell.shell_session import Session


class NameType(click.ParamType[str]):
    """The name of a table or of a peer; the interactive shell completes it with the existing names."""

    def __init__(self, kind: Literal["table", "cluster"]) -> None:
        self.name = kind

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Names with the prefix ``incomplete``; none without a cluster."""
        del param
        session = ctx.find_object(Session)
        if session is None:
            return []
        cached = session.names.get()
        names: Sequence[str] = cached.tables if self.name == "table" else cached.clusters
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


TABLE = NameType("table")
CLUSTER = NameType("cluster")


LONG_MAX = 2**63 - 1

LONG = click.IntRange(-LONG_MAX - 1, LONG_MAX)
"""A number of 64 bits, such as a timestamp in milliseconds."""

COUNT = click.IntRange(1, LONG_MAX)
"""A count or an ordinal number of 64 bits, from 1."""

INT_MAX = 2**31 - 1

INT_COUNT = click.IntRange(1, INT_MAX)
"""A count of 32 bits, from 1."""

PORT = click.IntRange(1, 65_535)

SECONDS_MAX = 365 * 86_400


class SecondsRange(click.FloatRange):
    """A finite time: seconds from 0 to a year."""

    def __init__(self) -> None:
        super().__init__(0, SECONDS_MAX)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The seconds as a float. Raises a usage error if they are out of range or not a number."""
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return seconds


SECONDS = SecondsRange()


class DirectoryType(click.Path):
    """A directory that a user names; an empty name, such as of an unset variable, is not the current directory."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path. Raises a usage error for an empty one."""
        if value == "":
            self.fail("it is empty; name a directory, such as . for the present one", param, ctx)
        return super().convert(value, param, ctx)


class ClusterType(DirectoryType):
    """A cluster that a host joins: a directory, or a root in ZooKeeper, which stays text."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, or the URL of the root. Raises a usage error for an empty value."""
        is_root = isinstance(value, str) and value.startswith(SCHEME)
        return value if is_root else super().convert(value, param, ctx)


DIRECTORY = DirectoryType()
DIRECTORY_OR_ROOT = ClusterType()


class ColumnChoice(Struct, frozen=True):
    """A choice of ``scan -c``: a family, or one column of it."""

    family: bytes
    qualifier: bytes | None


def rows(text: str) -> list[bytes]:
    """``a,b,c``: rows."""
    return [parse_bytes(part) for part in _parts(text, "rows")]


def row(text: str) -> bytes:
    """One row; a comma is part of it."""
    if not text:
        raise click.BadParameter("a row is empty; write at least one byte")
    return parse_bytes(text)


def group(text: str) -> LocalityGroup:
    """``NAME=fam,fam``: a locality group and its families."""
    name, equals, families = text.partition("=")
    if not (name and equals and families):
        raise click.BadParameter(f"{text!r}: write NAME=family,family")
    return LocalityGroup(name, tuple(parse_bytes(part) for part in _parts(families, "families")))


def key_value(text: str) -> tuple[str, str]:
    """``key=value``."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise click.BadParameter(f"{text!r}: write KEY=VALUE")
    return key, value


def names(text: str) -> list[str]:
    """``a,b,c``: names; an empty text has none."""
    return _parts(text, "names") if text else []


def columns(text: str) -> list[ColumnChoice]:
    """``fam,fam:qualifier``: families and columns."""
    return [_column(part) for part in _parts(text, "columns")]


def _column(text: str) -> ColumnChoice:
    family, colon, qualifier = text.partition(":")
    return ColumnChoice(parse_bytes(family), parse_bytes(qualifier) if colon else None)


def _parts(text: str, plural: str) -> list[str]:
    parts = text.split(",")
    if not all(parts):
        raise click.BadParameter(f"{text!r}: an empty part; write {plural} with single commas between them")
    return parts
