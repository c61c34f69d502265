"""The master reads a file of a host through the host, and takes no damaged or partial one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import google_crc32c
import pytest

from bookkeeper.errors import CorruptionError, NotFoundError, UnavailableError
from bookkeeper.master.calls.hosted_files import from_any_host
from bookkeeper.model import HostIdentity
from tests.support.faults import fault
from tests.support.master_world import World
from tests.support.scripted_tserver import ScriptedTServer, scripted

NAME = "tables/1/t-00000/a.parquet"
CONTENT = b"0123456789"


@pytest.fixture
def hosts(world: World) -> Iterator[list[ScriptedTServer]]:
    """Two live hosts without files."""
    with ExitStack() as stack:
        yield [stack.enter_context(scripted(world, HostIdentity(name, f"disk-{name}"))) for name in ("h1", "h2")]


def read(world: World) -> bytes:
    return from_any_host(world.tservers(), NAME, b"".join)


def crc(content: bytes) -> int:
    return int(google_crc32c.value(content))


def test_the_parts_of_a_file_come_from_the_host_that_has_it(world: World, hosts: list[ScriptedTServer]) -> None:
    with pytest.raises(NotFoundError, match=rf"no host holds {NAME} any more"):
        read(world)
    hosts[1].contents[NAME] = (CONTENT, crc(CONTENT))
    assert read(world) == CONTENT


def test_an_empty_file_is_a_file(world: World, hosts: list[ScriptedTServer]) -> None:
    hosts[0].contents[NAME] = (b"", 0)
    assert read(world) == b""


def test_a_host_that_does_not_answer_may_have_the_file(world: World, hosts: list[ScriptedTServer]) -> None:
    hosts[0].trouble["read_replica"] = UnavailableError("its disk is slow")
    with pytest.raises(UnavailableError, match="its disk is slow"):
        read(world)
    hosts[1].contents[NAME] = (CONTENT, crc(CONTENT))
    assert read(world) == CONTENT


def a_damaged_file(world: World, hosts: list[ScriptedTServer]) -> bytes:
    """The first host has other bytes than its manifest says."""
    hosts[0].contents[NAME] = (b"0123456?89", crc(CONTENT))
    hosts[1].contents[NAME] = (CONTENT, crc(CONTENT))
    return read(world)


def test_the_file_of_another_host_takes_the_place_of_a_damaged_one(world: World, hosts: list[ScriptedTServer]) -> None:
    assert a_damaged_file(world, hosts) == CONTENT
    del hosts[1].contents[NAME]
    with pytest.raises(CorruptionError, match=r"no host has a sound .* is damaged: its checksum differs"):
        read(world)


def test_without_the_checksum_a_damaged_file_is_exported(world: World, hosts: list[ScriptedTServer]) -> None:
    with fault("hosted-files-unchecked"):
        assert a_damaged_file(world, hosts) == b"0123456?89"
