"""A cluster with its coordination store in ZooKeeper begins: what ``init`` makes, what a start refuses, who logs in."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState, KeeperState

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import SETTINGS_FILE, load_settings
from bookkeeper.config.sections import Settings
from bookkeeper.coordination.config_tree import ELECTION_PATH, read_config
from bookkeeper.coordination.connect import note_store, open_coordination, open_zookeeper
from bookkeeper.coordination.zookeeper import ensemble
from bookkeeper.coordination.zookeeper.access import Access
from bookkeeper.coordination.zookeeper.url import ZooKeeperUrl
from bookkeeper.errors import BookkeeperError, ExistsError, InvalidInputError, NotFoundError, RefusedError
from bookkeeper.standalone.directory import complete_cluster, init_cluster
from bookkeeper.standalone.ports import free_ports
from shell.config_commands import check_stores
from tests.support.certificates import Authority
from tests.support.faults import fault
from tests.support.must_raise import must_raise
from tests.support.shell import quick
from tests.support.tservers import wait_until
from tests.support.zookeeper import ZooKeeperServer


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ensemble, "CONNECT_MS", 2_000)


def made(server: ZooKeeperServer, home: Path, overrides: Mapping[str, object] | None = None) -> Settings:
    """A new cluster, its root named as its directory."""
    root = f"{home.parent.name}-{home.name}"
    return init_cluster(
        home, home.name, overrides={"coordination.url": f"zk://{server.quorum}/{root}", **(overrides or {})}
    )


def files_of(home: Path) -> dict[str, bytes]:
    return {str(path.relative_to(home)): path.read_bytes() for path in home.rglob("*") if path.is_file()}


@contextmanager
def edited(settings: Settings, old: str, new: str) -> Iterator[Settings]:
    """The settings with a change in their file."""
    file = settings.directory / SETTINGS_FILE
    before = file.read_text()
    assert old in before
    file.write_text(before.replace(old, new))
    yield load_settings(settings.directory)
    file.write_text(before)


def test_init_makes_a_root_with_an_id_of_its_own_and_the_settings_have_it(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    settings = made(zookeeper, tmp_path / "west")
    other = made(zookeeper, tmp_path / "east")
    assert settings.coordination.store_id != other.coordination.store_id
    assert load_settings(settings.directory) == settings
    assert not (settings.directory / "coordination").exists()
    assert settings.coordination.session_lease_ms == 15_000
    assert settings.quorum == settings.coordination.url, "peers would know the master of one host alone"
    with closing(open_coordination(settings)) as coordination:
        config = read_config(coordination)
    assert config.instance is not None
    assert (config.instance.instance_id, config.election) == (settings.instance.instance_id, "master")
    complete_cluster(settings)


def test_init_that_can_not_go_on_leaves_no_root_behind(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    settings = made(zookeeper, tmp_path / "west")
    books = {"metadata.url": f"sqlite:///{tmp_path / 'west' / 'metadata.db'}"}
    with pytest.raises(ExistsError):
        made(zookeeper, tmp_path / "second", books)
    client = KazooClient(zookeeper.quorum)
    client.start()
    assert client.exists(f"/{tmp_path.name}-second") is None
    client.stop()
    client.close()
    url = settings.coordination.url
    with pytest.raises(ExistsError, match="is there already: choose another root"):
        init_cluster(tmp_path / "third", "third", overrides={"coordination.url": url})
    with pytest.raises(NotFoundError, match="has no node /nowhere; make it"):
        init_cluster(
            tmp_path / "third", "third", overrides={"coordination.url": f"zk://{zookeeper.quorum}/nowhere/third"}
        )
    assert not (tmp_path / "third").exists()


@pytest.mark.parametrize(
    ("old", "new", "error", "words"),
    [
        ("/{root}", "/elsewhere", NotFoundError, "does not exist: restore it, or correct coordination.url"),
        ("/{root}", "/{other}", RefusedError, "is the root of another cluster .* correct coordination.url"),
        (
            "{quorum}",
            "{away}",
            BookkeeperError,
            "answers within 2000 ms: start ZooKeeper, or correct coordination.url",
        ),
    ],
    ids=["wrong root", "root of another instance", "ZooKeeper is away"],
)
def test_a_start_that_is_refused_says_the_next_step_and_changes_nothing(
    zookeeper: ZooKeeperServer, tmp_path: Path, old: str, new: str, error: type[Exception], words: str
) -> None:
    settings, other = made(zookeeper, tmp_path / "west"), made(zookeeper, tmp_path / "east")
    names = {
        "root": f"{tmp_path.name}-west",
        "other": f"{tmp_path.name}-east",
        "quorum": zookeeper.quorum,
        "away": f"127.0.0.1:{free_ports(1)[0]}",
    }
    with edited(settings, old.format(**names), new.format(**names)) as wrong:
        before = files_of(settings.directory)
        shutil.rmtree(settings.logs_dir)
        with pytest.raises(error, match=words):
            complete_cluster(wrong)
        assert files_of(settings.directory) == before
        assert not settings.logs_dir.exists()
        (problem,) = check_stores(wrong)
        assert problem.key == "coordination.url"
        assert re.search(words, f"{problem.reason}: {problem.next_step}")
    complete_cluster(settings)
    complete_cluster(other)


def a_start_makes_no_secret_and_changes_no_election(zookeeper: ZooKeeperServer, home: Path) -> None:
    """S6: a host that is alone in its own directory knows nothing about the other hosts."""
    settings = made(zookeeper, home)
    secret = home / "secrets" / "monitor.secret"
    kept = secret.read_bytes()
    secret.unlink()
    with must_raise(NotFoundError, "a start made a secret", match="lacks the secrets of viewers"):
        complete_cluster(settings)
    assert not secret.exists()
    secret.write_bytes(kept)
    secret.chmod(0o600)
    with (
        edited(settings, 'election = "master"', 'election = "coordination"') as other,
        must_raise(RefusedError, "a start changed the election", match="elects leaders by master"),
    ):
        complete_cluster(other)
    with closing(open_coordination(settings)) as coordination:
        stored = coordination.get(ELECTION_PATH)
    assert stored is not None
    assert stored.version == 1


def test_a_start_makes_no_secret_and_changes_no_election(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    a_start_makes_no_secret_and_changes_no_election(zookeeper, tmp_path / "west")


def test_without_the_rule_a_start_makes_secrets(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with fault("zookeeper-start-makes-secrets"), pytest.raises(AssertionError, match="a start made a secret"):
        a_start_makes_no_secret_and_changes_no_election(zookeeper, tmp_path / "west")


def test_a_command_changes_the_election(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    settings = made(zookeeper, tmp_path / "west")
    with edited(settings, 'election = "master"', 'election = "coordination"') as other:
        with pytest.raises(RefusedError, match=r"elects leaders by master; .* run bookkeeper config share DIR"):
            complete_cluster(other)
        with closing(open_coordination(settings)) as coordination:
            coordination.open_session("replay", "127.0.0.1:1")
            answer = quick("config", "share", str(settings.directory))
            assert (answer.code, answer.out) == (1, "")
            assert "run with the former settings: stop all hosts first" in answer.err
            assert read_config(coordination).election == "master"
        answer = quick("config", "share", str(settings.directory))
        assert (answer.code, answer.out) == (0, "replicas.election is coordination here, and master there\n")
        answer = quick("config", "share", str(settings.directory))
        assert (answer.code, answer.out) == (0, "the cluster has these settings already\n")
        complete_cluster(other)


def an_older_root_is_refused(zookeeper: ZooKeeperServer, home: Path) -> None:
    """R6, S8: the root was restored from a backup, and this host was not."""
    settings = made(zookeeper, home)
    with closing(open_zookeeper(settings)) as store:
        for _ in range(3):
            store.open_session("master", "h:1").close()
        note_store(settings, store)
        client, serial = store._zk._connection.client, store._zk.at("serial")
        client.delete(serial)
        client.create(serial)
        words = (
            "is an older copy: its generation is .* after 0 sessions, and this host has seen .*: put the newest copy"
        )
        with must_raise(RefusedError, "an older root is used", match=words):
            complete_cluster(settings)
        (problem,) = check_stores(settings)
        assert (problem.key, problem.next_step[:19]) == ("coordination.url", "put the newest copy")
        with pytest.raises(RefusedError, match="is an older copy"):
            note_store(settings, store)
        for _ in range(3):
            client.set(serial, b"")
    complete_cluster(settings)


def test_r6_an_older_root_is_refused(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    an_older_root_is_refused(zookeeper, tmp_path / "west")


def test_r6_without_the_rule_an_older_root_is_used(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with fault("zookeeper-older-root"), pytest.raises(AssertionError, match="an older root is used"):
        an_older_root_is_refused(zookeeper, tmp_path / "west")


@pytest.mark.parametrize("url", ["zk://west", "zk://h:1", "zk://user:word@h:1/west", "zk://h:1/", "zk:/h:1/a"])
def test_an_address_without_a_root_or_with_a_password_is_no_address(tmp_path: Path, url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"coordination.url"):
        init_cluster(tmp_path / "west", "west", overrides={"coordination.url": url})
    assert not (tmp_path / "west").exists()


def test_a_user_alone_opens_the_root_that_it_made(tmp_path: Path, zookeeper: ZooKeeperServer) -> None:
    del zookeeper  # says why no server can run
    right, wrong = tmp_path / "right", tmp_path / "wrong"
    for path, password in ((right, "pass word"), (wrong, "another")):
        path.write_text(f"{password}\n")
        path.chmod(0o600)
    with ZooKeeperServer(tmp_path / "zookeeper", {"west": "pass word"}) as server:
        wanted = {"coordination.url": f"zk://{server.quorum}/west", "coordination.user": "west"}
        with pytest.raises(RefusedError, match=r"refuses the user 'west': correct coordination.user, or the password"):
            init_cluster(tmp_path / "west", "west", overrides=wanted, password_file=wrong)
        assert not (tmp_path / "west").exists()
        settings = init_cluster(tmp_path / "west", "west", overrides=wanted, password_file=right)
        kept = settings.directory / "secrets" / "zookeeper.password"
        assert (kept.read_text(), kept.stat().st_mode & 0o777) == ("pass word\n", 0o600)
        complete_cluster(settings)
        kept.write_text("another\n")
        with pytest.raises(RefusedError, match="refuses the user 'west'"):
            complete_cluster(settings)
        kept.write_text("pass word\n")
        kept.chmod(0o644)
        with pytest.raises(RefusedError, match="others can read"):
            complete_cluster(settings)
        kept.unlink()
        with pytest.raises(NotFoundError, match=r"there is no password of coordination.user in .*: write it there"):
            complete_cluster(settings)
        with (
            edited(settings, 'user = "west"', 'user = ""') as nobody,
            pytest.raises(RefusedError, match=r"is closed to clients without a user: set coordination.user"),
        ):
            complete_cluster(nobody)


def test_a_refusal_that_is_seen_late_is_still_a_refusal(
    tmp_path: Path, zookeeper: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo shows the refusal for a moment only: its thread ends at once, and the connection is a closed one then."""
    del zookeeper  # says why no server can run
    new_client = ensemble.new_client

    def ended_client(access: Access, call_ms: int) -> KazooClient:
        """Its caller looks at it after its thread has ended."""
        client = new_client(access, call_ms)
        start = client.start_async

        def start_and_end() -> threading.Event:
            lost = threading.Event()  # the state is "closed" also before the connection begins
            client.add_listener(lambda state: lost.set() if state == KazooState.LOST else None)
            live: threading.Event = start()
            wait_until(lambda: lost.is_set() and client.client_state == KeeperState.CLOSED, "the end of the connection")
            return live

        client.start_async = start_and_end
        return client

    with ZooKeeperServer(tmp_path / "zookeeper", {"west": "pass word"}) as server:
        access = Access(ZooKeeperUrl(server.quorum, "/west"), user="west", password="another")
        monkeypatch.setattr(ensemble, "new_client", ended_client)
        with pytest.raises(RefusedError, match="refuses the user 'west'"):
            ensemble.Ensemble(access, SystemClock(), 1_000)


