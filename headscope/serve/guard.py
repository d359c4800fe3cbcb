"""Guard of the server: a page of another site must not read a model through a reader's browser.

A form or script of another origin can post here: `Origin` must be this server's own, and what is
posted must be JSON, which no form can send.
"""

from __future__ import annotations

from starlette.datastructures import Headers
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


class Guard:
    """Refuses what is not of this server's own page, and adds the headers that say so."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

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

        refused = self._refused(scope["method"], Headers(scope=scope))
        answer = self.app if refused is None else refused
        await answer(scope, receive, with_headers)

    def _refused(self, method: str, headers: Headers) -> JSONResponse | None:
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
