"""The master as its callers see it: one that runs, called over the wire."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.config.sections import Settings
from bookkeeper.errors import (
    ExistsError,
    InvalidInputError,
    NotFoundError,
    NotLeaderError,
    NotReadyError,
    RefusedError,
    UnauthorizedError,
    UnavailableError,
)
from bookkeeper.master.books.books_cycle import Books
from bookkeeper.master.monitoring import MasterSource
from bookkeeper.model import LocalityGroup, StreamKey
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.contract.services import Master
from bookkeeper.rpc.rpc_pool import RpcPool, plain_hello
from bookkeeper.security.access import client_credentials, file_credentials, peer_credentials
from bookkeeper.security.secret_store import SecretStore
from bookkeeper.standalone.directory import init_cluster
from bookkeeper.standalone.ports import free_ports
from tests.support.faults import fault
from tests.support.master_world import UNHURRIED
from tests.support.masters import LocalMaster, eventually
from tests.support.must_raise import must_raise
from tests.support.tservers import wait_until


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A cluster."""
    return init_cluster(tmp_path / "west", "west", overrides=UNHURRIED)


@pytest.fixture
def master(settings: Settings) -> Iterator[LocalMaster]:
    """Its leading master."""
    with LocalMaster(settings) as found:
        yield found


def test_a_master_that_does_not_lead_knows_the_leader_and_nothing_else(settings: Settings, master: LocalMaster) -> None:
    second = LocalMaster(settings, port=free_ports(1)[0])
    second._thread.start()
    wait_until(lambda: second.process.address != master.address, "a second master")
    assert eventually(second.calls.leader) == master.address
    for call in (second.calls.tables, second.calls.clusters, second.calls.status):
        with pytest.raises(NotLeaderError):
            call()
    second.__exit__(None, None, None)


def test_tables_are_made_listed_found_and_deleted(master: LocalMaster) -> None:
    group = LocalityGroup("g", (b"f",))
    made = master.calls.create_table("t", [b"m"], [group], {"table.custom.a": "b"})
    assert (made.name, made.state, made.groups, made.properties) == ("t", "online", (group,), {"table.custom.a": "b"})
    assert list(master.calls.tables()) == [made]
    assert master.calls.resolve_table("t") == made.table_id
    assert [location.address for location in master.calls.locate(made.table_id)] == [None, None]
    with pytest.raises(ExistsError):
        master.calls.create_table("t", [], [], {})
    master.calls.set_groups("t", [])
    assert master.calls.tables()[0].groups == ()
    changed = master.calls.change_properties("t", {"table.versions.max": "2"}, ["table.custom.a"])
    assert changed.properties == master.calls.tables()[0].properties == {"table.versions.max": "2"}
    with pytest.raises(InvalidInputError, match="did you mean"):
        master.calls.change_properties("t", {"table.version.max": "2"}, [])
    master.calls.delete_table("t")
    assert list(master.calls.tables()) == []
    with pytest.raises(NotFoundError):
        master.calls.resolve_table("t")


def test_an_impossible_request_is_refused_before_anything_begins(master: LocalMaster) -> None:
    with pytest.raises(InvalidInputError):
        master.calls.create_table("", [], [], {})
    with pytest.raises(InvalidInputError):
        master.calls.define_cluster("east", "not an address")
    assert not [fact for fact in master.calls.status() if fact.startswith("operation")]


def test_users_have_their_authorizations(master: LocalMaster) -> None:
    assert list(master.calls.authorizations("root")) == []
    master.calls.set_authorizations("root", ["B", "A"])
    assert list(master.calls.authorizations("root")) == ["A", "B"]
    with pytest.raises(InvalidInputError):
        master.calls.set_authorizations("root", [""])
    with pytest.raises(InvalidInputError):
        master.calls.set_authorizations("", ["A"])
    master.calls.set_authorizations("root", [])
    assert list(master.calls.authorizations("root")) == []


