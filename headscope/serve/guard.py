"""Guard of the server: neither another user of the machine nor another site's page reads a model.

Every user of the machine can connect to the port: each request states the token of the address, as
with Jupyter. The token stays in the address and not in a cookie, because a browser would send a
cookie to the other ports of the machine too.

A form or script of another origin can post here: `Origin` must be this server's own, and what is
posted must be JSON, which no form can send.
"""

from __future__ import annotations

from secrets import compare_digest

from starlette.datastructures import Headers, QueryParams
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


TOKEN = "token"
"""Name of the token in the query of an address."""


class Guard:
    """Refuses what is not of this server's own page, and adds the headers that say so.

    Args:
        app: the application that is guarded.
        token: the token that the address of each request must state.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                security_headers = [(k.lower().encode(), v.encode()) for k, v in HEADERS.items()]
                message = {**message, "headers": [*message["headers"], *security_headers]}
            await send(message)

        # the token first: who has none learns nothing of this server
        stated = QueryParams(scope["query_string"]).get(TOKEN, "")
        # the time that a comparison takes must not tell how much of a guess is right
        if compare_digest(stated.encode(), self._token):
            refused = None
        else:
            refused = error_response(
                403, "the address lacks this server's token; open the address that serve printed"
            )
        if refused is None:
            refused = self._from_elsewhere(scope["method"], Headers(scope=scope))
        answer = self.app if refused is None else refused
        await answer(scope, receive, with_headers)

    def _from_elsewhere(self, method: str, headers: Headers) -> JSONResponse | None:
        if method in ("GET", "HEAD"):
            return None
        address = f"http://{headers.get('host', '')}"
        is_own_page = headers.get("origin", address) == address
        if not is_own_page or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return error_response(403, "requests from another site's page are rejected")
        if headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return error_response(415, "what is posted must be application/json")
        return None


def error_response(status: int, sentence: str) -> JSONResponse:
    """An answer that says what is wrong."""
    return JSONResponse({"error": sentence}, status)
