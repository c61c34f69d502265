"""Two directives. ``generated`` makes a part of a page from the sources whenever the pages are built::

    ```{generated} settings master
    ```

The argument is the name of a generator and its argument; the generator's Markdown replaces the directive. No generated
text is stored, so none can become outdated. ``mermaid`` draws a sequence diagram (see ``sequence``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from docs.extension import books, commands, metrics, plots, sequence, settings, storage

GENERATORS: Mapping[str, Callable[[str], str]] = {
    "settings": settings.section,
    "table-properties": settings.table_properties,
    "command": commands.command,
    "exit-codes": commands.exit_codes,
    "tablet-columns": books.tablet_columns,
    "section-rows": books.section_rows,
    "ranks": books.ranks,
    "values": books.values_shown,
    "docstring": storage.docstring,
    "magic": storage.magic,
    "schema": storage.schema,
    "errors": storage.errors,
    "plots": plots.plots,
    "metrics": metrics.metrics,
}
"""By name: a function from the directive's argument ("" if there is none) to Markdown; raises ValueError."""


class Generated(SphinxDirective):
    """See the module."""

    required_arguments = 1
    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The nodes of the generated Markdown."""
        name, argument = self.arguments[0], " ".join(self.arguments[1:])
        try:
            text = GENERATORS[name](argument)
        except (KeyError, ValueError) as error:
            raise self.error(f"generated {name} {argument}: {error}") from error
        made = nodes.container()
        self.state.nested_parse(StringList(text.splitlines(), name), self.content_offset, made)
        return made.children


class Mermaid(SphinxDirective):
    """A sequence diagram as SVG in the page."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """The drawing."""
        try:
            drawn = sequence.draw(sequence.parse("\n".join(self.content)))
        except ValueError as error:
            raise self.error(f"mermaid: {error}") from error
        return [nodes.raw("", drawn, format="html")]


def setup(app: Sphinx) -> dict[str, object]:
    """Called by Sphinx."""
    app.add_directive("generated", Generated)
    app.add_directive("mermaid", Mermaid)
    return {"parallel_read_safe": True}
