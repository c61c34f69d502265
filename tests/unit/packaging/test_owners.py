"""Each object changes its own fields, and no constructor takes more collaborators than a reader keeps in mind."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROOMS = ("bookkeeper", "shell")

ALLOWED: dict[str, str] = {
    "bookkeeper.coordination.zookeeper.ensemble: client.last_zxid": "kazoo's client",
    "bookkeeper.monitor.connection_limiter: server.config.ssl": "uvicorn's server",
    "bookkeeper.monitor.connection_limiter: server.should_exit": "uvicorn's server",
    "bookkeeper.monitor.web_server: server.force_exit": "uvicorn's server",
    "bookkeeper.monitor.web_server: server.should_exit": "uvicorn's server",
    "bookkeeper.tserver.bulk.bulk_loader: status.first_seq": "a protobuf message",
    "bookkeeper.monitor.pages: self._templates.filters": "jinja's environment",
    "bookkeeper.replay.spark.spark_session: server.handle_error": "py4j's callback server",
    "bookkeeper.runtime.process_exit: timer.daemon": "a thread",
    "bookkeeper.security.tls: context.check_hostname": "an SSL context",
    "bookkeeper.security.tls: context.minimum_version": "an SSL context",
    "bookkeeper.security.tls: context.num_tickets": "an SSL context",
    "bookkeeper.security.tls: context.verify_mode": "an SSL context",
    "bookkeeper.storage.wal.writing.block_merge: header.first_offset": "a protobuf message",
    "bookkeeper.storage.wal.writing.block_merge: header.max_row": "a protobuf message",
    "bookkeeper.storage.wal.writing.block_merge: header.min_row": "a protobuf message",
    "bookkeeper.storage.wal.writing.block_merge: header.record_count": "a protobuf message",
    "bookkeeper.storage.wal.writing.block_merge: header.write_time_ms": "a protobuf message",
    "bookkeeper.storage.wal.writing.wal_writer: complete.format_version": "a protobuf message",
}
"""Places that may set a field of another object, ``module: expression``, each with its reason."""

COLLABORATORS_MAX = 8

ME = ("self", "cls")
SETTERS = ("setattr", "delattr", "object.__setattr__", "object.__delattr__")
VALUE_BASES = {"NamedTuple", "TypedDict", "Enum", "IntEnum", "StrEnum", "BaseModel", "Exception", "Message"}


@dataclass(frozen=True)
class Module:
    """A source file."""

    name: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """All of its tree."""
        return list(ast.walk(self.tree))

    @property
    def classes(self) -> Iterator[ast.ClassDef]:
        """All that it defines."""
        return (node for node in self.nodes if isinstance(node, ast.ClassDef))


@pytest.fixture(scope="module")
def modules() -> Sequence[Module]:
    """All of :data:`ROOMS`, without generated ones."""
    paths = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py") if not path.stem.endswith("_pb2"))
    return [
        Module(".".join(path.relative_to(ROOT).with_suffix("").parts), ast.parse(path.read_text())) for path in paths
    ]


def fields_of(module: Module) -> set[str]:
    """Names of the fields of all classes that the module defines."""
    found: set[str] = set()
    for defined in module.classes:
        for statement in defined.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            found |= names
            if isinstance(statement, ast.Assign) and "__slots__" in names:
                slots = ast.literal_eval(statement.value)
                found |= {slots} if isinstance(slots, str) else set(slots)
        found |= {
            node.attr
            for node in ast.walk(defined)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_me(node.value)
        }
    return found


def is_me(node: ast.expr) -> bool:
    """Whether it is the object whose method this is."""
    return isinstance(node, ast.Name) and node.id in ME


def is_setter(called: ast.expr) -> bool:
    """Whether the function is one of :data:`SETTERS`."""
    match called:
        case ast.Name(id=name):
            return name in SETTERS
        case ast.Attribute(value=ast.Name(id=owner), attr=name):
            return f"{owner}.{name}" in SETTERS
    return False


def foreign_writes(module: Module) -> Iterator[str]:
    """``module: expression`` for each field that the module sets, or deletes, on an object of another module."""
    own = fields_of(module)
    for node in module.nodes:
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            if node.attr not in own and not is_me(node.value):
                yield f"{module.name}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and is_setter(node.func) and not is_me(node.args[0]):
            written, field = ast.unparse(node.args[0]), node.args[1]
            name = str(ast.literal_eval(field)) if isinstance(field, ast.Constant) else f"[{ast.unparse(field)}]"
            if name not in own:
                yield f"{module.name}: {written}.{name}"


def test_nobody_writes_the_fields_of_another_modules_object(modules: Sequence[Module]) -> None:
    found = {write for module in modules for write in foreign_writes(module)}
    new, gone = sorted(found - ALLOWED.keys()), sorted(ALLOWED.keys() - found)
    assert not new, "the class that owns the field needs a method for this:\n" + "\n".join(new)
    assert not gone, "strike these from ALLOWED, no module does them any more:\n" + "\n".join(gone)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("tablet.books = 1", ["m: tablet.books"]),
        ("tablet.count += 1", ["m: tablet.count"]),
        ("tablet.books: int = 1", ["m: tablet.books"]),
        ("a, tablet.books = 1, 2", ["m: tablet.books"]),
        ("for tablet.books in (): pass", ["m: tablet.books"]),
        ("del tablet.books", ["m: tablet.books"]),
        ("setattr(tablet, 'books', 1)", ["m: tablet.books"]),
        ("object.__setattr__(tablet, 'books', 1)", ["m: tablet.books"]),
        ("class A:\n def f(self): self.tablet.books = 1", ["m: self.tablet.books"]),
        ("class A:\n def f(self): self.books = 1", []),
        ("class A:\n books: int\ndef f(a): a.books = 1", []),
        ("class A:\n __slots__ = ('books',)\ndef f(a): a.books = 1", []),
        ("class A:\n def f(self):\n  self.books = 1\n  object.__setattr__(self, 'x', 1)\ndef f(a): a.books = 2", []),
        ("print(tablet.books)", []),
    ],
)
def test_a_write_to_the_field_of_another_modules_object_is_noticed(source: str, found: list[str]) -> None:
    assert list(foreign_writes(Module("m", ast.parse(source)))) == found


# ---- collaborators


def is_value(defined: ast.ClassDef) -> bool:
    """Whether the instances of a class are plain values: they never change, and call no other object."""
    bases = {ast.unparse(base).rpartition(".")[2] for base in defined.bases}
    frozen = any(keyword.arg == "frozen" for keyword in defined.keywords)
    holds_callables = any(
        isinstance(statement, ast.AnnAssign) and "Callable" in ast.unparse(statement.annotation)
        for statement in defined.body
    )
    return bool(bases & VALUE_BASES) or (frozen and not holds_callables)


def is_record(defined: ast.ClassDef) -> bool:
    """Whether the constructor of a class takes its annotated fields."""
    return any(ast.unparse(base) == "Struct" for base in defined.bases) or any(
        "dataclass" in ast.unparse(decorator) for decorator in defined.decorator_list
    )


def is_own_state(field: ast.AnnAssign) -> bool:
    """Whether the object makes the field itself: it has a factory, or a private name."""
    made = ast.unparse(field.value or field.target)
    return ast.unparse(field.target).startswith("_") or "init=False" in made or "default_factory" in made


def parts_taken(defined: ast.ClassDef) -> list[ast.expr]:
    """Annotations of the parameters of the constructor."""
    for statement in defined.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            arguments = [*statement.args.posonlyargs, *statement.args.args, *statement.args.kwonlyargs]
            return [argument.annotation for argument in arguments if argument.annotation is not None]
    if not is_record(defined):
        return []
    return [
        statement.annotation
        for statement in defined.body
        if isinstance(statement, ast.AnnAssign)
        and not (statement.value is not None and is_own_state(statement))
        and "ClassVar" not in ast.unparse(statement.annotation)
    ]


def collaborators(defined: ast.ClassDef, services: set[str]) -> list[str]:
    """The parameters that are functions, or objects of a class in ``services``."""
    found = []
    for annotation in parts_taken(defined):
        names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(annotation) if isinstance(node, ast.Attribute)}
        if names & (services | {"Callable"}):
            found.append(ast.unparse(annotation))
    return found


def test_no_constructor_takes_more_collaborators_than_a_reader_keeps_in_mind(modules: Sequence[Module]) -> None:
    services = {defined.name for module in modules for defined in module.classes if not is_value(defined)}
    crowded = {
        f"{module.name}: {defined.name}": len(taken)
        for module in modules
        for defined in module.classes
        if len(taken := collaborators(defined, services)) > COLLABORATORS_MAX
    }
    assert not crowded, f"a class takes at most {COLLABORATORS_MAX}; group those that go together"


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("class A:\n def __init__(self, a: S, b: int, *, c: S | None, d: Callable[[], int]): ...", 3),
        ("@dataclass\nclass A:\n a: S\n b: V\n c: S = field(init=False)\n d: Mapping[str, S]", 2),
        ("class A(Struct, frozen=True):\n a: S\n b: V\n _c: S = field(default_factory=S)\n d: Mapping[str, S]", 2),
        ("class A:\n a: S", 0),
    ],
)
def test_collaborators_are_counted(source: str, count: int) -> None:
    (defined,) = Module("m", ast.parse(source)).classes
    assert len(collaborators(defined, {"S"})) == count
