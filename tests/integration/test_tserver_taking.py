"""Segment transfers of another cluster's import: added atomically and once, also beside the same records (R14, R18,
R20).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from bookkeeper.bulk.adoption import INCOMING
from bookkeeper.errors import (
    DeclinedError,
    InvalidInputError,
    LeaseLostError,
    NotServingError,
    RefusedError,
    StreamExpiredError,
)
from bookkeeper.master.queries.usage import FAMILIES, usage_of
from bookkeeper.metadata import keys
from bookkeeper.model import Extent, LocalityGroup
from bookkeeper.origins import Runs, root_of
from bookkeeper.rpc.contract.messages import ReplicateResult, SegmentPart
from bookkeeper.storage.tablet.segments.locality_groups import GroupMap
from bookkeeper.storage.wal.blocks.block_origins import BlockOrigins, block_origins_to_pb, exact_claims
from bookkeeper.tserver.bulk.segment_offers import FILE_SEQ_MAX
from tests.integration.test_tserver_borders import let_go, merge, split
from tests.support.compactions import QUIET, CrashError, DyingMetadata, files_of, marks_in, move, named_in, parts_of
from tests.support.faults import fault
from tests.support.given_files import SOURCE, Given, given_files
from tests.support.must_raise import must_raise
from tests.support.session_holds import held_files
from tests.support.tservers import (
    Cells,
    Ground,
    LocalNode,
    blocks_of,
    flush_of,
    ground,
    own_blocks,
    records,
    replicate_request,
    source_block,
    wait_until,
)
from tests.support.volumes import name_at, path_of

pytestmark = pytest.mark.integration

LEFT, RIGHT = Extent("1", b"m", None), Extent("1", None, b"m")
WHOLE = Extent("1", None, None)
BATCHES = [records([(b"z", b"1"), (b"a", b"2")], timestamp=5), records([(b"b", b"3"), (b"z", b"4")], timestamp=5)]
IN_LEFT: Cells = {(b"a", b"f", b"q"): b"2", (b"b", b"f", b"q"): b"3"}
IN_RIGHT: Cells = {(b"z", b"f", b"q"): b"4"}


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", {"tserver.wal_sync_interval_ms": 20}) as made:
        yield made


@pytest.fixture
def given(tmp_path: Path) -> Given:
    return given_files(tmp_path / "east", BATCHES)


def _served(west: Ground, *extents: Extent) -> LocalNode:
    west.create_table("1", [b"m"] if LEFT in extents else [])
    west.set_properties("1", QUIET)
    node = west.local()
    west.assign(node, *extents)
    return node


def _spool(west: Ground) -> list[Path]:
    return [path for path in west.path(INCOMING).rglob("*") if path.is_file()]


def _incoming(west: Ground) -> set[str]:
    """Files of other clusters, by name; nothing holds them any more."""
    assert not held_files(west.metadata), "a file is held when tablets have it"
    return {name_at(path, west.settings.directory) for path in _spool(west)}


def _high_water(west: Ground, given: Given, *extents: Extent) -> list[int]:
    return [flush_of(west, extent).high_water.get(given.stream, 0) for extent in extents]


def test_tablets_on_several_servers_take_their_rows_of_a_file(west: Ground, given: Given) -> None:
    near = _served(west, LEFT)
    far = west.local()
    west.assign(far, RIGHT)
    west.write(far, RIGHT, records([(b"z", b"before")], timestamp=5))
    assert given.send_whole(west, near).state == "taken"
    assert west.scan(near, LEFT) == IN_LEFT
    assert west.scan(far, RIGHT) == IN_RIGHT, "of equal timestamps the later wins"
    assert _high_water(west, given, LEFT, RIGHT) == [4, 4]
    assert own_blocks(west, near) == [], "nothing was logged of it"
    usage = usage_of("t", west.metadata.scan(*keys.table_section("1"), FAMILIES))
    assert usage.records == 5, "a file that two tablets share is counted once"
    shared = _incoming(west)
    assert shared == named_in(west, LEFT) | (named_in(west, RIGHT) & shared), "a tablet renames a file"
    west.write(far, RIGHT, records([(b"z", b"after")], timestamp=5))
    for node, extent in ((near, LEFT), (far, RIGHT)):
        compactor, tablet = parts_of(node, extent)
        compactor.compact(tablet)
        wait_until(lambda at=(compactor, tablet): at[0].clear(at[1]), "no dead cells")  # type: ignore[misc]
    assert west.scan(near, LEFT) == IN_LEFT
    assert west.scan(far, RIGHT) == {(b"z", b"f", b"q"): b"after"}
    usage = usage_of("t", west.metadata.scan(*keys.table_section("1"), FAMILIES))
    assert usage.records == 3
    assert shared <= marks_in(west), "no tablet needs it, and the collector does not know"
    assert _incoming(west) == shared, "the collector alone deletes files that a tablet was told of"


def test_a_file_has_a_local_name_that_nobody_else_has_before_its_first_byte_comes(
    west: Ground, given: Given, tmp_path: Path
) -> None:
    node = _served(west, WHOLE)
    other = given_files(tmp_path / "north", BATCHES)
    tokens = [(one, *one.offer(west, node)) for one in (given, other)]
    uploads = node.process.parts.bulk.uploads._uploads
    names = [west.path(name) for one, _, _ in tokens for name in uploads[one.stream].names]
    theirs = {path_of(segment.name).name for one in (given, other) for segment in one.whole.segments}
    assert len({path.name for path in names} | theirs) == 4 + len(theirs), (
        "two files each, under any names of the sender"
    )
    assert _spool(west) == []
    for one, token, answer in tokens:
        one.put(west, node, token, answer.received_bytes)
    assert sorted(_spool(west)) == sorted(names)
    for one, token, _ in tokens:
        assert west.tserver(node).take_segments(token, one.stream).state == "taken"
    assert named_in(west, WHOLE) == _incoming(west) == {name_at(path, west.settings.directory) for path in names}


def _comes_again(west: Ground, given: Given) -> None:
    node = _served(west, WHOLE)
    assert given.send_whole(west, node).state == "taken"
    other = move(west, node, WHOLE)
    west.write(other, WHOLE, records([(b"a", b""), (b"b", b""), (b"z", b"")], timestamp=6, delete=True))
    compactor, tablet = parts_of(other, WHOLE)
    compactor.compact(tablet)
    assert west.scan(other, WHOLE) == {}
    assert given.send_whole(west, other).state == "taken", "R18: a file that was taken is not remembered"
    west.tserver(other).adopt_segments(given.order(west, other, WHOLE))
    assert given.send_records(west, other).records_applied == 0
    assert west.scan(other, WHOLE) == {}, "R18: a file is taken twice"
    other.stop()


def test_r18_transferred_segments_are_known_again_as_segments_and_as_records(west: Ground, given: Given) -> None:
    _comes_again(west, given)


def test_r18_what_came_as_records_goes_on_so(west: Ground, given: Given) -> None:
    node = _served(west, LEFT, RIGHT)
    given.send_records(west, node, upto=2)
    answer = given.send_whole(west, node)
    assert (answer.state, answer.reason) == ("declined", "some of its records are here")
    result = given.send_records(west, node)
    assert (result.records_applied, result.records_dropped) == (2, 2)
    assert given.send_whole(west, node).state == "taken"
    assert {**west.scan(node, LEFT), **west.scan(node, RIGHT)} == {**IN_LEFT, **IN_RIGHT}
    assert len(own_blocks(west, node)) == 4


def test_r18_a_tablet_with_some_records_takes_no_file(west: Ground, given: Given) -> None:
    node = _served(west, WHOLE)
    order = given.order(west, node, WHOLE)
    given.send_records(west, node, upto=2)
    west.write(node, WHOLE, records([(b"a", b""), (b"z", b"")], timestamp=6, delete=True))
    compactor, tablet = parts_of(node, WHOLE)
    compactor.compact(tablet)
    with must_raise(DeclinedError, "R18: a tablet with some of the records takes the file"):
        west.tserver(node).adopt_segments(order)
    given.send_records(west, node)
    assert west.scan(node, WHOLE) == {(b"b", b"f", b"q"): b"3", (b"z", b"f", b"q"): b"4"}


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_a_server_dies_when_one_of_two_tablets_has_its_rows(
    west: Ground, given: Given, behind: bool, whole: bool
) -> None:
    """The other tablet's put is the step that is cut; the rest comes in either way."""
    west.create_table("1", [b"m"])
    metadata = DyingMetadata(west.metadata)
    node = west.local(metadata)
    west.assign(node, LEFT, RIGHT)
    west.tserver(node).adopt_segments(given.order(west, node, LEFT))
    metadata.die_at(0, behind, b"segment:")
    with pytest.raises(CrashError):
        node.process.parts.bulk.loader.adopt(given.order(west, node, RIGHT))
    metadata.die_at(10**6, False)
    other = move(west, node, LEFT)
    west.assign(other, RIGHT)
    assert west.scan(other, RIGHT) == (IN_RIGHT if behind else {})
    if whole:
        assert given.send_whole(west, other).state == "taken"
    else:
        result = given.send_records(west, other)
        assert result.records_applied == (0 if behind else 2)
    assert {**west.scan(other, LEFT), **west.scan(other, RIGHT)} == {**IN_LEFT, **IN_RIGHT}
    assert _high_water(west, given, LEFT)[0] == 4
    other.stop()


