"""The monitor's HTTP interface: health, readiness, JSON, metrics and pages, behind :class:`AuthMiddleware`.

Answers come from the latest samples; no request calls the master, and none changes anything. Data of the cluster comes
from its leader: a master that stands by answers 503 and names the leader. Known third party: starlette, here and in
the pages.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bookkeeper.clock import Clock
from bookkeeper.monitor import replica_views, views
from bookkeeper.monitor.auth_middleware import IS_AUTHENTICATED, AuthMiddleware
from bookkeeper.monitor.metrics import CONTENT_TYPE, exposition
from bookkeeper.monitor.observation import Books
from bookkeeper.monitor.pages import NO_FILE, PATHS, Pages, main_page
from bookkeeper.monitor.replica_sampler import HOSTS, ReplicaSample, ReplicaSampler, Subject, read_in_time
from bookkeeper.monitor.sampler import PAUSE_MAX_MS, Sampler
from bookkeeper.monitor.views import Selection
from bookkeeper.rpc.trust.admission import RefusalLog
from bookkeeper.security.viewers import Viewers

LOG = logging.getLogger(__name__)

TOKEN_HINT = "show the token that bookkeeper monitor DIR --token prints, as Authorization: Bearer"

STALE_AFTER_MS = 2 * PAUSE_MAX_MS
"""With an older sample than this the monitor hangs."""

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
"""Headers of all answers but static files."""


def json_answer(content: Any, status: int = 200) -> Response:
    """An answer in JSON."""
    body = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Response(body, status, HEADERS, "application/json")


def selection(request: Request) -> Selection:
    """The filter and page of a request. Raises HTTPException (400) when ``page`` or ``rows`` is no number."""
    query = request.query_params
    try:
        page, rows = int(query.get("page", 1)), int(query.get("rows", 50))
    except ValueError as error:
        raise HTTPException(400, "page and rows are whole numbers") from error
    return Selection(query.get("table", ""), query.get("cluster", ""), query.get("phase", ""), page, rows)


def subject_of(request: Request) -> Subject:
    """The table, and perhaps the tablet, that a request names. Raises HTTPException (400) when it names none."""
    table = request.query_params.get("table", "")
    if not table:
        raise HTTPException(400, "table is the name of a table")
    return Subject(table, request.query_params.get("tablet", ""))


class Api:
    """The endpoints beside the pages."""

    def __init__(self, sampler: Sampler, replicas: ReplicaSampler, clock: Clock) -> None:
        self._sampler, self._replicas, self._clock = sampler, replicas, clock

    def routes(self) -> list[Route]:
        """The paths with their endpoints."""
        answers: dict[str, Callable[[Request], Any]] = {
            "/api/overview": lambda _request: views.overview(self._sampler.latest),
            "/api/tables": lambda _request: {"tables": views.tables(self._books())},
            "/api/peers": lambda _request: {"peers": views.peers(self._books())},
            "/api/files": lambda request: views.files(self._books(), selection(request)),
            "/api/quarantine": lambda _request: {"ranges": views.quarantine(self._books())},
            "/api/kept": self._retained,
            "/api/history": lambda _request: self._sampler.history.columns(),
        }
        return [
            Route("/health", self._health),
            Route("/ready", self._ready),
            Route("/metrics", self._metrics),
            Route("/api/file", self._file),
            Route("/api/hosts", self._hosts),
            Route("/api/tablets", self._tablets),
            Route("/api/tablet", self._tablet),
            *(Route(path, _endpoint(answer)) for path, answer in answers.items()),
        ]

    def _books(self) -> Books:
        observation = self._sampler.latest.observation
        if observation.books is None:
            raise HTTPException(503, observation.problem)
        return observation.books

    def _retained(self, request: Request) -> Any:
        self._books()
        return views.retained(self._sampler.latest, selection(request))

    async def _file(self, request: Request) -> Response:
        books, name = self._books(), request.query_params.get("file", "")
        view = views.file_way(self._sampler.latest, books, name)
        if view is None:
            raise HTTPException(404, NO_FILE)
        return json_answer(view)

    async def _hosts(self, _request: Request) -> Response:
        return json_answer({"hosts": replica_views.hosts(await self._read(HOSTS))})

    async def _tablets(self, request: Request) -> Response:
        return json_answer(replica_views.tablets(await self._read(subject_of(request)), selection(request)))

    async def _tablet(self, request: Request) -> Response:
        subject = subject_of(request)
        if not subject.directory:
            raise HTTPException(400, "tablet is the directory of a tablet, as api/tablets has it")
        return json_answer(replica_views.tablet(await self._read(subject), selection(request)))

    async def _read(self, subject: Subject) -> ReplicaSample:
        """The latest sample. Raises HTTPException: 503 while it can't be read, 404 when there is no such table."""
        self._books()
        sample = await read_in_time(self._replicas.look(subject))
        if sample.problem:
            raise HTTPException(404 if sample.is_missing else 503, sample.problem)
        return sample

    async def _health(self, request: Request) -> Response:
        healthy, view = views.health(self._sampler.latest, self._clock.boot_ns(), STALE_AFTER_MS)
        return json_answer(visible_part(request, view, "healthy"), 200 if healthy else 503)

    async def _ready(self, request: Request) -> Response:
        ready, view = views.readiness(self._sampler.latest.observation)
        return json_answer(visible_part(request, view, "ready"), 200 if ready else 503)

    async def _metrics(self, _request: Request) -> Response:
        return Response(exposition(self._sampler.latest), headers=HEADERS, media_type=CONTENT_TYPE)

    async def refused(self, request: Request, error: Exception) -> Response:
        """An error as JSON; when this master stands by, with the leader's address and pages."""
        assert isinstance(error, HTTPException)
        leader = self._sampler.latest.observation.leader
        view: dict[str, Any] = {"error": error.detail or "no such page", "path": request.url.path}
        if error.status_code == 503 and leader is not None:
            view |= {"leader": leader.address, "monitor": leader.monitor}
        return json_answer(view, error.status_code)


def visible_part(request: Request, view: dict[str, Any], verdict: str) -> dict[str, Any]:
    """The view of a caller with a token; for all others the verdict alone."""
    return view if request.scope[IS_AUTHENTICATED] else {verdict: view[verdict]}


def _endpoint(answer: Callable[[Request], Any]) -> Callable[[Request], Any]:
    async def endpoint(request: Request) -> Response:
        return json_answer(answer(request))

    return endpoint


def build_app(
    sampler: Sampler, replicas: ReplicaSampler, clock: Clock, interval_ms: int, viewers: Viewers
) -> AuthMiddleware:
    """The application behind :class:`AuthMiddleware`. It has no state; open pages reload every ``interval_ms``."""
    api, pages = Api(sampler, replicas, clock), Pages(sampler, replicas, interval_ms, selection)
    app = Starlette(routes=[*api.routes(), *pages.routes()], exception_handlers={HTTPException: api.refused})

    def refused(request: Request, reason: str) -> Response:
        path = request.url.path
        if path in PATHS:
            return pages.refused(main_page(path), viewers.cluster, reason)
        return json_answer({"error": f"{reason}: {TOKEN_HINT}", "path": request.url.path}, 401)

    return AuthMiddleware(app, viewers, RefusalLog(clock, LOG.warning), refused)
