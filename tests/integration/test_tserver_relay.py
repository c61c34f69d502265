"""Whole files of another cluster's import go on: a chain, with its cuts, several paths and a circle (R13 to R24)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.bulk.import_log import is_relay_log
from bookkeeper.bulk.log_segments import read_segmented_log
from bookkeeper.errors import BookkeeperError, DeclinedError, InvalidInputError, UnavailableError
from bookkeeper.master.gc.gc_rules import is_collectable_log
from bookkeeper.master.index.log_files import LogFile
from bookkeeper.metadata import keys
from bookkeeper.model import Extent, LocalityGroup, StreamKey, Target
from bookkeeper.origins import Part, Runs, root_of
from bookkeeper.replay.stream import segment_transfer as shipping
from bookkeeper.replay.stream.filters import provenance_for
from bookkeeper.replay.stream.message_origins import block_origins_of
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.wal.blocks.block import Block
from bookkeeper.storage.wal.blocks.block_messages import block_target_from_pb
from bookkeeper.storage.wal.blocks.block_origins import EVERY_ROW, Claim, parse_block_origins
from bookkeeper.storage.wal.reading.block_reader import read_headers
from bookkeeper.storage.wal.writing.seal import read_seal
from combiners import CLOSED
from tests.support.compactions import QUIET, CrashError, DyingMetadata, move
from tests.support.faults import fault
from tests.support.given_files import SOURCE, Given, given_files
from tests.support.ranges import a_range
from tests.support.tservers import (
    Cells,
    Ground,
    LocalNode,
    blocks_of,
    ground,
    own_blocks,
    records,
    replicate_request,
    source_block,
    status_of,
)

pytestmark = pytest.mark.integration

WHOLE, LEFT, RIGHT = Extent("1", None, None), Extent("1", b"m", None), Extent("1", None, b"m")
BATCHES = [
    records([(b"z", b"1"), (b"a", b"2"), (b"a", b"3")], timestamp=5),
    records([(b"b", b"4")], b"g", timestamp=5),
    records([(b"z", b"5")], timestamp=5),
]
SHOWN: Cells = {(b"a", b"f", b"q"): b"3", (b"b", b"g", b"q"): b"4", (b"z", b"f", b"q"): b"5"}
GEO = LocalityGroup("geo", (b"g",))


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    """The cluster between."""
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20}) as made:
        yield made


@pytest.fixture
def south(tmp_path: Path) -> Iterator[Ground]:
    """The end of the chain."""
    with ground(tmp_path / "south") as made:
        yield made


@pytest.fixture
def given(tmp_path: Path) -> Given:
    return given_files(tmp_path / "east", BATCHES, GroupMap({"geo": [b"g"]}))


def _table(west: Ground, *splits: bytes, replicated: bool = True) -> Target | None:
    west.create_table("1", splits, [GEO])
    west.set_properties("1", QUIET)
    return west.enable("1") if replicated else None


def _served(west: Ground, *, replicated: bool = True) -> LocalNode:
    _table(west, replicated=replicated)
    node = west.local()
    west.assign(node, WHOLE)
    return node


def _taken_logs(west: Ground, node: LocalNode) -> list[str]:
    return [name for name in west.logs_of(node) if is_relay_log(name)]


def _handed_on(west: Ground, log: str) -> Given:
    """The transfer that a worker of west makes of its log, for table 1 of the next cluster."""
    own_id = west.settings.instance.instance_id
    whole, header = read_segmented_log(west.volume, log), next(read_headers(west.volume, log)).header
    assert whole is not None
    stream = StreamKey(own_id, log, "1", "1", 1)
    return Given(log, whole, stream, shipping.root_in(header), provenance_for(header, own_id), west.volume)


# ---- blocks and frames

SMALL_FRAMES = {
    "rpc.frame_bytes_max": 4 << 20,
    "replay.message_bytes": 1 << 20,
    "tserver.value_bytes_max": 3 << 19,
    "tserver.scan_page_bytes_max": 1 << 20,
}
LARGE = bytes(3 << 19)


def _one_by_one(west: Ground, node: LocalNode, stream: StreamKey, blocks: Sequence[Block]) -> int:
    """Each block of a log as a message of its own; the number of records that were applied."""
    token, after, applied = west.tserver(node).open_stream(stream), 0, 0
    for block in blocks:
        sent = [source_block(block.first_offset, block.batch())]
        request = replicate_request(token, stream, after, after, block.last_offset, sent)
        applied += west.tserver(node).replicate(request).records_applied
        after = block.last_offset
    return applied


def _blocks_fit_into_frames(place: Path) -> None:
    """An import with a run of large values, across the border of its batches, as records and through a relay."""
    values = [b"v"] * 2000 + [LARGE] * 6 + [b"v"] * 2000
    batches = [
        records([(b"%06d" % (begin + number), value) for number, value in enumerate(values[begin:end])], timestamp=5)
        for begin, end in ((0, 2003), (2003, len(values)))
    ]
    made = given_files(place / "east", batches, GroupMap({"geo": [b"g"]}))
    with ground(place / "west", SMALL_FRAMES) as west, ground(place / "south", SMALL_FRAMES) as south:
        node = _served(west)
        try:
            assert made.send_whole(west, node).state == "taken"
            (relayed,) = _taken_logs(west, node)
            end = _served(south, replicated=False)
            assert _one_by_one(south, end, made.stream, blocks_of(made.log)) == len(values)
            stream = StreamKey(west.settings.instance.instance_id, relayed, "1", "1", 1)
            assert _one_by_one(south, end, stream, west.blocks_of(relayed)) == len(values)
        except InvalidInputError as error:
            raise AssertionError(f"a block of an import reaches no peer: {error.message}") from error


def test_a_run_of_large_values_reaches_each_peer_also_through_a_relay(tmp_path: Path) -> None:
    _blocks_fit_into_frames(tmp_path)


def test_cut_by_the_average_it_reaches_none(tmp_path: Path) -> None:
    with (
        fault("blocks-are-cut-by-the-average"),
        pytest.raises(AssertionError, match="a block of an import reaches no peer"),
    ):
        _blocks_fit_into_frames(tmp_path)


# ---- one hop


def _is_an_import_here(west: Ground, given: Given) -> None:
    target = _table(west)
    assert target is not None
    node = west.local()
    west.assign(node, WHOLE)
    west.write(node, WHOLE, records([(b"a", b"before")], timestamp=5))
    (before,) = own_blocks(west, node)
    assert given.send_whole(west, node).state == "taken"
    assert west.scan(node, WHOLE) == SHOWN
    assert len(west.logs_of(node)) == 2, "R13: an import for targets has no log of its own"
    wal, log = west.logs_of(node)
    status = status_of(west, WHOLE, log)
    assert status is not None
    assert (status.state, status.replication_needed_offset) == (CLOSED, 5)
    assert [(b.offset, b.file, b.until_offset) for b in status.barriers] == [(1, wal, before.last_offset)]
    seal = read_seal(west.volume, log)
    assert seal is not None
    assert (seal.offset, seal.position) == (5, west.path(log).stat().st_size)
    blocks = west.blocks_of(log)
    stamped = [
        block_target_from_pb(block_target).target for block in blocks for block_target in block.header.block_targets
    ]
    assert stamped == [target.key] * len(blocks)
    assert [list(block.header.provenance) for block in blocks] == [[SOURCE]] * len(blocks)
    sent = [record for block in blocks_of(given.log) for record in block.batch().to_pylist()]
    assert [record for block in blocks for record in block.batch().to_pylist()] == sent, "in the order of the origin"
    west.write(node, WHOLE, records([(b"c", b"after")]))
    after = west.blocks_of(wal)[-1]
    assert [(place.file, place.offset) for place in after.header.after] == [(log, 5)], "R24"


def test_r13_what_a_table_with_targets_takes_is_an_import_of_its_own_to_them(west: Ground, given: Given) -> None:
    _is_an_import_here(west, given)


def _of_two_tablets(west: Ground, given: Given) -> None:
    _table(west, b"m")
    node = west.local()
    west.assign(node, LEFT, RIGHT)
    answer = given.send_whole(west, node)
    assert (answer.state, "2 of its tablets" in answer.reason) == ("declined", True)
    with pytest.raises(BookkeeperError) as refused:
        node.process.parts.bulk.loader.adopt(given.order(west, node, LEFT))
    assert isinstance(refused.value, DeclinedError), "a file of several tablets is tried again and again"
    assert _taken_logs(west, node) == []
    assert given.send_records(west, node).records_applied == 5
    assert [list(block.header.provenance) for block in own_blocks(west, node)] == [[SOURCE]] * len(
        own_blocks(west, node)
    )


def test_r13_tablets_with_targets_that_share_a_file_get_records(west: Ground, given: Given) -> None:
    _of_two_tablets(west, given)


def test_targets_that_are_enabled_meanwhile_are_those_that_count(west: Ground, given: Given) -> None:
    node = _served(west, replicated=False)
    order = given.order(west, node, WHOLE)
    west.enable("1")
    west.tserver(node).confirm_config(west.coordination.generation())
    west.tserver(node).adopt_segments(order)
    assert len(_taken_logs(west, node)) == 1
    with pytest.raises(DeclinedError):
        west.tserver(node).adopt_segments(replace(order, stream=replace(order.stream, run_id="again"), relay=None))


# ---- cuts


def _dies_at_the_put(west: Ground, given: Given, behind: bool) -> tuple[LocalNode, str, LocalNode]:
    """The dead tserver, the log that it made, and the next holder of the tablet."""
    _table(west)
    metadata = DyingMetadata(west.metadata)
    node = west.local(metadata)
    west.assign(node, WHOLE)
    order = given.order(west, node, WHOLE)
    metadata.die_at(0, behind, b"segment:")
    with pytest.raises(CrashError):
        node.process.parts.bulk.loader.adopt(order)
    metadata.die_at(10**6, False)
    (log,) = _taken_logs(west, node)
    assert read_seal(west.volume, log) is None, "R17: a log is sealed before the books name it"
    assert not is_collectable_log(LogFile(log, node.session_id, False), (), {node.session_id}), "R17: it may be named"
    return node, log, move(west, node, WHOLE)


@pytest.mark.parametrize("again", ["whole", "records"])
@pytest.mark.parametrize("behind", [False, True])
def test_r18_a_server_dies_at_the_put(west: Ground, given: Given, behind: bool, again: str) -> None:
    """A cluster between, before the put that names the log of its own, or behind it."""
    node, log, other = _dies_at_the_put(west, given, behind)
    assert west.scan(other, WHOLE) == (SHOWN if behind else {})
    assert (status_of(west, WHOLE, log) is not None) == behind
    named = [log] if behind else []
    assert is_collectable_log(LogFile(log, node.session_id, True), named, ()) != behind
    if again == "whole":
        assert given.send_whole(west, other).state == "taken"
        assert len(_taken_logs(west, other)) == (0 if behind else 1), "once in force, once on the way"
    else:
        assert given.send_records(west, other).records_applied == (0 if behind else 5)
        assert _taken_logs(west, other) == []
    assert west.scan(other, WHOLE) == SHOWN
    other.stop()


def test_r17_sealed_before_it_is_named_a_log_could_be_collected(west: Ground, given: Given) -> None:
    with (
        fault("relay-logs-are-sealed-at-once"),
        pytest.raises(AssertionError, match="a log is sealed before the books name it"),
    ):
        _dies_at_the_put(west, given, behind=False)


def test_what_is_not_taken_leaves_no_log(west: Ground, given: Given) -> None:
    node = _served(west)
    order = given.order(west, node, WHOLE)
    for segment in order.segments[:1]:
        west.path(segment.name).unlink()
    with pytest.raises(UnavailableError, match="a received file is gone"):
        west.tserver(node).adopt_segments(order)
    assert _taken_logs(west, node) == []
    assert given.send_records(west, node).records_applied == 5
    assert west.scan(node, WHOLE) == SHOWN


# ---- further


def test_r22_its_records_say_where_they_were_first_written(west: Ground, given: Given) -> None:
    node = _served(west)
    given.send_whole(west, node)
    (log,) = _taken_logs(west, node)
    current, root = a_range(log, 1, 5), root_of(given.stream)
    for block in west.blocks_of(log):
        raw = block_origins_of(block.header, current, None)
        assert raw is not None
        told = parse_block_origins(raw, root_of(current.stream))
        runs = Runs.of((block.first_offset, block.last_offset))
        assert told.records == ((root, runs),)
        assert told.claims == (Claim(root, Part(EVERY_ROW, None, runs)),)


def _at_the_end(west: Ground, south: Ground, given: Given) -> tuple[Given, LocalNode]:
    """East's import at west; the transfer that west passes on, and its receiver in the south."""
    node = _served(west)
    assert given.send_whole(west, node).state == "taken"
    (log,) = _taken_logs(west, node)
    return _handed_on(west, log), _served(south, replicated=False)


