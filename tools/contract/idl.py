"""Reads the contract: the part of Thrift's language that it uses, with comments, annotations and lines.

Thrift's own libraries drop the comments, which become docstrings. A test compares the result with such a library.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NoReturn, TypeVar

from msgspec import Struct

SCALARS = frozenset({"bool", "i32", "i64", "double", "string", "binary"})

METHOD_ANNOTATIONS = {"may_call": ("client", "peer", "client, peer"), "size": ("bulk",), "reads": ("true",)}
STRUCT_ANNOTATIONS = {"py.module": ("bookkeeper.model", "bookkeeper.origins"), "py.order": ("true",)}
FIELD_ANNOTATIONS = {"py.explicit": ("true",)}
"""The annotations that mean something, and their values."""

_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<doc>/\*\*.*?\*/)|(?P<comment>//[^\n]*)|(?P<text>"[^"\n]*")|(?P<number>-?\d+)"""
    r"""|(?P<name>[A-Za-z_][\w.]*)|(?P<sign>[][{}()<>=,:])|(?P<other>.)""",
    re.DOTALL,
)
_COMMENT_LINE = re.compile(r"\s*//(.*)")


Part = TypeVar("Part")


class ContractError(Exception):
    """The contract can't be read; the text names its line."""


class Type(Struct, frozen=True):
    """A scalar, a struct, a ``list`` of elements, or a ``map`` of keys to elements."""

    name: str
    element: Type | None = None
    key: Type | None = None


class Field(Struct, frozen=True):
    """A field of a struct, or an argument of a method. ``default``: as in Python, "" = none."""

    number: int
    name: str
    type: Type
    required: bool
    default: str
    annotations: Mapping[str, str]
    doc: str
    line: int


class StructType(Struct, frozen=True):
    """A struct, or the exception."""

    name: str
    fields: tuple[Field, ...]
    annotations: Mapping[str, str]
    doc: str
    line: int


class Method(Struct, frozen=True):
    """A method of a service; ``result`` None = void."""

    name: str
    arguments: tuple[Field, ...]
    result: Type | None
    oneway: bool
    annotations: Mapping[str, str]
    doc: str
    line: int


class Service(Struct, frozen=True):
    """A service with its own methods; ``parent`` is the service whose methods it has, too ("" = none)."""

    name: str
    parent: str
    methods: tuple[Method, ...]
    doc: str
    line: int


class Constant(Struct, frozen=True):
    """A constant; ``value`` as in Python."""

    name: str
    value: str
    doc: str
    line: int


class Contract(Struct, frozen=True):
    """The contract; each kind in its order."""

    constants: tuple[Constant, ...]
    structs: tuple[StructType, ...]
    services: tuple[Service, ...]


class _Token(Struct, frozen=True):
    """A word or a sign; ``doc`` is the comment right before it."""

    kind: str
    text: str
    line: int
    doc: str


def read_contract(text: str) -> Contract:
    """Read the contract; raises ContractError."""
    contract = _Reader(text).contract()
    _check_names(contract)
    return contract


