"""One node holds a host: a copy of its directory waits, the same directory goes on, a lost one is replaced."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bookkeeper.config.sections import CoordinationSettings
from bookkeeper.coordination.config_tree import holders_path, read_config
from bookkeeper.coordination.coordination_protocol import Session, Versioned
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.coordination.host_holders import hold_host, holders, node_text, refuse_held
from bookkeeper.coordination.host_names import claim_name, replace_host
from bookkeeper.errors import CorruptionError, NotFoundError, RefusedError, UnavailableError
from bookkeeper.model import HostIdentity
from tests.support.faults import fault
from tests.support.must_raise import must_raise

HERE, COPY = node_text("boot-1", 7, 11), node_text("boot-2", 7, 11)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedCoordination]:
    with closing(EmbeddedCoordination(tmp_path / "coordination", CoordinationSettings())) as made:
        claim_name(made, "host2", "/srv/west", "id-2")
        yield made


def opened(store: EmbeddedCoordination) -> Session:
    return store.open_session("tserver", "127.0.0.1:1", HostIdentity("host2", "disk"))


def begun(store: EmbeddedCoordination, node: str) -> Session:
    """A tserver of the host that may serve; its session is over when it may not."""
    refuse_held(store, "host2", "id-2", node)
    session = opened(store)
    try:
        hold_host(store, "host2", "id-2", node, session.session_id)
    except BaseException:
        session.close()
        raise
    return session


def test_the_same_node_goes_on_at_once_and_a_copy_waits(store: EmbeddedCoordination) -> None:
    killed = begun(store, HERE)
    again = begun(store, HERE)
    with pytest.raises(UnavailableError, match=r"host host2 is held by another machine, or by a copy .*: stop one"):
        begun(store, COPY)
    assert [one.alive for one in store.sessions("tserver")] == [True, True]
    killed.close()
    again.close()
    taken = begun(store, COPY)
    assert holders(store, "host2") == {taken.session_id: COPY}, "sessions that are over stay in the record for ever"
    with pytest.raises(UnavailableError, match="held by another machine"):
        begun(store, HERE)


def two_that_begin_at_once_do_not_both_serve(store: EmbeddedCoordination) -> None:
    for node in (HERE, COPY):
        refuse_held(store, "host2", "id-2", node)
    first = opened(store)
    hold_host(store, "host2", "id-2", HERE, first.session_id)
    second = opened(store)
    with must_raise(UnavailableError, "two machines hold one host", match=f"session {first.session_id}"):
        hold_host(store, "host2", "id-2", COPY, second.session_id)


def test_two_that_begin_at_once_do_not_both_serve(store: EmbeddedCoordination) -> None:
    two_that_begin_at_once_do_not_both_serve(store)


def test_without_the_look_behind_the_session_both_serve(store: EmbeddedCoordination) -> None:
    with fault("hosts-held-by-two-nodes"), pytest.raises(AssertionError, match="two machines hold one host"):
        two_that_begin_at_once_do_not_both_serve(store)


def test_a_session_whose_node_is_not_recorded_yet_counts_as_another_one(store: EmbeddedCoordination) -> None:
    first, second = opened(store), opened(store)
    with pytest.raises(UnavailableError, match=f"session {second.session_id}"):
        hold_host(store, "host2", "id-2", HERE, first.session_id)
    first.close()
    hold_host(store, "host2", "id-2", COPY, second.session_id)


def test_a_lost_directory_is_replaced_and_does_not_start_any_more(store: EmbeddedCoordination) -> None:
    alive = begun(store, HERE)
    with pytest.raises(RefusedError, match=r"host host2 in /srv/west is alive .*: stop it first"):
        replace_host(store, "host2", "/srv/new", "id-9")
    alive.close()
    replace_host(store, "host2", "/srv/new", "id-9")
    generation = store.generation()
    replace_host(store, "host2", "/srv/new", "id-9")
    assert store.generation() == generation
    config = read_config(store)
    assert (config.hosts, config.host_ids) == ({"host2": "/srv/new"}, {"host2": "id-9"})
    with pytest.raises(RefusedError, match="host host2 of this cluster is the one in /srv/new now, and not this"):
        begun(store, HERE)
    claim_name(store, "host1", ".")
    for name in ("host1", "host7"):
        with pytest.raises(NotFoundError, match=f"no host {name} has a directory of its own"):
            replace_host(store, name, "/srv/new", "id-9")


class BeginsMeanwhile(EmbeddedCoordination):
    """The old host begins right before its record changes."""

    def put(self, path: str, value: bytes, expected_version: int | None = None) -> int:
        if b"id-9" in value:
            begun(self, HERE)
        return super().put(path, value, expected_version)


def a_host_that_begins_meanwhile_stays(directory: Path) -> None:
    with closing(BeginsMeanwhile(directory, CoordinationSettings())) as store:
        claim_name(store, "host2", "/srv/west", "id-2")
        with must_raise(RefusedError, "a host that serves has lost its name", match="is alive"):
            replace_host(store, "host2", "/srv/new", "id-9")
        assert read_config(store).host_ids == {"host2": "id-2"}


def test_a_host_that_begins_while_it_is_replaced_stays(tmp_path: Path) -> None:
    a_host_that_begins_meanwhile_stays(tmp_path / "meanwhile")


def test_without_the_second_look_it_has_lost_its_name(tmp_path: Path) -> None:
    with fault("replaced-while-it-begins"), pytest.raises(AssertionError, match="has lost its name"):
        a_host_that_begins_meanwhile_stays(tmp_path / "meanwhile")


def test_a_damaged_record_is_an_error(store: EmbeddedCoordination) -> None:
    store.put(holders_path("host2"), b'{"nodes":{"s":7}}')
    with pytest.raises(CorruptionError, match="configuration /holders/host2: nodes has a wrong type"):
        begun(store, HERE)
    assert isinstance(store.get(holders_path("host2")), Versioned)
