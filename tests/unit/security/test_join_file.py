"""The file that lets a new host in: whole, for its owner alone, and never a way to other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from bookkeeper.errors import ExistsError, InvalidInputError, NotFoundError, RefusedError
from bookkeeper.security.join_file import (
    JoinFile,
    format_join_file,
    join_file_of,
    parse_join_file,
    read_join_file,
    write_join_file,
)
from bookkeeper.security.secret_store import SecretStore
from tests.support.faults import fault
from tests.support.must_raise import must_raise


@pytest.fixture
def join(tmp_path: Path) -> JoinFile:
    store = SecretStore(tmp_path / "west")
    store.complete("west", "i-west")
    store.make_for_peer("east", "west", "i-west", "i-east", ["t"])
    store.renew("clients")
    return join_file_of(store, "west", "i-west", "store", "")


def test_it_has_every_secret_and_its_reader_writes_them_again(join: JoinFile, tmp_path: Path) -> None:
    write_join_file(tmp_path / "join", join)
    assert (tmp_path / "join").stat().st_mode & 0o777 == 0o600
    found = read_join_file(tmp_path / "join")
    assert found == join
    assert sorted(found.secrets) == [
        *("client.previous.secret", "client.secret", "cluster.secret", "from/east.secret", "monitor.secret")
    ]
    for _ in range(2):
        found.write_secrets(tmp_path / "two")
    files = [path.relative_to(tmp_path / "west") for path in (tmp_path / "west").glob("**/*.secret")]
    for file in files:
        assert (tmp_path / "two" / file).read_bytes() == (tmp_path / "west" / file).read_bytes()
        assert (tmp_path / "two" / file).stat().st_mode & 0o777 == 0o600
    (tmp_path / "two" / "secrets" / "from" / "east.secret").write_text("another")
    with pytest.raises(ExistsError, match=r"from/east.secret exists"):
        found.write_secrets(tmp_path / "two")


def test_a_host_that_lacks_a_secret_gives_none(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"there is no secret at .*cluster.secret"):
        join_file_of(SecretStore(tmp_path), "west", "i-west", "store", "")


def test_it_is_never_written_over_and_others_can_not_read_it(join: JoinFile, tmp_path: Path) -> None:
    file = tmp_path / "join"
    write_join_file(file, join)
    with pytest.raises(ExistsError, match="exists: name a new file, or remove it first"):
        write_join_file(file, join)
    with pytest.raises(InvalidInputError, match="can't be written"):
        write_join_file(tmp_path / "no" / "join", join)
    file.chmod(0o604)
    with pytest.raises(RefusedError, match=r"others can read .*chmod 600"):
        read_join_file(file)
    with pytest.raises(NotFoundError, match="bookkeeper secret export DIR FILE"):
        read_join_file(tmp_path / "none")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("[cluster]", "[other]", "has no section cluster with name, instance_id"),
        ('store_id = "store"', "store_id = 7", "has no section cluster with name, instance_id"),
        ('["cluster.secret"]', '["cluster.secrets"]', "'cluster.secrets' is no file of a secret"),
        ('["monitor.secret"]', '["monitors.secret"]', "has no secret of viewers of instance i-west"),
        ('instance_id = "i-west"\nstore_id', 'instance_id = "i-east"\nstore_id', "no secret of processes of instance"),
        ('kind = "cluster"', 'kind = "client"', "has no secret of processes of instance i-west"),
        ("[cluster]\n", "[cluster\n", "has no section cluster"),
    ],
)
def test_a_file_that_lets_nobody_in_is_refused(join: JoinFile, old: str, new: str, reason: str) -> None:
    text = format_join_file(join)
    assert old in text
    with pytest.raises(InvalidInputError, match=f"lets no host in: .*{reason}.*; make it again") as refused:
        parse_join_file(Path("join"), text.replace(old, new).encode())
    assert join.secrets["cluster.secret"].key not in refused.value.message.encode()


def a_file_names_secrets_alone(join: JoinFile) -> None:
    for name in ("../x.secret", "/x.secret", "from/../x.secret", "to/a/b.secret", ".x.secret", "from/.x.secret", "x"):
        text = format_join_file(join).replace('["from/east.secret"]', f'["{name}"]')
        with must_raise(InvalidInputError, "a file is made outside of the secrets", match="is no file of a secret"):
            parse_join_file(Path("join"), text.encode())


def test_it_names_files_of_secrets_alone(join: JoinFile) -> None:
    a_file_names_secrets_alone(join)


def test_without_the_check_it_writes_any_file(join: JoinFile) -> None:
    with fault("a-join-file-names-any-file"), pytest.raises(AssertionError, match="outside of the secrets"):
        a_file_names_secrets_alone(join)
