"""The unit tests of what changed: ``python -m tests.support.check.changed_tests`` prints their files.

Arrives: a checkout with a branch to compare with. Leaves: test files, the nearest first. Near is a test that changed
itself, then one that imports a changed module, then one that imports a module that imports a changed one. A changed
module of many importers has many tests, so the list is bounded; ``make test`` runs all.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[3]
PACKAGES = ("bookkeeper", "combiners", "shell", "tests", "tools")
BASES = ("main", "origin/main", "HEAD^")
"""What a change is compared with: the first of these that the repository knows and that is not the change itself."""
FILES_MAX = 80
"""They take a minute and a half of two cores at most."""
PAPERS = ("tests/unit/docs", "tests/unit/shell/test_readme.py")
"""The tests of everything that people read."""

Imports = Mapping[str, Collection[str]]
"""Of each file, the files that it imports; paths from the root."""


def imports_of(root: Path) -> Imports:
    """Read the imports of all packages."""
    files = {path.relative_to(root).as_posix() for name in PACKAGES for path in (root / name).rglob("*.py")}
    return {file: _imported(ast.parse((root / file).read_bytes()), files) for file in files}


def _imported(tree: ast.AST, files: Collection[str]) -> set[str]:
    found: set[str] = set()
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            path = name.replace(".", "/")
            found.update(file for file in (f"{path}.py", f"{path}/__init__.py") if file in files)
    return found


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """All statements at any depth, without the expressions, which are most of a tree and import nothing."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for node in getattr(tree, block, ()):
            yield node
            yield from _statements(node)


def files_of_tests(changed: Iterable[str], imports: Imports) -> list[str]:
    """The unit tests of these files, the nearest first. A file that is no module stands for its package."""
    modules = {file if file in imports else _package_of(file) for file in changed}
    near = [file for file in sorted(modules) if _is_test(file)]
    papers = [place for place in PAPERS if any(file.endswith(".md") for file in changed)]
    importers = {file for file, imported in imports.items() if not modules.isdisjoint(imported)}
    direct = sorted(file for file in importers if _is_unit_test(file))
    between = {file for file in importers if not _is_test(file)} - modules
    further = sorted(
        file for file, imported in imports.items() if _is_unit_test(file) and not between.isdisjoint(imported)
    )
    return list(dict.fromkeys([*near, *papers, *direct, *further]))


def _package_of(file: str) -> str:
    return str(PurePosixPath(file).parent / "__init__.py")


def _is_test(file: str) -> bool:
    return file.startswith("tests/") and PurePosixPath(file).name.startswith("test_")


def _is_unit_test(file: str) -> bool:
    return _is_test(file) and file.startswith("tests/unit/")


def changed_files(root: Path) -> tuple[str, Sequence[str]]:
    """What the change is compared with, and its files that are still there, those that git does not know yet too."""
    for base in BASES:
        try:
            fork = _git(root, "merge-base", base, "HEAD")[0]
        except subprocess.CalledProcessError:
            continue
        files = _git(root, "diff", "--name-only", fork) + _git(root, "ls-files", "--others", "--exclude-standard")
        if files:
            return base, [file for file in files if (root / file).is_file()]
    return BASES[-1], []


def _git(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


if __name__ == "__main__":
    sys.stdout.write("\n".join(files_of_tests(changed_files(ROOT)[1], imports_of(ROOT))) + "\n")
