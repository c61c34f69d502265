"""The monitor's pages: templates filled with the same views that the JSON endpoints answer.

Pages are readable without a script. With ``fragment=1`` an answer has only the part that changes; the script of an open
page fetches it again and again. No file comes from another host. Known third party: jinja2, here only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from bookkeeper.monitor import pictures, replica_views, views
from bookkeeper.monitor.lag_history import CLUSTERS_MAX
from bookkeeper.monitor.replica_sampler import HOSTS, ReplicaSample, ReplicaSampler, Subject, read_in_time
from bookkeeper.monitor.sampler import Sample, Sampler
from bookkeeper.monitor.views import Selection, View

PAGES = {
    "/": "Overview",
    "/tables": "Tables",
    "/peers": "Peers",
    "/files": "Files",
    "/kept": "Kept",
    "/hosts": "Hosts",
}

TABLE_PAGES = {"/tablets": "Tablets", "/tablet": "Tablet"}
"""Pages of one table, linked from Tables: what they show is named in their query."""

FILE_PAGE = "/file"
"""The page of one log, linked from Files and Kept."""

PATHS = (*PAGES, *TABLE_PAGES, FILE_PAGE)
"""The paths of all pages."""

NO_FILE = "no peer lacks a record of this file, and it is not kept: it is finished, or there is no such file"

PHASES = ("waiting", "shipping", "blocked", "uncopied", "backing_off", "failing", "quarantined", "unsealed", "done")

POLICY = "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
"""Everything comes from the master itself; no style and no script stands in a page."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

ENTRANCE_HEADERS = HEADERS | {
    "Content-Security-Policy": f"{POLICY}; style-src 'self' 'unsafe-inline'; img-src 'self' data:"
}
"""Of the page without a valid token: it can read no file, so it has its style in itself."""

STATIC = Path(__file__).parent / "static"


