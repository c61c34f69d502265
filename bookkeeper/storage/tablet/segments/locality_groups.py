"""Locality groups: the group of each family, the groups present in a batch, and masks for filters. Pure. Rule: R13."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bookkeeper.errors import InvalidInputError
from bookkeeper.model import DEFAULT_GROUP
from bookkeeper.storage.columns import distinct


def mask_for_groups(batch: pa.RecordBatch, families: Collection[bytes]) -> pa.BooleanArray:
    """For each record whether its family is one of ``families``; for ``batch.filter``."""
    return family_mask(batch.column("family"), families)


def family_mask(family: pa.Array, families: Collection[bytes]) -> pa.BooleanArray:
    """As :func:`mask_for_groups`, for the family column alone."""
    if len(families) == 1:
        return pc.equal(family, pa.scalar(next(iter(families)), pa.binary()))
    return pc.is_in(family, value_set=pa.array(sorted(families), pa.binary()))


class GroupMap:
    """Family to locality group; families that no group names belong to :data:`DEFAULT_GROUP`."""

    def __init__(self, groups: Mapping[str, Collection[bytes]]) -> None:
        """Raises InvalidInputError when two groups name one family."""
        self._groups = {name: frozenset(families) for name, families in groups.items()}
        self._group_of: dict[bytes, str] = {}
        for name, families in self._groups.items():
            for family in families:
                other = self._group_of.setdefault(family, name)
                if other != name:
                    raise InvalidInputError(f"family {family!r} is in two locality groups, {other!r} and {name!r}")

    @property
    def groups(self) -> Mapping[str, frozenset[bytes]]:
        """The configured groups, by name."""
        return MappingProxyType(self._groups)

    def group_of(self, family: bytes) -> str:
        """Name of the group of ``family``."""
        return self._group_of.get(family, DEFAULT_GROUP)

    def by_group(self, families: Collection[bytes]) -> dict[str, list[bytes]]:
        """Sort ``families`` into their groups: group name to sorted families, groups in name order."""
        found: dict[str, list[bytes]] = {}
        for family in sorted(families):
            found.setdefault(self.group_of(family), []).append(family)
        return dict(sorted(found.items()))

    def groups_present(self, batch: pa.RecordBatch) -> dict[str, list[bytes]]:
        """Groups that have a record in ``batch``, each with the sorted families present."""
        return self.by_group(distinct(batch.column("family")))

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, GroupMap) and self._groups == other._groups

    def __hash__(self) -> int:
        return hash(frozenset(self._groups.items()))

    def __repr__(self) -> str:
        return f"GroupMap({self._groups!r})"
