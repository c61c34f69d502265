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
from bookkeeper.errors import AT_LOG, AT_REPLAY, FAILED_AT, LogAwayError, UnavailableError, failing_at
from bookkeeper.log_homes.log_volume import LogVolume
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
from bookkeeper.rpc.contract.messages import WorkItem
from bookkeeper.rpc.rpc_pool import RpcPool
from bookkeeper.storage.volume.volume_protocol import Volume
from bookkeeper.tserver.shipping import worker_books
from bookkeeper.tserver.shipping.open_streams import Destination
from bookkeeper.tserver.shipping.own_log import OwnLogs
from bookkeeper.tserver.shipping.worker_plan import StreamProgress

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

    def goes_on_here(self, name: str) -> bool:
        """Whether a log is of this session, its file is there, and lanes go on with it by themselves."""
        log = self.own_logs.find(name)
        return log is not None and not log.through_master

    def placed(self, ranges: Sequence[Range]) -> tuple[list[Range], dict[int, LogAwayError]]:
        """The ranges, with the hosts that have their files; for each one whose host is away an error by its id, so that
        the others go on. Raises TransientError, CorruptionError.
        """
        if not isinstance(self.volume, LogVolume):
            return list(ranges), {}
        found: list[Range] = []
        away: dict[int, LogAwayError] = {}
        for r in ranges:
            home = self.volume.home_of(r.file)
            if home is None:
                found.append(r)
            elif address := self.own_address if self.volume.is_own(home) else self.volume.address_of(home):
                found.append(replace(r, log_host=home.host, log_incarnation=home.incarnation, log_address=address))
            else:
                reason = f"log {r.file} lies on host {home.host}, which is away: start it"
                away[r.range_id] = LogAwayError(reason, {FAILED_AT: AT_LOG})
        return found, away

    def read_progress(self, item: WorkItem) -> tuple[StreamProgress, int]:
        """What the books say about a range: the progress of its stream (none of a repeated run), and of an import the
        number of the file's first record in its tablet, else 0. Raises TransientError, CorruptionError.
        """
        progress = StreamProgress(0, 0) if item.run_id else worker_books.read_progress(self.metadata, item)
        return progress, self._first_seq(item) if is_import_log(item.file) else 0

    def _first_seq(self, item: WorkItem) -> int:
        found = read_first_seq(self.metadata, item.file, item.target)
        if not found and item.run_id:  # the queue has passed the range, and the log's own cells may be gone
            return read_first_seq_of_range(self.metadata, item.file, item.target, item.first_offset)
        return found

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
        return pick_replay(self.coordination.sessions(REPLAY_KIND), self.settings.host.name)

    def note(self, ranges: Sequence[Range], results: Sequence[RangeResult]) -> None:
        """Bring result rows of tasks that follow to the journal of a replay process. Raises BookkeeperError."""
        numbered = [replace(r, range_id=number) for number, r in enumerate(ranges)]
        rows = [replace(result, range_id=number) for number, result in enumerate(results)]
        self.pool.replay(self.replay_address()).note(
            encode_table(ranges_to_table(numbered).to_batches(), RANGE_SCHEMA),
            encode_table([results_to_batch(rows)], RESULT_SCHEMA),
        )


def pick_replay(sessions: Sequence[SessionInfo], own_host: str) -> str:
    """Address of a live replay process, that of this host first; raises UnavailableError when there is none. A host is
    its name: several may announce one address, and a process may announce another one than the tserver beside it.
    """
    alive = sorted(
        (s for s in sessions if s.alive), key=lambda s: (s.host is None or s.host.name != own_host, s.session_id)
    )
    if not alive:
        raise UnavailableError("no replay process is running; its supervisor starts it again, and its log says more")
    return alive[0].address
