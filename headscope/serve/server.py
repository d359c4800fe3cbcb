"""From a run or a model to a page that answers: load, bind, serve."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Unpack

import uvicorn

from headscope.errors import HeadscopeError
from headscope.runs.reopen_model import model_of
from headscope.runs.resolve import Named, run_named, the_model
from headscope.serve.app import serve_app
from headscope.serve.guard import EVERYWHERE, LOCAL
from headscope.serve.live import Live


def live_of(model: Any, *, source: Any = None, **options: Unpack[Named]) -> Live:
    """The model of a run, with the run; or a model alone.

    Args:
        model: a run or its folder, or a model as for `classify`.
        source: the run's model, or where it is now if it is not where it was.
        options: see `Named`.

    Raises:
        RunError: the run has no model, or its weights have changed.
        ModelError: the model is no longer where it was, cannot be loaded, or has several stacks.
    """
    run = run_named(model, revision=options.get("revision"), source=source)
    if run is None:
        return Live(the_model(model, **options))
    return Live(model_of(run, source=source, device=options.get("device", "auto")), run)


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
