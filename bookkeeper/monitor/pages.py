"""The monitor's pages: templates filled with the same views that the JSON endpoints answer.

Arrives: GET requests. Leaves: whole pages, readable without a script; or with ``fragment=1`` only what changes, which
the script of an open page fetches again and again. No file comes from another host. Known third party: jinja2, here
only, and the file of plotly.js that the package plotly brings.
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

from bookkeeper.monitor import views
from bookkeeper.monitor.sampler import Sample, Sampler
from bookkeeper.monitor.views import Selection, View

PAGES = {"/": "Overview", "/tables": "Tables", "/peers": "Peers", "/files": "Files", "/kept": "Kept"}

PHASES = ("waiting", "shipping", "blocked", "backing_off", "failing", "quarantined", "unsealed", "done")

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
    """The script that draws the plots, in the package that brings it; None where that is not installed."""
    found = find_spec("plotly")
    places = [] if found is None else list(found.submodule_search_locations or [])
    files = [Path(place) / "package_data" / "plotly.min.js" for place in places]
    return next((file for file in files if file.is_file()), None)


class Pages:
    """What a browser gets. ``select`` reads which rows a request asks for."""

    def __init__(self, sampler: Sampler, interval_ms: int, select: Callable[[Request], Selection]) -> None:
        self._sampler, self._interval_ms, self._select = sampler, interval_ms, select
        self._plotly = plotly_file()
        self._templates = Environment(
            loader=PackageLoader("bookkeeper.monitor"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
        )
        self._templates.filters |= {"count": count, "size": size, "age": age, "short": short}

    def routes(self) -> list[Route | Mount]:
        """Paths and what answers there."""
        return [
            *(Route(path, self._page) for path in PAGES),
            Route("/static/plotly.min.js", self._plots),
            Mount("/static", StaticFiles(directory=STATIC)),
        ]

    def refused(self, path: str, cluster: str, reason: str) -> Response:
        """For somebody who may not look: how to get in."""
        text = self._templates.get_template("refused.html").render(path=path, cluster=cluster, reason=reason)
        return Response(text, 401, HEADERS, "text/html; charset=utf-8")

    async def _plots(self, _request: Request) -> Response:
        if self._plotly is None:
            return Response("plotly is not installed", 404, media_type="text/plain")
        return FileResponse(self._plotly, headers={"Cache-Control": f"max-age={CACHE_S}"}, media_type="text/javascript")

    async def _page(self, request: Request) -> Response:
        sample, path = self._sampler.latest, request.url.path
        wanted = self._select(request)
        known = sample.seen.books is not None
        facts = view_of(path, sample, wanted) if known else {}
        context = {
            "overview": views.overview(sample),
            "wanted": wanted,
            "pages": PAGES,
            "path": path,
            "title": PAGES[path],
            "phases": PHASES,
            "interval_ms": self._interval_ms,
            "link": lambda page: "?" + urlencode(query_of(wanted, page)),
            **facts,
        }
        name = f"{PAGES[path].lower()}.html" if known else "standby.html"
        code = 200 if known or path == "/" else 503
        text = self._filled(name, context, "fragment" in request.query_params)
        return Response(text, code, HEADERS, "text/html; charset=utf-8")

    def _filled(self, name: str, context: dict[str, Any], is_fragment: bool) -> str:
        template = self._templates.get_template(name)
        if not is_fragment:
            return template.render(context)
        return "".join(template.blocks["live"](template.new_context(context)))


def view_of(path: str, sample: Sample, wanted: Selection) -> View:
    """What a page needs beside the overview."""
    books = sample.seen.books
    assert books is not None
    if path == "/tables":
        return {"tables": views.tables(books)}
    if path == "/files":
        names = {"table_names": [table.name for table in books.tables], "peers": [peer.cluster for peer in books.peers]}
        return {"view": views.files(books, wanted), "ranges": views.quarantine(books), **names}
    if path == "/kept":
        return {"view": views.kept(sample, wanted)}
    return {"peers": views.peers(books)}


def query_of(wanted: Selection, page: int) -> dict[str, str | int]:
    """The query of another page of the same rows."""
    chosen = {"table": wanted.table, "cluster": wanted.cluster, "phase": wanted.phase}
    return {**{name: text for name, text in chosen.items() if text}, "page": page, "rows": wanted.rows}


# ---- how values are written


def count(number: int) -> str:
    """With commas."""
    return f"{number:,}"


def size(number: float) -> str:
    """Bytes in the unit that needs the fewest digits."""
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


def short(uri: str) -> str:
    """The end of a file's name: its directory and itself."""
    return "/".join(uri.rsplit("/", 2)[-2:])
