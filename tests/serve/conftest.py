"""Servers with small models, each in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import uvicorn

import headscope as hs
from headscope.models.load import load_model
from headscope.resolve import model_of
from headscope.serve.live import Live
from headscope.serve.server import bind, serve_app
from tests.serve.served import TOKEN, Served


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[[Any], Served]]:
    """Serve an application until the tests end."""
    servers = []

    def serve(app: Any) -> Served:
        bound = bind(0)
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        servers.append((server, thread, bound))
        return Served(app, bound.getsockname()[1], TOKEN)

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
    return start(serve_app(live, TOKEN))


@pytest.fixture(scope="session")
def live_with_run(gpt2_folder, tmp_path_factory) -> Live:
    """The small model and its run, with one head tagged induction and one positional."""
    corpus = tmp_path_factory.mktemp("texts") / "a.txt"
    corpus.write_text("Alice was very tired. She looked at the old keys again. " * 20)
    run = hs.classify(str(gpt2_folder), corpus, max_tokens=600, types=["positional", "induction"])
    evidence = run.evidence
    for head, relation in (("L0H1", "repeat"), ("L1H2", "offset-1")):
        own = (
            (evidence["relation"] == relation)
            & (evidence["layer"] == int(head[1]))
            & (evidence["head"] == int(head[3]))
        )
        assert own.sum() == 1
        kind = str(evidence.loc[own, "type"].iloc[0])
        evidence.loc[own, "tagged"] = True
        run.heads.loc[head, ["tags", "primary"]] = kind
    return Live(model_of(run), run)
