"""The secrets of one cluster, in ``DIR/secrets``: those it accepts, and those it presents to other clusters.

Arrives: the directory of a cluster. Leaves: secrets by id. Survives a crash: the files. Files:

* ``cluster.secret``: for calls between processes of the cluster; ``client.secret``: for its clients;
* ``monitor.secret``: for viewers of its monitor, and nothing else (:mod:`bookkeeper.security.viewers`);
* ``from/NAME.secret``: made here for the peer NAME, which replicates to this cluster with it;
* ``to/ALIAS.secret``: made by the operator of the cluster that is defined here as ALIAS, and presented to it;
* ``NAME.previous.secret`` beside any of the first four: accepted too, while a secret is being changed.

Running processes see a change with the next connection: they compare the files' metadata, and read the files again
when one of them changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import BookkeeperError, ExistsError, InvalidInputError, NotFoundError, RefusedError
from bookkeeper.security.secret import Kind, Secret, new_secret, read_secret, write_secret

LOG = logging.getLogger(__name__)

SECRETS_DIR = "secrets"
SUFFIX = ".secret"
PREVIOUS_SUFFIX = ".previous.secret"
SETTLED_NS = 100_000_000
"""A file that changed less than this before its read is read again, because file systems keep coarse times."""

OWN_HOLDERS: Mapping[Kind, str] = {"cluster": "processes", "client": "clients", "monitor": "viewers"}


class StoredSecret(Struct, frozen=True):
    """A secret and its file."""

    path: Path
    secret: Secret


class SecretStore:
    """See the module. Thread-safe."""

    def __init__(self, home: Path, clock: Clock | None = None) -> None:
        """``home`` is the cluster's directory; nothing is read yet."""
        self.directory = home / SECRETS_DIR
        self.home = home
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._cache: dict[str, tuple[tuple[FileFact, ...] | None, tuple[StoredSecret, ...]]] = {}
        self._last: dict[Kind, list[Secret]] = {}

    # ---- queries

    def own(self, kind: Kind) -> Secret:
        """The cluster's, its clients' or its viewers' secret. Raises NotFoundError, RefusedError, InvalidInputError."""
        try:
            return read_secret(self.file_of(kind))
        except NotFoundError:
            raise NotFoundError(
                f"there is no secret at {self.file_of(kind)}: bookkeeper standalone makes missing ones, or get a "
                "copy and name it with --secret-file (BOOKKEEPER_SECRET_FILE)"
            ) from None

    def shown(self, kind: Kind) -> Sequence[Secret]:
        """The secret that a running process presents: as it is now, or as it was last if it is unreadable now."""
        path = self.file_of(kind)
        latest = [stored.secret for stored in self._stored("") if stored.path == path]
        with self._lock:
            self._last[kind] = latest or self._last.get(kind, [])
            return self._last[kind]

    def file_of(self, kind: Kind) -> Path:
        """File of the cluster's, its clients' or its viewers' secret."""
        return self.directory / f"{kind}{SUFFIX}"

    def accepted(self) -> Mapping[str, Secret]:
        """The secrets that open the ports of processes now, by id; those of viewers of the monitor do not. It skips an
        unreadable file with a log line.
        """
        accepted = (*self._stored(""), *self._stored("from"))
        return {stored.secret.id: stored.secret for stored in accepted if stored.secret.kind != "monitor"}

    def viewers(self) -> Sequence[Secret]:
        """The secrets whose tokens the monitor accepts now, read as :meth:`accepted` does."""
        return [stored.secret for stored in self._stored("") if stored.secret.kind == "monitor"]

    def presented(self) -> Sequence[Secret]:
        """The secrets for other clusters."""
        return [stored.secret for stored in self._stored("to")]

    def listed(self) -> Sequence[StoredSecret]:
        """Every secret with its file: the cluster's own first, then those for peers."""
        return (*self._stored(""), *self._stored("from"), *self._stored("to"))

    def marks(self) -> list[tuple[str, str]]:
        """File below the directory and id of every secret; the key is not in them."""
        return [(str(stored.path.relative_to(self.directory)), stored.secret.id) for stored in self.listed()]

    def missing(self) -> list[str]:
        """The holders of those of the cluster's own secrets that are missing."""
        return [holder for kind, holder in OWN_HOLDERS.items() if not self.file_of(kind).exists()]

    # ---- changes

    def complete(self, cluster: str, instance_id: str) -> list[str]:
        """Make the missing ones of the cluster's own secrets; existing ones stay. Returns the holders of those made."""
        made = []
        for kind, holder in OWN_HOLDERS.items():
            if not self.file_of(kind).exists():
                self._put_new(self.file_of(kind), new_secret(kind, cluster, instance_id, holder, self._clock.wall_ms()))
                made.append(holder)
        return made

    def make_for_peer(
        self,
        name: str,
        cluster: str,
        instance_id: str,
        holder_instance_id: str = "",
        tables: Collection[str] = (),
        all_tables: bool = False,
        relays: Collection[str] = (),
    ) -> StoredSecret:
        """Make the secret with which the cluster ``name`` may replicate to these tables, and relay the records of the
        instances ``relays``; idempotent.

        Raises InvalidInputError on a bad name, ExistsError when ``name`` has a secret for another instance, for other
        tables or other relays.
        """
        if name in OWN_HOLDERS.values():
            raise InvalidInputError(f"{name!r} are not a cluster: choose another name for it")
        path = self.directory / "from" / f"{_file_name(name)}{SUFFIX}"
        now_ms = self._clock.wall_ms()
        wanted = new_secret("peer", cluster, instance_id, name, now_ms, holder_instance_id, tables, all_tables, relays)
        made = wanted
        try:
            write_secret(path, made)
        except ExistsError:
            made = read_secret(path)
        if made.holder_instance_id != holder_instance_id:
            raise ExistsError(
                f"{path} is for instance {made.holder_instance_id or '(any)'}: bookkeeper secret forget --all it first"
            )
        if (made.tables, made.all_tables) != (wanted.tables, wanted.all_tables):
            raise ExistsError(f"{path} opens other tables: bookkeeper secret tables changes them")
        if made.relays != wanted.relays:
            raise ExistsError(f"{path} names other clusters to relay: bookkeeper secret relays changes them")
        return StoredSecret(path, made)

    def renew(self, who: str) -> StoredSecret:
        """Make a new secret for a holder; the old one stays accepted, as the previous one. Raises NotFoundError, and
        ExistsError while the holder has a previous secret.
        """
        path = self._file_of_holder(who)
        old, before = read_secret(path), previous_of(path)
        if before.exists():
            raise ExistsError(f"{before} is still accepted: when no process needs it, bookkeeper secret forget it")
        fresh = new_secret(old.kind, old.cluster, old.instance_id, old.holder, self._clock.wall_ms())
        made = replace(old, id=fresh.id, key=fresh.key, made_ms=fresh.made_ms)
        write_secret(before, old)
        write_secret(path, made, replace=True)
        return StoredSecret(path, made)

    def change_rights(self, name: str, change: Callable[[Secret], Secret]) -> StoredSecret:
        """Change the tables that a peer's secret and its previous one open, or the instances that the peer may relay;
        open connections notice it within a second. Returns the present secret. Raises NotFoundError, and RefusedError
        for other holders than peers.
        """
        if name in OWN_HOLDERS.values():
            raise RefusedError(f"the secret of {name} opens every table: only a peer's secret is for some tables")
        path = self._file_of_holder(name)
        for file in (previous_of(path), path):
            if file.exists():
                write_secret(file, change(read_secret(file)), replace=True)
        return StoredSecret(path, read_secret(path))

    def forget(self, who: str, everything: bool = False) -> Sequence[StoredSecret]:
        """Remove a holder's previous secret; ``everything``: a peer's present one, too. Returns the removed ones.

        Raises NotFoundError; RefusedError for the present secret of the cluster itself.
        """
        path = self._file_of_holder(who)
        if everything and who in OWN_HOLDERS.values():
            raise RefusedError(f"the {who} of a cluster need a secret: bookkeeper secret renew makes a new one")
        files = [file for file in (previous_of(path), path)[: 1 + everything] if file.exists()]
        removed = [StoredSecret(file, read_secret(file)) for file in files]
        for stored in removed:
            stored.path.unlink()
        return removed

    def _file_of_holder(self, who: str) -> Path:
        own = {holder: self.file_of(kind) for kind, holder in OWN_HOLDERS.items()}
        path = own.get(who) or self.directory / "from" / f"{_file_name(who)}{SUFFIX}"
        if not path.exists():
            raise NotFoundError(
                f"there is no secret for {who}, see: bookkeeper secret list; make one for a peer with: make"
            )
        return path

    def keep_for_peer(self, alias: str, secret: Secret) -> Secret | None:
        """Store the secret that this cluster presents to the peer ``alias`` from now on; returns the former one. The
        peer's own file decides about tables and relays, so this copy names none.

        Raises InvalidInputError for a secret that is not for replication.
        """
        if secret.kind != "peer":
            raise InvalidInputError(
                f"secret {secret.id} is for {secret.holder}, not for replication: let the operator of {alias} make one "
                "with: bookkeeper secret make"
            )
        path = self.file_to(alias)
        before = read_secret(path) if path.exists() else None
        write_secret(path, replace(secret, tables=(), all_tables=False, relays=()), replace=True)
        return before

    def forget_peer(self, alias: str) -> None:
        """Remove the secret that is presented to the peer ``alias``; idempotent."""
        self.file_to(alias).unlink(missing_ok=True)

    def instance_of_peer(self, alias: str) -> str:
        """The instance to which the secret for the peer ``alias`` belongs; "" = there is no secret, or it is for any.
        Raises RefusedError, InvalidInputError.
        """
        try:
            return read_secret(self.file_to(alias)).instance_id
        except NotFoundError:
            return ""

    def file_to(self, alias: str) -> Path:
        """File of the secret that is presented to the cluster ``alias``."""
        return self.directory / "to" / f"{_file_name(alias)}{SUFFIX}"

    # ---- reading

    def _put_new(self, path: Path, secret: Secret) -> None:
        try:
            write_secret(path, secret)
        except ExistsError:
            LOG.info("%s was made by another process", path)

    def _stored(self, below: str) -> tuple[StoredSecret, ...]:
        directory = self.directory / below
        facts = file_facts(directory)
        with self._lock:
            cached_facts, stored = self._cache.get(below, (None, ()))
        if cached_facts == facts:
            return stored
        changed_ns = max((fact.changed_ns for fact in facts), default=0)
        settled = self._clock.wall_ms() * 1_000_000 - changed_ns > SETTLED_NS
        stored = tuple(_read_all(directory, {previous.path: previous for previous in stored}))
        with self._lock:
            self._cache[below] = (facts if settled else None, stored)
        return stored


