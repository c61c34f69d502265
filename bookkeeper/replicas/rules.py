"""The rule sets of the machine: the document to the letter, and the corrected rules.

Each correction is one field, so a test can switch it off alone: ``replace(CORRECTED, n4_books_release=False)``. The
page *The machine of replicas* explains P1 to P17 (flaws of the document) and N1 to N6 (rules beyond it).
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

MAX_SEGMENT_HISTORY = 4096
"""Ids that a major lists at most as folded into it (E-16). The document names the limit and gives no value."""


class SkippedRows(Enum):
    """Where a row counts as present, so that a merge need not write it again (P4)."""

    NOWHERE = "nowhere"
    """A merge writes every row: the document to the letter (E-26)."""
    CHAIN = "chain"
    """In the chain of the root, and in memory."""
    LIST = "list"
    """In any listed segment, also the one that is merged and then deleted: the rows are lost."""


class Rules(Struct, frozen=True):
    """One rule set. A field that is True keeps the correction of its name."""

    name: str
    max_history: int = MAX_SEGMENT_HISTORY
    terms: bool = False
    """An offer of an older term than one heard of is INVALID."""
    p1_force_major: bool = False
    """The second OUT_OF_ORDER without progress makes the leader send a major without files."""
    p2_walk_by_base: bool = False
    """A walk of the chain follows bases through the list and skips entries off the chain."""
    p3_merged_in_majors: bool = False
    """A leader lists the ids that it merged in its next major."""
    p4_skipped_rows: SkippedRows = SkippedRows.NOWHERE
    p5_ack_when_durable: bool = False
    """A sender counts a segment as acknowledged at SEGMENT_ACK, not at SEGMENT_ACCEPT."""
    p5_ask_again: bool = False
    """A receiver asks again at commit whether the segment still fits its root."""
    p6_loading_fast_forward: bool = False
    """A LOADING leader without memory fast-forwards when the base is its root."""
    p6_below_own_term: bool = False
    """A LOADING leader fast-forwards only a segment whose term is below its own: its next id must be higher."""
    p7_unload_to_leader: bool = False
    """A replica in UNLOAD hands the parent's last named state to the leaders of its children only, and waits for
    their named states.
    """
    p8_joining_stage: bool = True
    """A joiner is JOINING, which never leads; a child of a split is LOADING, which has a leader. The document has
    both words, so the literal set keeps them apart, too.
    """
    p9_flush_on_loss: bool = False
    """A replica that lost the leadership flushes its memory before it takes a segment."""
    p10_incarnation: bool = False
    """An acknowledgement counts for the incarnation of the disk that gave it."""
    p11_base_is_root: bool = False
    """A major's base is the root at its commit, and it retains what was flushed meanwhile."""
    p12_transitive_history: bool = False
    """A major lists also the ids that its inputs list."""
    p13_move_to_tail: bool = False
    """A segment that comes again moves to the end of the list, and is not listed twice."""
    p14_send_empty: bool = True
    """A segment without rows in the range of a child travels all the same. The literal set does so, too."""
    p15_readers_hold: bool = False
    """A file that a page reads is not deleted."""
    p16_exists_first: bool = False
    """SEGMENT_EXISTS is decided before OVERLOADED and INFLIGHT."""
    p17_deletes_outlive: bool = False
    """A compaction keeps deletes until no older segment can come."""
    n1_name_what_was_replayed: bool = False
    """A term names no state that lacks what the term has replayed."""
    n2_list_is_written: bool = False
    """A state's list is written when the state is made, never computed again."""
    n3_copies_min: bool = False
    """A state is named when ``copies_min`` voters of today hold each file of its list."""
    n3_children_get_named: bool = False
    """A parent hands only named states to its children: its next term may not have what is beyond them."""
    n4_books_release: bool = False
    """A host deletes what a higher named state does not list, not what its own root does not list."""
    n5_major_begins_term: bool = False
    """A term begins with a major without files."""
    n6_covered_exists: bool = False
    """A segment of an earlier term whose log was replayed is SEGMENT_EXISTS, not merged."""
    n6_named_start: bool = False
    """A term begins from the state that the books name, not from the leader's root: the rest is in replayed logs."""
    n6_by_origin: bool = False
    """A merge tells records by their origin and applies none twice."""


LITERAL = Rules("literal")
"""The document to the letter, flaws included."""

CORRECTED = Rules(
    "corrected",
    terms=True,
    p1_force_major=True,
    p2_walk_by_base=True,
    p3_merged_in_majors=True,
    p4_skipped_rows=SkippedRows.CHAIN,
    p5_ack_when_durable=True,
    p5_ask_again=True,
    p6_loading_fast_forward=True,
    p6_below_own_term=True,
    p7_unload_to_leader=True,
    p8_joining_stage=True,
    p9_flush_on_loss=True,
    p10_incarnation=True,
    p11_base_is_root=True,
    p12_transitive_history=True,
    p13_move_to_tail=True,
    p14_send_empty=True,
    p15_readers_hold=True,
    p16_exists_first=True,
    p17_deletes_outlive=True,
    n1_name_what_was_replayed=True,
    n2_list_is_written=True,
    n3_copies_min=True,
    n3_children_get_named=True,
    n4_books_release=True,
    n5_major_begins_term=True,
    n6_covered_exists=True,
    n6_named_start=True,
    n6_by_origin=True,
)
"""The rules that production follows."""
