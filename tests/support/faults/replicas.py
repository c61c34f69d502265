"""Fault switches of replicas on hosts."""

from __future__ import annotations

from tests.support.faults.switch import Edit, Switch

REPLICAS: dict[str, Switch] = {
    "lost-replicas-stay-on-the-way-to-the-volume": Switch(
        "bookkeeper.master.replicas.repairer",
        "Repairer.run",
        old="view.replicas and view.extent.table_id in properties",
        new="view.replicas and properties[view.extent.table_id].replicas > 1",
        breaks="no state of a tablet gets a name, and it waits for ever on its way to the Volume",
    ),
    "ack-before-sync": Switch(
        "bookkeeper.storage.replicas.incoming_files",
        "make_durable",
        old="ops.fsync(fd)",
        new="pass",
        breaks="P5: a power failure behind the acknowledgement takes the file",
    ),
    "transfers-end-on-the-disk": Switch(
        "bookkeeper.tserver.replicas.held_replica",
        "HeldReplica._save",
        old="_durable(manifest) != _durable(self._manifest)",
        new="True",
        breaks="a file stays on a host for ever, because its disk was full when a transfer ended",
    ),
    "manifest-before-files": Switch(
        "bookkeeper.storage.replicas.host_store",
        "HostStore.save",
        old="publish()",
        new="pass",
        breaks="P5: a manifest lists files that a power failure takes",
        also=[
            Edit(
                "bookkeeper.storage.replicas.host_store",
                "HostStore.save",
                old="sync_directory(path.parent, self._ops)",
                new="""
        sync_directory(path.parent, self._ops)
        if publish is not None:
            publish()
        """,
            )
        ],
    ),
    "segment-not-asked-again": Switch(
        "bookkeeper.replicas.receiving",
        "content_arrived",
        old="if rules.p5_ask_again:",
        new="if False:",
        breaks="P5: a segment that was overtaken replaces the newer root",
    ),
    "file-checksum-ignored": Switch(
        "bookkeeper.storage.replicas.incoming_files",
        "Part._write",
        old="self._checksum != self.file.crc32c",
        new="False",
        breaks="L7: a file counts whose bytes are not the sender's",
    ),
    "deletion-by-local-root": Switch(
        "bookkeeper.tserver.replicas.replica_collector",
        "collect_event",
        old="return Collect(row.named_id, row.named_files, given_up=given_up)",
        new="""
        from bookkeeper.replicas.chain import files_of
        from bookkeeper.replicas.rules import CORRECTED
        return Collect(replica.root, files_of(replica, replica.root, CORRECTED))
        """,
        breaks="N4: a host deletes a file that the books name, because its own root does not list it",
    ),
    "split-shares-files": Switch(
        "bookkeeper.storage.replicas.host_store",
        "HostStore.link",
        old="self._volume.link({new: present for new, present in names.items() if not self._volume.exists(new)})",
        new="""
        root = self.incoming.parent
        for new, present in names.items():
            (root / new).parent.mkdir(parents=True, exist_ok=True)
            (root / new).symlink_to(root / present)
        """,
        breaks="E-56: a tablet that was split deletes files that another half needs",
    ),
    "merged-parts-go": Switch(
        "bookkeeper.tserver.replicas.replica_collector",
        "ReplicaCollector.collect",
        old="{part for row in rows.values() for part in row.parts}",
        new="set()",
        breaks="N4: a host deletes a part of a merged tablet before it has linked the files",
    ),
    "holds-ignored-on-hosts": Switch(
        "bookkeeper.tserver.replicas.replica_collector",
        "collect_replica",
        old="event.read | frozenset(held_files)",
        new="event.read",
        breaks="R17: a host deletes a file that an export still reads",
    ),
    "copies-unchecked": Switch(
        "bookkeeper.storage.replicas.file_checks",
        "copied_file",
        old="if (made.size_bytes, made.crc32c) != (size, checksum):",
        new="if False:",
        breaks="L7: a copy of an imported file with other bytes becomes a part of the tablet",
    ),
    "damaged-file-is-held": Switch(
        "bookkeeper.replicas.damage",
        "damaged",
        old="found = replica.files.intersection(event.files)",
        new="found = frozenset()",
        breaks="N3: a state is named on the strength of a copy whose file is damaged",
    ),
    "damaged-copy-stays-acknowledged": Switch(
        "bookkeeper.replicas.damage",
        "copy_damaged",
        old="entry.acked - {event.placement}",
        new="entry.acked",
        breaks="N3: a leader counts a copy that its host no longer has",
    ),
    "damaged-file-exists": Switch(
        "bookkeeper.replicas.receiving",
        "here",
        old="if replica.damaged.isdisjoint(segment.list) else",
        new="if True else",
        breaks="N3: a host acknowledges a state of which a file is damaged on its disk",
    ),
    "damaged-file-is-deleted": Switch(
        "bookkeeper.replicas.collecting",
        "collect",
        old="(replica.files | replica.damaged) - kept",
        new="(replica.files - kept) | replica.damaged",
        breaks="N4: a host deletes a damaged file that the books list, and never asks for a sound copy",
        also=[
            Edit(
                "bookkeeper.replicas.collecting",
                "collect",
                old="damaged=replica.damaged & kept",
                new="damaged=frozenset()",
            )
        ],
    ),
    "hosts-share-a-scratch-file": Switch(
        "bookkeeper.tserver.replicas.replica_stores",
        "ReplicaStores._publish_file",
        old="writer = self._replicas.host.name",
        new='writer = ""',
        breaks="L7: a host publishes a file on the Volume while another one begins it anew",
    ),
    "incarnation-ignored": Switch(
        "bookkeeper.tserver.replicas.replica_receiver",
        "ReplicaReceiver._believed",
        old="if held is not None and is_known(held.replica, offer):",
        new="""
        from msgspec.structs import replace
        own = held and replace(offer.receiver, incarnation=held.placement.incarnation)
        if held is not None and is_known(held.replica, replace(offer, receiver=own)):
        """,
        breaks="P10: an offer for a wiped disk counts for the new one",
    ),
}
