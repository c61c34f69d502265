"""The operations that end a quarantine: they ship a range after all, or skip it. Rules: R18 and R20.

The last step deletes the range's row, which retains the file. A retry ships the range in a run with a stream of its
own, so the peer does not drop its records as repeated ones. The name of the run comes from the range, so an interrupted
run continues.

The peer applies the records after later ones of the queue. In each cell the highest timestamp wins; of two equal ones
the record that the peer applies last wins. A put whose delete a compaction has dropped meanwhile becomes visible.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from msgspec import Struct, structs

from bookkeeper.coordination.config_tree import PeerCluster
from bookkeeper.errors import NotFoundError, PermanentError, UnavailableError
from bookkeeper.master.books.finished import read_done
from bookkeeper.master.fate.engine import Args, Call, Done, Failed, Next, Outcome, State, Step, Wait
from bookkeeper.master.operations.context import Context, number, text
from bookkeeper.master.quarantine.quarantined_ranges import RangeKey, read_rows, write_rows
from bookkeeper.metadata import keys
from bookkeeper.metadata.metadata_table import CellKey
from bookkeeper.metadata.values import Quarantined
from bookkeeper.model import BlockRange, Target, TargetKey
from bookkeeper.replay.ranges import stream_of
from bookkeeper.rpc.contract.messages import WorkItem, WorkReport

LOG = logging.getLogger(__name__)

AGAIN_MS = 100
SHIP_TIMEOUT_NS = 60 * 1_000_000_000
"""How long the master repeats a run that fails for now; then the operation fails and the range stays in quarantine."""


def range_args(key: RangeKey) -> Args:
    """Arguments of ``retry_range`` and ``skip_range``."""
    return {"file": key.file, "target": key.target.encode().decode(), "first": key.first}


def range_of(args: Args) -> RangeKey:
    """Inverse of :func:`range_args`."""
    return RangeKey(text(args, "file"), TargetKey.decode(text(args, "target").encode()), number(args, "first"))


def run_id_of(first: int) -> str:
    """The run of a range. It is always the same, because a range is in quarantine only once."""
    return f"quarantine-{first}"


class _RangeOperation(Struct, frozen=True):
    """The base of both operations: locks, reads of the books, and the last two steps."""

    context: Context

    def locks(self, args: Args) -> Collection[str]:
        """One operation at a time for each range."""
        return (f"range {range_of(args).range_id}",)

    def row(self, key: RangeKey) -> Quarantined | None:
        """The range's row in the books."""
        row = self.context.stores.table.get(keys.quar_row(key.file), ("quar",))
        return None if row is None else read_rows([row]).get(key)

    def target(self, key: RangeKey) -> tuple[Target, PeerCluster] | None:
        """The target and its peer; None if one of them is no longer configured (rule R9)."""
        config = self.context.config()
        peer = config.clusters.get(key.target.cluster)
        found = next((t for t in config.targets_of(key.target.source_table_id) if t.key == key.target), None)
        return None if found is None or peer is None else (found, peer)

    def tell(self, call: Call) -> Outcome:
        """Report the end of a started run to the peer (rule R20), unless the peer is no longer defined."""
        key = range_of(call.args)
        value = self.row(key)
        peer = self.context.config().clusters.get(key.target.cluster)
        if value is not None and value.tried and peer is not None:
            stream = stream_of(self.context.settings.own_instance_id, key.file, key.target, run_id_of(key.first))
            try:
                self.context.peers.tell_done(peer.alias, peer.quorum, peer.instance_id, [stream])
            except PermanentError as error:  # another instance answers there and has nothing of the run
                LOG.warning("cluster %s did not accept the end of run %s: %s", peer.alias, stream.run_id, error.message)
        return Next("remove", {})

    def remove(self, call: Call) -> Outcome:
        """Delete the row, at a rank of this reign."""
        key = range_of(call.args)
        stores = self.context.stores
        stores.table.delete([CellKey(key.cell.key, key.cell.column)], stores.reign.next_rank())
        self.context.hooks.wake()
        return Done()


