"""Guard of the server: a page of another site must not read a model through a reader's browser.

A name that a stranger's page owns can be made to mean this machine (DNS rebinding): the header
`Host` must name this server. A form or script of another origin can post here: `Origin` must be
this server's own, and what is posted must be JSON, which no form can send.
"""

from __future__ import annotations

import ipaddress

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL = ("127.0.0.1", "localhost", "::1")
EVERYWHERE = ("0.0.0.0", "::")
MOST_BYTES = 64 * 1024
"""Largest body of a request; a sentence and the names of 1,024 heads take a quarter of it."""
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
    """Refuses what does not come from this server's own page, and adds the headers that say so.

    Args:
        app: what answers the rest.
        host: the address that the server is bound to.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self.app, self.host = app, host

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
        host = headers.get("host", "")
        if not is_own_host(host, self.host):
            return error_response(
                403, "this server does not go by that name; open the address it printed"
            )
        if method in ("GET", "HEAD"):
            return None
        is_own_page = headers.get("origin", f"http://{host}") == f"http://{host}"
        if not is_own_page or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return error_response(403, "requests from another site's page are rejected")
        if headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return error_response(415, "what is posted must be application/json")
        return None


def is_own_host(header: str, bound: str) -> bool:
    """True if the name in a `Host` header is this server's.

    >>> is_own_host("localhost:8000", "127.0.0.1"), is_own_host("evil.example", "127.0.0.1")
    (True, False)
    >>> is_own_host("192.168.0.7:8000", "0.0.0.0"), is_own_host("evil.example", "0.0.0.0")
    (True, False)
    """
    name = header.rpartition(":")[0] if header.rpartition(":")[2].isdigit() else header
    name = name.strip("[]").lower()
    if name in LOCAL or name == bound.lower():
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    # bound to every address: any address is one of them, and an address cannot be rebound
    return bound in EVERYWHERE


def error_response(status: int, sentence: str) -> JSONResponse:
    """An answer that says what is wrong."""
    return JSONResponse({"error": sentence}, status)
