"""Makes the Python modules of the contract: classes, Protocols and tables, as text that ruff has formatted."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping

from tools.contract.idl import Contract, ContractError, Field, Method, Service, StructType, Type

WIDTH = 120

HELLO = "hello"
"""The server itself answers this method, so it is in no Protocol."""

STREAM = "StreamKey"
"""The struct that names the instance as whose sender a caller comes."""

SCALARS = {
    "bool": ("bool", "BOOL"),
    "i32": ("int", "I32"),
    "i64": ("int", "I64"),
    "double": ("float", "DOUBLE"),
    "string": ("str", "TEXT"),
    "binary": ("bytes", "BINARY"),
}
"""The Python type of each scalar, and its name in the tables."""

MESSAGES_HEAD = '''"""The structs of the wire contract as frozen values.

``make contract`` writes this module from ``bookkeeper.thrift``. It lacks the structs that are classes of
:mod:`bookkeeper.model` or :mod:`bookkeeper.origins`. An absent field is None. Lists arrive as tuples. Batches of
records are Arrow IPC record batch messages without a schema message.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
'''

SERVICES_HEAD = '''"""The services of the wire contract as Protocols: a handler implements one, and a client calls it.

``make contract`` writes this module from ``bookkeeper.thrift``. The server itself answers ``hello``. Every method may
raise any :class:`bookkeeper.errors.BookkeeperError`; the caller gets the same class.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol
'''

TABLES_HEAD = '''"""The wire contract as tables: fields and methods for the codec, rights and sizes for the server.