def test_a_server_dies_with_half_a_file(west: Ground, given: Given) -> None:
    node = _served(west, WHOLE)
    token, answer = given.offer(west, node)
    given.put(west, node, token, answer.received_bytes)
    other = move(west, node, WHOLE)
    with pytest.raises(StreamExpiredError):
        west.tserver(other).take_segments(token, given.stream)
    assert west.scan(other, WHOLE) == {}
    assert given.send_whole(west, other).state == "taken"
    assert west.scan(other, WHOLE) == {**IN_LEFT, **IN_RIGHT}
    other.stop()


def _damaged(west: Ground, given: Given) -> None:
    node = _served(west, WHOLE)
    token, answer = given.offer(west, node)
    size = given.whole.segments[0].entry.size_bytes
    content = bytearray(path_of(given.whole.segments[0].name).read_bytes())
    content[size // 3] ^= 1
    with must_raise(DeclinedError, "a file that was damaged on its way is taken", match="checksum"):
        west.tserver(node).put_segment(SegmentPart(token, given.stream, 0, 0, bytes(content)))
    assert _spool(west) == []
    assert files_of(west, WHOLE) == set()
    assert answer.received_bytes == (0, 0)
    assert given.send_whole(west, node).state == "taken"
    assert west.scan(node, WHOLE) == {**IN_LEFT, **IN_RIGHT}


def test_a_file_that_was_damaged_on_its_way_changes_nothing(west: Ground, given: Given) -> None:
    _damaged(west, given)


def _saying(given: Given, **said: object) -> Given:
    """The same files, of which the first one says something else."""
    first, *rest = given.whole.segments
    lying = replace(first, entry=replace(first.entry, **said))
    return replace(given, whole=replace(given.whole, segments=(lying, *rest)))


def _goes_on(west: Ground, node: LocalNode) -> None:
    west.write(node, WHOLE, records([(b"x", b"goes on")], timestamp=5))
    assert west.scan(node, WHOLE) == {(b"x", b"f", b"q"): b"goes on"}
    west.tserver(node).flush_tablet(WHOLE)
    assert flush_of(west, WHOLE).last_seq == 1


def _says_what_is_not_so(west: Ground, given: Given) -> None:
    node = _served(west, WHOLE)
    lying = _saying(given, last_seq=FILE_SEQ_MAX)
    token, answer = lying.offer(west, node)
    with must_raise(DeclinedError, "a file that says what is not so is taken", match="its sequence numbers are"):
        lying.put(west, node, token, answer.received_bytes)
    assert _spool(west) == []
    assert files_of(west, WHOLE) == set()
    with pytest.raises(StreamExpiredError):
        west.tserver(node).take_segments(token, given.stream)
    _goes_on(west, node)


def test_a_file_is_decoded_before_a_tablet_hears_of_it(west: Ground, given: Given) -> None:
    _says_what_is_not_so(west, given)


@pytest.mark.parametrize(
    "said",
    [{"last_seq": 2**63 - 2}, {"first_seq": 0}, {"records": 0}, {"min_row": b"zz"}, {"size_bytes": 0}, {"shift": 1}],
    ids=str,
)
def test_numbers_that_no_import_has_are_refused_before_a_byte_is_sent(
    said: dict[str, object], west: Ground, given: Given
) -> None:
    node = _served(west, WHOLE)
    with pytest.raises(InvalidInputError):
        _saying(given, **said).offer(west, node)
    with pytest.raises(InvalidInputError, match="can be counted"):
        replace(given, whole=replace(given.whole, records=2**62)).offer(west, node)
    _goes_on(west, node)


def _near_the_end_of_all_numbers(west: Ground, given: Given) -> None:
    node = _served(west, WHOLE)
    node.may_die = True
    order = _saying(given, last_seq=2**63 - 2).order
    with (
        patch("bookkeeper.tserver.bulk.segment_offers.check_entry"),
        must_raise(DeclinedError, "a file takes the numbers that records need", match="would reach sequence number"),
    ):
        west.tserver(node).adopt_segments(order(west, node, WHOLE))
    _goes_on(west, node)
    assert not node.died


def test_no_file_takes_the_numbers_that_records_need(west: Ground, given: Given) -> None:
    _near_the_end_of_all_numbers(west, given)


def _no_number_is_left(west: Ground, given: Given) -> None:
    """A tablet without a free sequence number can be read, and its server serves other tablets."""
    node = _served(west, LEFT, RIGHT)
    node.may_die = True
    write = parts_of(node, RIGHT)[1]._write
    write.stage(2**63 - write.staged.next_seq, write.staged.last_time_ms, None)
    with pytest.raises(RefusedError, match="no sequence number left"):
        west.write(node, RIGHT, records([(b"z", b"1")]))
    with pytest.raises(RefusedError, match="no sequence number left"):
        given.send_records(west, node)
    assert west.scan(node, RIGHT) == {}
    west.write(node, LEFT, records([(b"a", b"1")], timestamp=5))
    assert west.scan(node, LEFT)[b"a", b"f", b"q"] == b"1"
    assert not node.died


def test_a_tablet_without_a_number_left_ends_no_server(west: Ground, given: Given) -> None:
    _no_number_is_left(west, given)


def test_what_came_before_a_tablet_was_unloaded_need_not_come_again(west: Ground, given: Given) -> None:
    node = _served(west, LEFT, RIGHT)
    token, answer = given.offer(west, node)
    given.put(west, node, token, answer.received_bytes)
    west.tserver(node).unload_tablet(RIGHT, 1, False)
    with pytest.raises(NotServingError):
        west.tserver(node).take_segments(token, given.stream)
    assert west.scan(node, LEFT) == IN_LEFT
    with pytest.raises(NotServingError):
        given.offer(west, node)
    west.assign(node, RIGHT)
    token, answer = given.offer(west, node)
    assert answer.received_bytes == tuple(segment.entry.size_bytes for segment in given.whole.segments)
    assert west.tserver(node).take_segments(token, given.stream).state == "taken"
    assert west.scan(node, RIGHT) == IN_RIGHT
    assert _incoming(west) == named_in(west, LEFT) | named_in(west, RIGHT)


def test_r18_of_merged_tablets_one_had_its_file(west: Ground, given: Given) -> None:
    node = _served(west, LEFT, RIGHT)
    west.tserver(node).adopt_segments(given.order(west, node, LEFT))
    merge(west, let_go(west, (node, LEFT), (node, RIGHT)))
    west.assign(node, WHOLE)
    answer = given.send_whole(west, node)
    assert answer.state == "declined", "what the left rows have would come twice"
    assert given.send_records(west, node).records_applied == 2
    assert west.scan(node, WHOLE) == {**IN_LEFT, **IN_RIGHT}


def test_r18_a_split_hands_on_that_a_file_was_taken(west: Ground, given: Given) -> None:
    node = _served(west, WHOLE)
    assert given.send_whole(west, node).state == "taken"
    split(west, let_go(west, (node, WHOLE)))
    west.assign(node, LEFT, RIGHT)
    with pytest.raises(NotServingError):
        given.send_whole(west, node)  # it reads the locations again
    assert given.send_whole(west, node).state == "taken"
    assert (west.scan(node, LEFT), west.scan(node, RIGHT)) == (IN_LEFT, IN_RIGHT)


def test_r20_a_file_whose_stream_is_over_is_not_taken(west: Ground, given: Given) -> None:
    node = _served(west, WHOLE)
    order = given.order(west, node, WHOLE)
    west.metadata.purge([keys.recv_cell(given.stream)])
    west.tserver(node).forget_streams([given.stream])
    with pytest.raises(RefusedError, match="is over"):
        west.tserver(node).adopt_segments(order)
    assert west.scan(node, WHOLE) == {}


def _by_another_path(west: Ground, given: Given, node: LocalNode) -> ReplicateResult:
    """The same records from a cluster between."""
    stream = replace(given.stream, source_instance_id="between", file="between.wal")
    blocks = []
    for block in blocks_of(given.log):
        sections = ((root_of(given.stream), Runs.of((block.first_offset, block.last_offset))),)
        block_origins = block_origins_to_pb(
            BlockOrigins(sections, exact_claims(sections)), root_of(stream)
        ).SerializeToString()
        blocks.append(replace(source_block(block.first_offset, block.batch()), block_origins=block_origins))
    token = west.tserver(node).open_stream(stream)
    request = replicate_request(token, stream, 0, 0, blocks[-1].last_offset, blocks)
    return west.tserver(node).replicate(replace(request, provenance=(SOURCE, "between")))


def _known_on_another_path(west: Ground, given: Given) -> None:
    node = _served(west, WHOLE)
    assert given.send_whole(west, node).state == "taken"
    assert _by_another_path(west, given, node).records_applied == 0, (
        "R22: what was taken whole is taken again on another path"
    )
    other = move(west, node, WHOLE)
    assert _by_another_path(west, given, other).records_applied == 0
    assert own_blocks(west, other) == []


def test_r22_transferred_segments_are_known_when_their_records_come_by_another_path(west: Ground, given: Given) -> None:
    _known_on_another_path(west, given)


def test_r22_without_its_rule_they_are_taken_again(west: Ground, given: Given) -> None:
    with (
        fault("files-say-nothing-to-other-paths"),
        pytest.raises(AssertionError, match="what was taken whole is taken again on another path"),
    ):
        _known_on_another_path(west, given)


def test_r22_of_what_came_another_way_no_file_is_taken(west: Ground, given: Given) -> None:
    node = _served(west, LEFT, RIGHT)
    assert _by_another_path(west, given, node).records_applied == 4
    assert given.send_whole(west, node).state == "declined"
    assert given.send_records(west, node).records_applied == 0


def test_r22_files_of_some_groups_say_nothing_of_the_others(west: Ground, tmp_path: Path) -> None:
    given, part, node = _some_groups(west, tmp_path)
    assert part.send_whole(west, node).state == "taken"
    assert _by_another_path(west, given, node).records_applied == 1
    assert west.scan(node, WHOLE) == {(b"a", b"f", b"q"): b"1", (b"b", b"g", b"q"): b"2"}


def _some_groups(west: Ground, tmp_path: Path) -> tuple[Given, Given, LocalNode]:
    """An import of two groups, the files of one of them, and the tserver of the table."""
    groups = GroupMap({"geo": [b"g"]})
    batches = [records([(b"a", b"1")], timestamp=5), records([(b"b", b"2")], b"g", timestamp=5)]
    given = given_files(tmp_path / "parted", batches, groups)
    west.create_table("1", groups=[LocalityGroup("geo", (b"g",))])
    node = west.local()
    west.assign(node, WHOLE)
    geo = tuple(segment for segment in given.whole.segments if segment.entry.group == "geo")
    return given, replace(given, whole=replace(given.whole, segments=geo)), node


def test_a_target_of_some_groups_gets_their_files_and_no_others(west: Ground, tmp_path: Path) -> None:
    given, part, node = _some_groups(west, tmp_path)
    assert part.send_whole(west, node).state == "taken"
    assert west.scan(node, WHOLE) == {(b"b", b"g", b"q"): b"2"}
    assert _high_water(west, given, WHOLE) == [2]
    assert given.send_records(west, node).records_applied == 0


def test_tables_with_other_locality_groups_get_records(west: Ground, given: Given) -> None:
    west.create_table("1", groups=[LocalityGroup("geo", (b"f",))])
    node = west.local()
    west.assign(node, WHOLE)
    assert "locality groups" in given.send_whole(west, node).reason
    given.send_records(west, node)
    assert west.scan(node, WHOLE) == {**IN_LEFT, **IN_RIGHT}


@pytest.mark.parametrize(
    ("name", "law", "says"),
    [
        ("imports-are-applied-again and mixtures-are-accepted", _comes_again, "a file is taken twice"),
        ("imports-are-not-remembered", _comes_again, "a file that was taken is not remembered"),
        (
            "mixtures-are-accepted",
            test_r18_a_tablet_with_some_records_takes_no_file,
            "a tablet with some of the records takes the file",
        ),
        ("damage-on-the-way-counts and files-are-not-decoded", _damaged, "a file that was damaged on its way is taken"),
        ("files-are-not-decoded", _says_what_is_not_so, "a file that says what is not so is taken"),
        ("segments-take-any-number", _near_the_end_of_all_numbers, "a file takes the numbers that records need"),
    ],
)
def test_without_its_rule_a_law_is_red(
    name: str, law: Callable[[Ground, Given], None], says: str, west: Ground, given: Given
) -> None:
    with fault(name), pytest.raises(AssertionError, match=says):
        law(west, given)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_without_its_rule_a_tablet_without_a_number_left_ends_its_server(west: Ground, given: Given) -> None:
    with (
        fault("numbers-never-end"),
        pytest.raises(LeaseLostError, match=r"a commit thread failed"),
    ):
        _no_number_is_left(west, given)
