"""Secrets and clocks of hosts that share no directory: what is named, and what is not."""

from __future__ import annotations

import pytest

from bookkeeper.master.queries.host_comparison import ClockOffset, lacking_secrets
from bookkeeper.rpc.contract.messages import SecretMark

OLD, NEW, PEER = SecretMark("cluster.secret", "aa"), SecretMark("cluster.secret", "bb"), SecretMark("to/e.secret", "cc")


@pytest.mark.parametrize(
    ("before_ms", "call_ms", "theirs_ms", "ahead_ms", "warning"),
    [
        (5_000, 0, 5_000, 0, ""),
        (5_000, 10, 6_005, 1_000, ""),
        (5_000, 10, 6_011, 1_006, "its clock is 1.0 s ahead of the master's: set the clocks of both machines"),
        (5_000, 10, 3_994, -1_011, "its clock is 1.0 s behind the master's: set the clocks of both machines"),
        (5_000, 4_000, 9_500, 2_500, ""),
        (5_000, 4_000, 65_000, 58_000, "its clock is 58.0 s ahead of the master's: set the clocks of both machines"),
    ],
    ids=["equal", "a second", "more than a second", "behind", "a slow call", "a slow call, far off"],
)
def test_a_clock_is_named_when_it_is_off_for_sure(
    before_ms: int, call_ms: int, theirs_ms: int, ahead_ms: int, warning: str
) -> None:
    offset = ClockOffset.measured(before_ms, call_ms, theirs_ms)
    assert (offset.ahead_ms, offset.warning) == (ahead_ms, warning)


def test_a_secret_that_one_host_has_is_lacking_on_the_others() -> None:
    assert lacking_secrets({}) == {}
    assert lacking_secrets({"a": [OLD, PEER], "b": [PEER, OLD]}) == {}
    assert lacking_secrets({"a": [OLD, PEER], "b": [NEW], "c": [NEW, OLD, PEER]}) == {
        "a": "it lacks secrets that other hosts have: cluster.secret (bb)",
        "b": "it lacks secrets that other hosts have: cluster.secret (aa), to/e.secret (cc)",
    }
