"""Row keys, columns and ranks of the metadata table: each encoder stands beside its parser.

Keys sort in the order of the encoded rows and files, and a parser accepts exactly the output of its encoder. Encoders
raise InvalidInputError, parsers CorruptionError.

Order: the tablets of a table are contiguous and sorted by end row, the last tablet last (``;`` < ``<``, and table
ids hold neither nor anything between). ``~repl_``, ``~del_`` and, per source instance, ``~recv_`` rows are sorted by
the UTF-8 bytes of the file, as ``repl:`` columns are: the two sides of the master's merge-join have the same order.
Every section starts with ``~``, which sorts after all table ids. Rules: R1, R2 and R5.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

from bookkeeper.errors import CorruptionError, InvalidInputError
from bookkeeper.metadata.metadata_table import CLOSED_RANK, MAX_RANK, OWNER_FAMILY, CellKey, Column, Row, prefix_stop
from bookkeeper.model import StreamKey, TargetKey
from bookkeeper.origins import RootLog

TABLETS_START, TABLETS_STOP = b"", b"~"
REPL_PREFIX, RECV_PREFIX, FATE_PREFIX, DEL_PREFIX = b"~repl_", b"~recv_", b"~fate_", b"~del_"
QUAR_PREFIX = b"~quar_"
HOLD_PREFIX = b"~hold_"
HOLD_FAMILIES = ("fate", "log", "recv", "location")
"""Families of ``~hold`` rows: by the family of its cell, the holder is an operation, a log, a tserver that receives the
file, or one that is about to name it.
"""
TAKING_FAMILY = "location"
ROOT_PREFIX = b"~root_"
HOME_PREFIX = b"~home_"

PREV_ROW = Column("tablet", b"prev_row")
DIR = Column("tablet", b"dir")
PARTS = Column("tablet", b"parts")
"""The directories of tablets that were merged into this one, until enough hosts have linked their files."""
FLUSH = Column("tablet", b"flush")
SERIAL = Column("tablet", b"serial")
LOCATION = Column("location", b"assigned")
REPLICA_FAMILY = "replica"
"""Family of a tablet row's replicas; empty where the tablet has one replica, on the cluster's Volume."""
FATE_OP = Column("fate", b"op")
FATE_STEP = Column("fate", b"step")
FATE_REIGN_ROW = b"~fate"
FATE_REIGN = Column("fate", b"reign")
"""Its rank is that of the last reign that has taken over all `~fate_` rows before it started an operation."""
DEL = Column("del", b"")
OWNER = Column(OWNER_FAMILY, b"instance")
ROUND = Column(OWNER_FAMILY, b"round")
ROOT_HERE = Column("recv", b"here")
"""``recv:here`` of a ``~root`` row: this cluster has records of the log, and more may arrive."""
HOME = Column("location", b"home")
"""``location:home`` of a ``~home`` row: the host whose disk has the logs of the session."""
HOME_ENDED = Column("location", b"ended")
"""``location:ended`` of a ``~home`` row: the session ended in order, and each of its logs is sealed."""
_LOST = b"lost:"
"""Prefix of the qualifier of :func:`lost_column`."""
_BY = b"by:"
"""Prefix of the qualifier of :func:`sender_column`."""

ONCE_RANK = 1
"""Rank of cells that a process writes once."""

SERIAL_VALUE = b""
"""Value of ``tablet:serial``; its rank counts the sessions that loaded the tablet (rule R1)."""

OFFSET_MAX = 2**61 - 1
"""Highest record offset with ranks below those of CLOSED."""

FLUSHES_PER_SERIAL_BITS = 32
"""The flush ids of a session lie between its serial, shifted by this number of bits, and the next serial."""

_TABLE_ID = re.compile(rb"[a-z0-9]+")
_HOST = re.compile(rb"[a-z0-9][a-z0-9-]{0,30}")
_TABLET_ROW = re.compile(rb"([a-z0-9]+)(?:<|;(.*))", re.DOTALL)


# ---- sections


def section(prefix: bytes) -> tuple[bytes, bytes | None]:
    """``start, stop`` of a scan over every row that starts with ``prefix``."""
    return prefix, prefix_stop(prefix)


def table_section(table_id: str) -> tuple[bytes, bytes]:
    """``start, stop`` of a scan over the tablets of one table."""
    table = _table_id(table_id)
    return table + b";", table + b"="


# ---- tablet rows


def tablet_row(table_id: str, end_row: bytes | None) -> bytes:
    """``<tableId>;<endRow>``, or ``<tableId><`` for the last tablet (``end_row`` None)."""
    table = _table_id(table_id)
    return table + b"<" if end_row is None else table + b";" + end_row


def parse_tablet_row(key: bytes) -> tuple[str, bytes | None]:
    """Table id and end row of :func:`tablet_row`."""
    match = _TABLET_ROW.fullmatch(key)
    if match is None:
        raise CorruptionError(f"not a tablet row: {key!r}")
    return match[1].decode("ascii"), match[2]


def location_rank(row: Row) -> int | None:
    """The rank of a tablet's location, which differs for each assignment (rule R1); None without a location."""
    cell = row.cells.get(LOCATION)
    return None if cell is None else cell.rank


