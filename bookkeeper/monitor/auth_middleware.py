"""What stands before the monitor's pages: a request is looked at only when it shows the token, or a browser's cookie.

Arrives: requests, of which the address, the header ``Authorization`` and the cookie are read. Leaves: the same for the
application; for a right token in the address a cookie and the address without it; for all others 401 with the next
step, and a line in the log that holds nothing of what they showed. Health and readiness are open, in one word. Nothing
survives a crash. Known third party: starlette.
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
"""Of the address: ``/?token=…``."""

OPEN_PATHS = frozenset({"/health", "/ready"})

IS_KNOWN = "bookkeeper.is_known"
"""Of a request's scope: whether it has shown the token."""

_BEARER = "bearer "


class AuthMiddleware:
    """The application, and who gets to it. ``refused`` makes the answer for all others from the reason."""

    def __init__(
        self, app: ASGIApp, viewers: Viewers, log: RefusalLog, refused: Callable[[Request, str], Response]
    ) -> None:
        self._app, self._viewers, self._log, self._refused = app, viewers, log, refused
        self._cookie = f"bookkeeper_{viewers.instance_id}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        request = Request(scope)
        secrets = accepted_by(self._viewers)
        if secrets is not None and TOKEN in request.query_params and request.url.path not in OPEN_PATHS:
            holder = holder_of(secrets, token_of, request.query_params[TOKEN])
            answer = self._refuse(request) if holder is None else self._welcome(request, holder)
            await answer(scope, receive, send)
        elif secrets is None or self._is_known(request, secrets):
            await self._app({**scope, IS_KNOWN: True}, receive, send)
        elif request.url.path in OPEN_PATHS:
            await self._app({**scope, IS_KNOWN: False}, receive, send)
        else:
            await self._refuse(request)(scope, receive, send)

    def _is_known(self, request: Request, secrets: list[Secret]) -> bool:
        token, cookie = bearer_of(request), request.cookies.get(self._cookie, "")
        return holder_of(secrets, token_of, token) is not None or holder_of(secrets, cookie_of, cookie) is not None

    def _welcome(self, request: Request, holder: Secret) -> Response:
        answer = Response(
            status_code=303,
            headers={
                "Location": address_without_token(request),
                "Cache-Control": "no-store",
                "Referrer-Policy": "no-referrer",
            },
        )
        hand_out(answer, self._cookie, cookie_of(holder), request.url.scheme == "https")
        return answer

    def _refuse(self, request: Request) -> Response:
        reason = reason_of(request, self._cookie)
        stranger = f"{request.client.host}:{request.client.port}" if request.client else "somebody"
        self._log.refused(stranger, reason, f"the monitor shows nothing without its token, and {reason}")
        answer = self._refused(request, reason)
        answer.headers["WWW-Authenticate"] = f'Bearer realm="monitor of {self._viewers.cluster}"'
        answer.headers["Connection"] = "close"
        return answer


def accepted_by(viewers: Viewers) -> list[Secret] | None:
    """The secrets whose tokens count now; None = whoever comes may look."""
    return None if viewers.accepted is None else list(viewers.accepted())


def hand_out(answer: Response, name: str, value: str, is_secure: bool) -> None:
    """A cookie until the browser ends, which no script reads and which no page of another site makes it show."""
    answer.set_cookie(name, value, secure=is_secure, httponly=True, samesite="strict")


def bearer_of(request: Request) -> str:
    """The token that a program shows, "" when it shows none."""
    text = request.headers.get("authorization", "")
    return text[len(_BEARER) :].strip() if text[: len(_BEARER)].lower() == _BEARER else ""


def reason_of(request: Request, cookie: str) -> str:
    """Why somebody is refused; nothing of what was shown."""
    if TOKEN in request.query_params or bearer_of(request):
        return "the token shown is not, or no longer, one of this cluster's"
    if cookie in request.cookies:
        return "what this browser was given counts no longer"
    return "none was shown"


def address_without_token(request: Request) -> str:
    """The same page of this same server."""
    rest = [(name, text) for name, text in request.query_params.multi_items() if name != TOKEN]
    return "/" + quote(request.url.path.lstrip("/\\")) + ("?" + urlencode(rest) if rest else "")
