"""Reads with a stated age: the hosts that a scan asks before it asks a tablet's leader. Pure, with injected chance."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence


def may_ask_followers(stale_ms: int | None, is_first_page: bool, state_id: int | None) -> bool:
    """Whether a page may come from a follower. ``state_id``: of the tablet's page before; None when the leader served
    it. The leader has newer cells than any follower, so after its page only the leader does not go back.
    """
    return stale_ms is not None and (is_first_page or state_id is not None)


def followers_to_ask(
    replicas: Sequence[str], leader: str | None, before: str | None, away: Collection[str], rng: random.Random
) -> list[str]:
    """The addresses of a tablet's followers in the order in which a scan asks them: the one of the page ``before``
    first, the others by chance, so that scans spread over the hosts; none that is ``away``.
    """
    followers = [address for address in replicas if address != leader and address not in away]
    rng.shuffle(followers)
    return sorted(followers, key=lambda address: address != before)