@contextmanager
def encrypted(server: ZooKeeperServer, context: ssl.SSLContext) -> Iterator[int]:
    """A port that takes TLS alone, in front of the server."""
    host, port = server.quorum.split(":")
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                caller, _ = listener.accept()
                secure = context.wrap_socket(caller, server_side=True)
            except OSError:
                if listener.fileno() < 0:
                    return
                continue
            inner = socket.create_connection((host, int(port)))
            threading.Thread(target=forward, args=(secure, inner), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def forward(caller: socket.socket, server: socket.socket) -> None:
    """Until one of them ends. Both are closed when no thread uses them: TLS goes on with the number of a descriptor."""
    back = threading.Thread(target=pump, args=(server, caller), daemon=True)
    with caller, server:
        back.start()
        pump(caller, server)
        back.join()


def pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for each in (source, sink):
        with suppress(OSError):
            socket.socket.shutdown(each, socket.SHUT_RDWR)


def test_a_store_behind_tls_is_opened_with_its_ca_alone(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    authority, stranger = Authority.make(tmp_path / "ca"), Authority.make(tmp_path / "stranger")
    files = authority.sign("zookeeper")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert files.certificate is not None
    context.load_cert_chain(files.certificate, files.key)
    with encrypted(zookeeper, context) as port:
        url = f"zk://127.0.0.1:{port}/{tmp_path.name}"
        overrides = {"coordination.url": url, "coordination.tls_ca": str(authority.ca)}
        settings = init_cluster(tmp_path / "west", "west", overrides=overrides)
        complete_cluster(settings)
        with (
            edited(settings, str(authority.ca), str(stranger.ca)) as other,
            pytest.raises(BookkeeperError, match=r"or correct coordination.url and coordination.tls_ca"),
        ):
            complete_cluster(other)
