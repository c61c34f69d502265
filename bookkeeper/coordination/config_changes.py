"""Changes of the shared configuration: each is a compare-and-set, and safe to repeat after a crash.

A change that raises an error changes nothing. No two records change together. A table's name is claimed before its
record exists and released after the record is gone, so every state in between belongs to an unfinished operation, which
repeats these calls. Rules: R5, R9 and R23.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import structs

from bookkeeper.coordination.config_tree import (
    INSTANCE_PATH,
    READ_ONLY_PATH,
    TABLES,
    Instance,
    PeerCluster,
    TableConfig,
    TableState,
    cluster_path,
    counter_path,
    draining_path,
    format_cluster,
    format_draining,
    format_instance,
    format_read_only,
    format_table,
    format_user,
    name_path,
    parse_cluster,
    parse_instance,
    parse_table,
    table_path,
    user_path,
)
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.errors import (
    ConflictError,
    CorruptionError,
    ExistsError,
    InvalidInputError,
    NotFoundError,
    RefusedError,
)
from bookkeeper.model import DEFAULT_GROUP, LocalityGroup, Target, TargetKey

CHANGES_MAX = 50
"""Tries of one compare-and-set before giving up with ConflictError."""

SYSTEM_TABLES = ("root", "metadata", "!metadata")
SYSTEM_PREFIXES = ("bookkeeper.", "accumulo.", "hbase:")
"""Names and prefixes of a cluster's own tables, here and on peers of any kind, in any case of letters."""

_BASE36 = "0123456789abcdefghijklmnopqrstuvwxyz"


def register_instance(coordination: Coordination, instance: Instance) -> None:
    """Write the identity of this cluster; idempotent. Raises RefusedError when the store has another identity."""
    current = coordination.get(INSTANCE_PATH)
    if current is not None and parse_instance(INSTANCE_PATH, current.value).instance_id != instance.instance_id:
        raise RefusedError(
            f"the coordination store belongs to instance {parse_instance(INSTANCE_PATH, current.value).instance_id}, "
            f"not to {instance.instance_id}; correct instance.instance_id or use a store of its own"
        )
    if current is None or current.value != format_instance(instance):
        coordination.put(INSTANCE_PATH, format_instance(instance), 0 if current is None else current.version)


def set_read_only(coordination: Coordination, read_only: bool) -> None:
    """Make the cluster read-only for users, or writable again; idempotent. Raises ConflictError."""
    current = coordination.get(READ_ONLY_PATH)
    raw = format_read_only(read_only)
    if current is None or current.value != raw:
        coordination.put(READ_ONLY_PATH, raw, 0 if current is None else current.version)


def set_draining(coordination: Coordination, host: str, draining: bool) -> None:
    """Say that a host is to hold no replica, or that it may again; idempotent. Raises ConflictError."""
    path = draining_path(host)
    current = coordination.get(path)
    raw = format_draining(draining)
    if current is None or current.value != raw:
        coordination.put(path, raw, 0 if current is None else current.version)


def set_authorizations(coordination: Coordination, user: str, authorizations: Collection[str]) -> None:
    """Replace a user's authorizations; idempotent. Raises ConflictError."""
    path = user_path(user)
    current = coordination.get(path)
    if not authorizations:
        coordination.delete(path, None if current is None else current.version)
        return
    raw = format_user(authorizations)
    if current is None or current.value != raw:
        coordination.put(path, raw, 0 if current is None else current.version)


def next_count(coordination: Coordination, counter: str) -> int:
    """Increment a counter and return its new value, from 1; no two calls return the same. Raises ConflictError."""
    path = counter_path(counter)
    for _ in range(CHANGES_MAX):
        current = coordination.get(path)
        value = 1 if current is None else _count(path, current.value) + 1
        try:
            coordination.put(path, str(value).encode(), 0 if current is None else current.version)
        except ConflictError:
            continue
        return value
    raise ConflictError(f"counter {counter} changed {CHANGES_MAX} times meanwhile; try again")


def _count(path: str, raw: bytes) -> int:
    if not raw.isdigit():
        raise CorruptionError(f"configuration {path} is not a number: {raw!r}")
    return int(raw)


def new_table_id(coordination: Coordination) -> str:
    """A table id never used before: a number in base 36."""
    number, digits = next_count(coordination, "table"), ""
    while number:
        number, digit = divmod(number, 36)
        digits = _BASE36[digit] + digits
    return digits


