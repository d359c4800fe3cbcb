"""Servers with small models, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

from headscope.models.load import load_model
from headscope.serve.live import Live
from headscope.serve.server import bind, serve_app
from tests.helpers.served import Served


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[[Any], Served]]:
    """Serve an application until the tests end."""
    servers = []

    def serve(app: Any) -> Served:
        bound = bind("127.0.0.1", 0)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        servers.append((server, thread, bound))
        return Served(app, bound.getsockname()[1])

    yield serve
    for server, thread, bound in servers:
        server.should_exit = True
        thread.join(10)
        bound.close()


@pytest.fixture(scope="session")
def live(gpt2_folder) -> Live:
    return Live(load_model(str(gpt2_folder)))


@pytest.fixture(scope="session")
def served(live, start) -> Served:
    return start(serve_app(live))
