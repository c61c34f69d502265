"""A segment comes from another host: the order of questions in which a replica takes or declines it."""

from __future__ import annotations

from msgspec.structs import replace

from bookkeeper.replicas.chain import files_of, is_referenced, live_chain
from bookkeeper.replicas.events import ContentArrived, ContentFailed
from bookkeeper.replicas.instructions import Answer, Decision, FlushMemory, Merge
from bookkeeper.replicas.messages import Accept, Ack, Decline, Offer, Reason
from bookkeeper.replicas.rules import Rules, SkippedRows
from bookkeeper.replicas.values import (
    Entry,
    Incoming,
    Placement,
    Replica,
    Segment,
    Stage,
    Step,
    joined_positions,
    term_of,
)

OneOf = Step | Reason


def is_covered(replica: Replica, segment: Segment, rules: Rules, is_from_parent: bool = False) -> bool:
    """Whether the leader's term has replayed what an earlier term's segment brings (N6)."""
    if is_from_parent or not (rules.n6_covered_exists and rules.terms and replica.is_leader):
        return False
    term = term_of(segment.id)
    missing_from = dict(replica.given_up)
    if term not in missing_from:
        return term < replica.led
    return dict(segment.logs).get(term, 0) <= missing_from[term]


def judge(replica: Replica, offer: Offer, rules: Rules) -> OneOf:
    """How a replica takes an offered segment, or why it declines it."""
    segment, is_from_parent = offer.segment, offer.term is None
    if rules.terms and offer.term is not None and offer.term < replica.term:
        return Reason.INVALID
    if rules.p16_exists_first and _is_here(replica, segment, rules, is_from_parent):
        return here(replica, segment)
    if len(replica.incoming) > replica.incoming_max:
        return Reason.OVERLOADED
    if any(incoming.segment.id == segment.id for incoming in replica.incoming):
        return Reason.INFLIGHT
    return judge_content(replica, segment, offer.sender, rules, is_from_parent)


def judge_content(replica: Replica, segment: Segment, sender: str, rules: Rules, is_from_parent: bool = False) -> OneOf:
    """The questions about the segment itself, which are asked again at commit (P5)."""
    if replica.is_leader:
        return _judge_as_leader(replica, segment, rules, is_from_parent)
    if sender != replica.leader:
        return Reason.INVALID
    if segment.base == replica.root:
        return Step.FAST_FORWARD
    if is_referenced(replica, segment.id, rules):
        return here(replica, segment)
    return Step.FAST_FORWARD if segment.is_major else Reason.OUT_OF_ORDER


def here(replica: Replica, segment: Segment) -> Reason:
    """The answer to a segment that the chain has: it exists, or it has to be offered again because a file of its list
    is damaged here (N3).
    """
    return Reason.SEGMENT_EXISTS if replica.damaged.isdisjoint(segment.list) else Reason.OVERLOADED


def _judge_as_leader(replica: Replica, segment: Segment, rules: Rules, is_from_parent: bool) -> OneOf:
    is_loading = replica.stage is Stage.LOADING
    is_below = term_of(segment.id) < replica.led or not rules.p6_below_own_term
    is_free = not (rules.p6_loading_fast_forward and replica.has_memory)
    if is_loading and replica.root is None and is_below and is_free:
        return Step.FAST_FORWARD
    if _is_here(replica, segment, rules, is_from_parent):
        return Reason.SEGMENT_EXISTS
    fits = rules.p6_loading_fast_forward and segment.base == replica.root
    return Step.FAST_FORWARD if is_loading and fits and is_below and is_free else Step.MERGE


def _is_here(replica: Replica, segment: Segment, rules: Rules, is_from_parent: bool) -> bool:
    return is_referenced(replica, segment.id, rules) or is_covered(replica, segment, rules, is_from_parent)


def heard(replica: Replica, offer: Offer, rules: Rules) -> Replica:
    """The replica after it heard of a newer term."""
    if not rules.terms or offer.term is None or offer.term <= replica.term:
        return replica
    return replace(replica, term=offer.term, leader=offer.leader)


