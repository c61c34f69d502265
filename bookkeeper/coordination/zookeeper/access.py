"""How a process reaches a root in ZooKeeper: its address, a user, TLS. The password is in a file of the secrets."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from bookkeeper.config.sections import Settings
from bookkeeper.coordination.zookeeper.url import ZooKeeperUrl, parse_url
from bookkeeper.errors import NotFoundError
from bookkeeper.security.secret import FILE_MODE, refuse_readable_by_others
from bookkeeper.security.secret_store import SECRETS_DIR
from bookkeeper.security.tls import TlsFiles

PASSWORD_FILE = "zookeeper.password"


class Access(Struct, frozen=True):
    """A root, and what a client shows to open it. ``user``: of SASL's DIGEST-MD5; "" = none."""

    url: ZooKeeperUrl
    user: str = ""
    password: str = ""
    tls: TlsFiles | None = None


def access_of(settings: Settings, password_file: Path | None = None) -> Access:
    """The access that the settings name. Raises NotFoundError, RefusedError for a password that others can read, and
    InvalidInputError.
    """
    named, home = settings.coordination, settings.cluster_directory
    password = read_password(password_file or home / SECRETS_DIR / PASSWORD_FILE) if named.user else ""
    tls = None
    if named.tls_ca:
        tls = TlsFiles(
            home / named.tls_ca,
            home / named.tls_certificate if named.tls_certificate else None,
            home / named.tls_key if named.tls_key else None,
        )
        for file in (tls.ca, tls.certificate, tls.key):
            if file is not None and not file.is_file():
                raise NotFoundError(f"there is no file {file}, which coordination.tls_ca and so on name: put it there")
    return Access(parse_url(named.url), named.user, password, tls)


def read_password(path: Path) -> str:
    """The password in a file, without the end of its line. Raises NotFoundError, RefusedError."""
    try:
        mode, text = path.stat().st_mode, path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFoundError(
            f"there is no password of coordination.user in {path}: write it there, mode 0600; for a new cluster name "
            "its file: bookkeeper init DIR --zookeeper-password FILE"
        ) from None
    refuse_readable_by_others(path, mode)
    return text.rstrip("\n")


def keep_password_file(settings: Settings, password_file: Path) -> None:
    """Copy a password to the secrets of the cluster; one that is there stays when it is the same. Raises OSError,
    NotFoundError, RefusedError.
    """
    directory = settings.cluster_directory / SECRETS_DIR
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    password, path = read_password(password_file), directory / PASSWORD_FILE
    if path.exists() and read_password(path) == password:
        return
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as out:
        out.write(f"{password}\n")
        out.flush()
        os.fsync(out.fileno())