def test_a_failed_operation_is_kept_and_shown(master: LocalMaster) -> None:
    with pytest.raises(NotFoundError):
        master.calls.delete_table("nothing")
    (shown,) = [value for fact, value in master.calls.status().items() if fact.startswith("operation")]
    assert shown.startswith("delete_table at failed: no table nothing")
    (listed,) = master.calls.operations()
    assert (listed.kind, listed.step, listed.arguments) == ("delete_table", "failed", '{"name": "nothing"}')
    assert listed.note.startswith("no table nothing")


def test_the_facts_of_a_leader(master: LocalMaster) -> None:
    facts = until_known(master)
    assert int(facts["epoch"]) == 1
    assert facts["outstanding_files"] == "0"
    assert "last_cycle_error" not in facts


def until_known(master: LocalMaster) -> Mapping[str, str]:
    """The facts of a leader that has read the books."""
    wait_until(lambda: "outstanding_files" in master.calls.status(), "a first full cycle")
    return master.calls.status()


def asked_before_the_first_cycle(settings: Settings) -> None:
    """A leading master that can't read the books yet says so instead of an empty answer."""
    metadata = UnavailableError("the metadata table does not answer")
    with patch.object(Books, "read", side_effect=metadata), LocalMaster(settings) as master:
        wait_until(lambda: int(master.calls.status()["failed_cycles"]) > 0, "a cycle that failed")
        for ask in (master.calls.replication_status, master.calls.quarantine):
            with must_raise(
                NotReadyError,
                "a master that has read nothing answers",
                match=r"just begun to lead.* the metadata table does not answer",
            ):
                ask("")
        facts = master.calls.status()
        assert facts.keys().isdisjoint({"outstanding_files", "tablets", "live_tservers"})
        assert "has not read the books yet" in facts["books"]
        seen = MasterSource(master.process, settings, master.coordination, SystemClock()).observe()
        assert (seen.leads, seen.books) == (True, None)
        assert "has not read the books yet" in seen.problem


def test_a_master_that_has_read_nothing_says_so_and_answers_when_it_has(settings: Settings) -> None:
    asked_before_the_first_cycle(settings)
    with LocalMaster(settings) as master:
        until_known(master)
        report = master.calls.replication_status("")
        assert (list(report.targets), report.problem) == ([], "")
        assert list(master.calls.quarantine("")) == []


def test_without_the_rule_a_master_that_has_read_nothing_answers_nothing(settings: Settings) -> None:
    with fault("unknown-is-nothing"), pytest.raises(AssertionError, match="a master that has read nothing answers"):
        asked_before_the_first_cycle(settings)


def test_a_master_whose_cycles_fail_says_how_old_its_answer_is(master: LocalMaster) -> None:
    until_known(master)
    with patch.object(Books, "read", side_effect=UnavailableError("the metadata table does not answer")):
        master.leadership.cycle.event_queue.ask_full()
        wait_until(lambda: master.calls.replication_status("").problem != "", "word of a failed cycle")
        problem = master.calls.replication_status("").problem
    assert re.fullmatch(r"what is shown was read .* s ago: the last \d+ cycles failed, unavailable: the .*", problem)
    wait_until(lambda: not master.calls.replication_status("").problem, "a cycle that works")


def test_replication_without_a_peer_that_answers_changes_nothing(master: LocalMaster) -> None:
    master.calls.create_table("t", [], [], {})
    with pytest.raises(UnavailableError, match="nothing was changed"):
        master.calls.define_cluster("east", f"127.0.0.1:{free_ports(1)[0]}")
    assert list(master.calls.clusters()) == []
    assert list(master.calls.replication_config()) == []