def offer_arrived(replica: Replica, offer: Offer, rules: Rules) -> tuple[Replica, Decision]:
    """Accept or decline (E-42 to E-49). A follower with memory of its own flushes it first (E-50, P9)."""
    replica = heard(replica, offer, rules)
    segment = offer.segment
    answer = judge(replica, offer, rules)
    if rules.p9_flush_on_loss and replica.has_memory and not replica.is_leader and isinstance(answer, Step):
        declined = Decline(segment.id, replica.placement, Reason.OVERLOADED, replica.root)
        return replica, (FlushMemory(), Answer(offer.sender, declined))
    if isinstance(answer, Reason):
        return replica, (Answer(offer.sender, Decline(segment.id, replica.placement, answer, replica.root)),)
    need = tuple(name for name in segment.list if name not in replica.files)
    incoming = (*replica.incoming, Incoming(segment, offer.sender, answer, offer.term is None))
    accepted = Accept(segment.id, replica.placement, need)
    return replace(replica, incoming=incoming), (Answer(offer.sender, accepted),)


def content_failed(replica: Replica, event: ContentFailed) -> Replica:
    """The replica without the transfer."""
    left = tuple(one for one in replica.incoming if (one.segment.id, one.sender) != (event.segment_id, event.sender))
    return replace(replica, incoming=left)


def content_arrived(replica: Replica, event: ContentArrived, rules: Rules) -> tuple[Replica, Decision]:
    """Commit an accepted segment. Base and root are compared again first (P5); to the letter they are not."""
    coming = [one for one in replica.incoming if (one.segment.id, one.sender) == (event.segment_id, event.sender)]
    if not coming:
        return replica, ()
    (segment, sender, step) = (coming[0].segment, coming[0].sender, coming[0].step)
    replica = content_failed(replica, ContentFailed(segment.id, sender))
    if rules.p5_ask_again:
        now = judge_content(replica, segment, sender, rules, coming[0].is_from_parent)
        if now is not step:
            reason = now if isinstance(now, Reason) else Reason.OUT_OF_ORDER
            return replica, (Answer(sender, Decline(segment.id, replica.placement, reason, replica.root)),)
    if step is Step.MERGE:
        done = Answer(sender, Ack(segment.id, replica.placement, replica.root))
        return merged(replica, segment, rules, done, is_from_parent=coming[0].is_from_parent)
    replica = fast_forwarded(replica, segment, _pre_acked(replica, sender), rules)
    return replica, (Answer(sender, Ack(segment.id, replica.placement, replica.root)),)


def _pre_acked(replica: Replica, sender: str) -> frozenset[Placement]:
    """A follower knows that the leader has what the leader sent (E-46)."""
    if replica.is_leader:
        return frozenset()
    return frozenset(target.placement for target in replica.targets if target.host == sender == replica.leader)


def fast_forwarded(replica: Replica, segment: Segment, acked: frozenset[Placement], rules: Rules) -> Replica:
    """Add a segment without a look at its data, and take it for the root (E-25)."""
    kept = replica.entries
    if rules.p13_move_to_tail:
        kept = tuple(entry for entry in kept if entry.segment.id != segment.id)
    return replace(
        replica,
        entries=(*kept, Entry(segment, acked)),
        root=segment.id,
        files=replica.files | set(segment.list),
        damaged=replica.damaged - set(segment.list),
    )


def merged(
    replica: Replica, segment: Segment, rules: Rules, *then: Answer, is_from_parent: bool = False
) -> tuple[Replica, Decision]:
    """Take the rows of a segment like new writes (E-26, E-27).

    A parent's segment brings all that its list has, so the states of this term have to have it, too: then the books
    show when the parent may go (P7).
    """
    remembered = (segment.id, *(one for one in replica.merged if one != segment.id))
    present: tuple[str, ...] = ()
    if rules.p4_skipped_rows is SkippedRows.CHAIN:
        present = files_of(replica, replica.root, rules) or tuple(
            name for one in live_chain(replica, rules) for name in one.files
        )
    elif rules.p4_skipped_rows is SkippedRows.LIST:
        present = tuple(sorted(replica.files | set(segment.files)))
    replica = replace(replica, has_memory=True, merged=remembered if rules.p3_merged_in_majors else ())
    if is_from_parent:
        replica = replace(replica, replayed=joined_positions(replica.replayed, segment.logs))
    return replica, (Merge(segment, present, rules.n6_by_origin, is_from_parent), *then)
