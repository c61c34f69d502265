"""Logs on hosts' own disks, with real tservers and without a master: a host dies, is away, is stopped, and returns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bookkeeper.errors import BookkeeperError, TransientError, UnavailableError, is_away
from bookkeeper.log_homes.log_recovery import recover_log
from bookkeeper.model import Extent
from bookkeeper.storage.volume.local_volume import LocalVolume
from bookkeeper.storage.wal.reading.wal_recovery import recover
from bookkeeper.storage.wal.writing.seal import SEAL_SUFFIX, read_seal
from tests.support.faults import fault
from tests.support.host_logs import ON_HOSTS, another_host, logs_of, names_of
from tests.support.must_raise import must_raise
from tests.support.tservers import Ground, LocalNode, Node, ground, records, wait_until

pytestmark = pytest.mark.integration


@pytest.fixture
def west(tmp_path: Path) -> Iterator[Ground]:
    with ground(tmp_path / "west", ON_HOSTS) as made:
        yield made


def values(west: Ground, node: Node, extent: Extent) -> dict[bytes, bytes]:
    """The rows of a tablet."""
    return {row: value for (row, _, _), value in west.scan(node, extent).items()}


def recover_all(west: Ground, node: Node) -> None:
    """Seal the logs of a dead session, as a master does."""
    wait_until(lambda: not west.is_alive(node), "the end of a session")
    logs = logs_of(west)
    for name in names_of(west, node):
        recover_log(logs, name)


def test_a_host_dies_and_its_tablet_is_loaded_elsewhere_from_its_disk_when_it_is_back(
    west: Ground, tmp_path: Path
) -> None:
    far = another_host(west, tmp_path)
    first = west.process(far.directory)
    second = west.process()
    (extent,) = west.create_table("1")
    west.assign(first, extent)
    for row in (b"a", b"b", b"c"):
        assert west.write(first, extent, records([(row, b"1" * 100_000)])) == ()
    first.kill9()
    wait_until(lambda: not west.is_alive(first), "the end of a session")
    with must_raise(UnavailableError, "a tablet is served without a log", match="host2, which is away") as refused:
        west.assign(second, extent)
    assert is_away(refused.value)

    west.process(far.directory)
    recover_all(west, first)
    west.assign(second, extent)
    assert values(west, second, extent) == dict.fromkeys((b"a", b"b", b"c"), b"1" * 100_000)


def test_a_host_that_is_away_keeps_its_log_and_a_host_without_it_says_another_thing(
    west: Ground, tmp_path: Path
) -> None:
    far = another_host(west, tmp_path)
    node = west.local(settings=far)
    (name,) = names_of(west, node)
    node.crash()
    with must_raise(UnavailableError, "a log is sealed without its host", match="away: start it"):
        recover_log(logs_of(west), name)
    with must_raise(OSError, "a log is taken for missing while its host is away", match="away"):
        logs_of(west).exists(name)


def test_r15_an_owner_acknowledges_nothing_behind_the_seal_on_its_own_disk(west: Ground, tmp_path: Path) -> None:
    far = another_host(west, tmp_path)
    node: LocalNode = west.local(settings=far)
    node.may_die = True
    (extent,) = west.create_table("1")
    west.assign(node, extent)
    assert west.write(node, extent, records([(b"a", b"1")])) == ()
    (name,) = names_of(west, node)
    assert recover(LocalVolume(far.replicas_dir), name).offset == 1, "as the next process of the host does"
    with must_raise(BookkeeperError, "R15: a process that others believe dead acknowledges"):
        west.write(node, extent, records([(b"b", b"2")]))
    assert node.died
    assert "another process recovers" in node.died[0]


def test_without_the_fence_a_stopped_owner_acknowledges_what_nobody_reads(west: Ground, tmp_path: Path) -> None:
    with fault("no-fence"), pytest.raises(AssertionError, match="R15: a process that others believe dead"):
        test_r15_an_owner_acknowledges_nothing_behind_the_seal_on_its_own_disk(west, tmp_path)


def test_r12_the_books_know_the_home_before_there_is_a_log(west: Ground, tmp_path: Path) -> None:
    node = west.local(settings=another_host(west, tmp_path))
    if not names_of(west, node):
        raise AssertionError("R12: a log lies on a host's disk, and the books do not say so")


def test_without_its_home_nobody_finds_a_log(west: Ground, tmp_path: Path) -> None:
    with fault("logs-before-their-home"), pytest.raises(AssertionError, match="R12: a log lies on a host's disk"):
        test_r12_the_books_know_the_home_before_there_is_a_log(west, tmp_path)


def test_r15_a_session_that_ends_in_order_says_so_when_each_log_is_sealed(west: Ground, tmp_path: Path) -> None:
    process = west.local(settings=another_host(west, tmp_path)).process
    homes, logs = process._homes, process._session_logs
    logs.end(homes)
    if homes.has_ended(process.session_id):
        raise AssertionError("R15: a tablet is served without the end of a log")


def test_a_session_that_says_so_too_early_is_noticed(west: Ground, tmp_path: Path) -> None:
    with fault("ends-without-seals"), pytest.raises(AssertionError, match="R15: a tablet is served without the end"):
        test_r15_a_session_that_ends_in_order_says_so_when_each_log_is_sealed(west, tmp_path)


def test_a_clean_end_lets_the_tablets_go_elsewhere(west: Ground, tmp_path: Path) -> None:
    far = another_host(west, tmp_path)
    first, second = west.local(settings=far), west.local()
    (extent,) = west.create_table("1")
    west.assign(first, extent)
    west.write(first, extent, records([(b"a", b"1")]))
    first.stop()
    assert first.process._homes.has_ended(first.session_id)
    west.assign(second, extent)
    assert values(west, second, extent) == {b"a": b"1"}


def test_a_second_tserver_of_a_host_makes_its_logs_on_the_volume(west: Ground) -> None:
    first, second = west.local(), west.local()
    (name,) = names_of(west, second)
    assert west.volume.exists(name)
    (name,) = names_of(west, first)
    assert not west.volume.exists(name)
    assert (west.settings.replicas_dir / name).exists()
    assert not (west.settings.replicas_dir / (name + SEAL_SUFFIX)).exists()
    assert read_seal(logs_of(west), name) is None
    first.crash()
    with pytest.raises(TransientError):
        logs_of(west).open(name)