class FileFact(Struct, frozen=True):
    """Metadata of a file: it differs after a change of the content, the owner or the mode."""

    name: str
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


def file_facts(directory: Path) -> tuple[FileFact, ...]:
    """Metadata of the secrets in a directory; the directory's own times miss a file that was overwritten in place."""
    try:
        names = sorted(path.name for path in directory.iterdir() if path.name.endswith(SUFFIX))
    except FileNotFoundError:
        return ()
    return tuple(fact for name in names if (fact := _fact_of(directory, name)) is not None)


def _fact_of(directory: Path, name: str) -> FileFact | None:
    """None: the file is gone again, or is a broken link."""
    try:
        stat = (directory / name).stat()
    except FileNotFoundError:
        return None
    return FileFact(name, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def previous_of(path: Path) -> Path:
    """File of a holder's previous secret, which :meth:`SecretStore.renew` replaced."""
    return path.with_name(path.name.removesuffix(SUFFIX) + PREVIOUS_SUFFIX)


def _read_all(directory: Path, cached: Mapping[Path, StoredSecret]) -> list[StoredSecret]:
    """All secrets in a directory; for an unusable file its cached secret."""
    found = []
    for path in sorted(directory.glob(f"[!.]*{SUFFIX}")):
        try:
            found.append(StoredSecret(path, read_secret(path)))
        except NotFoundError:
            continue
        except BookkeeperError as error:
            LOG.warning("skipped a secret: %s", error)
            found += [cached[path]] if path in cached else []
    return found


def _file_name(name: str) -> str:
    if not name or name.startswith(".") or "/" in name or name.endswith(".previous"):
        raise InvalidInputError(f"{name!r} can't be a cluster's name")
    return name
