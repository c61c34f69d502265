"""Pure functions over replication statuses.

A :class:`ReplicationStatus` has the needed and the finished offset of one log file, for one tablet or target. The
metadata table has many of them for one file: repeated, reordered, out of date, or with one side only. A reader folds
them into one status with :func:`combine`. The only writer with the absolute offset changes its own status with
:func:`append`, :func:`finish` and :func:`close`. This package imports protobuf and the standard library only.

Laws of :func:`combine`, on every message that parses (compare messages, never bytes):

* total: any number of statuses, also none, fold without an error;
* commutative and associative: order and grouping do not matter, ``combine([a, combine([b, c])])`` equals
  ``combine([a, b, c])`` in any order;
* idempotent: a status that is folded twice, or a result that is folded again, changes nothing; the empty status is the
  identity;
* monotone: the result is at least each input (state OPEN < CLOSED, offsets, byte positions and shares upwards,
  ``created_time`` downwards from unset, barriers, targets of shares and unknown fields by inclusion). ``append``,
  ``finish`` and ``close`` only climb: their result is at least the status they changed.

Source: ACCUMULO-378, *Data Structure in Value*; there the store combines, here the reader does.

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
