"""Tablets with replicas on three hosts take imports: on all hosts, once, behind what was written before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.errors import CorruptionError, DeclinedError, InvalidInputError, LeaseLostError, UnavailableError
from bookkeeper.metadata import keys
from bookkeeper.metadata.values import FlushState
from bookkeeper.model import Extent, Target, TargetKey
from bookkeeper.rpc.contract.messages import AdoptRequest
from bookkeeper.storage.volume.volume_protocol import Appender
from combiners import CLOSED
from tests.support.faults import fault
from tests.support.led_hosts import Hosts, hosts
from tests.support.must_raise import must_raise
from tests.support.prepared_imports import prepared_import
from tests.support.tservers import flush_of, records, status_of, wait_until

pytestmark = pytest.mark.integration

HOSTS = ("host1", "host2", "host3")
IMPORTED = {b"a": b"1", b"b": b"2"}
BATCH = records([(b"a", b"1"), (b"b", b"2")], timestamp=5)
TARGET = Target(TargetKey("east", "r1", "1", 1), None, "", "east-instance")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Hosts]:
    with hosts(tmp_path, *HOSTS) as made:
        yield made


def led(world: Hosts) -> Extent:
    """A tablet that host1 leads, with a flushed and named record, and one in memory."""
    extent = world.table(*HOSTS)
    world.lead(extent, "host1")
    write(world, "host1", extent, b"z", b"0")
    world.ground.tserver(world.node("host1")).flush_tablet(extent)
    world.wait_named(extent, "host1")
    write(world, "host1", extent, b"a", b"before")
    return extent


def write(world: Hosts, host: str, extent: Extent, row: bytes, value: bytes) -> None:
    world.ground.write(world.node(host), extent, records([(row, value)], timestamp=5))


def rows(world: Hosts, host: str, extent: Extent) -> dict[bytes, bytes]:
    return {row: value for (row, _, _), value in world.ground.scan(world.node(host), extent).items()}


def adopt(world: Hosts, host: str, request: AdoptRequest) -> None:
    world.ground.tserver(world.node(host)).adopt_segments(request)


def end(world: Hosts, request: AdoptRequest) -> None:
    """The import's own files go."""
    for segment in request.segments:
        world.ground.path(segment.name).unlink()


def test_an_import_is_on_all_hosts_and_survives_the_leader(world: Hosts) -> None:
    extent = led(world)
    request = prepared_import(world.ground, extent, BATCH)
    adopt(world, "host1", request)
    assert world.chain("host1", extent).is_named, "an import ends before the books name it"
    end(world, request)
    expected = {**IMPORTED, b"z": b"0"}
    assert rows(world, "host1", extent) == expected, "of equal timestamps the later wins"
    write(world, "host1", extent, b"b", b"after")
    expected[b"b"] = b"after"
    assert rows(world, "host1", extent) == expected
    world.wait_same(extent, "host1", "host2", "host3")
    world.kill("host1")
    world.lead(extent, "host2")
    assert rows(world, "host2", extent) == expected
    adopt(world, "host2", request)
    assert rows(world, "host2", extent) == expected, "R18: an import is taken twice"


def test_the_put_that_names_an_import_brings_the_status_of_its_log(world: Hosts) -> None:
    extent = led(world)
    request = prepared_import(world.ground, extent, BATCH, TARGET)
    assert request.log is not None
    adopt(world, "host1", request)
    status = status_of(world.ground, extent, request.log.name)
    assert status is not None
    assert (status.state, status.replication_needed_offset, status.created_time) == (CLOSED, 2, 9)
    row = world.ground.metadata.get(keys.tablet_row(extent.table_id, extent.end_row))
    assert row is not None
    assert row.cells[keys.repl_column(request.log.name)].rank == row.cells[keys.FLUSH].rank
    assert flush_of(world.ground, extent).last_wals == ((request.log.name, request.log.offset),)


def has_import(world: Hosts, host: str, extent: Extent, request: AdoptRequest) -> bool:
    """Whether a state of this host has the import, named or not."""
    states = world.manifest(host, extent).states.values()
    return any(request.stream in FlushState.decode(raw).high_water for raw in states)


def taken_by_one_host_alone(world: Hosts) -> tuple[Extent, AdoptRequest]:
    """host1 has the import as a state of its own, which no other host gets, and dies."""
    extent = led(world)
    world.ground.tserver(world.node("host1")).flush_tablet(extent)
    world.wait_named(extent, "host1")
    world.wait_same(extent, "host1", "host2", "host3")
    for name in ("host2", "host3"):
        world.stop(name)
    request = prepared_import(world.ground, extent, BATCH, TARGET)
    loader = world.node("host1").process.parts.bulk.loader
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(loader.adopt, request)
        try:
            wait_until(lambda: has_import(world, "host1", extent, request), "a state with the import on host1")
            assert rows(world, "host1", extent) == {b"a": b"before", b"z": b"0"}, "readers see what may not stay"
            with pytest.raises(UnavailableError, match="takes an import already"):
                loader.adopt(request)
            assert not call.done(), "an import ends although one host alone has it"
            assert request.stream not in flush_of(world.ground, extent).high_water
        finally:
            world.kill("host1")
        assert isinstance(call.exception(), LeaseLostError)
    return extent, request


