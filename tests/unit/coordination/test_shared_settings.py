"""The settings that all hosts have in common: recorded once, compared at each start, changed by a command alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bookkeeper.config.file import new_settings, settings_of_host
from bookkeeper.config.sections import CoordinationSettings, Settings
from bookkeeper.coordination.config_tree import SETTINGS_PATH, read_config
from bookkeeper.coordination.embedded import EmbeddedCoordination
from bookkeeper.coordination.shared_settings import (
    agree_in_session,
    agree_on_all_settings,
    agree_on_settings,
    record_settings,
    replace_settings,
    unlike_hosts,
)
from bookkeeper.errors import CorruptionError, RefusedError
from tests.support.faults import fault
from tests.support.machines_settings import ON_MACHINES
from tests.support.must_raise import must_raise


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedCoordination]:
    with closing(EmbeddedCoordination(tmp_path / "coordination", CoordinationSettings())) as made:
        yield made


def host(directory: Path, **values: object) -> Settings:
    named = {key.replace("__", "."): value for key, value in values.items()}
    return new_settings(directory, "west", instance_id="i-west", overrides={**ON_MACHINES, **named})


def test_the_first_start_records_them_and_a_new_host_begins_with_them(
    store: EmbeddedCoordination, tmp_path: Path
) -> None:
    first = host(tmp_path, coordination__session_lease_ms=20_000, rpc__threads_max=9)
    agree_on_settings(store, first)
    generation = store.generation()
    agree_on_settings(store, first)
    assert store.generation() == generation
    recorded = read_config(store).settings
    assert recorded is not None
    made = settings_of_host(recorded, tmp_path / "two", "host2", {"storage.logs": "host"})
    for section in ("instance", "metadata", "coordination", "security", "replication", "files"):
        assert getattr(made, section) == getattr(first, section)
    assert made.storage.volume == "none"
    assert made.rpc.threads_max != first.rpc.threads_max, "a setting of one host is that of another one"


def test_a_cluster_in_one_directory_has_no_record(store: EmbeddedCoordination, tmp_path: Path) -> None:
    agree_on_settings(store, new_settings(tmp_path, "west"))
    assert read_config(store).settings is None


def a_host_with_a_shorter_lease_does_not_start(store: EmbeddedCoordination, directory: Path) -> None:
    agree_on_settings(store, host(directory))
    other = host(directory, coordination__session_lease_ms=4_000)
    words = r"coordination.session_lease_ms is 4000 here, and 8000 there; correct them here, or stop all hosts"
    with must_raise(RefusedError, "a host takes the sessions of others for dead", match=words):
        agree_on_settings(store, other)


def test_a_host_with_a_shorter_lease_does_not_start(store: EmbeddedCoordination, tmp_path: Path) -> None:
    a_host_with_a_shorter_lease_does_not_start(store, tmp_path)


def test_without_the_comparison_it_takes_others_for_dead(store: EmbeddedCoordination, tmp_path: Path) -> None:
    with fault("hosts-with-any-settings"), pytest.raises(AssertionError, match="takes the sessions of others for dead"):
        a_host_with_a_shorter_lease_does_not_start(store, tmp_path)


def test_addresses_and_files_may_differ(store: EmbeddedCoordination, tmp_path: Path) -> None:
    agree_on_settings(store, host(tmp_path))
    files = {"tls_certificate": "c.pem", "tls_key": "k.pem", "tls_ca": "ca.pem"}
    named = {f"security__{key}": value for key, value in files.items()}
    agree_on_settings(store, host(tmp_path, coordination__url="zk://z2:1,z1:2/west", **named))


def test_they_change_while_no_process_runs(store: EmbeddedCoordination, tmp_path: Path) -> None:
    agree_on_all_settings(store, host(tmp_path))
    other = host(tmp_path, replication__quarantine_tries=9)
    session = store.open_session("replay", "127.0.0.1:1")
    with pytest.raises(RefusedError, match="run with the former settings: stop all hosts first"):
        replace_settings(store, other)
    session.close()
    assert replace_settings(store, other) == ["replication.quarantine_tries is 9 here, and 5 there"]
    agree_on_settings(store, other)
    assert replace_settings(store, other) == []


def test_the_election_changes_with_them_in_one_step(store: EmbeddedCoordination, tmp_path: Path) -> None:
    first = host(tmp_path)
    agree_on_all_settings(store, first)
    generation = store.generation()
    other = host(tmp_path, replicas__election="coordination", replication__quarantine_tries=9)
    assert replace_settings(store, other) == [
        "replication.quarantine_tries is 9 here, and 5 there",
        "replicas.election is coordination here, and master there",
    ]
    assert store.generation() == generation + 1
    agree_on_all_settings(store, other)
    with pytest.raises(RefusedError, match="elects leaders by coordination"):
        agree_on_all_settings(store, first)


def a_process_that_starts_meanwhile_has_the_new_settings_or_prevents_them(
    store: EmbeddedCoordination, directory: Path
) -> None:
    """It compared its settings before the command, and opens its session afterwards."""
    first, other = host(directory), host(directory, replication__quarantine_tries=9)
    agree_on_all_settings(store, first)
    replace_settings(store, other)
    late = store.open_session("master", "127.0.0.1:1")
    with must_raise(RefusedError, "a process runs with the former settings", match="is 5 here, and 9 there"):
        agree_in_session(late, store, first)
    assert not late.is_valid()


def test_a_process_that_starts_meanwhile_has_the_new_settings(store: EmbeddedCoordination, tmp_path: Path) -> None:
    a_process_that_starts_meanwhile_has_the_new_settings_or_prevents_them(store, tmp_path)


def test_without_a_second_look_it_has_the_former_ones(store: EmbeddedCoordination, tmp_path: Path) -> None:
    with fault("settings-compared-once"), pytest.raises(AssertionError, match="runs with the former settings"):
        a_process_that_starts_meanwhile_has_the_new_settings_or_prevents_them(store, tmp_path)


def the_place_of_files_never_changes(store: EmbeddedCoordination, directory: Path) -> None:
    agree_on_settings(store, host(directory, storage__volume="directory", storage__logs="shared"))
    generation = store.generation()
    words = 'storage.volume is "none" here, and "directory" there: that never changes; correct it in'
    with must_raise(RefusedError, "hosts look for files where none are", match=words):
        replace_settings(store, host(directory))
    assert store.generation() == generation


def test_the_place_of_files_never_changes(store: EmbeddedCoordination, tmp_path: Path) -> None:
    the_place_of_files_never_changes(store, tmp_path)


def test_without_the_refusal_files_are_not_found(store: EmbeddedCoordination, tmp_path: Path) -> None:
    with fault("files-change-their-place"), pytest.raises(AssertionError, match="look for files where none are"):
        the_place_of_files_never_changes(store, tmp_path)


def test_a_damaged_record_is_an_error(store: EmbeddedCoordination, tmp_path: Path) -> None:
    store.put(SETTINGS_PATH, b'{"settings":[]}')
    with pytest.raises(CorruptionError, match="configuration /settings: settings has a wrong type"):
        agree_on_settings(store, host(tmp_path))


def hosts_are_compared(store: EmbeddedCoordination, directory: Path) -> None:
    named = {"tserver__wal_roll_bytes": 4096, "tserver__port": 7, "rpc__announced_host": "b.example"}
    for name, values in {"host1": {}, "host2": {**named, "replication__quarantine_tries": 9}, "host3": {}}.items():
        record_settings(store, host(directory, host__name=name, **values))
    generation = store.generation()
    record_settings(store, host(directory, host__name="host3"))
    assert store.generation() == generation, "a start changes the tree without a change"
    assert unlike_hosts(store, host(directory)) == {
        "host2": [
            "replication.quarantine_tries is 5 here, and 9 there",
            f"tserver.wal_roll_bytes is {1 << 30} here, and 4096 there",
        ]
    }, "a difference is not named"


def test_the_settings_of_hosts_are_compared_except_for_those_of_one_host(
    store: EmbeddedCoordination, tmp_path: Path
) -> None:
    hosts_are_compared(store, tmp_path)
    record_settings(store, new_settings(tmp_path, "west"))
    assert set(unlike_hosts(store, host(tmp_path, host__name="host9"))) == {"host2"}


def test_without_the_comparison_no_difference_is_named(store: EmbeddedCoordination, tmp_path: Path) -> None:
    with fault("hosts-are-alike"), pytest.raises(AssertionError, match="a difference is not named"):
        hosts_are_compared(store, tmp_path)