``make contract`` writes this module from ``bookkeeper.thrift``. A change of the rights shows here: review it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
'''


def modules_of(contract: Contract) -> dict[str, str]:
    """The text of each module, by its name; raises ContractError."""
    return {
        "messages": formatted(_messages(contract)),
        "services": formatted(_services(contract)),
        "tables": formatted(_tables(contract)),
    }


def formatted(text: str) -> str:
    """The text as ruff formats it."""
    command = [sys.executable, "-m", "ruff", "format", "--quiet", "--stdin-filename", "bookkeeper/generated.py", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


# ---- messages


def _messages(contract: Contract) -> str:
    own = [struct for struct in contract.structs if "py.module" not in struct.annotations]
    elsewhere = _modules(contract)
    types = [field.type for struct in own for field in struct.fields]
    imports = _imports({name: elsewhere[name] for name in _names_in(types) if elsewhere[name] != _MESSAGES})
    constants = [f"{one.name} = {one.value}\n{_docstring(one.doc, 0)}\n" for one in contract.constants]
    return "\n".join([MESSAGES_HEAD, imports, *constants, *map(_class, own)])


def _class(struct: StructType) -> str:
    order = ", order=True" if "py.order" in struct.annotations else ""
    lines = [f"class {struct.name}(Struct, frozen=True{order}):", _docstring(struct.doc, 4), ""]
    for field in struct.fields:
        optional = "" if field.required else " | None"
        default = f" = {field.default}" if field.default else ""
        lines.append(f"    {field.name}: {_python_type(field.type, 'tuple[{}, ...]')}{optional}{default}")
        if field.doc:
            lines.append(_docstring(_sentence(field.doc), 4))
    return "\n".join(lines) + "\n"


# ---- services


def _services(contract: Contract) -> str:
    methods = [method for service in contract.services for method in _handled(service)]
    types = [one.type for method in methods for one in method.arguments]
    types += [method.result for method in methods if method.result is not None]
    modules = _modules(contract)
    imports = _imports({name: modules[name] for name in _names_in(types)})
    return "\n".join([SERVICES_HEAD, imports, *map(_protocol, contract.services)])


def _handled(service: Service) -> list[Method]:
    """The methods that a handler has."""
    return [method for method in service.methods if method.name != HELLO]


def _protocol(service: Service) -> str:
    parents = f"{service.parent}, Protocol" if service.parent else "Protocol"
    lines = [f"class {service.name}({parents}):", _docstring(service.doc, 4), ""]
    for method in _handled(service):
        arguments = ["self", *(f"{one.name}: {_python_type(one.type, 'Sequence[{}]')}" for one in method.arguments)]
        result = "None" if method.result is None else _python_type(method.result, "Sequence[{}]")
        head = f"    def {method.name}({', '.join(arguments)}) -> {result}:"
        lines += [head, _docstring(method.doc, 8), ""] if method.doc else [f"{head} ...", ""]
    return "\n".join(lines)


# ---- tables


def _tables(contract: Contract) -> str:
    services = [_complete(service, contract) for service in contract.services]
    served = [service for service in services if service.parent]
    names = "BINARY, BOOL, DOUBLE, I32, I64, TEXT, FieldSpec, MethodSpec, argument, by_name, list_of, map_of"
    parts = [
        TABLES_HEAD,
        _imports(_modules(contract)),
        f"from bookkeeper.rpc.contract.specs import {names}, optional, required, struct_of\n",
        "STRUCTS: Mapping[type, tuple[FieldSpec, ...]] = {",
        *(f"{struct.name}: ({_struct_fields(struct)})," for struct in contract.structs),
        '}\n"""The fields of each struct, in the order in which they are sent."""\n',
        "SERVICES: Mapping[str, Mapping[str, MethodSpec]] = {",
        *(f'"{service.name}": by_name({"".join(map(_method_spec, service.methods))}),' for service in services),
        '}\n"""The methods of each service, those that it inherits included."""\n',
    ]
    for name, doc, is_in in _CALL_TABLES:
        rows = (f'"{one.name}": {_names(method.name for method in one.methods if is_in(method))},' for one in served)
        parts.append(f'{name}: Mapping[str, frozenset[str]] = {{{"".join(rows)}}}\n"""{doc}"""\n')
    parts.append(_streams_table(contract, served))
    readers = [method.name for service in contract.services for method in service.methods if _reads(service, method)]
    parts.append(f'READ_METHODS = {_names(readers)}\n"""The methods of the master that change nothing."""')
    return "\n".join(parts)


def _is_for(kind: str) -> Callable[[Method], bool]:
    return lambda method: kind in method.annotations.get("may_call", "").split(", ")


_CALL_TABLES: tuple[tuple[str, str, Callable[[Method], bool]], ...] = (
    ("CLIENT_METHODS", "The methods that the holder of a client's secret may call.", _is_for("client")),
    ("PEER_METHODS", "The methods that the holder of a peer's secret may call.", _is_for("peer")),
    (
        "PROCESS_METHODS",
        "The methods that only processes of the cluster may call. They may call all others, too.",
        lambda method: "may_call" not in method.annotations,
    ),
    ("BULK_METHODS", "The methods whose calls may fill a frame.", lambda method: "size" in method.annotations),
)


def _reads(service: Service, method: Method) -> bool:
    reads = "reads" in method.annotations
    if reads and service.name != "Master":
        raise ContractError(f"line {method.line}: reads is for methods of the Master")
    return reads


def _complete(service: Service, contract: Contract) -> Service:
    """The service with the methods that it inherits."""
    parents = [_complete(parent, contract) for parent in contract.services if parent.name == service.parent]
    inherited = [method for parent in parents for method in parent.methods]
    return Service(service.name, service.parent, (*inherited, *service.methods), service.doc, service.line)


def _struct_fields(struct: StructType) -> str:
    return "".join(f"{'required' if field.required else 'optional'}({_numbered(field)})," for field in struct.fields)


def _method_spec(method: Method) -> str:
    arguments = [f"argument({_numbered(one)})" for one in method.arguments]
    together = f"({', '.join(arguments)}{',' * (len(arguments) == 1)})"
    result = "None" if method.result is None else _type_spec(method.result)
    oneway = ", oneway=True" if method.oneway else ""
    return f'MethodSpec("{method.name}", {together}, {result}{oneway}),'


def _numbered(field: Field) -> str:
    return f'{field.number}, "{field.name}", {_type_spec(field.type)}'


def _type_spec(found: Type) -> str:
    if found.key is not None and found.element is not None:
        return f"map_of({_type_spec(found.key)}, {_type_spec(found.element)})"
    if found.element is not None:
        return f"list_of({_type_spec(found.element)})"
    return SCALARS[found.name][1] if found.name in SCALARS else f"struct_of({found.name})"


def _names(names: Iterable[str]) -> str:
    return f"frozenset({{{''.join(f'{name!r},' for name in listed)}}})" if (listed := list(names)) else "frozenset()"


def _streams_table(contract: Contract, services: Iterable[Service]) -> str:
    structs = {struct.name: struct for struct in contract.structs}
    rows = [
        f'("{service.name}", "{method.name}"): lambda arguments: ({", ".join(found)},),'
        for service in services
        for method in filter(_is_for("peer"), service.methods)
        if (found := list(_streams_in(method, structs)))
    ]
    doc = "The streams that a call of a peer names. A peer may send its own only; other methods of a peer name none."
    table = "Mapping[tuple[str, str], Callable[[Sequence[Any]], Sequence[StreamKey]]]"
    return f'NAMED_STREAMS: {table} = {{{"".join(rows)}}}\n"""{doc}"""\n'


def _streams_in(method: Method, structs: Mapping[str, StructType]) -> Iterator[str]:
    """Expressions for the streams in the arguments of a method; ContractError for one that is deeper than these."""
    for index, one in enumerate(method.arguments):
        if one.type.name == STREAM:
            yield f"arguments[{index}]"
        elif one.type.element is not None and one.type.element.name == STREAM:
            yield f"*arguments[{index}]"
        elif one.type.name in structs:
            for field in structs[one.type.name].fields:
                if field.type.name == STREAM:
                    yield f"arguments[{index}].{field.name}"
                elif STREAM in _reachable(field.type, structs):
                    raise _unchecked(method, f"{one.name}.{field.name}")
        elif STREAM in _reachable(one.type, structs):
            raise _unchecked(method, one.name)


def _unchecked(method: Method, place: str) -> ContractError:
    return ContractError(f"line {method.line}: a peer calls {method.name}, and nothing checks the streams in {place}")


def _reachable(found: Type, structs: Mapping[str, StructType]) -> set[str]:
    """The structs that a value of the type may contain."""
    names = set(_names_in([found]))
    return names.union(*(_reachable(field.type, structs) for name in names for field in structs[name].fields))


# ---- parts of them

_MESSAGES = "bookkeeper.rpc.contract.messages"


def _modules(contract: Contract) -> dict[str, str]:
    """The module of each struct's class."""
    return {struct.name: struct.annotations.get("py.module", _MESSAGES) for struct in contract.structs}


def _imports(modules: Mapping[str, str]) -> str:
    lines = []
    for module in sorted(set(modules.values())):
        names = sorted((name for name, place in modules.items() if place == module), key=_import_order)
        lines.append(f"from {module} import {', '.join(names)}")
    return "\n".join(lines)


def _import_order(name: str) -> tuple[str, str]:
    return name.lower(), name


def _names_in(types: Iterable[Type]) -> Iterator[str]:
    """The structs that the types name."""
    for found in types:
        yield from _names_in(inner for inner in (found.key, found.element) if inner is not None)
        if found.element is None and found.name not in SCALARS:
            yield found.name


def _python_type(found: Type, sequence: str) -> str:
    if found.key is not None and found.element is not None:
        key, element = (_python_type(inner, "tuple[{}, ...]") for inner in (found.key, found.element))
        return f"Mapping[{key}, {element}]"
    if found.element is not None:
        return sequence.format(_python_type(found.element, "tuple[{}, ...]"))
    return SCALARS[found.name][0] if found.name in SCALARS else found.name


def _sentence(words: str) -> str:
    """A comment behind a field as a sentence."""
    return words[0].upper() + words[1:] + "." * (words[-1] not in ".:")


def _docstring(text: str, indent: int) -> str:
    text = '"""' + re.sub(r"`([^`]+)`", r"``\1``", text)
    margin = " " * indent
    if "\n" not in text and len(margin + text) + 3 <= WIDTH:
        return f'{margin}{text}"""'
    width = WIDTH - indent - 3  # so that the quotes do not fit behind a single line
    return textwrap.indent("\n\n".join(textwrap.fill(part, width) for part in text.split("\n\n")) + '\n"""', margin)
