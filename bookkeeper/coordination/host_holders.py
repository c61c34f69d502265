"""One node holds a host: a boot of a machine, and the lock file of the host's directory there.

On one machine the lock of the directory keeps a second process out. A copy of the directory, or its disk in another
machine, has another lock. So the tree has the node of each session of a host whose directory is its own. A tserver
opens its session, records its node, and then looks: when a session of another node is alive, or one without a record,
it ends. Of two that begin at once the later one sees the earlier one. The same node goes on at once: the lock says that
the process before is gone.
"""

from __future__ import annotations

from bookkeeper.coordination.config_tree import format_holders, holders_path, parse_holders, read_config
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import RefusedError, UnavailableError

KIND = "tserver"
"""The kind of sessions that hold a host."""


def node_text(boot_id: str, device: int, inode: int) -> str:
    """A node: a boot of a machine, and the lock file of a directory there."""
    return f"{boot_id}:{device}:{inode}"


def refuse_held(coordination: Coordination, host: str, host_id: str, node: str, own: str = "") -> None:
    """Raise UnavailableError while a session of the host that is neither of ``node`` nor ``own`` is alive, RefusedError
    when the host is another directory by now.
    """
    config = read_config(coordination)
    if config.host_ids.get(host) != host_id:
        raise RefusedError(
            f"host {host} of this cluster is the one in {config.hosts.get(host, 'no directory')} now, and not this: "
            "join it under another name in an empty directory (bookkeeper init DIR --join)"
        )
    known = holders(coordination, host)
    others = [one for one in alive_sessions(coordination, host) if one != own and known.get(one) != node]
    if others:
        raise UnavailableError(
            f"host {host} is held by another machine, or by a copy of its directory (session {', '.join(others)}); "
            "this one waits until that has ended: stop one of the two"
        )


def hold_host(coordination: Coordination, host: str, host_id: str, node: str, session_id: str) -> None:
    """Record the node of a session that is open, and look for others. Raises as :func:`refuse_held`, then the session
    has to end; ConflictError.
    """
    path = holders_path(host)
    alive, stored = {session_id, *alive_sessions(coordination, host)}, coordination.get(path)
    known = {} if stored is None else parse_holders(path, stored.value)
    kept = {session: of for session, of in known.items() if session in alive}
    coordination.put(path, format_holders({**kept, session_id: node}), 0 if stored is None else stored.version)
    refuse_held(coordination, host, host_id, node, session_id)


def alive_sessions(coordination: Coordination, host: str) -> list[str]:
    """The live sessions that hold the host, in order."""
    found = (one for one in coordination.sessions(KIND) if one.alive and one.host is not None and one.host.name == host)
    return sorted(one.session_id for one in found)


def holders(coordination: Coordination, host: str) -> dict[str, str]:
    """The node of each session that has held the host lately."""
    stored = coordination.get(holders_path(host))
    return {} if stored is None else parse_holders(holders_path(host), stored.value)