class _Reader:
    """Takes one token after the other."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._tokens = _tokens_of(text)
        self._at = 0

    def contract(self) -> Contract:
        constants, structs, services = [], [], []
        while (token := self._next()).kind != "end":
            match token.text:
                case "namespace":
                    self._take("name")
                    self._take("name")
                case "const":
                    constants.append(self._constant(token))
                case "struct" | "exception":
                    structs.append(self._struct(token))
                case "service":
                    services.append(self._service(token))
                case _:
                    _fail(token.line, f"{token.text!r} begins nothing that the contract has")
        return Contract(tuple(constants), tuple(structs), tuple(services))

    # ---- declarations

    def _constant(self, start: _Token) -> Constant:
        self._type()
        name = self._take("name").text
        self._sign("=")
        return Constant(name, self._value(), start.doc, start.line)

    def _struct(self, start: _Token) -> StructType:
        name = self._take("name").text
        self._sign("{")
        fields = self._until("}", self._field)
        return StructType(name, fields, self._annotations(STRUCT_ANNOTATIONS), start.doc, start.line)

    def _service(self, start: _Token) -> Service:
        name, parent = self._take("name").text, ""
        if self._peek().text == "extends":
            self._next()
            parent = self._take("name").text
        self._sign("{")
        return Service(name, parent, self._until("}", self._method), start.doc, start.line)

    def _method(self) -> Method:
        start = self._peek()
        oneway = start.text == "oneway"
        if oneway:
            self._next()
        result = None if self._peek().text == "void" else self._type()
        if result is None:
            self._next()
        name = self._take("name").text
        self._sign("(")
        arguments = self._until(")", self._field)
        if self._peek().text == "throws":
            self._next()
            self._sign("(")
            self._until(")", self._field)
        elif not oneway:
            _fail(start.line, f"{name} throws no Fault")
        annotations = self._annotations(METHOD_ANNOTATIONS)
        return Method(name, arguments, result, oneway, annotations, start.doc, start.line)

    def _field(self) -> Field:
        number = self._take("number")
        self._sign(":")
        need = self._next().text if self._peek().text in ("required", "optional") else ""
        kind, name, default = self._type(), self._take("name").text, ""
        if self._peek().text == "=":
            self._next()
            default = self._value()
        annotations = self._annotations(FIELD_ANNOTATIONS)
        if need == "optional" and "py.explicit" not in annotations:
            default = default or "None"
        doc = self._doc_behind(self._tokens[self._at - 1].line) if need else ""
        return Field(int(number.text), name, kind, need == "required", default, annotations, doc, number.line)

    # ---- parts of them

    def _type(self) -> Type:
        name = self._take("name").text
        if name not in ("list", "map"):
            return Type(name)
        self._sign("<")
        key = None
        if name == "map":
            key = self._type()
            self._sign(",")
        element = self._type()
        self._sign(">")
        return Type(name, element, key)

    def _value(self) -> str:
        token = self._next()
        if token.text == "[":
            self._sign("]")
            return "()"
        if token.kind not in ("number", "text"):
            _fail(token.line, f"{token.text!r} is no number, no text and no empty list")
        return token.text

    def _annotations(self, known: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
        found: dict[str, str] = {}
        if self._peek().text != "(":
            return found
        self._next()
        while True:
            key = self._take("name")
            self._sign("=")
            value = self._take("text").text[1:-1]
            if key.text not in known:
                _fail(key.line, f"there is no annotation {key.text} here, only {', '.join(known)}")
            if value not in known[key.text]:
                _fail(key.line, f"{key.text} can't be {value!r}, only {' or '.join(map(repr, known[key.text]))}")
            found[key.text] = value
            if self._next().text != ",":
                return found

    def _until(self, end: str, part: Callable[[], Part]) -> tuple[Part, ...]:
        """The parts before the sign ``end``, with or without commas between them."""
        parts = []
        while self._peek().text != end:
            if self._peek().kind == "end":
                _fail(self._peek().line, f"the contract ends before {end!r}")
            parts.append(part())
            if self._peek().text == ",":
                self._next()
        self._next()
        return tuple(parts)

    def _doc_behind(self, line: int) -> str:
        """The comment at the end of a line, and in the lines below that are comments alone."""
        found = self._lines[line - 1].partition("//")[2].strip()
        for below in self._lines[line:] if found else ():
            comment = _COMMENT_LINE.fullmatch(below)
            if comment is None:
                break
            found += f" {comment[1].strip()}"
        return found

    def _peek(self) -> _Token:
        return self._tokens[self._at]

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _take(self, kind: str) -> _Token:
        token = self._next()
        if token.kind != kind:
            _fail(token.line, f"{token.text!r} where a {kind} is expected")
        return token

    def _sign(self, sign: str) -> None:
        token = self._next()
        if token.text != sign:
            _fail(token.line, f"{token.text!r} where {sign!r} is expected")


def _tokens_of(text: str) -> list[_Token]:
    tokens, line, doc = [], 1, ""
    for found in _TOKEN.finditer(text):
        kind, raw = found.lastgroup or "", found[0]
        if kind == "other":
            _fail(line, f"{raw!r} is no part of Thrift that the contract uses")
        if kind == "doc":
            doc = _plain(raw)
        elif kind not in ("space", "comment"):
            tokens.append(_Token(kind, raw, line, doc))
            doc = ""
        line += raw.count("\n")
    return [*tokens, _Token("end", "the end", line, "")]


def _plain(comment: str) -> str:
    """The text of a comment; paragraphs remain, lines do not."""
    lines = [line.strip().removeprefix("*").strip() for line in comment[3:-2].splitlines()]
    paragraphs = "\n".join(lines).strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _check_names(contract: Contract) -> None:
    """Raise ContractError when a name stands for two things or for none."""
    structs = {struct.name for struct in contract.structs}
    named: list[Constant | StructType | Service] = [*contract.constants, *contract.structs, *contract.services]
    _refuse_repeated([(one.name, one.line) for one in named])
    for struct in contract.structs:
        _check_fields(struct.fields, structs)
    for service in contract.services:
        _refuse_repeated([(method.name, method.line) for method in service.methods])
        for method in service.methods:
            _check_fields(method.arguments, structs)
            if method.result is not None:
                _check_type(method.result, structs, method.line)


def _check_fields(fields: tuple[Field, ...], structs: set[str]) -> None:
    _refuse_repeated([(field.name, field.line) for field in fields])
    for before, field in zip((None, *fields), fields, strict=False):
        _check_type(field.type, structs, field.line)
        if before is not None and field.number <= before.number:
            _fail(field.line, f"the number of {field.name} is not above that of {before.name}")


def _check_type(found: Type, structs: set[str], line: int) -> None:
    for inner in (found.element, found.key):
        if inner is not None:
            _check_type(inner, structs, line)
    if found.element is None and found.name not in SCALARS | structs:
        _fail(line, f"there is no type {found.name}")


def _refuse_repeated(names: list[tuple[str, int]]) -> None:
    seen = set()
    for name, line in names:
        if name in seen:
            _fail(line, f"{name} is there already")
        seen.add(name)


def _fail(line: int, reason: str) -> NoReturn:
    raise ContractError(f"line {line}: {reason}")