def _known_by_its_root(west: Ground, south: Ground, given: Given) -> None:
    handed_on, node = _at_the_end(west, south, given)
    assert handed_on.send_whole(south, node).state == "taken"
    assert south.scan(node, WHOLE) == SHOWN
    assert given.send_whole(south, node).state == "declined", "R22: what came by a longer path is taken again"
    assert given.send_records(south, node).records_applied == 0, "the same by the short path"
    other = move(south, node, WHOLE)
    assert given.send_records(south, other).records_applied == 0
    other.stop()


def test_r22_a_chain_and_its_short_cut(west: Ground, south: Ground, given: Given) -> None:
    _known_by_its_root(west, south, given)


def test_r22_the_short_cut_was_faster(west: Ground, south: Ground, given: Given) -> None:
    handed_on, node = _at_the_end(west, south, given)
    assert given.send_whole(south, node).state == "taken"
    assert handed_on.offer(south, node)[1].state == "declined", "before a byte of the files has come"
    assert south.scan(node, WHOLE) == SHOWN


def test_r22_should_the_logs_of_two_holders_be_named_it_arrives_once(west: Ground, south: Ground, given: Given) -> None:
    """The put of a holder that was stopped came late: behind that of the next one, which had made a log of its own."""
    _, first, other = _dies_at_the_put(west, given, behind=False)
    assert given.send_whole(west, other).state == "taken"
    (second,) = _taken_logs(west, other)
    node = _served(south, replicated=False)
    assert _handed_on(west, second).send_whole(south, node).state == "taken"
    assert _handed_on(west, first).offer(south, node)[1].state == "declined"
    assert south.scan(node, WHOLE) == SHOWN
    other.stop()


