"""A package's ``__init__`` is its map: importing one module of a room imports no other."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[3]

FOR_USERS = {"bookkeeper/client", "bookkeeper/peers/parquet", "combiners"}
"""Packages that users import by name: the client, the installed replica system, the combiners."""


def imports_of(source: str) -> list[str]:
    """What a module imports, besides annotations."""
    found = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom)]
    return [
        ast.unparse(node) for node in found if not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
    ]


def test_the_init_of_a_room_imports_nothing() -> None:
    found = {
        str(path.parent.relative_to(ROOT)): imports_of(path.read_text())
        for top in ("bookkeeper", "combiners", "shell")
        for path in (ROOT / top).rglob("__init__.py")
    }
    eager = {room: imports for room, imports in found.items() if imports and room not in FOR_USERS}
    assert not eager, "importers name the module that has the thing: a start pays for each import"


def test_an_import_is_found() -> None:
    assert imports_of("from __future__ import annotations\nimport a\nfrom b import c") == [
        "import a",
        "from b import c",
    ]
