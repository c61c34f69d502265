"""Fault switches of a master's operations, of its placement of tablets, and of replicas' repair."""

from __future__ import annotations

from tests.support.faults.switch import Edit, Switch

OPERATIONS: dict[str, Switch] = {
    "joiner-votes-without-data": Switch(
        "bookkeeper.master.replicas.repair_plan",
        "has_newest",
        old="return is_here and held is not None and leader is not None and held.has(leader.root)",
        new="return True",
        breaks="E-54: a joiner votes although it does not hold the leader's newest state",
    ),
    "voter-leaves-too-early": Switch(
        "bookkeeper.master.replicas.repair_plan",
        "others_suffice",
        old="return len(others) >= tablet.copies_needed",
        new="return True",
        breaks="N3: a voter leaves although too few others hold the named state",
    ),
    "demoted-replica-leaves-at-once": Switch(
        "bookkeeper.master.replicas.repair_plan",
        "_leave",
        old="if tablet.joining_ms.get(replica.host, 0) <= limits.flight_ms:",
        new="if False:",
        breaks="R4: a replica leaves while a state that counts on it may still arrive in the books",
    ),
    "balance-takes-zones-away": Switch(
        "bookkeeper.master.replicas.balance_plan",
        "keeps_zones",
        old="return len(others | {zone_of(target, hosts)}) >= len(others | {zone_of(source, hosts)})",
        new="return True",
        breaks="the balance puts two replicas of a tablet into one zone",
    ),
    "moves-end-anywhere": Switch(
        "bookkeeper.master.replicas.repair_plan",
        "kept",
        old="gone = {one.cell.in_place_of for one in good if one.cell.in_place_of}",
        new="gone = set()",
        breaks="the balance chooses anew what leaves, by loads of half-done moves, and never ends",
    ),
    "leaves-count-for-nothing": Switch(
        "bookkeeper.master.replicas.repair_plan",
        "without_given_away",
        old="if one.host not in keep:",
        new="if False:",
        breaks="tablets that lose a replica at once all take it from the same hosts",
    ),
    "choices-ignore-zones": Switch(
        "bookkeeper.master.replicas.repair_plan",
        "zones_first",
        old="return sorted(names, key=lambda name: firsts[zone_of(name, hosts)] != name)",
        new="return [*names]",
        breaks="tablets that merge meet on hosts of one zone, although another zone has a host for them",
    ),
    "a-move-needs-no-copies": Switch(
        "bookkeeper.master.operations.hosts.change_store",
        "ChangeStore.take",
        old="if not lacking:",
        new="if True:",
        breaks="N3: a tablet moves between the Volume and hosts although its files are not there",
        also=[
            Edit(
                "bookkeeper.master.operations.hosts.change_store",
                "ChangeStore._publish_all",
                "if not problems else",
                "if True else",
            )
        ],
    ),
    "moves-never-turn-back": Switch(
        "bookkeeper.master.operations.hosts.change_store",
        "ChangeStore.take",
        old="if self.waits.waited_ms(call.txid, self.context.clock, reason) <= limit_ms:",
        new="if True:",
        breaks="a tablet on its way to hosts is served by nobody as long as a chosen host is away",
        also=[
            Edit(
                "bookkeeper.master.operations.hosts.change_store",
                "ChangeStore._gives_up",
                "self.waits.waited_ms(call.txid, self.context.clock) > COPIES_WAIT_MS",
                "False",
            )
        ],
    ),
    "names-go-before-copies": Switch(
        "bookkeeper.master.operations.hosts.change_store",
        "before_copies",
        old="return replace(change, deletes=())",
        new="return change",
        breaks="N3: a file on the Volume goes before hosts have copied it",
    ),
    "destroyed-disks-stay-placed": Switch(
        "bookkeeper.master.operations.hosts.change_store",
        "ChangeStore._replace_disks",
        old="in destroyed(view.replicas, sessions):",
        new="in ():",
        breaks="a tablet on its way to hosts waits for ever for a copy on a disk that is gone",
    ),
    "destroyed-disks-are-waited-for": Switch(
        "bookkeeper.master.operations.split_merge",
        "divide_tablet",
        old="min(copies_needed(properties, len(hosts)), copies[extent] + len(silent[extent]))",
        new="copies_needed(properties, len(hosts))",
        breaks="a tablet that is split is served by nobody as long as a disk is gone",
    ),
    "splits-begin-without-hosts": Switch(
        "bookkeeper.master.operations.split_merge",
        "why_few",
        old='problems.append("" if len(found) >= wanted else said)',
        new='problems.append("")',
        breaks="a tablet that is split is served by nobody, because one of its hosts was dead before",
    ),
    "absent-hosts-are-waited-for": Switch(
        "bookkeeper.master.operations.split_merge",
        "without_hope",
        old="if is_late else",
        new="if False else",
        breaks="a tablet that is split is served by nobody as long as a host is away",
    ),
    "one-link-is-enough": Switch(
        "bookkeeper.master.operations.split_merge",
        "divide_tablet",
        old="min(copies_needed(properties, len(hosts)), copies[extent] + len(silent[extent]))",
        new="0",
        breaks="N3: the only host that has linked the files of a new tablet is lost, and its rows with it",
    ),
    "moving-tablets-merge": Switch(
        "bookkeeper.master.operations.split_merge",
        "MergeTablets.gather",
        old="if is_elsewhere(tablet, wanted)",
        new="if False",
        breaks="a merge waits for a repair that leaves its tablets to a move, and the move waits for the merge",
    ),
    "leaders-move-at-any-time": Switch(
        "bookkeeper.master.replicas.leader_balance",
        "may_move",
        old="return tablet.led_ms >= limits.lead_min_ms",
        new="return True",
        breaks="a tablet whose new host refuses it moves again in each cycle",
    ),
    "joiner-votes-before-the-name": Switch(
        "bookkeeper.master.replicas.repair_plan",
        "waits_for_name",
        old="return len(newest) >= tablet.copies_needed",
        new="return False",
        breaks="E-22: a joiner votes that lacks the named state, from which it would have to lead",
    ),
    "any-replica-leads": Switch(
        "bookkeeper.master.replicas.election",
        "may_lead",
        old="if not replica.is_voter or replica.cell.incarnation != host.incarnation:",
        new="""
        return True
        if not replica.is_voter or replica.cell.incarnation != host.incarnation:
        """,
        breaks="E-23: a replica leads that joins, was wiped, or does not hold the named state",
    ),
    "a-defined-place-begins-anew": Switch(
        "bookkeeper.master.operations.clusters",
        "may_prepare",
        old="return alias not in config.clusters",
        new="return True",
        breaks="R23: a directory that replaced the peer's gets an identity of its own",
    ),
    "loads-do-not-pause": Switch(
        "bookkeeper.master.placement.load_retries",
        "LoadRetries.may_try",
        old="return known is None or self._clock.boot_ns() >= known[1]",
        new="return True",
        breaks="a tablet that can't be loaded has its logs read again in each cycle",
    ),
    "full-hosts-keep-their-tablets": Switch(
        "bookkeeper.master.placement.placement",
        "Placement._leave_full_hosts",
        old="in self.reports.without_room():",
        new="in ():",
        breaks="a tablet refuses writes because one host has no room, although others could lead it",
    ),
    "exports-are-believed": Switch(
        "bookkeeper.master.operations.export",
        "ImportTable.copy",
        old="if checksum.hex() != wanted:",
        new="if False:",
        breaks="L7: a damaged file of an export becomes part of a table",
    ),
    "exports-share-a-directory": Switch(
        "bookkeeper.master.operations.export",
        "claim",
        old="path = directory / CLAIM",
        new="""
        return True
        path = directory / CLAIM
        """,
        breaks="L1: two exports report success, and the directory has the manifest of one",
    ),
    "streams-are-forgotten-at-once": Switch(
        "bookkeeper.master.operations.streams",
        "ForgetStreams.grace",
        old="if left_ms > 0:",
        new="if False:",
        breaks="R20: a message that was on its way is applied again",
    ),
    "splits-of-any-length": Switch(
        "bookkeeper.master.operations.table_lifecycle",
        "check_splits",
        old="if longest > SPLIT_BYTES_MAX:",
        new="if False:",
        breaks="a table is left half made when its split rows turn out to be too long for the books",
    ),
    "namesakes-are-welcome": Switch(
        "bookkeeper.master.operations.clusters",
        "refuse_namesake",
        old="and own.instance_id != found.instance_id",
        new="and False",
        breaks="R23: two clusters of one name meet, and no log or page tells them apart",
    ),
    "definition-with-any-secret": Switch(
        "bookkeeper.master.operations.clusters",
        "refuse_other_than_its_secret",
        old="instance_id not in",
        new="False and instance_id not in",
        breaks="R23: a process that says it is another cluster becomes the peer, and gets its records",
    ),
    "unsealed-tablets-move": Switch(
        "bookkeeper.master.placement.tablet_balance",
        "is_free",
        old="return tablet.session not in live and not {tablet.session, tablet.parked_at} & set(unsealed)",
        new="return tablet.session not in live",
        breaks="R15: a tablet is loaded before its last log is sealed, without its last writes",
    ),
    "everybody-gets-everything": Switch(
        "bookkeeper.master.placement.tablet_balance",
        "missing_sessions",
        old="return len(tablets.sessions())",
        new="return 0",
        breaks="the first tserver that is back after an outage of all gets all tablets",
    ),
    "nothing-is-uneven": Switch(
        "bookkeeper.master.placement.tablet_balance",
        "is_uneven",
        old="return max(max(counts) - mean, mean - min(counts)) > SLACK * mean",
        new="return False",
        breaks="tablets stay where an outage has put them",
    ),
    "two-homes-in-a-put": Switch(
        "bookkeeper.master.placement.placement",
        "one_for_each_tablet",
        old="chosen: dict[bytes, Assignment] = {}",
        new="""
        return list(assignments)
        chosen: dict[bytes, Assignment] = {}
        """,
        breaks="R1: the books and the order name two tservers",
    ),
    "loads-before-answers": Switch(
        "bookkeeper.master.placement.placement",
        "Placement._order_all",
        old="if not all(session in reported for session in live):",
        new="if False:",
        breaks="R7: two tservers hold a tablet, one by order of a deposed master",
    ),
    "failures-are-kept-for-ever": Switch(
        "bookkeeper.master.fate.engine",
        "FateEngine._retain_failure",
        old="if excess > 0:",
        new="if False:",
        breaks="failed operations pile up in the books",
    ),
    "nothing-is-shared": Switch(
        "bookkeeper.master.fate.engine",
        "is_blocked",
        old="(lock == exclusive and shared(lock) in taken)",
        new="shared(exclusive) in taken",
        breaks="an import that waits for a tablet keeps imports into all other tables waiting",
    ),
    "late-operations-count": Switch(
        "bookkeeper.master.fate.fate_store",
        "FateStore._valid_records",
        old="or record.epoch < taken_over",
        new="",
        breaks="an operation that was asked for again is executed a second time when the master changes, days later",
    ),
    "a-doubt-is-a-failure": Switch(
        "bookkeeper.master.fate.engine",
        "doubt_error",
        old='return UnavailableError(f"it is in doubt whether {running.op.type} begins ({reason}); ask again")',
        new="""
        from bookkeeper.errors import RefusedError
        return RefusedError(f"{running.op.type} has failed")
        """,
        breaks="the caller is told that an operation failed, and finds it done",
    ),
    "locks-do-not-exclude": Switch(
        "bookkeeper.master.fate.engine",
        "first_of_each_lock",
        old="if not any(is_blocked(lock, taken) for lock in running.locks):",
        new="if True:",
        breaks="two operations change one table at a time",
    ),
}