def test_an_import_that_one_host_alone_has_is_taken_again_by_the_next_leader_and_counts_once(world: Hosts) -> None:
    extent, request = taken_by_one_host_alone(world)
    world.start("host2", "host3")
    world.lead(extent, "host2")
    assert rows(world, "host2", extent) == {b"a": b"before", b"z": b"0"}
    adopt(world, "host2", request)
    expected = {**IMPORTED, b"z": b"0"}
    assert rows(world, "host2", extent) == expected
    world.start("host1")
    world.wait_same(extent, "host2", "host1", "host3")
    world.wait_named(extent, "host2")
    world.compact(extent, "host2")
    world.wait_named(extent, "host2")
    world.wait_same(extent, "host2", "host1", "host3")
    for name in HOSTS:
        world.collect(name)
        assert len(world.files(name, extent)) == 1, f"{name} keeps files of an import that no state lists"
    world.kill("host2")
    world.lead(extent, "host1")
    assert rows(world, "host1", extent) == expected


def test_a_host_that_has_an_import_alone_and_leads_again_takes_it_once(world: Hosts) -> None:
    extent, request = taken_by_one_host_alone(world)
    world.start(*HOSTS)
    world.lead(extent, "host1")
    assert rows(world, "host1", extent) == {b"a": b"before", b"z": b"0"}, "a term begins from the named state (N6)"
    adopt(world, "host1", request)
    assert rows(world, "host1", extent) == {**IMPORTED, b"z": b"0"}
    assert len(flush_of(world.ground, extent).segments) == 3


def test_an_import_waits_while_too_few_hosts_have_the_newest_data(world: Hosts) -> None:
    extent = led(world)
    for name in ("host2", "host3"):
        world.stop(name)
    request = prepared_import(world.ground, extent, BATCH)
    with pytest.raises(UnavailableError, match="too few hosts have the newest data"):
        adopt(world, "host1", request)
    write(world, "host1", extent, b"b", b"written")
    world.start("host2")
    world.wait_named(extent, "host1")
    adopt(world, "host1", request)
    assert rows(world, "host1", extent) == {**IMPORTED, b"z": b"0"}


def a_copy_is_damaged(world: Hosts) -> None:
    """The disk of host1 changes a byte of the copy."""
    extent = led(world)
    request = prepared_import(world.ground, extent, BATCH)
    volume = world.node("host1").process.parts.tablets.leading.led.all()[0].volume
    create = volume.create

    def damaging(name: str, parts: Iterable[bytes]) -> Appender:
        made = create(name, parts)
        path = world.settings("host1").replicas_dir / name
        content = bytearray(path.read_bytes())
        content[8] ^= 1  # behind the first bytes of the format, and in front of the footer
        path.write_bytes(content)
        return made

    volume.create = damaging  # type: ignore[method-assign]
    before = world.files("host1", extent).keys()
    try:
        with must_raise(CorruptionError, "a damaged copy becomes a part of the tablet", match="has other bytes than"):
            adopt(world, "host1", request)
    finally:
        volume.create = create  # type: ignore[method-assign]
    assert len(world.files("host1", extent).keys() - before) <= 1, "a copy that no state lists is left"
    adopt(world, "host1", request)
    assert rows(world, "host1", extent) == {**IMPORTED, b"z": b"0"}


def test_a_copy_with_other_bytes_is_no_part_of_the_tablet(world: Hosts) -> None:
    a_copy_is_damaged(world)


def test_without_the_checksum_a_damaged_copy_becomes_a_part_of_the_tablet(world: Hosts) -> None:
    with fault("copies-unchecked"), pytest.raises(AssertionError, match="a damaged copy becomes a part of the tablet"):
        a_copy_is_damaged(world)


def test_files_that_are_gone_are_refused(world: Hosts) -> None:
    extent = led(world)
    request = prepared_import(world.ground, extent, BATCH)
    end(world, request)
    with pytest.raises(InvalidInputError, match="is not there"):
        adopt(world, "host1", request)
    write(world, "host1", extent, b"b", b"written")
    assert rows(world, "host1", extent)[b"b"] == b"written"


def test_files_of_another_cluster_come_as_records(world: Hosts) -> None:
    extent = led(world)
    request = replace(prepared_import(world.ground, extent, BATCH), through=2)
    with pytest.raises(DeclinedError, match="takes another cluster's records only"):
        adopt(world, "host1", request)
