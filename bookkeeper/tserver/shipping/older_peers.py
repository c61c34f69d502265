"""A lane's knowledge of a peer that came back in an older state, and the note that it makes.

Arrives: results that say that a peer lacks the last block that it acknowledged. Leaves: a note in the coordination
store, before a later record goes to the peer. The note says after which time the peer acknowledged what it lacks: that
of the last check-in that it had confirmed before it acknowledged the block. If it does not have that one, either, the
next check-in finds it (``bookkeeper.master.cycle.check_ins``).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from bookkeeper.clock import Clock
from bookkeeper.coordination.coordination_protocol import Coordination
from bookkeeper.coordination.older_peers import confirmed_ms, note_lost
from bookkeeper.replay.ranges import Range, RangeResult
from bookkeeper.tserver.shipping.worker_plan import StreamId, StreamProgress, is_older

LOG = logging.getLogger(__name__)

READ_AGAIN_MS = 1_000
"""A number that was read is as good for so long: a master checks in once in that time. Until there is one, it is read
before each run: without a number a finding has no time.
"""


class OlderPeers(Struct):
    """The check-ins of the peers of one lane. Used by the lane's thread."""

    coordination: Coordination
    clock: Clock
    _read: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of an instance, the boot clock when its number was read, and the number."""

    def checked_in(self, ranges: Iterable[Range]) -> dict[str, int]:
        """Of each peer, by its instance id, the last check-in that it confirmed. Raises TransientError."""
        now_ns = self.clock.boot_ns()
        for instance_id in {r.peer_instance_id for r in ranges}:
            read_ns, number = self._read.get(instance_id, (0, 0))
            if not number or now_ns - read_ns >= READ_AGAIN_MS * 1_000_000:
                self._read[instance_id] = now_ns, confirmed_ms(self.coordination, instance_id)
        return {instance_id: number for instance_id, (_, number) in self._read.items()}

    def note(
        self,
        ranges: Iterable[Range],
        results: Mapping[int, RangeResult],
        progress_of: Sequence[StreamProgress],
        earlier: Mapping[StreamId, StreamProgress],
        checked_in: Mapping[str, int],
    ) -> bool:
        """Note what the results of a run say; whether there was anything. ``progress_of`` has the progress of each
        range before the run, by its id, ``earlier`` that of other logs, and ``checked_in`` the check-ins. Durable on
        return. Raises TransientError.
        """
        found = [r for r in ranges if r.range_id in results and is_older(results[r.range_id])]
        for r in found:
            is_earlier = r.confirm_first and r.confirm_file != r.file
            progress = earlier[r.confirm_file, r.target, ""] if is_earlier else progress_of[r.range_id]
            confirmed = progress.confirmed
            since_ms = checked_in[r.peer_instance_id] if confirmed is None else confirmed.checked_in_ms
            LOG.error("%s came back in an older state: %s", r.target.cluster, results[r.range_id].error)
            note_lost(self.coordination, r.peer_instance_id, max(1, since_ms), r.target.incarnation)
        return bool(found)
