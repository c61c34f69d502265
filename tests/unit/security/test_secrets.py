"""Secrets as files: whole, for their owner alone, two at a time while one is changed, and never shown."""

from __future__ import annotations

import base64
import logging
import re
import stat
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bookkeeper.clock import SystemClock
from bookkeeper.config.file import new_settings
from bookkeeper.errors import BookkeeperError, ExistsError, InvalidInputError, NotFoundError, RefusedError
from bookkeeper.security.access import (
    SECRET_FILE_VARIABLE,
    CredentialFiles,
    client_credentials,
    entrance_of,
    peer_credentials,
    process_credentials,
)
from bookkeeper.security.secret import Secret, format_secret, new_secret, parse_secret, read_secret, write_secret
from bookkeeper.security.secret_store import SETTLED_NS, SecretStore
from bookkeeper.security.viewers import cookie_of, holder_of, token_of
from bookkeeper.standalone.directory import complete_cluster, init_cluster
from tests.support.faults import fault
from tests.support.must_raise import must_raise

MADE = new_secret("peer", "east", "i-east", "west", 7, "i-west")


@pytest.fixture
def store(tmp_path: Path) -> SecretStore:
    made = SecretStore(tmp_path)
    made.complete("west", "i-west")
    return made


def _settle(store: SecretStore) -> None:
    """Let past and future changes look old."""
    store._clock = LaterClock()


class LaterClock(SystemClock):
    """Shows what the system's will in a while."""

    def wall_ms(self) -> int:
        return super().wall_ms() + 2 * SETTLED_NS // 1_000_000


# ---- one file


def test_a_secret_reads_back_and_its_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.secret"
    write_secret(path, MADE)
    assert read_secret(path) == MADE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    with pytest.raises(ExistsError, match="secret renew"):
        write_secret(path, replace(MADE, key=bytes(32)))
    assert read_secret(path) == MADE
    write_secret(path, replace(MADE, key=bytes(32)), replace=True)
    assert read_secret(path).key == bytes(32)
    assert [file.name for file in path.parent.iterdir()] == ["a.secret"]


def test_no_two_secrets_are_the_same() -> None:
    keys = {new_secret("peer", "e", "i", "w", 0).key for _ in range(100)}
    assert len(keys) == 100
    assert {len(key) for key in keys} == {32}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o620])
def test_a_secret_that_others_can_read_is_refused_with_the_next_step(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "a.secret"
    write_secret(path, MADE)
    path.chmod(mode)
    with must_raise(
        RefusedError,
        "a secret that others can read is used",
        match=rf"others can read the secret {path} \(mode 0{mode:o}\): chmod 600",
    ):
        read_secret(path)


def test_without_its_rule_a_secret_that_lies_open_is_used(tmp_path: Path) -> None:
    with fault("secrets-lie-open"), pytest.raises(AssertionError, match="a secret that others can read is used"):
        test_a_secret_that_others_can_read_is_refused_with_the_next_step(tmp_path, 0o644)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=str(tmp_path / "x")):
        read_secret(tmp_path / "x")


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 40))
def test_a_mangled_file_is_refused_and_nothing_of_it_is_shown(garbage: bytes, at: int, cut: int) -> None:
    text = base64.b64encode(MADE.key).decode()
    raw = _written(MADE)
    for mangled in (garbage, raw[:at] + garbage + raw[at + cut :]):
        error = _refusal(mangled)
        if error is not None:
            assert text not in "".join(traceback.format_exception(error))
            assert "/a/b.secret is no secret: " in error.message


def _refusal(raw: bytes) -> InvalidInputError | None:
    """The error of these bytes, None for a secret; any other error is a defect."""
    try:
        parse_secret(Path("/a/b.secret"), raw)
    except InvalidInputError as error:
        return error
    return None


def _written(secret: Secret) -> bytes:
    return format_secret(secret).encode()


# ---- those of a cluster


def test_a_cluster_gets_its_secrets_once(store: SecretStore) -> None:
    own = [store.own("cluster"), store.own("client")]
    store.complete("west", "i-west")
    assert [store.own("cluster"), store.own("client")] == own
    assert own[0].key != own[1].key
    assert [(secret.kind, secret.holder, secret.instance_id) for secret in own] == [
        ("cluster", "processes", "i-west"),
        ("client", "clients", "i-west"),
    ]
    assert dict(store.accepted()) == {secret.id: secret for secret in own}
    assert list(store.presented()) == []


