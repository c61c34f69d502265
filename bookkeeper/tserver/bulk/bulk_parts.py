"""The entrance of this room: the three objects that other rooms call. The other modules serve these three."""

from __future__ import annotations

from msgspec import Struct

from bookkeeper.tserver.bulk.bulk_loader import BulkLoader
from bookkeeper.tserver.bulk.segment_receiver import SegmentReceiver
from bookkeeper.tserver.bulk.segment_uploads import SegmentUploads


class BulkParts(Struct, frozen=True):
    """``loader`` adopts imports of this cluster, ``receiver`` takes segments of others, ``uploads`` has their files."""

    loader: BulkLoader
    receiver: SegmentReceiver
    uploads: SegmentUploads
