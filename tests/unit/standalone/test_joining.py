"""``init --join`` makes a host or changes nothing, and ``standalone`` finds the hosts that it shall run."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import SETTINGS_FILE, check_settings, load_settings
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_tree import read_config
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.coordination.host_names import claim_any_name
from bookkeeper.errors import (
    BookkeeperError,
    CorruptionError,
    ExistsError,
    InvalidInputError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from bookkeeper.master.process import MasterProcess
from bookkeeper.metadata.opening import open_metadata
from bookkeeper.standalone.directory import complete_cluster, init_cluster
from bookkeeper.standalone.joining import join_cluster, local_hosts
from bookkeeper.standalone.supervisor import roles_of
from bookkeeper.tserver.process import TServerProcess

JOINS = 4


@pytest.fixture
def west(tmp_path: Path) -> Settings:
    return init_cluster(tmp_path / "west", "west", tservers=2, overrides={"tserver.wal_roll_bytes": 4_096})


def hosts_of(settings: Settings) -> dict[str, str]:
    with closing(open_coordination(settings)) as coordination:
        return dict(read_config(coordination).hosts)


def with_hosts(settings: Settings, hosts: int) -> Settings:
    return replace(settings, standalone=replace(settings.standalone, hosts=hosts))


def test_a_host_has_a_directory_of_its_own_and_all_else_is_that_of_the_cluster(west: Settings, tmp_path: Path) -> None:
    made = join_cluster(tmp_path / "two", west.directory)
    assert load_settings(tmp_path / "two") == made
    assert (made.host.name, made.directory, made.cluster_directory) == ("host2", tmp_path / "two", west.directory)
    assert (made.logs_dir, made.replicas_dir) == (tmp_path / "two" / "logs", tmp_path / "two" / "replicas")
    for shared in ("instance", "metadata_url", "coordination_dir", "wal_dir", "tables_dir", "tserver", "security"):
        assert getattr(made, shared) == getattr(west, shared), shared
    assert made.master.port != west.master.port
    assert made.monitor.port not in (west.monitor.port, 0)
    assert [role.name for role in roles_of(made.standalone, made.directory, "host2")] == [
        "host2.master",
        "host2.tserver1",
    ], "one replay process a machine is enough"
    assert hosts_of(west) == {"host1": ".", "host2": str(tmp_path / "two")}
    complete_cluster(made, alone=False)
    assert sorted(path.name for path in made.directory.iterdir()) == [SETTINGS_FILE, "logs", "run"]


def test_a_host_below_the_cluster_moves_with_it(west: Settings, tmp_path: Path) -> None:
    join_cluster(west.directory / "hosts" / "host2", west.directory)
    west.directory.rename(tmp_path / "moved")
    moved = load_settings(tmp_path / "moved" / "hosts" / "host2")
    assert moved.cluster_directory == tmp_path / "moved"
    complete_cluster(moved)
    assert hosts_of(moved) == {"host1": ".", "host2": "hosts/host2"}


def test_joins_at_the_same_time_get_different_names(west: Settings, tmp_path: Path) -> None:
    together, names = threading.Barrier(JOINS), list[str]()

    def join(number: int) -> None:
        together.wait()
        while len(names) < JOINS:  # one that finds another alone in the stores is told to wait for it
            with suppress(UnavailableError):
                names.append(join_cluster(tmp_path / f"dir{number}", west.directory).host.name)
                return

    threads = [threading.Thread(target=join, args=(number,)) for number in range(JOINS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(names) == [f"host{n}" for n in range(2, JOINS + 2)]


def test_a_host_that_lost_its_directory_gets_its_name_back_in_its_place(west: Settings, tmp_path: Path) -> None:
    join_cluster(tmp_path / "two", west.directory)
    shutil.rmtree(tmp_path / "two")
    assert join_cluster(tmp_path / "three", west.directory).host.name == "host3", "names belong to a place for ever"
    with pytest.raises(ExistsError, match=r"host2 is the host in .*two of this cluster for ever"):
        join_cluster(tmp_path / "four", west.directory, "host2")
    assert join_cluster(tmp_path / "two", west.directory).host.name == "host2"


def test_an_interrupted_join_is_repeated_with_the_same_name(west: Settings, tmp_path: Path) -> None:
    with closing(open_coordination(west)) as coordination:
        claim_any_name(coordination, str(tmp_path / "two"))  # the join ended before it wrote its settings file
    assert join_cluster(tmp_path / "three", west.directory).host.name == "host3"
    assert join_cluster(tmp_path / "two", west.directory).host.name == "host2"


BAD: dict[str, tuple[type[BookkeeperError], str, Callable[[Path, Path], object]]] = {
    "no cluster": (
        NotFoundError,
        "no bookkeeper.toml in .*/none;",
        lambda home, _: join_cluster(home, home.parent / "none"),
    ),
    "a host": (
        InvalidInputError,
        "two is a host of the cluster in .*west; join",
        lambda home, _: join_cluster(home, home.parent / "two"),
    ),
    "a used directory": (
        ExistsError,
        "two has a host already",
        lambda home, west: join_cluster(home.parent / "two", west),
    ),
    "the cluster itself": (ExistsError, "west has a host already", lambda _, west: join_cluster(west, west)),
    "files": (
        ExistsError,
        "full is not empty; choose an empty",
        lambda home, west: join_cluster(home.parent / "full", west),
    ),
    "a file": (
        InvalidInputError,
        "can't hold a host",
        lambda home, west: join_cluster(home.parent / "full" / "x" / "y", west),
    ),
    "a directory of the cluster": (
        InvalidInputError,
        "lies in the cluster's directory",
        lambda _, west: join_cluster(west / "wal" / "x", west),
    ),
    "the place of hosts": (
        InvalidInputError,
        "lies in the cluster's directory",
        lambda _, west: join_cluster(west / "hosts", west),
    ),
    "a taken name": (
        ExistsError,
        "host1 is the host in . of this",
        lambda home, west: join_cluster(home, west, "host1"),
    ),
    "a wrong name": (
        InvalidInputError,
        r"a new host: host\.name: it must be up to 31 lower-case letters",
        lambda home, west: join_cluster(home, west, "Host 2"),
    ),
    "another instance": (
        InvalidInputError,
        r'instance\.name: it is "east", and "west" in .*west/bookkeeper\.toml',
        lambda home, west: join_cluster(home, west, overrides={"instance.name": "east"}),
    ),
    "other books": (
        InvalidInputError,
        r"metadata\.url: it is ",
        lambda home, west: join_cluster(home, west, overrides={"metadata.url": "sqlite:///other.db"}),
    ),
    "another election": (
        InvalidInputError,
        r'replicas\.election: it is "coordination", and "master" in .*west/bookkeeper\.toml',
        lambda home, west: join_cluster(home, west, overrides={"replicas.election": "coordination"}),
    ),
    "an unknown setting": (
        InvalidInputError,
        r"tserver\.nosuch: unknown setting",
        lambda home, west: join_cluster(home, west, overrides={"tserver.nosuch": 1}),
    ),
    "a cluster elsewhere": (
        InvalidInputError,
        r"host\.cluster: .*none is no cluster",
        lambda home, west: join_cluster(home, west, overrides={"host.cluster": str(home.parent / "none")}),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_changes_nothing(west: Settings, tmp_path: Path, case: str) -> None:
    error, says, act = BAD[case]
    join_cluster(tmp_path / "two", west.directory)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("x")
    before, hosts = {path for path in tmp_path.rglob("*") if path.name[-4:] not in ("-wal", "-shm")}, hosts_of(west)
    with pytest.raises(error, match=says):
        act(tmp_path / "new", west.directory)
    assert hosts_of(west) == hosts
    assert {path for path in tmp_path.rglob("*") if path.name[-4:] not in ("-wal", "-shm")} == before


def test_a_cluster_without_its_books_is_not_joined(west: Settings, tmp_path: Path) -> None:
    (west.directory / "metadata.db").unlink()
    with pytest.raises(NotFoundError, match="metadata"):
        join_cluster(tmp_path / "two", west.directory)
    assert not (tmp_path / "two").exists()
    assert hosts_of(west) == {"host1": "."}


def test_init_makes_no_host_of_another_cluster(west: Settings, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"host\.cluster is for a host that joins"):
        init_cluster(tmp_path / "east", "east", overrides={"host.cluster": str(west.directory)})
    assert not (tmp_path / "east").exists()


def test_a_copy_of_a_hosts_directory_is_refused_and_its_own_name_stays(west: Settings, tmp_path: Path) -> None:
    join_cluster(tmp_path / "two", west.directory)
    shutil.copytree(tmp_path / "two", tmp_path / "copy")
    with pytest.raises(ExistsError, match=r"host2 is the host in .*two .* not the one in .*copy"):
        complete_cluster(load_settings(tmp_path / "copy"), alone=False)
    text = (tmp_path / "two" / SETTINGS_FILE).read_text()
    (tmp_path / "two" / SETTINGS_FILE).write_text(text.replace('"host2"', '"host7"'))
    with pytest.raises(RefusedError, match="two is host host2 of this cluster for ever, not host7"):
        complete_cluster(load_settings(tmp_path / "two"), alone=False)


def electing(settings: Settings, election: str) -> Settings:
    """The same settings with another election."""
    return replace(settings, replicas=replace(settings.replicas, election=election))


def test_no_host_and_no_process_with_another_election_starts_beside_others(west: Settings, tmp_path: Path) -> None:
    two = join_cluster(tmp_path / "two", west.directory)
    changed = electing(two, "coordination")
    says = r"replicas\.election is coordination, and the cluster elects leaders by master; set it to master, or stop"
    with pytest.raises(RefusedError, match=says):
        complete_cluster(changed, alone=False)
    url, instance = west.metadata_url, west.instance.instance_id
    with closing(open_coordination(west)) as store, closing(open_metadata(url, instance, least_round=0)) as table:
        for process in (MasterProcess, TServerProcess):
            with pytest.raises(RefusedError, match=says):
                process(changed, store, table, SystemClock())
        assert store.sessions("tserver") == store.sessions("master") == []
    complete_cluster(electing(west, "coordination"), alone=True)
    complete_cluster(changed, alone=False)
    with pytest.raises(RefusedError, match=r"replicas\.election is master, and the cluster elects leaders by coord"):
        complete_cluster(two, alone=False)


def test_a_shared_setting_that_was_changed_on_one_host_is_a_problem_of_that_host(
    west: Settings, tmp_path: Path
) -> None:
    join_cluster(tmp_path / "two", west.directory)
    file = tmp_path / "two" / SETTINGS_FILE
    text = file.read_text()
    file.write_text(text.replace("session_lease_ms = 8000", "session_lease_ms = 9000"))
    (problem,) = check_settings(tmp_path / "two")
    assert (problem.file, problem.key) == (file, "coordination.session_lease_ms")
    assert (problem.reason, problem.next_step) == (
        f"it is 9000, and 8000 in {west.directory / SETTINGS_FILE}",
        "make both the same",
    )
    file.write_text(text.replace(f'cluster = "{west.directory}"', f'cluster = "{tmp_path / "two"}"'))
    (problem,) = check_settings(tmp_path / "two")
    assert problem.reason == f"{tmp_path / 'two'} is no cluster, but a host of the one in {tmp_path / 'two'}"
    file.write_text(text)
    shutil.rmtree(west.directory)
    with pytest.raises(InvalidInputError, match=r"host\.cluster: .*west is no cluster \(no bookkeeper\.toml in"):
        load_settings(tmp_path / "two")


# ---- several hosts on one machine


def names_and_reports(first: Settings) -> tuple[list[str], list[str]]:
    reports: list[str] = []
    return [settings.host.name for settings in local_hosts(first, reports.append)], reports


def test_missing_hosts_are_made_and_those_beyond_the_number_are_told(west: Settings, tmp_path: Path) -> None:
    assert names_and_reports(west) == ([], []), "one host is the default"
    place = west.directory / "hosts"
    assert names_and_reports(with_hosts(west, 3)) == (
        ["host2", "host3"],
        [f"host {name} made in {place / name}" for name in ("host2", "host3")],
    )
    (second,) = local_hosts(with_hosts(west, 2), lambda _: None)
    assert [role.name for role in roles_of(second.standalone, second.directory, "host2")] == ["host2.tserver1"]
    assert second.master.address == west.master.address, "a host without a master names that of the cluster"
    assert names_and_reports(with_hosts(west, 2)) == (
        ["host2"],
        ["host host3 is not run, because standalone.hosts is 2; its directory stays"],
    )
    join_cluster(tmp_path / "far", west.directory)
    assert names_and_reports(with_hosts(west, 4))[0] == ["host2", "host3", "host5"], "host4 is not here"


def test_a_lost_host_is_made_again_and_one_that_can_not_run_is_told_and_left_out(west: Settings) -> None:
    local_hosts(with_hosts(west, 3), print)
    place = west.directory / "hosts"
    shutil.rmtree(place / "host2")
    (place / "host2" / "replicas").mkdir(parents=True)  # a process of the host wrote it after the loss
    (place / "host3" / SETTINGS_FILE).write_text("[instance]\n")
    names, reports = names_and_reports(with_hosts(west, 3))
    assert names == ["host2"]
    assert reports[0] == f"host host2 made in {place / 'host2'}"
    assert reports[1].startswith(f"host host3 is not run: {place / 'host3' / SETTINGS_FILE}: ")


def test_a_cluster_whose_configuration_is_damaged_runs_no_further_hosts(west: Settings) -> None:
    with closing(open_coordination(west)) as coordination:
        coordination.put("/hosts/host2", b"rubbish")
    with pytest.raises(CorruptionError, match="configuration /hosts/host2"):
        local_hosts(with_hosts(west, 2), print)