def test_the_monitors_secret_is_for_the_monitor_and_is_changed_like_others(store: SecretStore) -> None:
    before = store.own("monitor")
    assert list(store.viewers()) == [before]
    assert before.id not in store.accepted(), "the secret of the monitor opens the cluster"
    after = store.renew("viewers").secret
    assert {secret.id for secret in store.viewers()} == {before.id, after.id}
    store.forget("viewers")
    assert list(store.viewers()) == [after]
    assert not {before.id, after.id} & store.accepted().keys()
    with pytest.raises(RefusedError, match="secret renew"):
        store.forget("viewers", everything=True)
    with pytest.raises(InvalidInputError, match="not a cluster"):
        store.make_for_peer("viewers", "west", "i-west")


def test_without_its_rule_who_may_look_comes_in_everywhere(store: SecretStore) -> None:
    with (
        fault("viewers-come-in-everywhere"),
        pytest.raises(AssertionError, match="the secret of the monitor opens the cluster"),
    ):
        test_the_monitors_secret_is_for_the_monitor_and_is_changed_like_others(store)


def test_tokens_and_cookies_are_of_one_secret_and_show_nothing_of_it() -> None:
    secrets = [MADE, new_secret("monitor", "west", "i-west", "viewers", 0)]
    made = [form(secret) for secret in secrets for form in (token_of, cookie_of)]
    assert len({*made, base64.urlsafe_b64encode(MADE.key).decode().rstrip("=")}) == 5
    assert all(re.fullmatch(r"[\w-]{43}", text) for text in made)
    assert [holder_of(secrets, token_of, text) for text in made] == [secrets[0], None, secrets[1], None]
    assert holder_of(secrets, token_of, "") is None
    assert holder_of([], token_of, made[0]) is None
    assert holder_of(secrets, token_of, "\udcff\x00ü" + made[0]) is None


def test_a_secret_for_a_peer_is_made_once(store: SecretStore) -> None:
    made = store.make_for_peer("east", "west", "i-west")
    assert store.make_for_peer("east", "west", "i-west") == made
    assert store.accepted()[made.secret.id] == made.secret
    with pytest.raises(ExistsError, match="forget --all"):
        store.make_for_peer("east", "west", "i-west", "i-east")
    for name in ("", "../x", ".x", "a/b", "clients", "processes"):
        with pytest.raises(InvalidInputError):
            store.make_for_peer(name, "west", "i-west")


@pytest.mark.parametrize("who", ["processes", "clients", "east"])
def test_while_a_secret_is_changed_two_are_let_in(store: SecretStore, who: str) -> None:
    store.make_for_peer("east", "west", "i-west")
    before = {known.holder: known for known in store.accepted().values()}[who]
    after = store.renew(who).secret
    assert (after.holder, after.kind, after.id == before.id, after.key == before.key) == (
        who,
        before.kind,
        False,
        False,
    )
    assert {before.id, after.id} <= store.accepted().keys()
    with pytest.raises(ExistsError, match="forget it"):
        store.renew(who)
    assert [kept.secret.id for kept in store.forget(who)] == [before.id]
    assert before.id not in store.accepted()
    assert after.id in store.accepted()
    assert store.forget(who) == []
    store.renew(who)


def test_a_peer_may_be_turned_away_and_the_cluster_itself_not(store: SecretStore) -> None:
    store.make_for_peer("east", "west", "i-west")
    store.renew("east")
    assert len(store.forget("east", everything=True)) == 2
    assert len(store.accepted()) == 2
    with pytest.raises(NotFoundError, match="no secret for east"):
        store.forget("east")
    with pytest.raises(RefusedError, match="secret renew"):
        store.forget("clients", everything=True)


