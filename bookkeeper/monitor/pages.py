"""The monitor's pages: templates filled with the same views that the JSON endpoints answer.

Pages are readable without a script. With ``fragment=1`` an answer has only the part that changes; the script of an open
page fetches it again and again. No file comes from another host. Known third party: jinja2, here only, and the file of
plotly.js in the package plotly.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from bookkeeper.monitor import replica_views, views
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

PHASES = ("waiting", "shipping", "blocked", "uncopied", "backing_off", "failing", "quarantined", "unsealed", "done")

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "worker-src 'self' blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}

STATIC = Path(__file__).parent / "static"
CACHE_S = 3_600


def plotly_file() -> Path | None:
    """The script that draws the plots, in the package plotly; None when that is not installed."""
    package = find_spec("plotly")
    folders = [] if package is None else list(package.submodule_search_locations or [])
    files = [Path(folder) / "package_data" / "plotly.min.js" for folder in folders]
    return next((file for file in files if file.is_file()), None)


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
        self._plotly = plotly_file()
        self._templates = Environment(
            loader=PackageLoader("bookkeeper.monitor"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._templates.filters |= {"count": count, "size": size, "age": age, "short": short}

    def routes(self) -> list[Route | Mount]:
        """The paths with their endpoints."""
        return [
            *(Route(path, self._page) for path in PAGES),
            *(Route(path, self._page) for path in TABLE_PAGES),
            Route("/static/plotly.min.js", self._plots),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]

    def refused(self, path: str, cluster: str, reason: str) -> Response:
        """The page without a valid token: it has a form for the token."""
        text = self._templates.get_template("refused.html").render(path=path, cluster=cluster, reason=reason)
        return Response(text, 401, HEADERS, "text/html; charset=utf-8")

    async def _plots(self, _request: Request) -> Response:
        if self._plotly is None:
            return Response("plotly is not installed", 404, media_type="text/plain")
        return FileResponse(self._plotly, headers={"Cache-Control": f"max-age={CACHE_S}"}, media_type="text/javascript")

    async def _page(self, request: Request) -> Response:
        sample, path = self._sampler.latest, request.url.path
        selection, directory = self._select(request), request.query_params.get("tablet", "")
        name, code, facts = page_name(path), 200, {}
        if sample.observation.books is None:
            name, code = "standby", 200 if path == "/" else 503
        elif path == "/hosts" or path in TABLE_PAGES:
            replicas = await self._look(path, selection.table, directory)
            facts = replica_view_of(path, sample, replicas, selection) if replicas.has_values else {}
            facts |= {"problem": replicas.problem, "directory": directory}
            if not replicas.has_values:
                name, code = "unread", 404 if replicas.is_missing else 503
        else:
            facts = view_of(path, sample, selection)
        context = {
            "overview": views.overview(sample),
            "selection": selection,
            "pages": PAGES,
            "path": path if path in PAGES else "/tables",
            "title": title_of(path, selection.table),
            "phases": PHASES,
            "interval_ms": self._interval_ms,
            "link": lambda page: "?" + urlencode(query_of(selection, page, directory)),
            **facts,
        }
        text = self._filled(f"{name}.html", context, "fragment" in request.query_params)
        return Response(text, code, HEADERS, "text/html; charset=utf-8")

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
        return {"hosts": replica_views.hosts(replicas), "health": replica_views.health(books.replicas)}
    if path == "/tablets":
        return {"view": replica_views.tablets(replicas, selection)}
    return {"view": replica_views.tablet(replicas, selection)}


def page_name(path: str) -> str:
    """The template of a page."""
    return (PAGES | TABLE_PAGES)[path].lower()


def title_of(path: str, table: str) -> str:
    """The title of a page."""
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
