"""The monitor's HTTP interface: health, readiness, JSON, metrics; and the pages beside them.

Arrives: GET requests. Leaves: answers from the sampler's latest look; no request asks the master, and none changes
anything. Data of the cluster comes from its leader: a master that stands by answers 503 and names the leader.
Known third party: starlette, here and in the pages.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bookkeeper.clock import Clock
from bookkeeper.monitor import views
from bookkeeper.monitor.metrics import CONTENT_TYPE, exposition
from bookkeeper.monitor.observation import Books
from bookkeeper.monitor.pages import Pages
from bookkeeper.monitor.sampler import REST_MAX_MS, Sampler
from bookkeeper.monitor.views import Selection

STALE_AFTER_MS = 2 * REST_MAX_MS
"""A look that is older than this means that the monitor hangs."""

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""Of every answer that is about the cluster."""


def json_answer(content: Any, status: int = 200) -> Response:
    """An answer in JSON."""
    body = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Response(body, status, HEADERS, "application/json")


def selection(request: Request) -> Selection:
    """Which rows a request asks for. Raises HTTPException (400) when a number is none."""
    asked = request.query_params
    try:
        page, rows = int(asked.get("page", 1)), int(asked.get("rows", 50))
    except ValueError as error:
        raise HTTPException(400, "page and rows are whole numbers") from error
    return Selection(asked.get("table", ""), asked.get("cluster", ""), asked.get("phase", ""), page, rows)


class Api:
    """The endpoints beside the pages."""

    def __init__(self, sampler: Sampler, clock: Clock) -> None:
        self._sampler, self._clock = sampler, clock

    def routes(self) -> list[Route]:
        """Paths and what answers there."""
        answers: dict[str, Callable[[Request], Any]] = {
            "/api/overview": lambda _request: views.overview(self._sampler.latest),
            "/api/tables": lambda _request: {"tables": views.tables(self._books())},
            "/api/peers": lambda _request: {"peers": views.peers(self._books())},
            "/api/files": lambda request: views.files(self._books(), selection(request)),
            "/api/quarantine": lambda _request: {"ranges": views.quarantine(self._books())},
            "/api/kept": self._kept,
            "/api/history": lambda _request: self._sampler.history.columns(),
        }
        return [
            Route("/health", self._health),
            Route("/ready", self._ready),
            Route("/metrics", self._metrics),
            *(Route(path, _endpoint(answer)) for path, answer in answers.items()),
        ]

    def _books(self) -> Books:
        seen = self._sampler.latest.seen
        if seen.books is None:
            raise HTTPException(503, seen.problem)
        return seen.books

    def _kept(self, request: Request) -> Any:
        self._books()
        return views.kept(self._sampler.latest, selection(request))

    async def _health(self, _request: Request) -> Response:
        healthy, view = views.health(self._sampler.latest, self._clock.boot_ns(), STALE_AFTER_MS)
        return json_answer(view, 200 if healthy else 503)

    async def _ready(self, _request: Request) -> Response:
        ready, view = views.readiness(self._sampler.latest.seen)
        return json_answer(view, 200 if ready else 503)

    async def _metrics(self, _request: Request) -> Response:
        return Response(exposition(self._sampler.latest), headers=HEADERS, media_type=CONTENT_TYPE)

    async def refused(self, request: Request, error: Exception) -> Response:
        """An error as JSON; of a master that stands by, with the leader's address and pages."""
        assert isinstance(error, HTTPException)
        leader = self._sampler.latest.seen.leader
        view: dict[str, Any] = {"error": error.detail or "no such page", "path": request.url.path}
        if error.status_code == 503 and leader is not None:
            view |= {"leader": leader.address, "monitor": leader.monitor}
        return json_answer(view, error.status_code)


def _endpoint(answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        return json_answer(answer(request))

    return endpoint


def build_app(sampler: Sampler, clock: Clock, interval_ms: int) -> Starlette:
    """The application. It holds no state of its own; open pages look again every ``interval_ms``."""
    api = Api(sampler, clock)
    return Starlette(
        routes=[*api.routes(), *Pages(sampler, interval_ms, selection).routes()],
        exception_handlers={HTTPException: api.refused},
    )
