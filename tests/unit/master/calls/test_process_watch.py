"""The watch of processes: since when none works, and the last words of replay processes."""

from __future__ import annotations

from msgspec.structs import replace

from bookkeeper.coordination.coordination_protocol import SessionInfo
from bookkeeper.master.calls.process_watch import ProcessWatch
from bookkeeper.model import HostIdentity
from tests.support.jumping_clock import StandingClock


class Cluster:
    """The sessions of a cluster, and the watch over them."""

    def __init__(self) -> None:
        self.found: dict[str, list[SessionInfo]] = {"tserver": [], "replay": []}
        self.clock = StandingClock()
        self.watch = ProcessWatch(lambda *kinds: [info for kind in kinds for info in self.found[kind]], self.clock)

    def start(self, kind: str, number: int, host: HostIdentity | None = None) -> None:
        self.found[kind].append(SessionInfo(f"{kind}-{number}", kind, f"127.0.0.1:{number}", True, host))

    def end_all(self, kind: str) -> None:
        self.found[kind].clear()

    def replay_at(self, now_ns: int) -> tuple[int | None, str]:
        self.clock.now_ns = now_ns
        seen = self.watch.look()
        return seen.no_replay_since_ns, seen.replay_words


def test_the_time_without_a_process_begins_at_the_first_look_without_one() -> None:
    cluster = Cluster()
    cluster.start("tserver", 1, HostIdentity("host2", "i1"))
    cluster.start("replay", 1)
    seen = cluster.watch.look()
    assert (seen.no_tserver_since_ns, seen.no_replay_since_ns) == (None, None)
    assert seen.tservers == {"tserver-1": "127.0.0.1:1"}
    assert set(seen.hosts) == {HostIdentity("host2", "i1")}
    for kind in ("tserver", "replay"):
        cluster.end_all(kind)
    for now_ns in (7, 9):
        cluster.clock.now_ns = now_ns
        seen = cluster.watch.look()
        assert (seen.no_tserver_since_ns, seen.no_replay_since_ns) == (7, 7)
    cluster.start("tserver", 2)
    assert cluster.watch.look().no_tserver_since_ns is None


def test_a_dead_session_is_no_process() -> None:
    cluster = Cluster()
    cluster.found["tserver"].append(SessionInfo("tserver-1", "tserver", "127.0.0.1:1", False))
    seen = cluster.watch.look()
    assert not seen.tservers
    assert (seen.no_tserver_since_ns, len(seen.sessions)) == (0, 1)


def test_a_silent_tserver_does_not_work_and_its_logs_stay_its_own() -> None:
    cluster = Cluster()
    cluster.start("tserver", 1)
    (one,) = cluster.found["tserver"]
    cluster.found["tserver"] = [replace(one, silent_ms=4_000)]
    seen = cluster.watch.look()
    assert (seen.no_tserver_since_ns, seen.silent_words) == (0, "tserver-1 at 127.0.0.1:1 is silent")
    assert set(seen.tservers) == {"tserver-1"}, "it may go on, and nothing but words follows"
    cluster.start("tserver", 2)
    assert cluster.watch.look().no_tserver_since_ns is None


def test_a_replay_process_that_starts_again_and_again_does_not_work_until_one_says_so() -> None:
    cluster = Cluster()
    cluster.start("replay", 1)
    assert cluster.replay_at(1) == (None, "")
    cluster.watch.note_replay("replay-1", "Java is missing")
    assert cluster.replay_at(2) == (1, "Java is missing"), "its session may live a moment longer"
    cluster.end_all("replay")
    assert cluster.replay_at(3) == (1, "Java is missing")
    cluster.start("replay", 2)
    assert cluster.replay_at(4) == (1, "Java is missing"), "it has not got as far yet"
    cluster.watch.note_replay("replay-2", "")
    assert cluster.replay_at(5) == (None, "")


def test_the_live_replay_processes_have_an_address_and_say_whether_they_work() -> None:
    cluster = Cluster()
    for number in (1, 2):
        cluster.start("replay", number)
    cluster.watch.note_replay("replay-2", "")
    seen = cluster.watch.look()
    assert [info.session_id for info in seen.live_replays] == ["replay-1", "replay-2"]
    assert (seen.warm, seen.replays) == (frozenset({"replay-2"}), frozenset({"replay-1", "replay-2"}))
    cluster.end_all("replay")
    seen = cluster.watch.look()
    assert (seen.live_replays, seen.warm) == ((), frozenset())


def test_another_replay_process_that_works_is_enough() -> None:
    cluster = Cluster()
    for number in (1, 2):
        cluster.start("replay", number)
    cluster.watch.note_replay("replay-2", "")
    cluster.watch.note_replay("replay-1", "its JVM ended")
    assert cluster.replay_at(1) == (None, "")
    del cluster.found["replay"][1]
    assert cluster.replay_at(2) == (0, "its JVM ended")
