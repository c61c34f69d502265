"""Fault switches of logs that are given up, and of their tails."""

from __future__ import annotations

from tests.support.faults.switch import Switch

FAILOVER: dict[str, Switch] = {
    "late-losses-count": Switch(
        "bookkeeper.metadata.lost_logs",
        "given_up",
        old="if cell.rank == serial.rank}",
        new="}",
        breaks="N6: a late word of a deposed master lets a log be replayed and merged",
    ),
    "hosts-are-given-up-at-once": Switch(
        "bookkeeper.master.replicas.failover_plan",
        "is_overdue",
        old="return failover_ms is not None and away_ms >= failover_ms",
        new="return failover_ms is not None",
        breaks="records are missing although their host would have been back in time",
    ),
    "tails-are-merged-again": Switch(
        "bookkeeper.tserver.tablets.given_up",
        "GivenUpLogs.tail_merged",
        old="with self._lock:",
        new="""
        return
        with self._lock:
        """,
        breaks="N6: each look at a given-up log applies its tail once more",
    ),
    "states-forget-where-tails-begin": Switch(
        "bookkeeper.tserver.tablets.tablet",
        "ServedTablet._logs_in_row",
        old="if waiting else",
        new="if False else",
        breaks="N6: a tail is merged from the beginning of its log, though segments have a part of it",
    ),
    "tails-are-newer": Switch(
        "bookkeeper.tserver.tablets.load_plan",
        "Recovered.go_without",
        old="keys.first_flush_id(next_serial(row))",
        new="1",
        breaks="a record of a tail has the sequence number of one that was written later",
    ),
    "leaders-trust-their-clock": Switch(
        "bookkeeper.tserver.tablets.load_plan",
        "Recovered.go_without",
        old="self.last_time_ms = max(self.last_time_ms, latest_ms + 1)",
        new="",
        breaks="N7: records of a log from a clock that was ahead hide later writes",
    ),
    "times-are-taken-without-a-session": Switch(
        "bookkeeper.coordination.host_times",
        "raise_times",
        old="coordination.confirm(session)",
        new="",
        breaks="N7: a process that counts as dead writes times that the next leader did not see",
    ),
    "times-are-raised-later": Switch(
        "bookkeeper.tserver.write.server_times",
        "LimitedTimes.now_ms",
        old="min(self._clock.wall_ms(), self._limit_ms)",
        new="self._clock.wall_ms()",
        breaks="N7: a record has a time that the store does not know, when its host is lost",
    ),
    "tails-are-waited-for": Switch(
        "bookkeeper.tserver.tablets.given_up",
        "GivenUpLogs.in_order",
        old="if not self._lost:",
        new="if True:",
        breaks="R24: peers wait for the log of a host that was given up",
    ),
    "peers-wait-for-hosts": Switch(
        "bookkeeper.master.index.shipments",
        "Shipments._failed",
        old="and report.error_code != LogAwayError.code",
        new="",
        breaks="R24: a log whose host is away stops all work for a peer",
    ),
    "compactions-ignore-tails": Switch(
        "bookkeeper.tserver.leading.leader_chain",
        "LeaderChain.may_forget_deletes",
        old="return may_forget_deletes(",
        new="return True or may_forget_deletes(",
        breaks="P17: a compaction drops a delete, and the tail brings the deleted record back",
    ),
    "senders-are-believed": Switch(
        "bookkeeper.tserver.receive.receiver",
        "SliceApply._dedup_by_high_water",
        old="acked = 0 if self._tablet.given_up.awaits_tails else received.acked",
        new="acked = received.acked",
        breaks="R18: a high-water passes records that only the tail has, and the merge leaves them out",
    ),
    "tails-wait-for-no-other": Switch(
        "bookkeeper.tserver.origins.tail_plan",
        "has_gap",
        old="if header.origin.after_offset > high_water:",
        new="if False:",
        breaks="R18: earlier records of a stream count as known, because a later log of it came back first",
    ),
    "tails-are-all-new": Switch(
        "bookkeeper.tserver.origins.tail_plan",
        "is_known",
        old="return to_offset <= high_water",
        new="return False",
        breaks="R18: records that their source has sent again come a second time with the tail",
    ),
    "tails-have-no-duplicates": Switch(
        "bookkeeper.tserver.write.control_submissions",
        "may_forget",
        old="return (tablet for tablet in tablets if not tablet.given_up.awaits_tails)",
        new="return iter(tablets)",
        breaks="R18: a tablet forgets a stream, and does not find the duplicates in a tail",
    ),
}