def is_tablet(row: Row) -> bool:
    """Whether a row, read with the family ``tablet``, is a tablet and not a *remnant*: the serial of a tablet that was
    merged into a later one, and the files that it needs replicated.
    """
    return PREV_ROW in row.cells


def segment_column(segment: str) -> Column:
    """``segment:<file>`` of a tablet row."""
    return Column("segment", _file(segment))


def log_column(wal: str) -> Column:
    """``log:<wal>`` of a tablet row."""
    return Column("log", _file(wal))


def repl_column(wal: str) -> Column:
    """``repl:<wal>`` of a tablet row: the part of a file that the tablet needs replicated."""
    return Column("repl", _file(wal))


def lost_column(wal: str) -> Column:
    """``tablet:lost:<wal>`` of a tablet row: the tablet is served without the log, whose host is away. It counts only
    at the rank of the tablet's newest serial.
    """
    return Column("tablet", _LOST + _file(wal))


def is_lost(column: Column) -> bool:
    """Whether a column is one of :func:`lost_column`."""
    return column.family == "tablet" and column.qualifier.startswith(_LOST)


def parse_lost(column: Column) -> str:
    """The log of :func:`lost_column`."""
    return _text(column.qualifier.removeprefix(_LOST), "a lost log")


def replica_column(host: str) -> Column:
    """``replica:<host>`` of a tablet row: the host has, or is to get, a replica of the tablet."""
    return Column(REPLICA_FAMILY, _host(host))


def parse_replica(qualifier: bytes) -> str:
    """The host of :func:`replica_column`."""
    if _HOST.fullmatch(qualifier) is None:
        raise CorruptionError(f"not the name of a host: {qualifier!r}")
    return qualifier.decode("ascii")


def parse_file(qualifier: bytes) -> str:
    """The file of a ``segment:``, ``log:`` or ``repl:`` column of a tablet row."""
    return _text(qualifier, "a file column")


# ---- ~repl, ~recv, ~fate, ~del, ~quar, ~hold and ~home rows


def repl_row(file: str) -> bytes:
    """``~repl_<file>``."""
    return REPL_PREFIX + _file(file)


def parse_repl_row(key: bytes) -> str:
    """The file of :func:`repl_row`."""
    return _text(_after(key, REPL_PREFIX), "a ~repl row")


def needed_column(target: TargetKey) -> Column:
    """``repl:<target>`` of a ``~repl`` row: the needed side, written by the leader."""
    return Column("repl", _target(target))


def done_column(target: TargetKey) -> Column:
    """``done:<target>`` of a ``~repl`` row: the finished side, written by the worker."""
    return Column("done", _target(target))


def parse_target(qualifier: bytes) -> TargetKey:
    """The target of :func:`needed_column` and :func:`done_column`."""
    try:
        target = TargetKey.decode(qualifier)
        exact = target.encode() == qualifier
    except ValueError as error:
        raise CorruptionError(f"not a target: {qualifier!r} ({error})") from error
    if not exact:
        raise CorruptionError(f"not a target: {qualifier!r} (its encoding is {target.encode()!r})")
    return target


