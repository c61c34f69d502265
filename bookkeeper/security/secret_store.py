"""The secrets of one cluster, in ``DIR/secrets``: which it lets in, and which it shows to others.

Arrives: the directory of a cluster. Leaves: secrets by id. Survives a crash: the files. Files:

* ``cluster.secret``: the processes of the cluster among themselves; ``client.secret``: its clients;
* ``monitor.secret``: those who look at its monitor, and nothing else (:mod:`bookkeeper.security.viewers`);
* ``from/NAME.secret``: made here for the peer NAME, which may replicate to this cluster with it;
* ``to/ALIAS.secret``: got from the operator of the cluster that is defined here as ALIAS, and shown to it;
* ``NAME.previous.secret`` beside any of the first four: let in too, while a secret is being changed.

Running processes see a change with the next connection: files are looked at, and read when one of them changed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bookkeeper.clock import Clock, SystemClock
from bookkeeper.errors import BookkeeperError, ExistsError, InvalidInputError, NotFoundError, RefusedError
from bookkeeper.security.secret import Kind, Secret, new_secret, read_secret, write_secret

LOG = logging.getLogger(__name__)

SECRETS_DIR = "secrets"
SUFFIX = ".secret"
PREVIOUS_SUFFIX = ".previous.secret"
SETTLED_NS = 100_000_000
"""A file that changed less than this before it was read is read again: clocks of file systems tick slowly."""

OWN_HOLDERS: Mapping[Kind, str] = {"cluster": "processes", "client": "clients", "monitor": "viewers"}


@dataclass(frozen=True, slots=True)
class Kept:
    """A secret and its file."""

    path: Path
    secret: Secret


class SecretStore:
    """See the module. Thread-safe."""

    def __init__(self, home: Path, clock: Clock | None = None) -> None:
        """``home`` is the cluster's directory; nothing is read yet."""
        self.directory = home / SECRETS_DIR
        self._home = home
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._read: dict[str, tuple[tuple[FileFact, ...] | None, tuple[Kept, ...]]] = {}
        self._last: dict[Kind, list[Secret]] = {}

    # ---- what others ask

    def own(self, kind: Kind) -> Secret:
        """The cluster's, its clients' or its viewers' secret. Raises NotFoundError, RefusedError, InvalidInputError."""
        try:
            return read_secret(self.file_of(kind))
        except NotFoundError:
            raise NotFoundError(
                f"there is no secret at {self.file_of(kind)}: bookkeeper standalone makes what is missing, or get a "
                "copy and name it with --secret-file (BOOKKEEPER_SECRET_FILE)"
            ) from None

    def shown(self, kind: Kind) -> Sequence[Secret]:
        """The same for a running process: as it is now, or as it was last when it can't be read now."""
        path = self.file_of(kind)
        latest = [kept.secret for kept in self._listed("") if kept.path == path]
        with self._lock:
            self._last[kind] = latest or self._last.get(kind, [])
            return self._last[kind]

    def file_of(self, kind: Kind) -> Path:
        """Where the cluster's, its clients' or its viewers' secret is."""
        return self.directory / f"{kind}{SUFFIX}"

    def accepted(self) -> Mapping[str, Secret]:
        """By id: who is let in now. A file that can't be read is passed over with a log line."""
        kept = (*self._listed(""), *self._listed("from"))
        return {known.secret.id: known.secret for known in kept if opens_ports(known.secret.kind)}

    def viewers(self) -> Sequence[Secret]:
        """Whose tokens the monitor takes now, read as :meth:`accepted` does."""
        return [kept.secret for kept in self._listed("") if kept.secret.kind == "monitor"]

    def presented(self) -> Sequence[Secret]:
        """What is shown to other clusters."""
        return [kept.secret for kept in self._listed("to")]

    def listed(self) -> Sequence[Kept]:
        """Every secret with its file, those for peers behind the own ones."""
        return (*self._listed(""), *self._listed("from"), *self._listed("to"))

    # ---- changes

    def complete(self, cluster: str, instance_id: str) -> None:
        """Make the cluster's own secrets where they are missing; those that are there stay."""
        for kind, holder in OWN_HOLDERS.items():
            if not self.file_of(kind).exists():
                self._put_new(self.file_of(kind), new_secret(kind, cluster, instance_id, holder, self._clock.wall_ms()))

    def make_for_peer(
        self,
        name: str,
        cluster: str,
        instance_id: str,
        holder_instance_id: str = "",
        tables: Collection[str] = (),
        all_tables: bool = False,
    ) -> Kept:
        """The secret with which the cluster ``name`` may replicate to these tables of this one; the same again is fine.

        Raises InvalidInputError on a name that can't be one, ExistsError when there is one for another instance, or
        for other tables.
        """
        if name in OWN_HOLDERS.values():
            raise InvalidInputError(f"{name!r} are not a cluster: choose another name for it")
        path = self.directory / "from" / f"{_file_name(name)}{SUFFIX}"
        now_ms = self._clock.wall_ms()
        wanted = new_secret("peer", cluster, instance_id, name, now_ms, holder_instance_id, tables, all_tables)
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
            raise ExistsError(f"{path} opens other tables: bookkeeper secret tables changes which")
        return Kept(path, made)

    def renew(self, who: str) -> Kept:
        """A new secret for a holder; the old one is let in still, as the previous one. Raises NotFoundError, and
        ExistsError while there is one before that.
        """
        path = self._file_of_holder(who)
        old, before = read_secret(path), previous_of(path)
        if before.exists():
            raise ExistsError(f"{before} is let in still: when nobody needs it any more, bookkeeper secret forget it")
        fresh = new_secret(old.kind, old.cluster, old.instance_id, old.holder, self._clock.wall_ms())
        made = replace(old, id=fresh.id, key=fresh.key, made_ms=fresh.made_ms)
        write_secret(before, old)
        write_secret(path, made, replace=True)
        return Kept(path, made)

    def change_tables(self, name: str, change: Callable[[Secret], Secret]) -> Kept:
        """Let a peer's secret open other tables, the one before it too; connections that came with it see it within a
        second. Returns the present one. Raises NotFoundError, and RefusedError for others than peers.
        """
        if name in OWN_HOLDERS.values():
            raise RefusedError(f"the secret of {name} opens every table: only a peer's is for some")
        path = self._file_of_holder(name)
        for file in (previous_of(path), path):
            if file.exists():
                write_secret(file, change(read_secret(file)), replace=True)
        return Kept(path, read_secret(path))

    def forget(self, who: str, everything: bool = False) -> Sequence[Kept]:
        """Let a holder's previous secret in no more; ``everything``: a peer's present one neither. Returns which.

        Raises NotFoundError; RefusedError for the present one of the cluster itself.
        """
        path = self._file_of_holder(who)
        if everything and who in OWN_HOLDERS.values():
            raise RefusedError(f"the {who} of a cluster need a secret: bookkeeper secret renew makes a new one")
        gone = [Kept(file, read_secret(file)) for file in (previous_of(path), path)[: 1 + everything] if file.exists()]
        for kept in gone:
            kept.path.unlink()
        return gone

    def _file_of_holder(self, who: str) -> Path:
        own = {holder: self.file_of(kind) for kind, holder in OWN_HOLDERS.items()}
        path = own.get(who) or self.directory / "from" / f"{_file_name(who)}{SUFFIX}"
        if not path.exists():
            raise NotFoundError(
                f"there is no secret for {who}, see: bookkeeper secret list; make one for a peer with: make"
            )
        return path

    def keep_for_peer(self, alias: str, given: Secret) -> Secret | None:
        """Show ``given`` to the cluster that is defined as ``alias``, from now on; returns what was shown before. Which
        tables it opens says the file of that cluster, not this copy.

        Raises InvalidInputError when it is no secret of that kind.
        """
        if given.kind != "peer":
            raise InvalidInputError(
                f"secret {given.id} is for {given.holder}, not for replication: let the operator of {alias} make one "
                "with: bookkeeper secret make"
            )
        path = self.file_to(alias)
        before = read_secret(path) if path.exists() else None
        write_secret(path, replace(given, tables=(), all_tables=False), replace=True)
        return before

    def forget_peer(self, alias: str) -> None:
        """Nothing is shown to that cluster any more; fine when nothing was."""
        self.file_to(alias).unlink(missing_ok=True)

    def file_to(self, alias: str) -> Path:
        """Where the secret is that is shown to the cluster ``alias``."""
        return self.directory / "to" / f"{_file_name(alias)}{SUFFIX}"

    # ---- reading

    def _put_new(self, path: Path, secret: Secret) -> None:
        try:
            write_secret(path, secret)
        except ExistsError:
            LOG.info("%s was made by another process", path)

    def _listed(self, below: str) -> tuple[Kept, ...]:
        directory = self.directory / below
        seen = look_at(directory)
        with self._lock:
            before, kept = self._read.get(below, (None, ()))
        if before == seen:
            return kept
        changed_ns = max((fact.changed_ns for fact in seen), default=0)
        settled = self._clock.wall_ms() * 1_000_000 - changed_ns > SETTLED_NS
        kept = tuple(_read_all(directory, {known.path: known for known in kept}))
        with self._lock:
            self._read[below] = (seen if settled else None, kept)
        return kept


