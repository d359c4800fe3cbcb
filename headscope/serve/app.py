"""The server's few addresses: the page, what it is made of, and three questions."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from headscope.errors import HeadscopeError
from headscope.serve.answers import head_told, predictions_told, read_told
from headscope.serve.guard import MOST_BYTES, Guard, error_response
from headscope.serve.live import Live
from headscope.serve.live_page import asset, page_html
from headscope.serve.worker import BusyError, GoneError, Pause, QueryWorker

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
