"""Server of the live page: binds an address, opens it in a browser, and answers."""

from __future__ import annotations

import secrets
import socket
import time
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

import uvicorn
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from headscope.errors import HeadscopeError
from headscope.serve.answers import (
    explanation_answer,
    head_answer,
    predictions_answer,
    sentence_answer,
)
from headscope.serve.guard import TOKEN, Guard, error_response
from headscope.serve.live import AblationMethod, Live
from headscope.serve.live_page import asset, page_html

HOST = "127.0.0.1"
"""Address that is bound: other machines cannot reach the page."""
TOKEN_BYTES = 24
"""Random bytes of a token, as many as Jupyter takes."""
LARGEST_QUERY = 2**20
"""Bytes of a query at most: a sentence of 256 tokens, and the names of some thousand heads."""
GONE = 499
"""Status as nginx logs it: the client closed the request, and reads no answer."""


class Query(BaseModel):
    """A query of the page: `/read` takes the text, the others heads too."""

    model_config = ConfigDict(strict=True)

    text: str
    head: str = ""
    heads: list[str] = []
    method: AblationMethod = "mean"


Answer = Callable[[Query], dict[str, Any]]


def serve(
    live: Live,
    *,
    port: int = 0,
    on_start: Callable[[str], None] = lambda address: None,
) -> None:
    """Answer until interrupted.

    Args:
        live: the model.
        port: 0 takes a free one.
        on_start: called with the page's address when it can be opened. The address contains a
            token of this server, without which nothing is answered.

    Raises:
        HeadscopeError: the port is taken.
    """
    token = secrets.token_hex(TOKEN_BYTES)
    app = serve_app(live, token)
    bound = bind(port)
    on_start(f"http://{HOST}:{bound.getsockname()[1]}/?{TOKEN}={token}")
    config = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=2
    )
    with bound, suppress(KeyboardInterrupt):  # uvicorn ends in order, and then hands it on
        uvicorn.Server(config).run(sockets=[bound])


def bind(port: int) -> socket.socket:
    """A socket that listens there.

    Raises:
        HeadscopeError: the port is taken.
    """
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        raise HeadscopeError(
            f"cannot listen on port {port}: {error}; choose another with --port, where 0 takes a "
            "free one"
        ) from error


def open_page(address: str, folder: Path) -> None:
    """Open an address in the user's browser, by a file that leads there.

    The arguments of a process can be read by every user of a machine, so the browser gets the name
    of the file and not the address.

    Args:
        address: the address of the page.
        folder: a folder that this user alone can read; the file must stay until it was read.
    """
    target = escape(address, quote=True)
    page = folder / "open.html"
    page.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={target}">'
        f'<a href="{target}">the live page</a>\n',
        encoding="utf-8",
    )
    webbrowser.open(page.as_uri())


def serve_app(live: Live, token: str) -> Starlette:
    """The page of a model, and what answers requests that state the token.

    `POST /read {text}`, `/head` and `/explain {text, head}`, `/ablate` and `/random {text, heads,
    method}` answer JSON; an error is `{"error": a sentence}` with a status of 400 or more. One
    query runs at a time.
    """
    # each path answers from what was posted
    page = page_html(live, token)
    answers: dict[str, Answer] = {
        "/read": lambda query: sentence_answer(live, query.text),
        "/head": lambda query: head_answer(live, query.text, query.head),
        "/explain": lambda query: explanation_answer(live, query.text, query.head),
        "/ablate": lambda query: predictions_answer(
            live.without(query.text, query.heads, query.method)
        ),
        "/random": lambda query: {
            "losses": live.random_sets(query.text, query.heads, query.method)
        },
    }
    app = Starlette(
        routes=[
            Route("/", lambda _: HTMLResponse(page)),
            Route("/assets/{name}", _asset),
            *(
                Route(path, partial(_respond, answer), methods=["POST"])
                for path, answer in answers.items()
            ),
        ],
        middleware=[
            Middleware(Guard, token=token),
            # a stranger's page can make its own name mean this machine (DNS rebinding)
            Middleware(TrustedHostMiddleware, allowed_hosts=[HOST, "localhost"]),
        ],
        exception_handlers={Exception: _failed},
    )
    app.state.limiter = CapacityLimiter(1)
    return app


async def _respond(answer: Answer, request: Request) -> Response:
    """The answer to a query when its turn has come; none if the client has left before."""
    start = time.perf_counter()
    try:
        # read piece by piece, so that no client can fill the memory
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_QUERY:
                return error_response(
                    413, f"the request has more than {LARGEST_QUERY:,} bytes; shorten the sentence"
                )
        query = Query.model_validate_json(bytes(body))
        # one query at a time, because the network has hooks while it runs
        async with request.app.state.limiter:
            if await request.is_disconnected():
                return Response(status_code=GONE)
            values = await run_sync(answer, query)
    except HeadscopeError as error:
        return error_response(400, str(error))
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"])
        return error_response(400, f"{where}{first['msg']}")
    except ClientDisconnect:
        return Response(status_code=GONE)
    return JSONResponse(values | {"seconds": round(time.perf_counter() - start, 3)})


async def _asset(request: Request) -> Response:
    content = asset(request.path_params["name"])
    if content is None:
        raise HTTPException(404)
    text, kind = content
    return Response(text, media_type=kind)


async def _failed(_: Request, error: Exception) -> Response:
    """Answer to an unforeseen error, such as too little memory: the page shows it."""
    return error_response(500, f"the model failed: {type(error).__name__}: {str(error)[:200]}")
