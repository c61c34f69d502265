"""The grain of the product's code: how long its functions are, how many exist for one caller, how much is commented.

``python -m tests.support.grain [DIRECTORY]`` prints the figures of a checkout, to compare two of them.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, median

from msgspec import Struct

PACKAGES = ("bookkeeper", "combiners", "shell")
Definition = ast.FunctionDef | ast.AsyncFunctionDef
NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


class Grain(Struct, frozen=True):
    """The figures of a product."""

    files: int
    lines: int
    code_lines: int
    comment_lines: int
    function_lines: tuple[int, ...]
    """Code lines of each function, without its docstring and with its header."""
    one_return: int
    """Functions whose body is one return."""
    one_use: int
    """Of these, functions of a module that one place of the product names."""


def body_of(function: Definition) -> list[ast.stmt]:
    """The statements of a function without its docstring."""
    return function.body[ast.get_docstring(function, clean=False) is not None :]


def lines_of(source: str, tree: ast.Module) -> tuple[set[int], int]:
    """The numbers of the lines with code, docstrings left out; and how many lines are a comment alone."""
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in NO_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):  # docstrings, also those of values
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return code, len(comments - code)


def names_used(tree: ast.Module) -> Iterator[str]:
    """Each name and attribute that a module uses, once a use."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr


def grain_of(root: Path) -> Grain:
    """The figures of the checkout at ``root``; generated modules are left out."""
    paths = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py")) if "_pb2" not in path.name]
    sources = [path.read_text(encoding="utf-8") for path in paths]
    trees = [ast.parse(source) for source in sources]
    uses = Counter(name for tree in trees for name in names_used(tree))
    code_lines = comment_lines = one_return = one_use = 0
    function_lines: list[int] = []
    for source, tree in zip(sources, trees, strict=True):
        code, comments = lines_of(source, tree)
        code_lines, comment_lines = code_lines + len(code), comment_lines + comments
        for node in ast.walk(tree):
            if not isinstance(node, Definition):
                continue
            function_lines.append(len(code & set(range(node.lineno, (node.end_lineno or node.lineno) + 1))))
            body = body_of(node)
            if len(body) == 1 and isinstance(body[0], ast.Return):
                one_return += 1
                one_use += node in tree.body and uses[node.name] == 1
    lines = sum(source.count("\n") for source in sources)
    return Grain(len(paths), lines, code_lines, comment_lines, tuple(function_lines), one_return, one_use)


def main(root: Path) -> None:
    """Print the figures."""
    found = grain_of(root)
    functions = len(found.function_lines)
    print(f"{found.files} files, {found.lines} lines, {found.code_lines} of code")
    print(
        f"{functions} functions; code lines of one: {mean(found.function_lines):.2f} on average, "
        f"{median(found.function_lines):.0f} median, {max(found.function_lines)} at most"
    )
    print(
        f"{found.one_return} functions are one return ({100 * found.one_return / functions:.1f} %); "
        f"{found.one_use} of them, in modules, have one use"
    )
    print(f"{found.comment_lines} lines are comments ({100 * found.comment_lines / found.lines:.2f} %)")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parents[2])