def recv_section(source_instance_id: str) -> tuple[bytes, bytes | None]:
    """``start, stop`` of a scan over the ``~recv`` rows of one source."""
    return section(RECV_PREFIX + _instance(source_instance_id) + b"_")


def recv_row(source_instance_id: str, file: str) -> bytes:
    """``~recv_<source instance>_<file>``; ``_`` and ``%`` inside the instance id are percent-escaped."""
    return RECV_PREFIX + _instance(source_instance_id) + b"_" + _file(file)


def recv_cell(stream: StreamKey) -> CellKey:
    """The cell of one stream: ``recv:<source table>:<target table>:<incarnation>``, and ``:<run id>`` for a re-ship."""
    if stream.incarnation < 0:
        raise InvalidInputError(f"an incarnation can't be negative: {stream}")
    parts = [stream.source_table_id, stream.target_table_id, str(stream.incarnation)]
    if stream.run_id:
        parts.append(stream.run_id)
    qualifier = b":".join(quote(_utf8(part, "a stream"), safe="").encode() for part in parts)
    return CellKey(recv_row(stream.source_instance_id, stream.file), Column("recv", qualifier))


def parse_recv_cell(key: bytes, qualifier: bytes) -> StreamKey:
    """The stream of :func:`recv_cell`."""
    instance, _, file = _text(_after(key, RECV_PREFIX), "a ~recv row").partition("_")
    try:
        source, target, incarnation, *run_id = map(unquote, _text(qualifier, "a recv column").split(":"))
        stream = StreamKey(unquote(instance), file, source, target, int(incarnation), ":".join(run_id))
        made = recv_cell(stream)
    except (ValueError, InvalidInputError) as error:
        raise CorruptionError(f"not a stream: {key!r} {qualifier!r} ({error})") from error
    if made != CellKey(key, Column("recv", qualifier)):
        raise CorruptionError(f"not a stream: {key!r} {qualifier!r} (its encoding is {made})")
    return stream


def root_row(log: RootLog) -> bytes:
    """``~root_<instance>_<file>``, with the escapes of :func:`recv_row`: a log with records that arrive on several
    paths.
    """
    return ROOT_PREFIX + _instance(log.instance_id) + b"_" + _file(log.file)


def root_section(instance_id: str) -> tuple[bytes, bytes | None]:
    """``start, stop`` of a scan over the ``~root`` rows of one cluster's logs."""
    return section(ROOT_PREFIX + _instance(instance_id) + b"_")


def parse_root_row(key: bytes) -> RootLog:
    """The log of :func:`root_row`."""
    instance, _, file = _text(_after(key, ROOT_PREFIX), "a ~root row").partition("_")
    log = RootLog(unquote(instance), file)
    if not file or root_row(log) != key:
        raise CorruptionError(f"not a log of another cluster: {key!r}")
    return log


def destination_cell(log: RootLog, instance_id: str, file: str) -> CellKey:
    """``recv:to:<instance>:<file>`` of a ``~root`` row: a deleted log of this cluster that sent records there."""
    qualifier = b"to:" + b":".join(quote(part, safe="").encode() for part in (instance_id, file))
    return CellKey(root_row(log), Column("recv", qualifier))


def sender_column(instance_id: str) -> Column:
    """``recv:by:<instance>`` of a ``~root`` row: that cluster sent records of the log here."""
    return Column("recv", _BY + quote(instance_id, safe="").encode())


def is_sender(column: Column) -> bool:
    """Whether a column is one of :func:`sender_column`."""
    return column.family == "recv" and column.qualifier.startswith(_BY)


def parse_sender(column: Column) -> str:
    """The instance of :func:`sender_column`. Raises CorruptionError."""
    instance_id = unquote(_text(column.qualifier.removeprefix(_BY), "a recv column"))
    if sender_column(instance_id) != column:
        raise CorruptionError(f"not a sender of records: {column.qualifier!r}")
    return instance_id


