"""From a run or a model to a page that answers: load, bind, serve."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from headscope.errors import HeadscopeError
from headscope.runs.reopen_model import model_of
from headscope.runs.resolve import run_named, the_model
from headscope.serve.answers import (
    BusyError,
    GoneError,
    Pause,
    QueryWorker,
    head_told,
    predictions_told,
    read_told,
)
from headscope.serve.guard import EVERYWHERE, LOCAL, MOST_BYTES, Guard, error_response
from headscope.serve.live import Live
from headscope.serve.live_page import asset, page_html


def live_of(
    model: Any, *, source: Any = None, revision: str | None = None, device: str = "auto"
) -> Live:
    """The model of a run, with the run; or a model alone.

    Args:
        model: a run or its folder, or a model as for `classify`.
        source: the run's model, or where it is now if it is not where it was.
        revision: branch, tag or commit on the hub, for the name of a model.
        device: `cpu`, `cuda`, …; `auto` takes a GPU if there is one.

    Raises:
        RunError: the run has no model, or its weights have changed.
        ModelError: the model is no longer where it was, or cannot be loaded.
    """
    run = run_named(model, revision=revision, source=source)
    if run is None:
        return Live(the_model(model, revision=revision, device=device))
    return Live(model_of(run, source=source, device=device), run)


def serve(
    live: Live,
    other: Live | None = None,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    on_start: Callable[[str], None] = lambda address: None,
) -> None:
    """Answer until interrupted.

    Args:
        live: the model.
        other: one of the same shape to compare it with.
        host: the address to bind; any but this machine's own lets others in.
        port: 0 takes a free one.
        on_start: called with the page's address when it can be opened.

    Raises:
        HeadscopeError: the address or port cannot be had, or the models differ in shape.
    """
    app = serve_app(live, other, host=host)
    bound = bind(host, port)
    address = "127.0.0.1" if host in EVERYWHERE else host
    number = bound.getsockname()[1]
    on_start(f"http://{f'[{address}]' if ':' in address else address}:{number}/")
    config = uvicorn.Config(
        app, log_level="error", access_log=False, server_header=False, timeout_graceful_shutdown=2
    )
    with bound, suppress(KeyboardInterrupt):  # uvicorn ends in order, and then hands it on
        uvicorn.Server(config).run(sockets=[bound])


def lets_others_in(host: str) -> bool:
    """True if other machines can reach a server that is bound there."""
    return host not in LOCAL


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens there.

    Raises:
        HeadscopeError: no such address, or the port is taken.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except (OSError, OverflowError, UnicodeError) as error:
        raise HeadscopeError(f"no address {host!r:.100}, port {port}: {error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise HeadscopeError(
            f"cannot listen on {host} port {port}: {error.strerror or error}; choose another with "
            "--port, where 0 takes a free one"
        ) from error
    return listener


GONE = 499
"""As nginx logs it: the client closed the request, and reads no answer."""

Question = Callable[[Mapping[str, Any], Pause], dict[str, Any]]


def serve_app(live: Live, other: Live | None = None, *, host: str = "127.0.0.1") -> Starlette:
    """The page of a model, and what answers it.

    `POST /read {text}`, `/head {text, head}` and `/silence {text, heads, how}` answer JSON; what is
    wrong is `{"error": a sentence}` with a status of 400 or more.

    Args:
        live: the model.
        other: one of the same shape to compare it with.
        host: the address that the server is bound to.

    Raises:
        HeadscopeError: the two models are not of the same shape.
    """
    if other is not None:
        _check_same_shape(live, other)
    worker = QueryWorker()
    page = page_html(live, other)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        worker.close()

    async def index(_: Request) -> Response:
        return HTMLResponse(page)

    questions: dict[str, Question] = {
        "/read": lambda body, pause: read_told(live, other, _text(body), pause),
        "/head": lambda body, pause: head_told(
            live, other, _text(body), _string(body, "head"), pause
        ),
        "/silence": lambda body, pause: predictions_told(
            live.without(_text(body), _heads(body), _string(body, "how", "mean"), pause)
        ),
    }
    app = Starlette(
        routes=[
            Route("/", index),
            Route("/assets/{name}", _asset),
            *(
                Route(path, _answering(worker, question), methods=["POST"])
                for path, question in questions.items()
            ),
        ],
        middleware=[Middleware(Guard, host=host)],
        exception_handlers={HTTPException: _refused, Exception: _failed},
        lifespan=lifespan,
    )
    app.state.worker = worker
    return app


def _answering(worker: QueryWorker, question: Question) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:
        try:
            body = await _body(request)
            start = time.perf_counter()
            answer_values = await worker.answer(
                lambda pause: question(body, pause), request.is_disconnected
            )
            return JSONResponse(answer_values | {"seconds": round(time.perf_counter() - start, 3)})
        except BusyError as error:
            return error_response(503, str(error))
        except HeadscopeError as error:
            return error_response(400, str(error))
        except (GoneError, ClientDisconnect):
            return Response(status_code=GONE)

    return answer


async def _body(request: Request) -> Mapping[str, Any]:
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > MOST_BYTES:
            raise HTTPException(413, f"more than {MOST_BYTES // 1024} KB; send a sentence")
    try:
        body = json.loads(parts)
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "what was sent is no JSON") from error
    if not isinstance(body, dict):
        raise HTTPException(400, "what was sent is no JSON object")
    return body


def _text(body: Mapping[str, Any]) -> str:
    text = _string(body, "text")
    if not text.strip():
        raise HeadscopeError("the text is empty: type a sentence")
    return text


def _string(body: Mapping[str, Any], name: str, default: str | None = None) -> str:
    value = body.get(name, default)
    if not isinstance(value, str):
        raise HeadscopeError(f"{name!r} must be a text")
    return value


def _heads(body: Mapping[str, Any]) -> list[str]:
    heads = body.get("heads")
    if not isinstance(heads, list) or not all(isinstance(head, str) for head in heads):
        raise HeadscopeError("'heads' must be a list of names such as L5H1")
    return heads


def _check_same_shape(live: Live, other: Live) -> None:
    shapes = [(len(served.model.attention_layers), served.model.heads) for served in (live, other)]
    if shapes[0] != shapes[1]:
        one, two = (f"{layers} x {heads}" for layers, heads in shapes)
        raise HeadscopeError(
            f"{live.model.name} has {one} layers and heads, {other.model.name} {two}: only models "
            "of one shape are laid on each other"
        )


async def _asset(request: Request) -> Response:
    content = asset(request.path_params["name"])
    if content is None:
        return error_response(404, "nothing is there")
    text, kind = content
    return Response(text, media_type=kind)


async def _refused(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else ""
    return error_response(status, detail)


async def _failed(_: Request, error: Exception) -> Response:
    """What nobody foresaw, such as too little memory: the page says it, and the server goes on."""
    return error_response(500, f"the model failed: {type(error).__name__}: {str(error)[:200]}")