def test_a_peers_secret_opens_the_tables_that_its_file_names_here(store: SecretStore) -> None:
    made = store.make_for_peer("east", "west", "i-west", "i-east", ["b", "a", "b"])
    assert store.make_for_peer("east", "west", "i-west", "i-east", ["a", "b"]) == made
    assert read_secret(made.path) == made.secret
    assert [made.secret.opens(table) for table in ("a", "b", "c")] == [True, True, False]
    for others in ({}, {"tables": ["a"]}, {"all_tables": True}):
        with pytest.raises(ExistsError, match="secret tables changes them"):
            store.make_for_peer("east", "west", "i-west", "i-east", **others)
    with pytest.raises(ExistsError, match="secret relays changes them"):
        store.make_for_peer("east", "west", "i-west", "i-east", ["a", "b"], relays=["i-north"])
    renewed = store.renew("east").secret
    assert (renewed.tables, renewed.holder_instance_id) == (("a", "b"), "i-east")
    changed = store.change_rights("east", lambda found: replace(found, tables=("c",)))
    assert changed.secret == replace(renewed, tables=("c",))
    assert {store.accepted()[known].tables for known in (made.secret.id, renewed.id)} == {("c",)}
    with pytest.raises(NotFoundError):
        store.change_rights("north", lambda found: found)
    with pytest.raises(RefusedError, match="only a peer's"):
        store.change_rights("clients", lambda found: found)


def test_r22_a_peer_sends_its_own_records_and_those_that_it_relays(store: SecretStore) -> None:
    made = store.make_for_peer("east", "west", "i-west", "i-east", ["a"], relays=["i-north", "i-north"])
    assert read_secret(made.path) == made.secret
    assert made.secret.origins == frozenset({"i-east", "i-north"})
    changed = store.change_rights("east", lambda found: replace(found, relays=())).secret
    assert changed.origins == frozenset({"i-east"})
    assert store.make_for_peer("guest", "west", "i-west").secret.origins is None, "it may call itself by any instance"


def test_without_a_word_a_secret_opens_no_table(store: SecretStore) -> None:
    assert not store.make_for_peer("east", "west", "i-west").secret.opens("a")
    older = _written(MADE).replace(b"tables = []\nall_tables = false\nrelays = []\n", b"")
    assert parse_secret(Path("a"), older) == MADE
    for wrong in (b"tables = 1", b"tables = [1]", b"all_tables = 1", b"relays = [1]"):
        with pytest.raises(InvalidInputError, match=r"^a is no secret: (tables|all_tables|relays) is"):
            parse_secret(Path("a"), older + wrong)


def test_what_a_copy_opens_is_not_in_it(store: SecretStore) -> None:
    store.keep_for_peer("east", replace(MADE, tables=("a",), all_tables=True, relays=("i-north",)))
    assert list(store.presented()) == [MADE]


def test_only_a_secret_for_replication_is_shown_to_a_peer(store: SecretStore) -> None:
    assert store.keep_for_peer("east", MADE) is None
    assert list(store.presented()) == [MADE]
    newer = replace(MADE, id="ab" * 8)
    assert store.keep_for_peer("east", newer) == MADE
    assert list(store.presented()) == [newer]
    with pytest.raises(InvalidInputError, match="secret make"):
        store.keep_for_peer("east", store.own("client"))
    store.forget_peer("east")
    store.forget_peer("east")
    assert list(store.presented()) == []


def test_a_change_is_seen_at_once_and_nothing_is_read_without_one(store: SecretStore) -> None:
    _settle(store)
    first = store.accepted()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            "bookkeeper.security.secret_store.read_secret", lambda path: pytest.fail(f"{path} is read again")
        )
        assert store.accepted() == first
    for number in range(20):
        made = SecretStore(store.directory.parent).make_for_peer(f"p{number}", "west", "i-west")
        assert made.secret.id in store.accepted()


def _replaced_in_place(store: SecretStore) -> None:
    """As ``cat new > old`` does: the directory and the file's name stay as they were."""
    _settle(store)
    kept = store.make_for_peer("east", "west", "i-west")
    assert kept.secret.id in store.accepted()
    other = SecretStore(store.directory.parent / "elsewhere").make_for_peer("east", "west", "i-west")
    before = kept.path.parent.stat().st_mtime_ns
    with kept.path.open("r+") as file:
        file.write(format_secret(other.secret))
    assert kept.path.parent.stat().st_mtime_ns == before
    assert other.secret.id in store.accepted(), "a secret that was replaced in place is not noticed"
    assert kept.secret.id not in store.accepted()


def test_a_secret_that_is_replaced_in_place_is_noticed(store: SecretStore) -> None:
    _replaced_in_place(store)


def test_without_a_look_at_files_it_is_not(store: SecretStore) -> None:
    with (
        fault("only-directories-are-read"),
        pytest.raises(AssertionError, match="a secret that was replaced in place is not noticed"),
    ):
        _replaced_in_place(store)