def parse_destination(qualifier: bytes) -> tuple[str, str]:
    """Instance and log of :func:`destination_cell`."""
    kind, *parts = _text(qualifier, "a recv column").split(":")
    if kind != "to" or len(parts) != 2:
        raise CorruptionError(f"not the destination of a log: {qualifier!r}")
    return unquote(parts[0]), unquote(parts[1])


def fate_row(txid: str) -> bytes:
    """``~fate_<txid>``."""
    return FATE_PREFIX + _file(txid)


def parse_fate_row(key: bytes) -> str:
    """The transaction id of :func:`fate_row`."""
    return _text(_after(key, FATE_PREFIX), "a ~fate row")


def owner_row() -> bytes:
    """``~owner``: the owner of the books. Only ``init`` writes it, when it creates the table."""
    return b"~owner"


def del_row(file: str) -> bytes:
    """``~del_<file>``."""
    return DEL_PREFIX + _file(file)


def parse_del_row(key: bytes) -> str:
    """The file of :func:`del_row`."""
    return _text(_after(key, DEL_PREFIX), "a ~del row")


def quar_row(file: str) -> bytes:
    """``~quar_<file>``."""
    return QUAR_PREFIX + _file(file)


def parse_quar_row(key: bytes) -> str:
    """The file of :func:`quar_row`."""
    return _text(_after(key, QUAR_PREFIX), "a ~quar row")


def quar_column(target: TargetKey, first: int) -> Column:
    """``quar:<target>:<first>``: the range from record ``first`` on that ``target`` lacks."""
    return Column("quar", _target(target) + b":%d" % _offset(first, 1))


def parse_quar_column(qualifier: bytes) -> tuple[TargetKey, int]:
    """Target and first record of :func:`quar_column`."""
    target, _, digits = qualifier.rpartition(b":")
    first = int(digits) if digits.isdigit() else 0
    if not 1 <= first <= OFFSET_MAX or b"%d" % first != digits:
        raise CorruptionError(f"not a quarantined range: {qualifier!r}")
    return parse_target(target), first


def hold_row(file: str) -> bytes:
    """``~hold_<file>``: the file stays, though no tablet may name it; each cell is a reason of its own, and empty."""
    return HOLD_PREFIX + _file(file)


def parse_hold_row(key: bytes) -> str:
    """The file of :func:`hold_row`."""
    return _text(_after(key, HOLD_PREFIX), "a ~hold row")


def hold_column(txid: str) -> Column:
    """``fate:<txid>`` of a ``~hold`` row: an operation that reads or makes the file."""
    return Column("fate", _file(txid))


def parse_hold_column(qualifier: bytes) -> str:
    """The transaction id of :func:`hold_column`."""
    return _text(qualifier, "a hold")


def log_hold_column(file: str) -> Column:
    """``log:<file>`` of a ``~hold`` row: a log with the records of the held file, which peers may take instead."""
    return Column("log", _file(file))


def parse_log_hold(qualifier: bytes) -> str:
    """The log of :func:`log_hold_column`."""
    return _text(qualifier, "a log's hold")


def arrival_column(session_id: str) -> Column:
    """``recv:<session>`` of a ``~hold`` row: the tserver to which another cluster sends the file."""
    return Column("recv", _file(session_id))


def parse_arrival(qualifier: bytes) -> str:
    """The session of :func:`arrival_column`."""
    return _text(qualifier, "an arrival")


def taking_column(session_id: str, order: str) -> Column:
    """``location:<session>/<order>`` of a ``~hold`` row: a tserver is about to name the file in a tablet."""
    if not session_id or "/" in session_id:
        raise InvalidInputError(f"not a session: {session_id!r}")
    return Column(TAKING_FAMILY, _file(session_id) + b"/" + _file(order))


def parse_taking(qualifier: bytes) -> str:
    """The session of :func:`taking_column`."""
    session_id, slash, order = _text(qualifier, "a taking").partition("/")
    if not (session_id and slash and order):
        raise CorruptionError(f"not a taking: {qualifier!r}")
    return session_id


