"""One shared secret: its key, its purpose, and its file.

Arrives: a file, or the purpose of a new secret. Leaves: a :class:`Secret`, or an error that names the file, the reason
and the next step. The key goes only into a file of mode 0600, written atomically: ``repr`` and errors do not show it.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import secrets
import stat
import tomllib
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct

from bookkeeper.errors import ExistsError, InvalidInputError, NotFoundError, RefusedError

KEY_BYTES = 32
ID_BYTES = 8
FILE_BYTES_MAX = 64 * 1024
FILE_MODE = 0o600

Kind = Literal["cluster", "client", "peer", "monitor"]

MEANING: dict[Kind, str] = {
    "cluster": "Its holder counts as a process of this cluster.",
    "client": "Its holder may use and administer this cluster.",
    "peer": "Its holder may replicate to the tables of this cluster that it opens there, and nothing else.",
    "monitor": "Its holder may read the monitor of this cluster, and nothing else.",
}

_ID = re.compile(rf"[0-9a-f]{{{2 * ID_BYTES}}}")
_TEXTS = ("id", "kind", "cluster", "instance_id", "holder", "holder_instance_id", "key")


class Secret(Struct, frozen=True):
    """A key and its rights. ``cluster`` and ``instance_id`` name the cluster that accepts it; empty: any.

    ``holder`` names its holder; only the instance ``holder_instance_id`` may use it, unless that is empty. ``id`` is
    public: 16 hexadecimal digits that name the secret on both sides. A peer's secret opens the ``tables`` of these
    names, or ``all_tables``; the file in the accepting cluster decides, not the holder's copy. ``relays``: the other
    instances whose records the holder may send on under their origins (R22).
    """

    id: str
    kind: Kind
    cluster: str
    instance_id: str
    holder: str
    made_ms: int
    key: bytes
    holder_instance_id: str = ""
    tables: tuple[str, ...] = ()
    all_tables: bool = False
    relays: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without the key, because logs and error messages show values."""
        return f"Secret(id={self.id!r}, kind={self.kind!r}, cluster={self.cluster!r}, holder={self.holder!r})"

    def opens(self, table: str) -> bool:
        """Whether a peer may replicate to the table of this name."""
        return self.all_tables or table in self.tables

    @property
    def origins(self) -> frozenset[str] | None:
        """The instances under whose origins a peer may send records: its own, and those that it relays. None = any: the
        holder of a secret for any instance may call itself by each of them.
        """
        return frozenset((self.holder_instance_id, *self.relays)) if self.holder_instance_id else None


def new_secret(
    kind: Kind,
    cluster: str,
    instance_id: str,
    holder: str,
    made_ms: int,
    holder_instance_id: str = "",
    tables: Collection[str] = (),
    all_tables: bool = False,
    relays: Collection[str] = (),
) -> Secret:
    """A secret with a new key and id from the operating system's random numbers."""
    return Secret(
        secrets.token_hex(ID_BYTES),
        kind,
        cluster,
        instance_id,
        holder,
        made_ms,
        secrets.token_bytes(KEY_BYTES),
        holder_instance_id,
        tuple(sorted(set(tables))),
        all_tables,
        tuple(sorted(set(relays))),
    )


def read_secret(path: Path) -> Secret:
    """Read a secret's file. Raises NotFoundError; RefusedError when others can read it; InvalidInputError."""
    try:
        with path.open("rb") as file:
            refuse_readable_by_others(path, os.fstat(file.fileno()).st_mode)
            raw = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFoundError(f"there is no secret at {path}") from None
    except OSError as error:
        raise RefusedError(
            f"the secret {path} can't be read ({error.strerror}): run as its owner, or get a copy of your own"
        ) from error
    return parse_secret(path, raw)


def refuse_readable_by_others(path: Path, mode: int) -> None:
    """Raise RefusedError when other users than its owner can open the file."""
    if stat.S_IMODE(mode) & 0o077:
        raise RefusedError(
            f"others can read the secret {path} (mode {stat.S_IMODE(mode):04o}): chmod 600 {path}, and make a new one "
            "if others may have read it (bookkeeper secret renew)"
        )


def write_secret(path: Path, secret: Secret, *, replace: bool = False) -> None:
    """Write a file of mode 0600 atomically. Raises ExistsError if it exists, unless ``replace``."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(format_secret(secret))
            out.flush()
            os.fsync(out.fileno())
        if replace:
            temporary.replace(path)
        else:
            os.link(temporary, path)
    except FileExistsError:
        raise ExistsError(
            f"{path} exists: there is a secret already; bookkeeper secret renew makes a new one"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def format_secret(secret: Secret) -> str:
    """Content of the secret's file."""
    values: dict[str, object] = {
        "id": secret.id,
        "kind": secret.kind,
        "cluster": secret.cluster,
        "instance_id": secret.instance_id,
        "holder": secret.holder,
        "holder_instance_id": secret.holder_instance_id,
        "made_ms": secret.made_ms,
        "key": base64.b64encode(secret.key).decode(),
    }
    if secret.kind == "peer":
        values |= {"tables": list(secret.tables), "all_tables": secret.all_tables, "relays": list(secret.relays)}
    lines = [f"# A secret of tablet-bookkeeper. {MEANING[secret.kind]} Keep it to yourself."]
    lines += [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def parse_secret(path: Path, raw: bytes) -> Secret:
    """The secret in a file's content; raises InvalidInputError, whose text never shows the content."""
    if len(raw) > FILE_BYTES_MAX:
        raise _no_secret(path, f"it has more than {FILE_BYTES_MAX} bytes")
    try:
        data: dict[str, Any] = tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise _no_secret(path, "it is not TOML") from None
    return secret_of(path, data)


def secret_of(path: Path, data: dict[str, Any]) -> Secret:
    """The secret in the values of a file; raises InvalidInputError, whose text never shows them."""
    for name in _TEXTS:
        if not isinstance(data.get(name), str):
            raise _no_secret(path, f"{name} is missing, or no text")
    if data["kind"] not in get_args(Kind):
        raise _no_secret(path, f"kind must be one of {', '.join(get_args(Kind))}")
    if _ID.fullmatch(data["id"]) is None:
        raise _no_secret(path, f"id must be {2 * ID_BYTES} hexadecimal digits")
    made_ms = data.get("made_ms")
    if not isinstance(made_ms, int) or isinstance(made_ms, bool):
        raise _no_secret(path, "made_ms is missing, or no number")
    for name in ("tables", "relays"):
        names = data.get(name, [])
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise _no_secret(path, f"{name} is no list of names")
    all_tables = data.get("all_tables", False)
    if not isinstance(all_tables, bool):
        raise _no_secret(path, "all_tables is neither true nor false")
    return Secret(
        made_ms=made_ms,
        **{name: data[name] for name in _TEXTS if name != "key"},
        key=_key(path, data["key"]),
        tables=tuple(data.get("tables", [])),
        all_tables=all_tables,
        relays=tuple(data.get("relays", [])),
    )


def _key(path: Path, text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise _no_secret(path, "key is not base64") from None
    if len(key) != KEY_BYTES:
        raise _no_secret(path, f"key must have {KEY_BYTES} bytes")
    return key


def _no_secret(path: Path, reason: str) -> InvalidInputError:
    return InvalidInputError(f"{path} is no secret: {reason}; copy it again from where it was made")