def test_one_bad_file_keeps_nobody_else_out(store: SecretStore, caplog: pytest.LogCaptureFixture) -> None:
    made = store.make_for_peer("east", "west", "i-west")
    (store.directory / "from" / "bad.secret").write_text("key = 1")
    with caplog.at_level(logging.WARNING):
        assert made.secret.id in store.accepted()
    assert any("skipped a secret" in record.message and "bad.secret" in record.message for record in caplog.records)


def test_a_file_that_can_not_be_read_now_says_what_it_said_before(store: SecretStore) -> None:
    made = store.make_for_peer("east", "west", "i-west")
    assert made.secret.id in store.accepted()
    made.path.chmod(0o644)
    store.make_for_peer("north", "west", "i-west")
    assert made.secret.id in store.accepted()
    made.path.unlink()
    assert made.secret.id not in store.accepted()


def test_a_running_process_keeps_its_secret_when_the_file_is_gone(store: SecretStore) -> None:
    before = store.shown("cluster")
    store.file_of("cluster").unlink()
    assert store.shown("cluster") == before
    with pytest.raises(NotFoundError, match="standalone makes missing ones"):
        store.own("cluster")


# ---- offered and demanded secrets


def test_init_makes_what_processes_and_clients_need(tmp_path: Path) -> None:
    settings = init_cluster(tmp_path / "west", "west")
    assert [secret.kind for secret in process_credentials(settings).offers()] == ["cluster"]
    assert [secret.kind for secret in client_credentials(settings).offers()] == ["client"]
    assert list(peer_credentials(settings).offers()) == []
    accepted = entrance_of(settings).accepted
    assert accepted is not None
    assert {secret.kind for secret in accepted().values()} == {"cluster", "client"}
    text = (settings.directory / "bookkeeper.toml").read_text()
    for secret in accepted().values():
        assert base64.b64encode(secret.key).decode() not in text


def test_an_older_cluster_gets_its_secrets_when_it_is_started(tmp_path: Path) -> None:
    settings = init_cluster(tmp_path / "west", "west")
    for path in (settings.directory / "secrets").iterdir():
        path.unlink()
    with pytest.raises(NotFoundError, match="standalone makes missing ones"):
        entrance_of(settings)
    complete_cluster(settings)
    entrance_of(settings)


def test_a_process_does_not_start_with_a_secret_that_others_can_read(tmp_path: Path) -> None:
    settings = init_cluster(tmp_path / "west", "west")
    (settings.directory / "secrets" / "cluster.secret").chmod(0o644)
    with pytest.raises(RefusedError, match="chmod 600"):
        entrance_of(settings)


def test_what_a_client_is_given_goes_before_the_directory_and_that_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = init_cluster(tmp_path / "west", "west")
    given_file, named = tmp_path / "given.secret", tmp_path / "named"
    write_secret(given_file, replace(MADE, id="aa" * 8))
    write_secret(named / "one.secret", replace(MADE, id="bb" * 8))
    write_secret(named / "two.secret", replace(MADE, id="cc" * 8))
    own = SecretStore(settings.directory).own("client").id

    def shown(*where: object) -> list[str]:
        return [secret.id for secret in client_credentials(*where).offers()]  # type: ignore[arg-type]

    monkeypatch.delenv(SECRET_FILE_VARIABLE, raising=False)
    assert shown(None) == []
    monkeypatch.setenv(SECRET_FILE_VARIABLE, str(named))
    assert shown(None) == ["bb" * 8, "cc" * 8]
    assert shown(settings) == [own]
    assert shown(settings, CredentialFiles(given_file)) == ["aa" * 8]
    with pytest.raises(NotFoundError):
        client_credentials(None, CredentialFiles(tmp_path / "nothing"))


def test_without_authentication_nothing_is_asked_or_shown(tmp_path: Path) -> None:
    settings = new_settings(tmp_path, "west", overrides={"security.authentication": "none"})
    assert entrance_of(settings).accepted is None
    for credentials in (process_credentials(settings), client_credentials(settings), peer_credentials(settings)):
        assert list(credentials.offers()) == []
        assert not credentials.demand


def test_every_error_of_a_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.secret"
    for raw in (b"", b"\xff", b"id = 1", b"x" * 70_000, b'id = "zz"'):
        path.write_bytes(raw)
        path.chmod(0o600)
        with pytest.raises(BookkeeperError) as caught:
            read_secret(path)
        assert "\n" not in caught.value.message