class Pages:
    """The pages' endpoints. ``select`` reads the filter and page from a request."""

    def __init__(
        self,
        sampler: Sampler,
        replicas: ReplicaSampler,
        interval_ms: int,
        select: Callable[[Request], Selection],
    ) -> None:
        self._sampler, self._replicas, self._interval_ms, self._select = sampler, replicas, interval_ms, select
        self._templates = Environment(
            loader=PackageLoader("bookkeeper.monitor"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        filters = {"count": count, "size": size, "age": age, "short": short, "amount": amount}
        self._templates.filters |= filters | {"way_bar": way_bar, "span_text": span_text}

    def routes(self) -> list[Route | Mount]:
        """The paths with their endpoints."""
        return [
            *(Route(path, self._page) for path in PATHS),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]

    def refused(self, path: str, cluster: str, reason: str) -> Response:
        """The page without a valid token: it has a form for the token."""
        text = self._templates.get_template("refused.html").render(path=path, cluster=cluster, reason=reason)
        return Response(text, 401, ENTRANCE_HEADERS, "text/html; charset=utf-8")

    async def _page(self, request: Request) -> Response:
        sample, path = self._sampler.latest, request.url.path
        selection, directory = self._select(request), request.query_params.get("tablet", "")
        file = request.query_params.get("file", "")
        name, code, facts = page_name(path), 200, dict[str, Any]()
        if sample.observation.books is None:
            name, code = "standby", 200 if path == "/" else 503
        elif path == "/hosts" or path in TABLE_PAGES:
            replicas = await self._look(path, selection.table, directory)
            facts = replica_view_of(path, sample, replicas, selection) if replicas.has_values else {}
            facts |= {"problem": replicas.problem, "directory": directory}
            if not replicas.has_values:
                name, code = "unread", 404 if replicas.is_missing else 503
        elif path == FILE_PAGE:
            facts = {"file": views.file_way(sample, sample.observation.books, file), "problem": NO_FILE}
            if facts["file"] is None:
                name, code = "unread", 404
        else:
            facts = view_of(path, sample, selection) | self._lines(path)
        context = {
            "overview": views.overview(sample),
            "selection": selection,
            "pages": PAGES,
            "path": main_page(path),
            "title": title_of(path, selection.table, file),
            "phases": PHASES,
            "interval_ms": self._interval_ms,
            "link": lambda page: "?" + urlencode(query_of(selection, page, directory)),
            **facts,
        }
        text = self._filled(f"{name}.html", context, "fragment" in request.query_params)
        return Response(text, code, HEADERS, "text/html; charset=utf-8")

    def _lines(self, path: str) -> View:
        """The pictures of the lag, on the pages that have them."""
        if path not in ("/", "/peers"):
            return {}
        columns = self._sampler.history.columns()
        most = pictures.LINES_MAX if path == "/" else CLUSTERS_MAX
        return {"lines": pictures.peer_lines(columns, most), "lines_max": most}

    async def _look(self, path: str, table: str, directory: str) -> ReplicaSample:
        """The latest sample of the page's subject."""
        if path == "/hosts":
            return await read_in_time(self._replicas.look(HOSTS))
        if not table or (path == "/tablet" and not directory):
            problem = "this address lacks the name of a table or a tablet: choose one from the page Tables"
            return ReplicaSample(0, problem=problem, is_missing=True)
        return await read_in_time(self._replicas.look(Subject(table, directory if path == "/tablet" else "")))

    def _filled(self, name: str, context: dict[str, Any], is_fragment: bool) -> str:
        template = self._templates.get_template(name)
        if not is_fragment:
            return template.render(context)
        return "".join(template.blocks["live"](template.new_context(context)))


def view_of(path: str, sample: Sample, selection: Selection) -> View:
    """The values of a page beside the overview."""
    books = sample.observation.books
    assert books is not None
    if path == "/tables":
        return {"tables": views.tables(books)}
    if path == "/files":
        names = {"table_names": [table.name for table in books.tables], "peers": [peer.cluster for peer in books.peers]}
        return {"view": views.files(books, selection), "ranges": views.quarantine(books), **names}
    if path == "/kept":
        return {"view": views.retained(sample, selection)}
    return {"peers": views.peers(books)}


def replica_view_of(path: str, sample: Sample, replicas: ReplicaSample, selection: Selection) -> View:
    """The values of a page about hosts or replicas beside the overview."""
    books = sample.observation.books
    assert books is not None
    if path == "/hosts":
        rows = replica_views.hosts(replicas)
        health = replica_views.health(books.replicas)
        return {"hosts": rows, "holdings": replica_views.holdings(rows), "health": health}
    if path == "/tablets":
        return {"view": replica_views.tablets(replicas, selection)}
    return {"view": replica_views.tablet(replicas, selection)}


def page_name(path: str) -> str:
    """The template of a page."""
    return path.strip("/") or "overview"


def main_page(path: str) -> str:
    """The page of the navigation that a page belongs to."""
    if path == FILE_PAGE:
        return "/files"
    return path if path in PAGES else "/tables"


def title_of(path: str, table: str, file: str) -> str:
    """The title of a page."""
    if path == FILE_PAGE:
        return f"The way of {short(file) or 'a file'}"
    return f"{TABLE_PAGES[path]} of {table or 'a table'}" if path in TABLE_PAGES else PAGES[path]


def query_of(selection: Selection, page: int, directory: str) -> dict[str, str | int]:
    """The query of another page of the same rows."""
    chosen = {
        "table": selection.table,
        "tablet": directory,
        "cluster": selection.cluster,
        "phase": selection.phase,
    }
    return {**{name: text for name, text in chosen.items() if text}, "page": page, "rows": selection.rows}


# ---- formats of values


def amount(value: float | None, name: str) -> str:
    """A value of a lag: records, bytes, or seconds."""
    if value is None:
        return "unknown"
    return age(value) if name == "lag_seconds" else size(value) if name == "lag_bytes" else count(round(value))


def count(number: int) -> str:
    """A number with commas."""
    return f"{number:,}"


def size(number: float) -> str:
    """Bytes in the unit with the fewest digits."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:,.0f} {unit}" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    return f"{number:,.1f} TiB"


def age(seconds: float) -> str:
    """A duration in two units at most."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, left = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {left} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def short(name: str) -> str:
    """The last two parts of a URI: the file and its directory."""
    return "/".join(name.rsplit("/", 2)[-2:])


def way_bar(spans: Sequence[View]) -> tuple[pictures.Part, ...]:
    """The bar of the spans of a file."""
    return pictures.way_bar([(span["kind"], span["first"], span["last"]) for span in spans])


SPAN_WORDS = {"finished": "finished", "under_way": "under way", "held": "in quarantine", "not_sent": "not sent"}


def span_text(span: View) -> str:
    """The offsets of a span, and what they are."""
    last = f" to {count(span['last'])}" if span["last"] > span["first"] else ""
    return f"{SPAN_WORDS[span['kind']]}: {count(span['first'])}{last}"