def home_row(session: str) -> bytes:
    """``~home_<session>``: the logs of the session lie on the disk of one host, not on the cluster's Volume."""
    return HOME_PREFIX + _file(session)


def parse_home_row(key: bytes) -> str:
    """The session of :func:`home_row`."""
    return _text(_after(key, HOME_PREFIX), "a ~home row")


# ---- ranks


def first_use_rank(offset: int) -> int:
    """Rank 2x - 1 of ``log:`` and of the first ``repl:`` of (tablet, WAL), whose next record is ``offset`` (from 1)."""
    return 2 * _offset(offset, 1) - 1


def needed_rank(needed: int) -> int:
    """Rank of an OPEN ``repl:`` cell with that needed offset: 2n, above first uses up to n and below those after."""
    return 2 * _offset(needed, 1)


def log_delete_rank(through: int) -> int:
    """Rank that deletes ``log:`` of every first use at or below offset ``through``, and of none above: 2n."""
    return 2 * _offset(through, 1)


def closed_rank(final: int) -> int:
    """Rank of a CLOSED ``repl:`` cell with that final offset: above every OPEN one of the file."""
    return CLOSED_RANK + _offset(final, 0)


def first_flush_id(serial: int) -> int:
    """The first flush id of a tablet's session: above all flush ids that an earlier session may still write."""
    return serial << FLUSHES_PER_SERIAL_BITS | 1


def done_rank(finished: int) -> int:
    """Rank of a ``done:`` cell with that finished offset: one more, so that a stream can have a cell before its first
    message.
    """
    return _offset(finished, 0) + 1


def recv_rank(offset: int, done: bool) -> int:
    """Rank of a ``recv:`` cell: rises with the offset, and with "done" at the same offset (rule R1)."""
    return 2 * _offset(offset, 0) + 1 + done


def master_rank(epoch: int, number: int) -> int:
    """Rank of a leader's write: ``epoch`` of the reign (from 1), then ``number`` within it (cycle, step)."""
    if not (1 <= epoch < MAX_RANK >> 32 and 0 <= number < 2**32):
        raise InvalidInputError(f"no rank for epoch {epoch}, number {number}")
    return epoch << 32 | number


def split_master_rank(rank: int) -> tuple[int, int]:
    """Epoch and number of :func:`master_rank`."""
    return rank >> 32, rank & 0xFFFF_FFFF


# ---- parts


def _table_id(table_id: str) -> bytes:
    raw = _utf8(table_id, "a table id")
    if _TABLE_ID.fullmatch(raw) is None:
        raise InvalidInputError(f"a table id has letters a-z and digits only, not {table_id!r}")
    return raw


def _host(name: str) -> bytes:
    raw = _utf8(name, "a host's name")
    if _HOST.fullmatch(raw) is None:
        raise InvalidInputError(f"a host's name has up to 31 letters a-z, digits and hyphens, not {name!r}")
    return raw


def _file(name: str) -> bytes:
    if not name:
        raise InvalidInputError("a file or transaction needs a name")
    return _utf8(name, "a name")


def _target(target: TargetKey) -> bytes:
    try:
        return target.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{target} is not valid text: {error}") from error


def _instance(instance_id: str) -> bytes:
    if not instance_id:
        raise InvalidInputError("a source instance needs an id")
    return _utf8(instance_id.replace("%", "%25").replace("_", "%5F"), "an instance id")


def _utf8(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"{what} is not valid text: {text!r}") from error


def _text(raw: bytes, what: str) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise CorruptionError(f"{what} is not UTF-8: {raw!r}") from error
    if not text:
        raise CorruptionError(f"{what} has an empty name")
    return text


def _after(key: bytes, prefix: bytes) -> bytes:
    if not key.startswith(prefix):
        raise CorruptionError(f"not a {prefix.decode()} row: {key!r}")
    return key[len(prefix) :]


def _offset(offset: int, least: int) -> int:
    if not least <= offset <= OFFSET_MAX:
        raise InvalidInputError(f"offset {offset} lies outside {least} to {OFFSET_MAX}")
    return offset
