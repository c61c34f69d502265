"""What all lanes of a worker share: the books, the Volume, calls, and runs of the replay process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from bookkeeper.bulk.import_log import is_import_log
from bookkeeper.bulk.import_places import read_first_seq, read_first_seq_of_range
from bookkeeper.clock import Clock
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.coordination_protocol import Coordination, SessionInfo
from bookkeeper.errors import AT_REPLAY, UnavailableError, failing_at
from bookkeeper.metadata.metadata_table import MetadataTable
from bookkeeper.model import TargetKey
from bookkeeper.replay.ranges import (
    RANGE_SCHEMA,
    RESULT_SCHEMA,
    Range,
    RangeResult,
    decode_table,
    encode_table,
    ranges_to_table,
    results_from_table,
    results_to_batch,
)
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.tserver.shipping import worker_books
from bookkeeper.tserver.shipping.open_streams import Destination
from bookkeeper.tserver.shipping.own_log import OwnLogs
from bookkeeper.tserver.shipping.worker_plan import (
    LanePlan,
    Outcome,
    Queued,
    StreamProgress,
    must_read_books,
    stream_of,
)

LOG = logging.getLogger(__name__)

REPLAY_KIND = "replay"


class LaneTools(Struct, frozen=True):
    """Collaborators that all lanes of a worker share. ``own_address``: where this tserver answers."""

    settings: Settings
    volume: Volume
    metadata: MetadataTable
    coordination: Coordination
    pool: RpcPool
    own_address: str
    own_logs: OwnLogs
    destinations: Callable[[], Mapping[TargetKey, Destination]]
    clock: Clock

    def progress_of(self, batch: Sequence[Queued], plan: LanePlan) -> list[StreamProgress]:
        """The progress of each stream of the batch: cached, or read from the books (none of repeated runs)."""
        found = []
        for queued in batch:
            progress = plan.progress_of.get(stream_of(queued.item))
            if must_read_books(progress, queued.item):
                progress = worker_books.read_progress(self.metadata, queued.item)
            found.append(progress or StreamProgress(0, 0))
        return found

    def goes_on_here(self, name: str) -> bool:
        """Whether a log is of this session, its file is there, and lanes go on with it by themselves."""
        log = self.own_logs.find(name)
        return log is not None and not log.through_master

    def numbered(self, ranges: Sequence[Range]) -> list[Range]:
        """The ranges, those of imports with the number of the file's first record in its tablet."""
        return [replace(r, first_seq=self._first_seq(r)) if is_import_log(r.file) else r for r in ranges]

    def _first_seq(self, r: Range) -> int:
        found = read_first_seq(self.metadata, r.file, r.target)
        if not found and r.run_id:  # the queue has passed the range, and the log's own cells may be gone
            return read_first_seq_of_range(self.metadata, r.file, r.target, r.first)
        return found

    def announce(self, batch: Sequence[Queued], progress_of: Sequence[StreamProgress]) -> None:
        """Write the cell of each new stream before its first message leaves (R20)."""
        items = [(queued.item, progress) for queued, progress in zip(batch, progress_of, strict=True)]
        fresh = [item for item, progress in items if not (progress.recorded or item.run_id)]
        if fresh:
            worker_books.announce(self.metadata, fresh)

    def ship(self, ranges: Sequence[Range]) -> dict[int, RangeResult]:
        """One replay run; results by range id. Raises UnavailableError when no replay process answers."""
        with failing_at(AT_REPLAY):
            return self._ship(ranges)

    def _ship(self, ranges: Sequence[Range]) -> dict[int, RangeResult]:
        address = self.replay_address()
        replay = self.settings.replay
        raw = encode_table(ranges_to_table(ranges).to_batches(), RANGE_SCHEMA)
        answer = self.pool.replay(address, replay.run_timeout_ms + replay.start_timeout_ms).run(raw)
        results = {result.range_id: result for result in results_from_table(decode_table(answer, RESULT_SCHEMA))}
        missing = [r.range_id for r in ranges if r.range_id not in results]
        if missing:
            raise UnavailableError(f"{address} left out {len(missing)} of {len(ranges)} ranges in its answer")
        for r in ranges:
            if transfer := results[r.range_id].way:
                LOG.info("%s goes to %s as %s", r.file, r.target.cluster, transfer)
        return results

    def begin_task(self, address: str, cluster: str, run: str, follow_ms: int) -> None:
        """A task at a replay process follows for a peer; returns when it is over. Raises BookkeeperError."""
        replay = self.settings.replay
        timeout_ms = follow_ms + replay.run_timeout_ms + replay.start_timeout_ms
        self.pool.replay(address, timeout_ms).follow(self.own_address, cluster, run)

    def replay_address(self) -> str:
        """A live replay process; raises UnavailableError when there is none."""
        return pick_replay(self.coordination.sessions(REPLAY_KIND), self.own_address)

    def note(self, ranges: Sequence[Range], results: Sequence[RangeResult]) -> None:
        """Bring result rows of tasks that follow to the journal of a replay process. Raises BookkeeperError."""
        numbered = [replace(r, range_id=number) for number, r in enumerate(ranges)]
        rows = [replace(result, range_id=number) for number, result in enumerate(results)]
        self.pool.replay(self.replay_address()).note(
            encode_table(ranges_to_table(numbered).to_batches(), RANGE_SCHEMA),
            encode_table([results_to_batch(rows)], RESULT_SCHEMA),
        )

    def commit(self, outcomes: Sequence[tuple[Queued, Outcome]], before: Sequence[StreamProgress]) -> None:
        """Write the new finished offsets, in one call for each offset."""
        worker_books.write_finished(
            self.metadata,
            [
                (queued.item, outcome.progress)
                for (queued, outcome), progress in zip(outcomes, before, strict=True)
                if outcome.progress.recorded > progress.recorded and not queued.item.run_id
            ],
        )


def pick_replay(sessions: Sequence[SessionInfo], own_address: str) -> str:
    """Address of a live replay process, one of this host first; raises UnavailableError when there is none."""
    host = own_address.rpartition(":")[0]
    alive = sorted((s for s in sessions if s.alive), key=lambda s: (s.address.rpartition(":")[0] != host, s.session_id))
    if not alive:
        raise UnavailableError("no replay process is running; its supervisor starts it again, and its log says more")
    return alive[0].address
