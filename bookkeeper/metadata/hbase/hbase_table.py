"""The HBase table of the books: ``init`` creates it for one instance, and every process that opens it checks it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from bookkeeper.errors import ExistsError, IncompatibleError, NotFoundError
from bookkeeper.metadata import keys
from bookkeeper.metadata.hbase.hbase_calls import CallLimits, HBaseAddress, HBaseCalls, missing_text, thrift
from bookkeeper.metadata.hbase.hbase_cells import column_name, family_names, rows_of
from bookkeeper.metadata.metadata_table import FAMILIES, OWNER_FAMILY, Row
from bookkeeper.metadata.owner import owner_of, owner_value

ALL_FAMILIES = (*FAMILIES, OWNER_FAMILY)
FOR_EVER = 2**31 - 1
"""HBase's time to live of a family whose cells do not expire, in seconds."""


def make_hbase_table(address: HBaseAddress, instance_id: str, limits: CallLimits) -> None:
    """Create the table of a new cluster, owned by ``instance_id``; repeating it is harmless. Raises ExistsError when
    the table has another owner, TransientError.
    """
    calls = HBaseCalls(address, limits, lambda _client: None)
    try:
        calls.call(_make, address, instance_id)
    finally:
        calls.close()


def _make(client: Any, address: HBaseAddress, instance_id: str) -> None:
    if address.table not in client.getTableNames():
        with suppress(thrift.AlreadyExists):  # an earlier try or another init created it: the claim below decides
            client.createTable(address.table, [_family(name) for name in ALL_FAMILIES])
    check_table(client, address)
    if _is_empty(client, address.table):
        claim = thrift.Mutation(column=column_name(keys.OWNER), value=owner_value(instance_id))
        client.checkAndPut(address.table, keys.owner_row(), column_name(keys.OWNER), None, claim, {})
    owner = owner_of(read_owner(client, address))
    if owner is None or owner.instance_id != instance_id:
        owner_text = "a cluster" if owner is None else f"instance {owner.instance_id}"
        raise ExistsError(
            f"{address} holds the books of {owner_text}; name another prefix with --metadata (you may drop the "
            "table of an interrupted init)"
        )


def _is_empty(client: Any, table: bytes) -> bool:
    scanner = client.scannerOpen(table, b"", [], {})
    found = client.scannerGetList(scanner, 1)
    client.scannerClose(scanner)
    return not found


def read_owner(client: Any, address: HBaseAddress) -> Row | None:
    """The owner row, None when the table has none."""
    found = client.getRowWithColumns(address.table, keys.owner_row(), family_names((OWNER_FAMILY,)), {})
    return next(iter(rows_of(found)), None)


def check_table(client: Any, address: HBaseAddress) -> None:
    """Raise NotFoundError when there is no table, IncompatibleError when it has other families or versions, or when its
    cells expire: their times are ranks (R1), which HBase takes for moments of 1970.
    """
    if address.table not in client.getTableNames():
        raise NotFoundError(missing_text(address))
    found = client.getColumnDescriptors(address.table)
    versions = {name.rstrip(b":").decode(): family.maxVersions for name, family in found.items()}
    if versions != dict.fromkeys(ALL_FAMILIES, 1):
        raise IncompatibleError(
            f"{address} has families and versions {versions}; a metadata table has one version of "
            f"{', '.join(ALL_FAMILIES)}: choose another prefix"
        )
    expiring = [name.decode().rstrip(":") for name, family in found.items() if family.timeToLive != FOR_EVER]
    if expiring:
        raise IncompatibleError(
            f"cells of {address} expire, those of the families {', '.join(sorted(expiring))}, and HBase would drop the "
            "books: set their TTL to FOREVER in HBase's shell, or choose another prefix"
        )


def _family(name: str) -> Any:
    return thrift.ColumnDescriptor(
        name=f"{name}:".encode(), maxVersions=1, bloomFilterType=b"ROW", blockCacheEnabled=True
    )