def create_table_record(
    coordination: Coordination, table_id: str, name: str, groups: Sequence[LocalityGroup], properties: Mapping[str, str]
) -> TableConfig:
    """Claim the name and write the record in state ``creating``; repeating it with the same id is harmless.

    Raises ExistsError when another table has the name, InvalidInputError on overlapping or reserved groups,
    RefusedError for a name of :func:`refuse_system_table`.
    """
    check_groups(groups)
    _claim_name(coordination, table_id, name)
    table = TableConfig(table_id, name, "creating", tuple(groups), dict(properties), ())
    try:
        coordination.put(table_path(table_id), format_table(table), 0)
    except ConflictError:
        return _table(coordination, table_id)
    return table


def _claim_name(coordination: Coordination, table_id: str, name: str) -> None:
    if not name or any(ord(character) < 0x20 for character in name):
        raise InvalidInputError(f"{name!r} can't be a table's name; use printable characters")
    refuse_system_table(name)
    try:
        coordination.put(name_path(name), table_id.encode(), 0)
    except ConflictError:
        owner = coordination.get(name_path(name))
        if owner is None or owner.value != table_id.encode():
            raise ExistsError(f"there is a table {name} already; choose another name") from None


def refuse_system_table(name: str) -> None:
    """Raise RefusedError for the name of a root or metadata table, which users never create or replicate."""
    folded = name.casefold()
    if folded in SYSTEM_TABLES or folded.startswith(SYSTEM_PREFIXES):
        raise RefusedError(
            f"{name} is the name of a root or metadata table, which users can't create and which is not replicated; "
            "choose another name"
        )


def remove_table_record(coordination: Coordination, table_id: str) -> None:
    """Delete the record of a table, then release its name; repeating it is harmless."""
    path = table_path(table_id)
    current = coordination.get(path)
    if current is not None:
        coordination.delete(path, current.version)
    for name, claim in coordination.children(name_path("")).items():
        if claim.value == table_id.encode():
            coordination.delete(name, claim.version)


def set_table_state(coordination: Coordination, table_id: str, state: TableState) -> TableConfig:
    """Change a table's state; raises NotFoundError."""
    return change_table(coordination, table_id, lambda table: structs.replace(table, state=state))


def set_table_groups(coordination: Coordination, table_id: str, groups: Sequence[LocalityGroup]) -> TableConfig:
    """Change a table's locality groups; raises NotFoundError or InvalidInputError."""
    check_groups(groups)
    return change_table(coordination, table_id, lambda table: structs.replace(table, groups=tuple(groups)))


def set_table_properties(coordination: Coordination, table_id: str, properties: Mapping[str, str]) -> TableConfig:
    """Replace a table's properties; raises NotFoundError."""
    return change_table(coordination, table_id, lambda table: structs.replace(table, properties=dict(properties)))


def add_target(
    coordination: Coordination,
    table_id: str,
    peer: PeerCluster,
    remote_table_id: str,
    remote_table: str,
    groups: Collection[str] | None,
    incarnation: int,
) -> Target:
    """Add a target; ``groups`` None means every group. The caller stores ``incarnation``, from
    :func:`next_incarnation`, before it calls this, so that a repeat is harmless. Raises NotFoundError.
    """
    key = TargetKey(peer.alias, remote_table_id, table_id, incarnation)
    target = Target(key, None if groups is None else tuple(sorted(groups)), peer.instance_id, remote_table)

    def with_target(table: TableConfig) -> TableConfig:
        others = tuple(other for other in table.targets if other.key != key)
        return structs.replace(table, targets=(*others, target))

    change_table(coordination, table_id, with_target)
    return target


def next_incarnation(coordination: Coordination) -> int:
    """The number of a new target (rule R5); no other target of any table or peer gets it."""
    return next_count(coordination, "incarnation")


def narrow_targets(
    coordination: Coordination, table_id: str, cluster: str, groups: Collection[str] | None
) -> TableConfig:
    """Stop the replication of some groups (None = all) of a table to a cluster; a target without groups is removed.

    The other groups' records that were written before still arrive, because incarnations stay. Raises NotFoundError.
    """
    return change_table(coordination, table_id, lambda table: without_groups(table, cluster, groups))


