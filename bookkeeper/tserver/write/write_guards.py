"""Refusals of writes: the commit thread judges each write under the configuration in force there. Pure.

A new configuration takes effect between two submissions (rule R14): once the command that forbids writes has returned,
no write is accepted. Records of other clusters do not pass these guards, but for the exhausted sequence numbers.
Law: L6.
"""

from __future__ import annotations

from collections.abc import Collection

from bookkeeper.errors import ConditionalRefusedError, ReadOnlyError, RefusedError
from bookkeeper.model import Extent
from bookkeeper.tserver.tablets.block_targets import TableView

SEQ_MAX = (1 << 63) - (1 << 32)
"""A tablet gives no sequence number from here on. They are 64 bits wide, and the numbers above are more than one batch
needs.
"""


def refuse_exhausted(extent: Extent, next_seq: int) -> None:
    """Raise RefusedError when a tablet has no sequence number left for another record, of a user or of a cluster."""
    if next_seq >= SEQ_MAX:
        raise RefusedError(
            f"tablet {extent} has no sequence number left for another record (the next is {next_seq}): copy its "
            "records into a new table"
        )


def refuse_read_only(view: TableView) -> None:
    """Raise ReadOnlyError when users may not write to the table."""
    if view.read_only == "cluster":
        raise ReadOnlyError(
            f"this cluster is read-only, and so is table {view.name}: only replicated data is taken; to end that: "
            "readonly --cluster off"
        )
    if view.read_only == "table":
        raise ReadOnlyError(
            f"table {view.name} is read-only: only replicated data is taken; to end that: readonly -t {view.name} off"
        )


def refuse_conditional(view: TableView, senders: Collection[str]) -> None:
    """Raise ConditionalRefusedError for a table with targets: a condition that is true here may be false at a peer that
    other writes have reached, and the peer gets the records without the condition. The same for a tablet to which the
    instances ``senders`` send records, unless the table's property permits it.
    """
    if senders and view.properties.conditional_received == "false":
        raise ConditionalRefusedError(
            f"table {view.name} gets records of instance {', '.join(senders)}, and a condition that is true here may "
            "be false there: write without a condition, or let the table differ: "
            f"config -t {view.name} -s table.conditional.received=true"
        )
    if view.block_targets:
        clusters = ", ".join(sorted({block_target.cluster for block_target in view.block_targets}))
        raise ConditionalRefusedError(
            f"table {view.name} is replicated to {clusters}, and a replicated table takes no conditional writes; write "
            f"without a condition, or end that first: disablereplication -t {view.name} --all-loc-groups CLUSTER"
        )