@dataclass(frozen=True, slots=True)
class FileFact:
    """What tells a file from itself as it was: another content, another owner, another mode."""

    name: str
    inode: int
    size: int
    modified_ns: int
    changed_ns: int


def look_at(directory: Path) -> tuple[FileFact, ...]:
    """The secrets in a directory, unread: its own times do not tell of a file that was written over in place."""
    try:
        names = sorted(path.name for path in directory.iterdir() if path.name.endswith(SUFFIX))
    except FileNotFoundError:
        return ()
    return tuple(fact for name in names if (fact := _fact_of(directory, name)) is not None)


def _fact_of(directory: Path, name: str) -> FileFact | None:
    """None: it is gone again, or leads nowhere."""
    try:
        stat = (directory / name).stat()
    except FileNotFoundError:
        return None
    return FileFact(name, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def opens_ports(kind: Kind) -> bool:
    """Whether a secret of this kind lets anybody in at the ports of processes: that for the monitor does not."""
    return kind != "monitor"


def previous_of(path: Path) -> Path:
    """Where the secret goes that a new one takes the place of."""
    return path.with_name(path.name.removesuffix(SUFFIX) + PREVIOUS_SUFFIX)


def _read_all(directory: Path, known: Mapping[Path, Kept]) -> list[Kept]:
    """What is there; of a file that can't be used now, what it said before."""
    found = []
    for path in sorted(directory.glob(f"[!.]*{SUFFIX}")):
        try:
            found.append(Kept(path, read_secret(path)))
        except NotFoundError:
            continue
        except BookkeeperError as error:
            LOG.warning("passed over: %s", error)
            found += [known[path]] if path in known else []
    return found


def _file_name(name: str) -> str:
    if not name or name.startswith(".") or "/" in name or name.endswith(".previous"):
        raise InvalidInputError(f"{name!r} can't be a cluster's name")
    return name
