"""The generator of the contract's modules: their text is that of the contract, and a mistake in it is named."""

from __future__ import annotations

import re

import pytest

from tests.support.thrift_contract import CONTRACT
from tools.contract.idl import ContractError, read_contract
from tools.contract.python_code import modules_of

TEXT = CONTRACT.read_text()

SMALL = """
/** A stream. */
struct StreamKey {
  1: required string file     // its name,
                              // and more
  2: optional i64 size (py.explicit = "true")
  3: optional i64 left
}

struct Part { 1: required StreamKey stream  2: required list<binary> rows = []  3: required i32 count = 7 }

struct Deep { 1: required Part part }

service Node {
  map<string, string> status() throws (1: Part fault) (may_call = "client")
}

service Master extends Node {
  /** Says `where`. */
  bool locate(1: list<StreamKey> streams, 2: Part part) throws (1: Part fault)
      (may_call = "client, peer", reads = "true")
  oneway void nudge(1: Part part) (size = "bulk")
}
"""


def test_the_modules_are_those_of_the_contract() -> None:
    """When it fails: ``make contract``."""
    for name, text in modules_of(read_contract(TEXT)).items():
        assert CONTRACT.with_name(f"{name}.py").read_text() == text, f"{name}.py is older than bookkeeper.thrift"


def test_the_text_depends_on_the_contract_alone() -> None:
    assert modules_of(read_contract(SMALL)) == modules_of(read_contract(SMALL))


def _section(text: str, start: str) -> str:
    """From the line that begins so to the next one that is not indented and does not end it."""
    found = re.search(rf"^{re.escape(start)}.*?(?=^[^\s}})])", text + "\nend", re.MULTILINE | re.DOTALL)
    assert found is not None, start
    return found[0]


def test_a_struct_becomes_a_class_with_its_comments_and_defaults() -> None:
    module = modules_of(read_contract(SMALL))["messages"]
    assert _section(module, "class StreamKey") == (
        'class StreamKey(Struct, frozen=True):\n    """A stream."""\n\n    file: str\n    """Its name, and more."""\n'
        "    size: int | None\n    left: int | None = None\n\n\n"
    )
    assert "    rows: tuple[bytes, ...] = ()\n    count: int = 7\n" in _section(module, "class Part")


def test_a_service_becomes_a_protocol() -> None:
    module = modules_of(read_contract(SMALL))["services"]
    assert "class Master(Node, Protocol):" in module
    assert (
        "    def locate(self, streams: Sequence[StreamKey], part: Part) -> bool:\n"
        '        """Says ``where``."""\n\n    def nudge(self, part: Part) -> None: ...\n'
    ) in module


def test_a_method_without_an_annotation_is_for_processes_and_small() -> None:
    module = modules_of(read_contract(SMALL.replace(' (size = "bulk")', "")))["tables"]
    for table, names in (
        ("CLIENT_METHODS", {"status", "locate"}),
        ("PEER_METHODS", {"locate"}),
        ("PROCESS_METHODS", {"nudge"}),
        ("BULK_METHODS", set()),
        ("READ_METHODS", {"locate"}),
    ):
        assert set(re.findall(r'^ +"(\w+)",$', _section(module, table), re.MULTILINE)) == names, table


def test_the_streams_that_a_peer_names_are_found_by_their_type() -> None:
    found = "".join(_section(modules_of(read_contract(SMALL))["tables"], "NAMED_STREAMS").split())
    assert found.endswith('{("Master","locate"):lambdaarguments:(*arguments[0],arguments[1].stream,),}')
    with pytest.raises(ContractError, match=r"nothing checks the streams in part\.part"):
        modules_of(read_contract(SMALL.replace("2: Part part", "2: Deep part")))


@pytest.mark.parametrize(
    ("old", "new", "trouble"),
    [
        ('may_call = "client"', 'may_cal = "client"', "there is no annotation may_cal here, only may_call"),
        ('may_call = "client"', 'may_call = "clients"', "may_call can't be 'clients', only 'client' or"),
        ('py.explicit = "true"', 'size = "bulk"', "there is no annotation size here, only py.explicit"),
        ("required StreamKey stream", "required Stream stream", "there is no type Stream"),
        ("2: optional i64 size", "1: optional i64 size", "the number of size is not above that of file"),
        ("3: optional i64 left", "3: optional i64 file", "file is there already"),
        ("struct Deep", "struct Part", "Part is there already"),
        ("oneway void nudge", "void nudge", "nudge throws no Fault"),
        ("1: Part part)", "1; Part part)", "';' is no part of Thrift that the contract uses"),
        ("extends Node {", "extends Node (", r"'\(' where '{' is expected"),
        ("struct Deep", "union Deep", "'union' begins nothing that the contract has"),
        ("= 7", "= seven", "'seven' is no number, no text and no empty list"),
        ('(may_call = "client")', '(reads = "true")', "reads is for methods of the Master"),
    ],
)
def test_a_mistake_is_named_with_its_line(old: str, new: str, trouble: str) -> None:
    line = SMALL[: SMALL.index(old)].count("\n") + 1
    with pytest.raises(ContractError, match=f"line {line}: {trouble}"):
        modules_of(read_contract(SMALL.replace(old, new)))


def test_a_struct_without_an_end_is_named() -> None:
    with pytest.raises(ContractError, match="'service' where a number is expected"):
        read_contract(SMALL.replace("struct Deep { 1: required Part part }", "struct Deep {"))