def test_a_chain_of_four_hands_the_same_files_on(west: Ground, south: Ground, given: Given) -> None:
    handed_on, _ = _at_the_end(west, south, given)
    assert handed_on.root == root_of(given.stream)
    south.enable("1")
    (node,) = (found for found in south._nodes if isinstance(found, LocalNode))
    south.tserver(node).confirm_config(south.coordination.generation())
    assert handed_on.send_whole(south, node).state == "taken"
    (log,) = _taken_logs(south, node)
    last = _handed_on(south, log)
    assert last.root == root_of(given.stream)
    assert last.provenance == (*handed_on.provenance, south.settings.instance.instance_id)
    files = [sorted(segment.sha256 for segment in found.whole.segments) for found in (given, handed_on, last)]
    assert files[0] == files[1] == files[2], "not a byte of them was written anew"


def _goes_no_further_round(west: Ground, given: Given) -> None:
    node = _served(west)
    given.send_whole(west, node)
    (log,) = _taken_logs(west, node)
    header, whole = next(read_headers(west.volume, log)).header, read_segmented_log(west.volume, log)
    assert whole is not None
    target = block_target_from_pb(header.block_targets[0]).target
    own_id = west.settings.instance.instance_id
    back = a_range(log, 1, 5, target=target)
    round_trip = replace(back, own_instance_id=own_id, peer_instance_id=SOURCE)
    assert "none of it" in (shipping.reason_for_records(round_trip, whole, header) or ""), (
        "R21: an import goes back to a cluster that it has passed"
    )
    assert shipping.reason_for_records(replace(round_trip, peer_instance_id="south"), whole, header) is None


