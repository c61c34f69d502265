"""Admission of messages from other clusters, by stream, table, provenance and offsets.

It uses the open streams and their cells in the books, and the announced logs. Rules: R20 to R23.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bookkeeper.errors import InvalidInputError, RefusedError, StreamOverError
from bookkeeper.model import StreamKey
from bookkeeper.origins import RootLog
from bookkeeper.rpc.contract.messages import ApplyRequest, ReplicateRequest
from bookkeeper.tserver.books.received_index import ReceivedIndex
from bookkeeper.tserver.origins.origin_marks import OriginMarks
from bookkeeper.tserver.receive.receive_streams import Streams
from bookkeeper.tserver.receive.slice_decision import check_range
from bookkeeper.tserver.tablets.block_targets import TableView
from bookkeeper.tserver.tablets.tablet import ServedTablet
from bookkeeper.tserver.write.configuration import Configuration

STREAM_BYTES_MAX = 16 * 1024
"""Longest key of a stream: a path has 4,096 bytes at most, and is escaped."""


def check_provenance(provenance: Sequence[str], stream: StreamKey, own_instance_id: str) -> None:
    """Raise RefusedError when this cluster's own data comes back, judged by instance id (R21, R23), and
    InvalidInputError when the sender is not the last cluster that the data has passed.
    """
    if own_instance_id in provenance or stream.source_instance_id == own_instance_id:
        raise RefusedError(f"data of {stream.file} has passed this cluster before ({', '.join(provenance)}): a loop")
    if not provenance or provenance[-1] != stream.source_instance_id:
        raise InvalidInputError(
            f"the provenance of {stream.file} must end with its sender, {stream.source_instance_id}: {provenance}"
        )


def refuse_ended(stream: StreamKey, is_open: bool) -> None:
    """Raise RefusedError when a stream is over (R20): its high-waters are gone, and a repeat would look new."""
    if not is_open:
        raise RefusedError(f"{stream.file} is over: its source said that all of it had arrived, and nothing can be new")


def refuse_long(stream: StreamKey) -> None:
    """Raise InvalidInputError when a stream has a longer name than any file."""
    size = len(stream.encode())
    if size > STREAM_BYTES_MAX:
        raise InvalidInputError(f"the name of a stream has {size} bytes, at most {STREAM_BYTES_MAX} are allowed")


class MessageAdmission:
    """Admits messages, slices and segments. Thread-safe."""

    def __init__(
        self,
        own_instance_id: str,
        configuration: Configuration,
        streams: Streams,
        index: ReceivedIndex,
        marks: OriginMarks,
    ) -> None:
        self._own_instance_id = own_instance_id
        self._configuration = configuration
        self._streams = streams
        self._index = index
        self._marks = marks

    def open_stream(self, stream: StreamKey, peer: str | None = None) -> str:
        """A token for the messages of a stream. ``peer``: the peer that opens it; None = the source. The limit of open
        streams is checked before the books get a cell. Raises RefusedError, InvalidInputError, NotFoundError,
        TransientError.
        """
        check_provenance([stream.source_instance_id], stream, self._own_instance_id)
        refuse_long(stream)
        self._configuration.table(stream.target_table_id)
        token = self._streams.open(stream, peer)
        try:
            self._index.announce(stream)
        except BaseException:
            self._streams.close(token)
            raise
        return token

    def admit(self, provenance: Sequence[str], token: str, stream: StreamKey) -> TableView:
        """The table of a stream, for a sender whose token is good and whose data has not been here (R20, R21). Raises
        RefusedError, InvalidInputError, StreamExpiredError, NotFoundError.
        """
        check_provenance(provenance, stream, self._own_instance_id)
        return self.admit_token(token, stream)

    def admit_token(self, token: str, stream: StreamKey) -> TableView:
        """:meth:`admit` for the later calls of a segment transfer, whose provenance was admitted with the offer."""
        self._streams.check(token, stream)
        return self._configuration.table(stream.target_table_id)

    def admit_part(self, token: str, stream: StreamKey) -> None:
        """A part of a segment file: only the token is checked. Raises StreamExpiredError."""
        self._streams.check(token, stream)

    def admit_message(self, request: ReplicateRequest) -> TableView:
        """:meth:`admit`, and the offsets of the message fit together. Raises InvalidInputError, too."""
        view = self.admit(request.provenance, request.stream_session, request.stream)
        check_range(request.acked_offset, request.after_offset, request.to_offset, request.blocks)
        return view

    def admit_confirmation(self, request: ReplicateRequest) -> TableView:
        """:meth:`admit_message` without a session: the message changes nothing, so it may come late (R20)."""
        check_provenance(request.provenance, request.stream, self._own_instance_id)
        check_range(request.acked_offset, request.after_offset, request.to_offset, request.blocks)
        return self._configuration.table(request.stream.target_table_id)

    def admit_slice(self, request: ApplyRequest) -> None:
        """:meth:`admit_message` for a slice from another tserver of this cluster, which has checked the token."""
        check_provenance(request.provenance, request.stream, self._own_instance_id)
        if request.extent.table_id != request.stream.target_table_id:
            raise InvalidInputError(f"tablet {request.extent} is not of table {request.stream.target_table_id}")
        check_range(request.acked_offset, request.after_offset, request.to_offset, request.blocks)

    def admit_to_tablet(self, tablet: ServedTablet, stream: StreamKey, logs: Collection[RootLog]) -> int:
        """Rule R20: for a tablet without a high-water of the stream, the books decide whether the stream is over. So a
        message is harmless however late it comes, out of a process that was stopped on either side. ``logs``: those
        that the message brings records of; they are announced (R22) for open streams only, because a later cell would
        stay.

        Returns how many streams the tablet had forgotten before. Raises RefusedError, TransientError.
        """
        forgotten_count = tablet.received.forgotten_count
        if not tablet.received.has_stream(stream):
            refuse_ended(stream, self._index.is_open(stream))
        self._marks.announce(logs, stream.source_instance_id)
        return forgotten_count

    def admit_check(self, tablet: ServedTablet, stream: StreamKey) -> int:
        """:meth:`admit_to_tablet` for records that are only looked for. Raises StreamOverError, TransientError."""
        forgotten_count = tablet.received.forgotten_count
        if not tablet.received.has_stream(stream) and not self._index.is_open(stream):
            raise StreamOverError(f"no stream of {stream.file} is open here")
        return forgotten_count

    def admit_segments(self, stream: StreamKey, log: RootLog) -> None:
        """The segments of an open stream bring records of ``log`` (R20, R22). Raises RefusedError, TransientError."""
        refuse_ended(stream, self._index.is_open(stream))
        self._marks.announce([log], stream.source_instance_id)

    def note_durable(self, stream: StreamKey, offset: int) -> None:
        """Every tablet has the stream durably up to here."""
        self._index.note(stream, offset)
