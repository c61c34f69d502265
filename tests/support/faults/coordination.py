"""Fault switches of sessions, leases, settings in coordination, and the client's wait for damage."""

from __future__ import annotations

from tests.support.faults.switch import Switch

COORDINATION: dict[str, Switch] = {
    "embedded-idle-at-a-look": Switch(
        "bookkeeper.coordination.embedded",
        "EmbeddedCoordination.put_while_idle",
        old="if _counter(db, _SESSION_SERIAL) != serial:",
        new="if False:",
        breaks="a process that starts while a command changes the shared settings runs with the former ones",
    ),
    "settings-compared-once": Switch(
        "bookkeeper.coordination.shared_settings",
        "agree_in_session",
        old="agree_on_all_settings(coordination, settings)",
        new="pass",
        breaks="a process that starts while a command changes the shared settings runs with the former ones",
    ),
    "older-disks-keep-their-name": Switch(
        "bookkeeper.coordination.host_starts",
        "count_as_wiped_if_older",
        old="if on_disk < known:",
        new="if False:",
        breaks="P10: a copy of a host's disk counts as having what the original acknowledged later",
    ),
    "older-stores-are-used": Switch(
        "bookkeeper.coordination.host_starts",
        "refuse_older_store",
        old="if on_disk > known + 1:",
        new="if False:",
        breaks="a host goes on with a coordination store that is older than its disk",
    ),
    "starts-in-the-store-first": Switch(
        "bookkeeper.coordination.host_starts",
        "count_start",
        old="""
        disk.note_start(number)
        coordination.raise_number(name_of(host), number)
        """,
        new="""
        coordination.raise_number(name_of(host), number)
        disk.note_start(number)
        """,
        breaks="P10: a disk that was full during a start counts as wiped",
    ),
    "late-renewal-counts": Switch(
        "bookkeeper.coordination.lease",
        "renewal_counts",
        old="return written_ns < previous_until_ns",
        new="return True",
        breaks="R15: a process that was stopped and resumed takes up a lease that others saw run out",
    ),
    "no-lease-margin": Switch(
        "bookkeeper.coordination.lease",
        "is_dead",
        old="state.record.expires_ns + margin_ns",
        new="state.record.expires_ns - 10**9",
        breaks="R15: a process is taken for dead while it may still acknowledge",
    ),
    "lease-not-read": Switch(
        "bookkeeper.coordination.lease_file",
        "LeaseFile.write",
        old="if os.pread(descriptor, RECORD_BYTES_MAX + 1, 0) != self._record:",
        new="if False:",
        breaks="R15: other processes can't tell when the lease of a live process ends",
    ),
    "retries-outlive-the-order-to-end": Switch(
        "bookkeeper.runtime.session_retries",
        "SessionRetries.stop",
        old="self._stop.set()",
        new="pass",
        breaks="a tserver that is told to end waits for as long as the disk of its books is full",
    ),
    "damage-is-waited-for": Switch(
        "bookkeeper.client.tablet_extents",
        "UnservableTracker.check",
        old="if now_ns - since_ns >= UNSERVABLE_MS * 1_000_000:",
        new="if False:",
        breaks="a client waits minutes for a tablet that can't be loaded because a file is damaged",
    ),
    "death-not-written-down": Switch(
        "bookkeeper.coordination.embedded",
        "EmbeddedCoordination._write_dead",
        old="with self._store.writing() as db:",
        new="""
        return
        with self._store.writing() as db:
        """,
        breaks="R15: a session seen dead comes back with a late renewal",
    ),
    "epoch-starts-again": Switch(
        "bookkeeper.coordination.embedded",
        "EmbeddedCoordination.try_lead",
        old="epoch = 1 if row is None else row.epoch + 1",
        new="epoch = 1",
        breaks="R8: a new leader's writes are hidden under those of an older one",
    ),
    "unreadable-means-empty": Switch(
        "bookkeeper.coordination.config_tree",
        "parse_config",
        old="single: dict[str, Any] = {}",
        new="""
        return ClusterConfig(generation, None, {}, {})
        single: dict[str, Any] = {}
        """,
        breaks="R6: a configuration that does not parse counts as an empty one",
    ),
}
