"""Two clusters that trust each other for replication and nothing else, over TLS; and the errors without trust."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from bookkeeper.client import Client
from bookkeeper.errors import (
    ExistsError,
    IncompatibleError,
    InvalidInputError,
    NotAdmittedError,
    NotFoundError,
    RefusedError,
    UnauthorizedError,
)
from bookkeeper.security.access import SECRET_FILE_VARIABLE
from bookkeeper.security.secret_store import SecretStore
from tests.support.certificates import Authority, tls_overrides
from tests.support.local_pair import LocalCluster, local_cluster
from tests.support.tservers import wait_until

pytestmark = pytest.mark.integration

Pair = tuple[LocalCluster, LocalCluster]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("trust") / "ca")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Pair]:
    """West and east, each with a table ``t``; nothing between them."""
    place = tmp_path_factory.mktemp("pair")
    made = [place / name for name in ("west", "east")]
    settings = [tls_overrides(authority.sign(home.name), "certified") for home in made]
    with local_cluster(made[0], settings[0]) as west, local_cluster(made[1], settings[1]) as east:
        for cluster in (west, east):
            for known in (cluster.directory / "secrets").rglob("everybody*"):
                known.unlink()
            cluster.client.tables.create("t")
        yield west, east


def _store(cluster: LocalCluster) -> SecretStore:
    return SecretStore(cluster.directory)


def _secret_for_west(west: LocalCluster, east: LocalCluster) -> Path:
    own = east.settings.instance
    west_id = west.settings.instance.instance_id
    try:
        return _store(east).make_for_peer("west", own.name, own.instance_id, west_id, ["t"]).path
    except ExistsError:  # another test has changed its tables
        return _store(east).directory / "from" / "west.secret"


def test_a_cluster_that_is_not_trusted_is_no_peer_and_nothing_is_kept(pair: Pair, tmp_path: Path) -> None:
    west, east = pair
    define = west.client.replication.define_cluster
    with pytest.raises(NotAdmittedError, match=r"this master has none: let its operator make a secret .*secret make"):
        define("east", east.quorum)
    own = west.settings.instance
    wrong = _store(west).make_for_peer("nobody", own.name, own.instance_id).path
    with pytest.raises(NotAdmittedError, match="the secrets of this side are for west"):
        define("east", east.quorum, wrong)
    with pytest.raises(InvalidInputError, match="not for replication"):
        define("east", east.quorum, east.directory / "secrets" / "client.secret")
    with pytest.raises(NotFoundError, match="no secret at"):
        define("east", east.quorum, tmp_path / "nothing")
    readable = tmp_path / "readable.secret"
    readable.write_bytes(_secret_for_west(west, east).read_bytes())
    readable.chmod(0o644)
    with pytest.raises(RefusedError, match="chmod 600"):
        define("east", east.quorum, readable)
    assert list(west.client.replication.clusters()) == []
    assert list(_store(west).presented()) == []


def test_a_cluster_that_meets_itself_says_so_whatever_it_shows(pair: Pair) -> None:
    west, _ = pair
    with pytest.raises(RefusedError, match="master of this cluster itself"):
        west.client.replication.define_cluster("mirror", west.quorum)
    own = west.settings.instance
    mine = _store(west).make_for_peer("mirror", own.name, own.instance_id).path
    with pytest.raises(RefusedError, match="master of this cluster itself"):
        west.client.replication.define_cluster("mirror", west.quorum, mine)
    assert list(_store(west).presented()) == []


def test_what_one_writes_arrives_on_the_other_while_the_secret_is_changed(pair: Pair) -> None:
    west, east = pair
    replication = west.client.replication
    given = _secret_for_west(west, east)
    assert replication.define_cluster("east", east.quorum, given).instance_id == east.settings.instance.instance_id
    replication.enable("t", "east")
    west.put("t", b"a", b"1")
    assert not replication.wait("t")
    _store(east).renew("west")
    west.put("t", b"b", b"2")
    assert not replication.wait("t"), "the one before is let in still"
    replication.define_cluster("east", east.quorum, given)
    _store(east).forget("west")
    west.put("t", b"c", b"3")
    assert not replication.wait("t")
    assert east.rows("t") == {b"a": b"1", b"b": b"2", b"c": b"3"}


def _is_enabled(west: LocalCluster, table: str) -> bool:
    try:
        west.client.replication.enable(table, "east")
    except UnauthorizedError:
        return False
    return True


def test_a_table_that_the_secret_does_not_open_waits_and_goes_on_when_it_does(pair: Pair) -> None:
    west, east = pair
    replication = west.client.replication
    _store(east).change_rights("west", lambda found: replace(found, tables=("t",)))
    for cluster in pair:
        cluster.client.tables.create("u")
    for name in ("u", "nothing"):
        with pytest.raises(UnauthorizedError, match=rf"of west does not open table {name}: .*secret tables DIR west"):
            replication.enable("u", "east", remote_table=name)
    _store(east).change_rights("west", lambda found: replace(found, tables=("t", "u")))
    wait_until(lambda: _is_enabled(west, "u"), "the table is open")
    west.put("u", b"a", b"1")
    assert not replication.wait("u")
    _store(east).change_rights("west", lambda found: replace(found, tables=("t",)))
    numbers = count()

    def is_refused() -> bool:
        """Whether a row that is written now waits, and the status says why."""
        west.put("u", b"b%05d" % next(numbers), b"2")
        errors = [found.last_error or "" for found in replication.status("u")]
        return any("does not open a table with id" in error for error in errors)

    wait_until(is_refused, "the reason in the status")
    west.put("t", b"u", b"not held up")
    assert not replication.wait("t")
    assert b"a" in east.rows("u").keys() < west.rows("u").keys()
    _store(east).change_rights("west", lambda found: replace(found, tables=("u",)))
    assert not replication.wait("u")
    assert east.rows("u") == west.rows("u")
    assert not list(replication.quarantine())
    _store(east).change_rights("west", lambda found: replace(found, tables=("t",)))


def test_a_client_needs_secret_ca_and_certificate(
    pair: Pair, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, east = pair
    monkeypatch.delenv(SECRET_FILE_VARIABLE)
    own = authority.sign("me")
    assert own.certificate is not None
    assert own.key is not None
    both = tmp_path / "me.pem"
    both.write_bytes(own.certificate.read_bytes() + own.key.read_bytes())
    both.chmod(0o600)
    secret = east.directory / "secrets" / "client.secret"
    with Client.connect(east.quorum, secret_file=secret, tls_ca=own.ca, tls_certificate=both) as client:
        assert client.cluster_name() == "east"
        with pytest.raises(UnauthorizedError):
            client._master.call("pick_tserver", "1")
    with pytest.raises(IncompatibleError, match="speaks TLS only"):
        Client.connect(east.quorum, secret_file=secret)
    with pytest.raises(NotAdmittedError, match="admits only callers that prove a secret"):
        Client.connect(east.quorum, tls_ca=own.ca, tls_certificate=both)


def test_a_peer_that_is_turned_away_waits_and_its_queue_says_why(pair: Pair) -> None:
    west, east = pair
    replication = west.client.replication
    _store(east).forget("west", everything=True)
    west.put("t", b"d", b"4")

    wait_until(
        lambda: any("is unknown here" in (found.last_error or "") for found in replication.status("t")),
        "the reason in the status",
    )
    assert not list(replication.quarantine("t")), "it is not about the records"
    replication.define_cluster("east", east.quorum, _secret_for_west(west, east))
    assert not replication.wait("t")
    assert east.rows("t")[b"d"] == b"4"


def test_a_peer_that_was_deleted_needs_its_secret_again(pair: Pair) -> None:
    """The master still has a connection that proved the secret which the deletion removed."""
    west, east = pair
    replication = west.client.replication
    replication.define_cluster("east", east.quorum, _secret_for_west(west, east))
    for config in replication.config():
        replication.disable(config.table, "east")
    replication.delete_cluster("east", east.quorum)
    assert list(_store(west).presented()) == []
    with pytest.raises(NotAdmittedError, match="let its operator make a secret"):
        replication.define_cluster("east", east.quorum)
    assert list(replication.clusters()) == []
