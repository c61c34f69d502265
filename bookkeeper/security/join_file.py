"""What an operator carries to a new host on another machine: one file with the cluster's identity and its secrets.

``bookkeeper secret export`` writes it, ``bookkeeper init --join zk://... --secret-file FILE`` reads it. Its reader
counts as a process of the cluster, so it is for its owner alone. TOML: a section ``cluster``, and one for each secret
under the name of its file below ``DIR/secrets``. The identity comes with the secrets, and not from ZooKeeper: so a new
host that is sent to a wrong root notices it (R23).
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from bookkeeper.errors import ExistsError, InvalidInputError, NotFoundError, RefusedError
from bookkeeper.security.secret import (
    FILE_MODE,
    Secret,
    format_secret,
    refuse_readable_by_others,
    secret_of,
    write_secret,
)
from bookkeeper.security.secret_store import OWN_HOLDERS, SECRETS_DIR, SUFFIX, SecretStore

SECTION = "cluster"
BYTES_MAX = 16 * 1024 * 1024
_KEYS = ("name", "instance_id", "store_id", "user")
_FILE = re.compile(rf"((from|to)/)?[^/.\0][^/\0]*{re.escape(SUFFIX)}")


class JoinFile(Struct, frozen=True):
    """The cluster's name and instance, the id of its root in ZooKeeper and the user who opens that ("" = none), and its
    secrets by file below ``DIR/secrets``.
    """

    name: str
    instance_id: str
    store_id: str
    user: str
    secrets: Mapping[str, Secret]

    def write_secrets(self, home: Path) -> None:
        """Make the files of all secrets in the directory of a host. One that is there stays when it is the same. Raises
        ExistsError for another one, OSError.
        """
        for file, secret in self.secrets.items():
            path = home / SECRETS_DIR / file
            try:
                write_secret(path, secret)
            except ExistsError:
                if path.read_text(encoding="utf-8") != format_secret(secret):
                    raise


def join_file_of(store: SecretStore, name: str, instance_id: str, store_id: str, user: str) -> JoinFile:
    """What the host of ``store`` gives to a new one. Raises NotFoundError when it lacks secrets itself."""
    for kind in OWN_HOLDERS:
        store.own(kind)
    secrets = {str(one.path.relative_to(store.directory)): one.secret for one in store.listed()}
    return JoinFile(name, instance_id, store_id, user, secrets)


def write_join_file(path: Path, join: JoinFile) -> None:
    """Write a new file of mode 0600. Raises ExistsError, and InvalidInputError when it can't be written."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
        with os.fdopen(descriptor, "w", encoding="utf-8") as out:
            out.write(format_join_file(join))
            out.flush()
            os.fsync(out.fileno())
    except FileExistsError:
        raise ExistsError(f"{path} exists: name a new file, or remove it first") from None
    except OSError as error:
        raise InvalidInputError(f"{path} can't be written ({error.strerror}); name another file") from error


def format_join_file(join: JoinFile) -> str:
    """Content of the file; :func:`parse_join_file` reads it back."""
    values = {"name": join.name, "instance_id": join.instance_id, "store_id": join.store_id, "user": join.user}
    lines = [
        f"# For a new host of cluster {join.name}. Its reader counts as a process of the cluster: remove it later.",
        f"[{SECTION}]",
        *(f"{key} = {json.dumps(value)}" for key, value in values.items()),
    ]
    for file, secret in join.secrets.items():
        lines += ["", f"[{json.dumps(file)}]", format_secret(secret).rstrip("\n")]
    return "\n".join(lines) + "\n"


def read_join_file(path: Path) -> JoinFile:
    """Raises NotFoundError; RefusedError when others can read it; InvalidInputError."""
    try:
        with path.open("rb") as file:
            refuse_readable_by_others(path, os.fstat(file.fileno()).st_mode)
            raw = file.read(BYTES_MAX + 1)
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no file {path}: make it on a host of the cluster (bookkeeper secret export DIR FILE), and carry "
            "it here"
        ) from None
    except OSError as error:
        raise RefusedError(f"{path} can't be read ({error.strerror}): run as its owner") from error
    return parse_join_file(path, raw)


def parse_join_file(path: Path, raw: bytes) -> JoinFile:
    """The content of a file. Raises InvalidInputError, whose text never shows the content."""
    try:
        data: dict[str, Any] = tomllib.loads(raw.decode()) if len(raw) <= BYTES_MAX else {}
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        data = {}
    cluster = data.pop(SECTION, None)
    if not isinstance(cluster, dict) or not all(isinstance(cluster.get(key), str) for key in _KEYS):
        raise _no_join_file(path, f"it has no section {SECTION} with {', '.join(_KEYS)}")
    for file, values in data.items():
        if _FILE.fullmatch(file) is None or not isinstance(values, dict):
            raise _no_join_file(path, f"{file!r} is no file of a secret")
    secrets = {file: secret_of(path, values) for file, values in data.items()}
    instance_id = cluster["instance_id"]
    for kind, holder in OWN_HOLDERS.items():
        own = secrets.get(f"{kind}{SUFFIX}")
        if own is None or own.kind != kind or own.instance_id != instance_id:
            raise _no_join_file(path, f"it has no secret of {holder} of instance {instance_id}")
    return JoinFile(**{key: cluster[key] for key in _KEYS}, secrets=secrets)


def _no_join_file(path: Path, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"{path} lets no host in: {reason}; make it again on a host of the cluster: bookkeeper secret export DIR FILE"
    )