class RetryRange(_RangeOperation, frozen=True):
    """Ships the range in a run of its own (:class:`bookkeeper.master.fate.engine.Operation`)."""

    first: str = "begin"

    @property
    def steps(self) -> Mapping[str, Step]:
        """begin, ship, tell, remove."""
        return {"begin": self.begin, "ship": self.ship, "tell": self.tell, "remove": self.remove}

    def begin(self, call: Call) -> Outcome:
        """Mark the row as tried before the run ships a record. Raises NotFoundError."""
        key = range_of(call.args)
        value = self.row(key)
        if value is None:
            raise NotFoundError(
                f"no range of {key.file} in quarantine begins with record {key.first}; see: replication quarantine list"
            )
        if not value.tried:
            write_rows(self.context.stores.table, self.context.stores.reign, {key: structs.replace(value, tried=True)})
        return Next("ship", {"session": ""})

    def ship(self, call: Call) -> Outcome:
        """Assign the run to a tserver and read its report. Fails with the error of the run; the row stays."""
        key = range_of(call.args)
        value, found = self.row(key), self.target(key)
        if value is None or found is None:
            return Next("tell", {})
        live = self.context.tservers.live()
        session = text(call.state, "session")
        if session not in live:
            return self._choose_tserver(key, live)
        tserver = self.context.tservers.at(live[session])
        run_id = run_id_of(key.first)
        report = next((r for r in tserver.work_reports() if (r.txid, r.run_id) == (call.txid, run_id)), None)
        if report is not None and report.error is None and report.finished_offset >= value.blocks.last:
            return Next("tell", {})
        if report is not None and report.error is not None:
            failure = self._failure(call, key, report)
            if failure is not None:
                return failure
        item = run_item(call.txid, key, value.blocks, found, self.context.stores.reign.epoch)
        tserver.assign_work([item])
        return Wait(f"{session} ships the range" if report is None else f"the run failed: {report.error}", AGAIN_MS)

    def _choose_tserver(self, key: RangeKey, live: Mapping[str, str]) -> Outcome:
        """Choose the tserver that wrote the file if it is live, else any live one. The step persists the choice for the
        next master.
        """
        owner = self.context.tservers.session_of(key.file)
        chosen = owner if owner in live else min(live, default=None)
        if chosen is None:
            return Wait("no tserver is alive", AGAIN_MS)
        state: State = {"session": chosen}
        return Next("ship", state)

    def _failure(self, call: Call, key: RangeKey, report: WorkReport) -> Outcome | None:
        """The end of the operation; None if the master tries the run again."""
        name = f"range {key.range_id}"
        if not report.error_transient:
            return Failed(PermanentError(f"{name} failed again and stays in quarantine: {report.error}"))
        if self.context.clock.boot_ns() - call.since_ns > SHIP_TIMEOUT_NS:
            return Failed(UnavailableError(f"{name} stays in quarantine; retry it later: {report.error}"))
        return None


def run_item(txid: str, key: RangeKey, blocks: BlockRange, found: tuple[Target, PeerCluster], epoch: int) -> WorkItem:
    """The range as work: its stream begins with the range, so all earlier records count as passed."""
    target, peer = found
    before = (BlockRange(1, blocks.first - 1, 0, blocks.start_position),) if blocks.first > 1 else ()
    return WorkItem(
        txid=txid,
        file=key.file,
        target=key.target,
        first_offset=blocks.first,
        last_offset=blocks.last,
        peer_quorum=peer.quorum,
        peer_instance_id=target.peer_instance_id,
        epoch=epoch,
        passed=before,
        run_id=run_id_of(key.first),
    )


class SkipRange(_RangeOperation, frozen=True):
    """Gives the range up (:class:`bookkeeper.master.fate.engine.Operation`)."""

    first: str = "pass"

    @property
    def steps(self) -> Mapping[str, Step]:
        """pass, tell, remove."""
        return {"pass": self.pass_over, "tell": self.tell, "remove": self.remove}

    def pass_over(self, call: Call) -> Outcome:
        """Wait until the target's queue has passed the range: until then workers need its row."""
        key = range_of(call.args)
        value = self.row(key)
        if value is None:
            return Done()
        if self.target(key) is not None and self._finished(key) < value.blocks.last:
            self.context.hooks.wake()
            return Wait("the target's queue has not passed the range yet", AGAIN_MS)
        LOG.warning(
            "skipped records %d to %d of %s for cluster %s (%s: %s)",
            value.blocks.first, value.blocks.last, key.file, key.target.cluster, value.code, value.error,
        )  # fmt: skip
        return Next("tell", {})

    def _finished(self, key: RangeKey) -> int:
        row = self.context.stores.table.get(keys.repl_row(key.file), ("done",))
        cell = None if row is None else row.cells.get(keys.done_column(key.target))
        return 0 if cell is None else read_done(cell, key.file.encode(), []).offset