def test_r21_in_a_circle_it_does_not_come_back(west: Ground, given: Given) -> None:
    _goes_no_further_round(west, given)


def test_r20_when_the_stream_is_over_the_log_stays_for_its_targets(west: Ground, given: Given) -> None:
    node = _served(west)
    given.send_whole(west, node)
    (log,) = _taken_logs(west, node)
    west.metadata.purge([keys.recv_cell(given.stream)])
    west.tserver(node).forget_streams([given.stream])
    assert status_of(west, WHOLE, log) is not None
    assert read_segmented_log(west.volume, log) is not None


@pytest.mark.parametrize(
    ("name", "law", "says"),
    [
        ("targets-of-relays-are-ignored", _is_an_import_here, "an import for targets has no log of its own"),
        ("parts-are-relayed-as-files", _of_two_tablets, "a file of several tablets is tried again and again"),
        ("files-have-no-provenance", _goes_no_further_round, "goes back to a cluster that it has passed"),
    ],
)
def test_without_its_rule_a_law_is_red(
    name: str, law: Callable[[Ground, Given], None], says: str, west: Ground, given: Given
) -> None:
    with fault(name), pytest.raises(AssertionError, match=says):
        law(west, given)


def test_r22_without_its_rule_a_short_cut_brings_it_twice(west: Ground, south: Ground, given: Given) -> None:
    with (
        fault("files-begin-where-they-were-relayed"),
        pytest.raises(AssertionError, match="what came by a longer path is taken again"),
    ):
        _known_by_its_root(west, south, given)