def test_two_clusters_replicate_a_table_and_stop_it_again(tmp_path: Path, master: LocalMaster) -> None:
    with LocalMaster(init_cluster(tmp_path / "east", "east", overrides=UNHURRIED)) as peer:
        for one in (master, peer):
            one.calls.create_table("t", [], [], {})
        info = master.calls.define_cluster("east", peer.address)
        assert (info.quorum, info.instance_id) == (peer.address, peer.settings.instance.instance_id)
        (config,) = master.calls.enable_replication("t", [], "east", "").targets
        assert (config.table, config.groups, config.remote_table) == ("t", (), "t")
        assert list(master.calls.replication_config()) == [config]
        assert list(eventually(lambda: master.calls.replication_status("t")).targets) == []
        assert list(master.calls.replication_pending([], "t", "east")) == []
        assert list(master.calls.disable_replication("t", [], "east").targets) == []
        master.calls.delete_cluster("east", peer.address)
        with pytest.raises(NotFoundError):
            master.calls.delete_cluster("east", peer.address)


def test_only_the_source_itself_can_end_its_streams(settings: Settings, master: LocalMaster) -> None:
    stream = StreamKey("east-instance", "w", "1", "1", 1)
    stranger = RpcPool(
        Hello(PROTOCOL_VERSION, "north-instance", "north", "master"), settings.rpc, None, peer_credentials(settings)
    )
    with pytest.raises(UnauthorizedError, match="can't speak for instance"):
        stranger.master(master.address).stream_done([stream])
    source = RpcPool(
        Hello(PROTOCOL_VERSION, "east-instance", "east", "master"), settings.rpc, None, peer_credentials(settings)
    )
    source.master(master.address).stream_done([stream])
    source.master(master.address).stream_done([stream])
    operations = [running.op.type for running in master.leadership.fate.pending()]
    assert operations == ["forget_streams"], "told twice, done once"
    stranger.close()
    source.close()


def _is_open(peer: Master, table: str) -> bool:
    try:
        peer.resolve_table(table)
    except UnauthorizedError:
        return False
    return True


def test_a_peer_finds_the_tables_that_its_secret_opens_and_no_others(settings: Settings, master: LocalMaster) -> None:
    own, store = settings.instance, SecretStore(settings.directory)
    made = store.make_for_peer("east", own.name, own.instance_id, "i-east", ["a"])
    pool = RpcPool(Hello(PROTOCOL_VERSION, "i-east", "east", "master"), settings.rpc, None, file_credentials(made.path))
    open_table, closed = (master.calls.create_table(name, [], [], {}).table_id for name in ("a", "b"))
    peer = pool.master(master.address)
    assert peer.resolve_table("a") == open_table
    for ask, table in ((peer.resolve_table, "b"), (peer.resolve_table, "nothing")):
        with pytest.raises(UnauthorizedError, match=f"secret {made.secret.id} of east does not open table {table}: if"):
            ask(table)
    for table_id in (closed, "99"):
        with pytest.raises(UnauthorizedError, match=f"does not open a table with id {table_id}: if there is one"):
            peer.pick_tserver(table_id)
    with pytest.raises(UnavailableError, match="no tserver"):
        peer.pick_tserver(open_table)
    store.change_rights("east", lambda found: replace(found, tables=("b",)))
    wait_until(lambda: _is_open(peer, "b"), "the other table")
    assert peer.resolve_table("b") == closed
    with pytest.raises(UnauthorizedError):
        peer.resolve_table("a")
    pool.close()


def test_nudges_and_reports_of_anybody_harm_nothing(master: LocalMaster) -> None:
    master.calls.nudge("no such session")
    master.calls.report_work("no such session", [])
    assert list(master.calls.tables()) == []
    pool = RpcPool(plain_hello(), master.settings.rpc, None, client_credentials(master.settings))
    with pytest.raises(NotFoundError):
        pool.master(master.address).flush_table("nothing")
    pool.close()


def test_a_cluster_directory_belongs_to_one_instance(settings: Settings, tmp_path: Path) -> None:
    other = init_cluster(tmp_path / "east", "east", overrides=UNHURRIED)
    mixed = replace(settings, instance=other.instance)
    with pytest.raises(RefusedError, match="holds the books of instance"):
        LocalMaster(mixed)