def without_groups(table: TableConfig, cluster: str, groups: Collection[str] | None) -> TableConfig:
    """The table without these groups (None = all) in its targets at ``cluster``."""
    targets = []
    for target in table.targets:
        if target.key.cluster != cluster:
            targets.append(target)
            continue
        before = table.group_names() if target.groups is None else target.groups
        after = () if groups is None else tuple(sorted(set(before) - set(groups)))
        if after and set(after) == set(before):
            targets.append(target)
        elif after:
            targets.append(structs.replace(target, groups=after))
    return structs.replace(table, targets=tuple(targets))


def uncovered_groups(
    table: TableConfig, cluster: str, remote_table_id: str, groups: Collection[str] | None
) -> tuple[str, ...] | None:
    """The wanted groups (None = all) that no target there has yet: None = all of them, () = nothing to add."""
    same = [t for t in table.targets if t.key.cluster == cluster and t.key.remote_table_id == remote_table_id]
    if any(target.groups is None for target in same):
        return ()
    covered = {group for target in same for group in target.groups or ()}
    if groups is None and not covered:
        return None
    return tuple(sorted(set(table.group_names() if groups is None else groups) - covered))


def define_cluster(coordination: Coordination, peer: PeerCluster) -> None:
    """Record a peer, or its new quorum. Raises ExistsError when the alias belongs to another instance."""
    path = cluster_path(peer.alias)
    current = coordination.get(path)
    if current is not None:
        recorded = parse_cluster(path, current.value)
        if recorded.instance_id != peer.instance_id:
            raise ExistsError(
                f"cluster {peer.alias} is instance {recorded.instance_id}; delete it first: deletecluster"
            )
    coordination.put(path, format_cluster(peer), 0 if current is None else current.version)


def delete_cluster(coordination: Coordination, alias: str) -> None:
    """Delete a peer; raises NotFoundError, or RefusedError while a table replicates to it."""
    path = cluster_path(alias)
    current = coordination.get(path)
    if current is None:
        raise NotFoundError(f"no cluster {alias}; nothing to delete")
    for table in (parse_table(p, v.value) for p, v in coordination.children(TABLES).items()):
        if any(target.key.cluster == alias for target in table.targets):
            raise RefusedError(
                f"table {table.name} replicates to cluster {alias}; first: disablereplication -t {table.name} "
                f"--all-loc-groups {alias}"
            )
    coordination.delete(path, current.version)


GROUP_NAME_MAX = 255


def check_groups(groups: Sequence[LocalityGroup]) -> None:
    """Raise InvalidInputError on a reserved or repeated group name, or a family in two groups."""
    names = [group.name for group in groups]
    for name in names:
        if len(name) > GROUP_NAME_MAX or not name.isprintable():
            raise InvalidInputError(
                f"{name!r} can't be a locality group's name; use up to {GROUP_NAME_MAX} printable characters"
            )
    families = [family for group in groups for family in group.families]
    if not all(names) or DEFAULT_GROUP in names or len(set(names)) != len(names):
        raise InvalidInputError(f"names of locality groups must differ, and {DEFAULT_GROUP} is the group of the others")
    if len(set(families)) != len(families) or not all(group.families for group in groups):
        raise InvalidInputError("each locality group needs families, and a family may be in one group only")


def change_table(
    coordination: Coordination, table_id: str, change: Callable[[TableConfig], TableConfig]
) -> TableConfig:
    """Read, change and compare-and-set a table's record; an equal result writes nothing. Raises NotFoundError."""
    path = table_path(table_id)
    for _ in range(CHANGES_MAX):
        current = coordination.get(path)
        if current is None:
            raise NotFoundError(f"no table with id {table_id}")
        table = change(parse_table(path, current.value))
        raw = format_table(table)
        if raw == current.value:
            return table
        try:
            coordination.put(path, raw, current.version)
        except ConflictError:
            continue
        return table
    raise ConflictError(f"table {table_id} changed {CHANGES_MAX} times meanwhile; try again")


def _table(coordination: Coordination, table_id: str) -> TableConfig:
    path = table_path(table_id)
    current = coordination.get(path)
    if current is None:
        raise ConflictError(f"table {table_id} was removed meanwhile; try again")
    return parse_table(path, current.value)
