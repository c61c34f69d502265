"""A host that shares no directory with the others joins by ZooKeeper, or it is refused and nothing changes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.config.file import SETTINGS_FILE, load_settings
from bookkeeper.config.host_id import HOST_ID_FILE, read_host_id
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_tree import ClusterConfig, read_config
from bookkeeper.coordination.connect import open_coordination
from bookkeeper.errors import BookkeeperError, ExistsError, InvalidInputError, NotFoundError, RefusedError
from bookkeeper.security.join_file import read_join_file, write_join_file
from bookkeeper.standalone.directory import complete_cluster, init_cluster
from bookkeeper.standalone.machine_joining import join_by_zookeeper
from tests.support.faults import fault
from tests.support.hbase import HBaseInstance
from tests.support.machines_settings import NO_VOLUME, exported
from tests.support.must_raise import must_raise
from tests.support.shell import quick
from tests.support.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.hbase

_numbers = itertools.count()


@pytest.fixture
def first(zookeeper: ZooKeeperServer, hbase: HBaseInstance, tmp_path: Path) -> Settings:
    """The first host of a cluster whose hosts share no directory."""
    books = f"hbase://{hbase.host}:{hbase.thrift_port}/machines{next(_numbers)}"
    return made(zookeeper, tmp_path / "one" / "west", books, NO_VOLUME)


def made(
    zookeeper: ZooKeeperServer, home: Path, books: str | None, overrides: Mapping[str, object] | None = None
) -> Settings:
    url = f"zk://{zookeeper.quorum}/machines{next(_numbers)}-{home.parent.parent.name}"
    return init_cluster(home, "west", metadata_url=books, overrides={"coordination.url": url, **(overrides or {})})


def config_of(settings: Settings) -> ClusterConfig:
    with closing(open_coordination(settings)) as coordination:
        return read_config(coordination)


def secrets_of(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.glob("secrets/**/*.secret")}


def test_a_host_has_its_own_directory_and_what_all_hosts_have_in_common(first: Settings, tmp_path: Path) -> None:
    file = exported(first, tmp_path / "join")
    home = tmp_path / "two" / "west"
    second = join_by_zookeeper(home, first.coordination.url, file)
    assert load_settings(home) == second
    assert (second.host.name, second.cluster_directory, second.storage.volume) == ("host2", home, "none")
    for shared in ("instance", "metadata", "coordination", "security", "replication"):
        assert getattr(second, shared) == getattr(first, shared), shared
    assert secrets_of(home) == secrets_of(first.directory)
    assert {path.stat().st_mode & 0o077 for path in home.glob("secrets/**/*.secret")} == {0}
    ports = [{one.master.port, one.monitor.port} for one in (first, second)]
    assert not ports[0] & ports[1]
    config = config_of(second)
    assert config.hosts == {"host1": str(first.directory), "host2": str(home)}
    assert config.host_ids == {"host1": read_host_id(first.directory), "host2": read_host_id(home)}
    complete_cluster(second)
    started = config_of(first)
    for settings in (first, second):
        complete_cluster(settings)
    assert config_of(first) == started, "a start changes the tree for nothing"


def test_the_same_path_of_two_machines_is_two_hosts_and_a_moved_directory_is_the_same(
    first: Settings, tmp_path: Path
) -> None:
    """Two machines may have the same path: here the first host moves away from it, as if it lay on another machine."""
    file = exported(first, tmp_path / "join")
    home = first.directory
    home.rename(tmp_path / "another machine")
    second = join_by_zookeeper(home, first.coordination.url, file)
    assert second.host.name == "host2"
    assert config_of(second).hosts == {"host1": str(home), "host2": str(home)}
    moved = load_settings(tmp_path / "another machine")
    complete_cluster(moved)
    assert config_of(second).hosts == {"host1": str(tmp_path / "another machine"), "host2": str(home)}


def test_an_interrupted_join_is_repeated_and_a_used_directory_is_not(first: Settings, tmp_path: Path) -> None:
    file = exported(first, tmp_path / "join")
    home = tmp_path / "two"
    second = join_by_zookeeper(home, first.coordination.url, file)
    (home / SETTINGS_FILE).unlink()
    second.logs_dir.rmdir()
    again = join_by_zookeeper(home, first.coordination.url, file)
    assert again.host.name == "host2", "a join that was interrupted before its end takes two names"
    assert set(config_of(again).hosts) == {"host1", "host2"}
    with pytest.raises(ExistsError, match="has a host already"):
        join_by_zookeeper(home, first.coordination.url, file)
    used = tmp_path / "used"
    used.mkdir()
    (used / "secrets").mkdir()
    with pytest.raises(ExistsError, match="is not empty"):
        join_by_zookeeper(used, first.coordination.url, file)


def test_an_empty_directory_takes_the_place_of_one_that_is_lost(first: Settings, tmp_path: Path) -> None:
    file, url = exported(first, tmp_path / "join"), first.coordination.url
    lost = join_by_zookeeper(tmp_path / "two", url, file)
    lost.directory.rename(tmp_path / "lost")
    with pytest.raises(ExistsError, match=r"host2 is the host in .*two of another machine"):
        join_by_zookeeper(tmp_path / "two", url, file, "host2")
    with pytest.raises(NotFoundError, match="no host host9 has a directory of its own"):
        join_by_zookeeper(tmp_path / "two", url, file, "host9", in_place=True)
    assert not list((tmp_path / "two").iterdir())
    new = join_by_zookeeper(tmp_path / "two", url, file, "host2", in_place=True)
    complete_cluster(new)
    assert config_of(new).host_ids["host2"] == read_host_id(new.directory)
    with pytest.raises(ExistsError, match="never copy a host's directory"):
        complete_cluster(load_settings(tmp_path / "lost"))


def refused(
    settings: Settings, url: str, file: Path, home: Path, error: type[BookkeeperError], broken: str, words: str
) -> None:
    before = config_of(settings)
    with must_raise(error, broken, match=words):
        join_by_zookeeper(home, url, file)
    assert not home.exists()
    assert config_of(settings) == before


def test_a_join_that_is_refused_says_the_next_step_and_changes_nothing(
    first: Settings, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    file, url, home = exported(first, tmp_path / "join"), first.coordination.url, tmp_path / "two"
    file.chmod(0o640)
    refused(first, url, file, home, RefusedError, "", "others can read the secret .*join .mode 0640")
    file.chmod(0o600)
    refused(first, url, tmp_path / "none", home, NotFoundError, "", "bookkeeper secret export DIR FILE")
    refused(first, f"{url}x", file, home, NotFoundError, "", "does not exist: restore it, or correct")
    other = made(zookeeper, tmp_path / "other" / "west", None)
    refused(first, other.coordination.url, file, home, RefusedError, "", "is the root of another cluster")
    with pytest.raises(ExistsError, match="host1 is the host in"):
        join_by_zookeeper(home, url, file, "host1")
    assert not (home / HOST_ID_FILE).exists()
    with pytest.raises(InvalidInputError, match=r"coordination.session_lease_ms is 9000 here, and 15000 there"):
        join_by_zookeeper(home, url, file, overrides={"coordination.session_lease_ms": 9_000})
    with pytest.raises(InvalidInputError, match=r"storage.volume is none, which needs standalone.tservers = 1"):
        join_by_zookeeper(home, url, file, overrides={"standalone.tservers": 2})
    assert set(config_of(first).hosts) == {"host1"}


def a_cluster_of_one_machine_takes_no_host_of_another(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    shared = made(zookeeper, tmp_path / "one" / "west", None)
    file = exported(shared, tmp_path / "join")
    says = (
        r"takes hosts of one machine alone \(init DIR --join DIRECTORY\): its books are a file of SQLite, which no "
        r"other machine reaches and its logs and tables lie in the directory of its first host .*--set storage.volume"
    )
    broken = "a host joins whose books nobody else reaches"
    refused(shared, shared.coordination.url, file, tmp_path / "two", RefusedError, broken, says)


def test_a_cluster_of_one_machine_takes_no_host_of_another(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    a_cluster_of_one_machine_takes_no_host_of_another(zookeeper, tmp_path)


def test_without_the_refusal_such_a_host_joins(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with fault("any-cluster-takes-machines"), pytest.raises(AssertionError, match="whose books nobody else reaches"):
        a_cluster_of_one_machine_takes_no_host_of_another(zookeeper, tmp_path)


def test_secrets_of_another_cluster_let_nobody_in(first: Settings, zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    other = made(zookeeper, tmp_path / "other" / "west", None)
    join = read_join_file(exported(other, tmp_path / "other.join"))
    write_join_file(tmp_path / "mixed", replace(join, store_id=first.coordination.store_id))
    theirs, own = other.instance.instance_id, first.instance.instance_id
    words = f"secrets are of instance {theirs}, and this root has instance {own}"
    refused(first, first.coordination.url, tmp_path / "mixed", tmp_path / "two", RefusedError, "", words)


def test_a_host_with_other_settings_does_not_start_until_all_hosts_have_them(first: Settings, tmp_path: Path) -> None:
    second = join_by_zookeeper(tmp_path / "two", first.coordination.url, exported(first, tmp_path / "join"))
    for settings in (first, second):
        file = settings.directory / SETTINGS_FILE
        file.write_text(file.read_text().replace("quarantine_tries = 5", "quarantine_tries = 6"))
    changed = load_settings(first.directory)
    with pytest.raises(RefusedError, match=r"replication.quarantine_tries is 6 here, and 5 there.*config share DIR"):
        complete_cluster(changed)
    with closing(open_coordination(first)) as coordination:
        session = coordination.open_session("tserver", "127.0.0.1:1")
        answer = quick("config", "share", str(first.directory))
        assert (answer.code, answer.out) == (1, "")
        assert "run with the former settings: stop all hosts first" in answer.err
        session.close()
    answer = quick("config", "share", str(first.directory))
    assert (answer.code, answer.out) == (0, "replication.quarantine_tries is 6 here, and 5 there\n")
    for settings in (first, second):
        complete_cluster(load_settings(settings.directory))


def test_a_check_names_the_settings_in_which_other_hosts_differ(first: Settings, tmp_path: Path) -> None:
    own = {"tserver.wal_roll_bytes": 1 << 20, "tserver.port": 9801}
    second = join_by_zookeeper(
        tmp_path / "two", first.coordination.url, exported(first, tmp_path / "join"), overrides=own
    )
    complete_cluster(second)
    answer = quick("config", "check", str(first.directory))
    assert answer.code == 0, answer
    line = f"warning: host2 started with other settings: tserver.wal_roll_bytes is {1 << 30} here, and {1 << 20} there"
    assert line in answer.err.splitlines(), answer.err


def test_a_host_joins_with_the_user_of_the_file_and_the_password_of_the_operator(
    hbase: HBaseInstance, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    del zookeeper  # says why no server can run
    password, wrong = tmp_path / "password", tmp_path / "wrong"
    for path, text in ((password, "pass word\n"), (wrong, "another\n")):
        path.write_text(text)
        path.chmod(0o600)
    books = f"hbase://{hbase.host}:{hbase.thrift_port}/machines{next(_numbers)}"
    with ZooKeeperServer(tmp_path / "zookeeper", {"west": "pass word"}) as server:
        url, home = f"zk://{server.quorum}/west", tmp_path / "two"
        named = {**NO_VOLUME, "coordination.url": url, "coordination.user": "west"}
        first = init_cluster(tmp_path / "one", "west", metadata_url=books, overrides=named, password_file=password)
        file = exported(first, tmp_path / "join")
        with pytest.raises(NotFoundError, match=r"no password of coordination.user in .*--zookeeper-password FILE"):
            join_by_zookeeper(home, url, file)
        with pytest.raises(RefusedError, match="refuses the user 'west'"):
            join_by_zookeeper(home, url, file, password_file=wrong)
        assert not home.exists()
        second = join_by_zookeeper(home, url, file, password_file=password)
        kept = home / "secrets" / "zookeeper.password"
        assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("pass word\n", 0o600)
        complete_cluster(second)
        assert set(config_of(second).hosts) == {"host1", "host2"}
