"""Fault switches of the metadata table and of the write-ahead log."""

from __future__ import annotations

from tests.support.faults.switch import Switch

LOG: dict[str, Switch] = {
    "newest-write-wins": Switch(
        "bookkeeper.metadata.sqlite.sqlite_store",
        "SqliteMetadataTable.put",
        old="check_puts(rows, rank)",
        new="""
        check_puts(rows, rank)
        PUT_SQL = "INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?, ?, 0, ?, 0)"
        """,
        breaks="a late writer turns a cell back, and deleted cells come back",
    ),
    "deletes-leave-no-tombstone": Switch(
        "bookkeeper.metadata.sqlite.sqlite_store",
        "SqliteMetadataTable._tombstones",
        old="self._write(DELETE_SQL,",
        new="""
        sql = "DELETE FROM cells WHERE row = ? AND family = ? AND qualifier = ? AND rank <= ? AND ? IS NOT NULL"
        self._write(sql,
        """,
        breaks="R4: a write that was in flight brings a removed cell back",
    ),
    "closed-ranks-like-open": Switch(
        "bookkeeper.metadata.keys",
        "closed_rank",
        old="return CLOSED_RANK + _offset(final, 0)",
        new="return 2 * final",
        breaks="R1: a late OPEN status hides CLOSED",
    ),
    "answered-before-the-sync": Switch(
        "bookkeeper.tserver.commit.group_committer",
        "GroupCommitter._finish",
        old="any(entry.durability is Durability.SYNC for entry in entries)",
        new="False",
        breaks="L1: a write acknowledged at sync is lost with the machine",
    ),
    "sync-counts-what-came-meanwhile": Switch(
        "bookkeeper.storage.wal.writing.wal_writer",
        "WalWriter.sync",
        old="self._synced = written",
        new="self._synced = self._written",
        breaks="L1: a block that is written during the sync of another group is acknowledged without a sync",
    ),
    "books-not-awaited": Switch(
        "bookkeeper.tserver.commit.group_committer",
        "GroupCommitter._books_agree",
        old="self._listener.before_append(self._wal.name, blocks)",
        new="pass",
        breaks="R12: a write is acknowledged before the books know its log: it is readable here and never shipped",
    ),
    "no-fence": Switch(
        "bookkeeper.tserver.commit.active_wal",
        "ActiveWal.check_fence",
        old='with self._fatal("this process may be believed dead"):',
        new="""
        return
        with self._fatal("this process may be believed dead"):
        """,
        breaks="R15: a process that others believe dead acknowledges",
    ),
    "seal-not-read": Switch(
        "bookkeeper.storage.wal.writing.seal",
        "is_fenced",
        old="return volume.is_fenced(name) or volume.exists(name + SEAL_SUFFIX) or not volume.exists(name)",
        new="return False",
        breaks="R15: an owner acknowledges records that it wrote behind the seal",
    ),
    "deleted-logs-are-written": Switch(
        "bookkeeper.storage.wal.writing.seal",
        "is_fenced",
        old=" or not volume.exists(name)",
        new="",
        breaks="R15: an owner that was paused acknowledges records in a log that is deleted",
    ),
    "counted-without-fence": Switch(
        "bookkeeper.storage.volume.local_volume",
        "raise_fence",
        old="beside(path, FENCE_SUFFIX).touch(exist_ok=True)",
        new="pass",
        breaks="R15: an owner that lives acknowledges between counting and sealing",
    ),
    "the-page-cache-is-believed": Switch(
        "bookkeeper.storage.wal.reading.seal_proof",
        "is_on_disk",
        old="return False",
        new="return True",
        breaks="R15: after a failed sync a log is sealed with records that the disk does not have",
    ),
    "stores-are-believed": Switch(
        "bookkeeper.standalone.durable_stores",
        "is_on_disk",
        old='with path.open("rb") as cached:',
        new="""
        return True
        with path.open("rb") as cached:
        """,
        breaks="L1: after a failed sync, books that are committed behind it are lost with the machine's power",
    ),
    "damage-is-a-torn-tail": Switch(
        "bookkeeper.storage.wal.reading.wal_recovery",
        "refuse_blocks_behind",
        old="in find_prefixes(source, position + 1, salt):",
        new="in ():",
        breaks="L1: whole blocks behind a damaged one are cut off silently",
    ),
    "read-past-the-seal": Switch(
        "bookkeeper.storage.wal.reading.log_formats",
        "BlockLog.__init__",
        old="source.size if seal is None else seal.position",
        new="source.size",
        breaks="R15: records that a zombie wrote behind the seal are shipped",
    ),
    "none-is-never-logged": Switch(
        "bookkeeper.tserver.commit.submission_queue",
        "effective_durability",
        old="return max(requested, Durability.LOG)",
        new="return requested",
        breaks="a replicated write that asks for no log never reaches the peer",
    ),
    "everything-merges": Switch(
        "bookkeeper.storage.wal.writing.block_merge",
        "mergeable",
        old="return (",
        new="return True or (",
        breaks="R18: a block claims more, or less, of a stream than it holds",
    ),
}
