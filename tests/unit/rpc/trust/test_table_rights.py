"""A peer reaches the tables that its secret opens now, and learns nothing of others."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from bookkeeper.errors import UnauthorizedError, UnavailableError
from bookkeeper.rpc.contract.messages import PROTOCOL_VERSION, Hello
from bookkeeper.rpc.trust.rights import Caller
from bookkeeper.rpc.trust.table_rights import CACHE_MS, TableRights
from bookkeeper.security.secret import Secret, new_secret
from tests.support.faults import fault
from tests.support.jumping_clock import TestClock

HELLO = Hello(PROTOCOL_VERSION, "i-east", "east", "replay")
PEER = new_secret("peer", "west", "i-west", "east", 0, "i-east", ["a"])
NAMES = {"1": "a", "2": "b"}


def _rights(accepted: Mapping[str, Secret]) -> TableRights:
    return TableRights(lambda: accepted)


def _refusal(rights: TableRights, caller: Caller | None, table: str) -> str:
    """The refusal for a table, by id when it begins with a digit; empty when it is open."""
    try:
        if table[0].isdigit():
            rights.check_id(caller, table, NAMES.get)
        else:
            rights.check_name(caller, table)
    except UnauthorizedError as error:
        return error.message
    return ""


def test_a_secret_opens_its_tables_and_tells_nothing_of_others() -> None:
    rights, caller = _rights({PEER.id: PEER}), Caller(HELLO, PEER)
    assert [_refusal(rights, caller, table) for table in ("a", "1")] == ["", ""]
    for there, not_there in (("b", "c"), ("2", "3")):
        said = _refusal(rights, caller, there)
        assert said, "a secret opens a table that is not its own"
        assert said.replace(there, not_there, 10) == _refusal(rights, caller, not_there).replace(there, not_there, 10)
        assert f"secret {PEER.id} of east" in said
        assert "bookkeeper secret tables DIR east --add" in said
        assert ("disablereplication and enablereplication" in said) == there.isdigit(), "its id may be that of before"


def test_without_its_rule_a_secret_opens_every_table() -> None:
    with (
        fault("peers-reach-every-table"),
        pytest.raises(AssertionError, match="a secret opens a table that is not its own"),
    ):
        test_a_secret_opens_its_tables_and_tells_nothing_of_others()


def test_what_the_file_says_now_counts_and_not_what_was_proven() -> None:
    caller = Caller(HELLO, PEER)
    assert not _refusal(_rights({PEER.id: replace(PEER, tables=("b",))}), caller, "2")
    assert _refusal(_rights({PEER.id: replace(PEER, tables=("b",))}), caller, "1")
    assert not _refusal(_rights({PEER.id: replace(PEER, all_tables=True)}), caller, "3")


def test_on_a_connection_whose_secret_is_forgotten_a_call_may_be_tried_again() -> None:
    """The next connection may come with another one, which the caller was given meanwhile."""
    with pytest.raises(UnavailableError, match="is forgotten"):
        _rights({}).check_name(Caller(HELLO, PEER), "a")


def test_files_are_looked_at_a_few_times_a_second() -> None:
    clock, looks = TestClock(), []

    def accepted() -> Mapping[str, Secret]:
        looks.append(1)
        return {PEER.id: PEER}

    rights, caller = TableRights(accepted, clock), Caller(HELLO, PEER)
    for _ in range(100):
        rights.check_name(caller, "a")
    assert len(looks) <= 2
    clock.jump(2 * CACHE_MS)
    before = len(looks)
    rights.check_name(caller, "a")
    assert len(looks) == before + 1
    new = replace(PEER, id="ab" * 8)
    with pytest.raises(UnavailableError, match="is forgotten"):
        rights.check_name(Caller(HELLO, new), "a")
    assert len(looks) == before + 2, "one that is not known is looked for at once"


def test_processes_and_clusters_that_ask_nobody_are_not_bound() -> None:
    own = new_secret("cluster", "west", "i-west", "processes", 0)
    assert not _refusal(_rights({own.id: own}), Caller(HELLO, own), "2")
    assert not _refusal(TableRights(), Caller(HELLO, None), "2")
    assert not _refusal(TableRights(), None, "2")
