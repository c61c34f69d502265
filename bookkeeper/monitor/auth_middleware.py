"""Authentication of the monitor's requests: a token, or the cookie that a browser got for it.

It reads the address, the header ``Authorization`` and the cookie. A request with a valid token in its address gets a
cookie and a redirect to the address without the token; a request without a valid token or cookie gets 401 with the next
step, and a line in the log without its token. Health and readiness are open, but answer with the verdict alone. Known
third party: starlette.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from bookkeeper.rpc.trust.admission import RefusalLog
from bookkeeper.security.secret import Secret
from bookkeeper.security.viewers import Viewers, cookie_of, holder_of, token_of

TOKEN = "token"
"""The parameter of the address, ``/?token=…``."""

OPEN_PATHS = frozenset({"/health", "/ready"})

IS_AUTHENTICATED = "bookkeeper.is_authenticated"
"""The key in a request's scope that says whether it has a valid token."""

_BEARER = "bearer "


class AuthMiddleware:
    """Passes authenticated requests to the application. ``refused`` makes the answer to all others from the reason."""

    def __init__(
        self, app: ASGIApp, viewers: Viewers, log: RefusalLog, refused: Callable[[Request, str], Response]
    ) -> None:
        self._app, self._viewers, self._log, self._refused = app, viewers, log, refused
        self._cookie = f"bookkeeper_{viewers.instance_id}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        request = Request(scope)
        secrets = None if self._viewers.accepted is None else list(self._viewers.accepted())  # None: no token is needed
        if secrets is not None and TOKEN in request.query_params and request.url.path not in OPEN_PATHS:
            holder = holder_of(secrets, token_of, request.query_params[TOKEN])
            answer = self._refuse(request) if holder is None else self._redirect(request, holder)
            await answer(scope, receive, send)
        elif secrets is None or self._is_authenticated(request, secrets):
            await self._app({**scope, IS_AUTHENTICATED: True}, receive, send)
        elif request.url.path in OPEN_PATHS:
            await self._app({**scope, IS_AUTHENTICATED: False}, receive, send)
        else:
            await self._refuse(request)(scope, receive, send)

    def _is_authenticated(self, request: Request, secrets: list[Secret]) -> bool:
        token, cookie = bearer_of(request), request.cookies.get(self._cookie, "")
        return holder_of(secrets, token_of, token) is not None or holder_of(secrets, cookie_of, cookie) is not None

    def _redirect(self, request: Request, holder: Secret) -> Response:
        answer = Response(
            status_code=303,
            headers={
                "Location": address_without_token(request),
                "Cache-Control": "no-store",
                "Referrer-Policy": "no-referrer",
            },
        )
        set_cookie(answer, self._cookie, cookie_of(holder), request.url.scheme == "https")
        return answer

    def _refuse(self, request: Request) -> Response:
        reason = reason_of(request, self._cookie)
        client = f"{request.client.host}:{request.client.port}" if request.client else "unknown address"
        self._log.refused(client, reason, f"the monitor shows nothing without its token, and {reason}")
        answer = self._refused(request, reason)
        answer.headers["WWW-Authenticate"] = f'Bearer realm="monitor of {self._viewers.cluster}"'
        answer.headers["Connection"] = "close"
        return answer


def set_cookie(answer: Response, name: str, value: str, is_secure: bool) -> None:
    """Set a cookie for the browser session. Scripts can't read it, and requests from other sites do not carry it."""
    answer.set_cookie(name, value, secure=is_secure, httponly=True, samesite="strict")


def bearer_of(request: Request) -> str:
    """The token in the header ``Authorization``, "" = none."""
    text = request.headers.get("authorization", "")
    return text[len(_BEARER) :].strip() if text[: len(_BEARER)].lower() == _BEARER else ""


def reason_of(request: Request, cookie: str) -> str:
    """Why a request is refused, without any part of its token."""
    if TOKEN in request.query_params or bearer_of(request):
        return "the request's token is not, or no longer, valid for this cluster"
    if cookie in request.cookies:
        return "this browser's cookie is no longer valid"
    return "the request has none"


def address_without_token(request: Request) -> str:
    """The same page of this same server."""
    others = [(name, text) for name, text in request.query_params.multi_items() if name != TOKEN]
    return "/" + quote(request.url.path.lstrip("/\\")) + ("?" + urlencode(others) if others else "")
