"""Pure combiner functions over replication status values.

What arrives are :class:`ReplicationStatus` messages of one file, for one tablet or target, as they were read from
the metadata table: repeated, reordered, out of date, or with one side only. What leaves is the one status that
they mean together. Reading calls :func:`combine`; the one writer that knows the absolute offset changes its own
status through :func:`append`, :func:`finish` and :func:`close`. Protobuf and the standard library only.

Laws of :func:`combine`, on every message that parses (compare messages, never bytes):

* total: any number of statuses, none included, fold without an error;
* commutative and associative: order and grouping never show, ``combine([a, combine([b, c])])`` is
  ``combine([a, b, c])`` in any order;
* idempotent: folding a status once more, or a result again, changes nothing; the empty status is the identity;
* monotone: the result is at least each input (state OPEN < CLOSED, offsets, byte positions and shares upwards,
  ``created_time`` downwards from unset, barriers, targets of shares and unknown fields by inclusion), and ``append``,
  ``finish`` and ``close`` only climb: their result knows all that the status they changed knew.

The generated module is committed. After a change of the proto::

    python -m grpc_tools.protoc -I. --python_out=. --mypy_out=. combiners/replication_status.proto
"""

from combiners.errors import CombinerError, StatusError
from combiners.replication_status_pb2 import CLOSED, OPEN, Barrier, ReplicationStatus, Share, State
from combiners.status import append, close, combine, finish, is_fully_replicated, range_needing_replication

__all__ = [
    "CLOSED",
    "OPEN",
    "Barrier",
    "CombinerError",
    "ReplicationStatus",
    "Share",
    "State",
    "StatusError",
    "append",
    "close",
    "combine",
    "finish",
    "is_fully_replicated",
    "range_needing_replication",
]
