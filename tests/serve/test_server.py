"""The server as its clients see it: sentences for what is wrong, one query at a time, no strangers."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from headscope.errors import HeadscopeError, ModelError
from headscope.models.load import load_model
from headscope.serve.guard import MOST_BYTES
from headscope.serve.live import Live
from headscope.serve.server import bind, live_of, serve_app
from tests.helpers.shell import headscope

TEXT = "the old keys were in the house"


class Slow(Live):
    """Waits at every pause until it is let go, and notes who is inside."""

    def __init__(self, model):
        super().__init__(model)
        self.gate, self.inside, self.at_once, self.order = threading.Event(), 0, 0, []

    def read(self, text, pause=lambda: None):
        self.inside += 1
        self.at_once = max(self.at_once, self.inside)
        self.order.append(text)
        try:
            while not self.gate.wait(0.01):
                pause()
            return super().read(text, pause)
        finally:
            self.inside -= 1


@pytest.fixture
def slow(gpt2_folder):
    return Slow(load_model(str(gpt2_folder)))


def test_a_sentence_is_answered_with_every_head(served):
    status, found = served.post("/read", {"text": TEXT})
    assert status == 200
    assert len(found["cells"]) == len(found["sinks"]) == 8
    assert len(found["losses"]) == len(found["tokens"]) - 1
    assert len(found["best"]) == len(found["tokens"])
    status, head = served.post("/head", {"text": TEXT, "head": "1.2"})
    assert status == 200
    assert len(head["matrix"]) == len(found["tokens"])
    assert all(abs(sum(row) - 1) < 1e-4 for row in head["matrix"])
    status, without = served.post("/silence", {"text": TEXT, "heads": ["L0H1"]})
    assert status == 200
    assert without["loss"] != found["loss"]


@pytest.mark.parametrize(
    ("path", "content", "status", "said"),
    [
        ("/read", {"text": " "}, 400, "the text is empty"),
        ("/read", {}, 400, "text: Field required"),
        ("/read", {"text": ["a"]}, 400, "text: Input should be a valid string"),
        ("/read", b"[" * 60_000, 400, "Invalid JSON"),
        ("/read", b"\xff\xfe", 400, "Invalid JSON"),
        ("/read", {"text": "x" * 400}, 400, "reads 256 at most"),
        ("/read", {"text": "x" * MOST_BYTES}, 413, "64 KB"),
        ("/head", {"text": TEXT, "head": "L7H1"}, 400, "no head L7H1"),
        ("/head", {"text": TEXT, "head": "<b>"}, 400, "not a head"),
        ("/silence", {"text": TEXT, "heads": "L0H1"}, 400, "heads: Input should be a valid array"),
        ("/silence", {"text": TEXT, "heads": ["L0H77"]}, 400, "no head L0H77"),
        ("/silence", {"text": TEXT, "heads": [], "method": "loud"}, 400, "mean, zero"),
    ],
)
def test_what_is_wrong_is_one_sentence(served, path, content, status, said):
    found, answer = served.post(path, content)
    assert found == status
    assert list(answer) == ["error"]
    assert said in answer["error"]


def test_other_addresses_and_methods_are_refused(served):
    assert served.send("GET", "/etc/passwd")[0] == 404
    assert served.send("GET", "/assets/..%2fapp.py")[0] == 404
    assert served.send("GET", "/assets/app.py")[0] == 404
    assert served.send("GET", "/read")[0] == 405


def test_a_strangers_page_reads_nothing(served):
    body = {"text": TEXT}
    own = served.address
    assert served.post("/read", body, Origin=own, Sec_Fetch_Site="same-origin")[0] == 200
    assert served.post("/read", body, Origin="http://evil.example")[0] == 403
    assert served.post("/read", body, Origin="null")[0] == 403
    assert served.post("/read", body, Origin=own, Sec_Fetch_Site="cross-site")[0] == 403
    assert served.post("/read", body, Content_Type="text/plain")[0] == 415
    # a name of the stranger's that was made to mean this machine
    assert served.send("GET", "/", Host=f"evil.example:{served.port}")[0] == 403
    assert served.post("/read", body, Host="evil.example", Origin="http://evil.example")[0] == 403
    assert served.send("GET", "/", Host=f"localhost:{served.port}")[0] == 200


def test_the_page_may_load_nothing_from_elsewhere(served):
    from http.client import HTTPConnection

    for path in ("/", "/assets/start.js", "/nothing"):
        client = HTTPConnection("127.0.0.1", served.port)
        client.request("GET", path)
        answer = client.getresponse()
        answer.read()
        policy = str(answer.getheader("content-security-policy"))
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.getheader("x-content-type-options") == "nosniff"


def test_two_clients_are_served_one_after_the_other_and_both_right(slow, start):
    server = start(serve_app(slow))
    texts = [TEXT, "she told them that the house was old"]
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(server.post, "/read", {"text": text}) for text in texts]
        until(lambda: waiting(server) == 1 and slow.inside == 1)
        assert slow.inside == 1
        slow.gate.set()
        found = [answer.result(30) for answer in answers]
    assert slow.at_once == 1
    assert sorted(slow.order) == sorted(texts)
    for text, (status, answer) in zip(texts, found, strict=True):
        assert status == 200
        alone = server.post("/read", {"text": text})[1]
        assert (answer["cells"], answer["losses"]) == (alone["cells"], alone["losses"])
        assert len(answer["tokens"]) == len(slow.window(text).tokens)


def leave(server, text) -> socket.socket:
    """Ask, and return the connection, to be closed before the answer comes."""
    body = json.dumps({"text": text}).encode()
    client = socket.create_connection(("127.0.0.1", server.port))
    client.sendall(
        b"POST /read HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        + f"Content-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    return client


def until(holds) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def waiting(server) -> int:
    return server.app.state.limiter.statistics().tasks_waiting


def test_a_client_that_goes_away_frees_the_worker(slow, start):
    server = start(serve_app(slow))
    running = leave(server, TEXT)
    until(lambda: slow.inside == 1)
    queued = leave(server, "never read")
    until(lambda: waiting(server) == 1)
    queued.close()
    until(lambda: waiting(server) == 0)
    running.close()
    until(lambda: slow.inside == 0)
    assert slow.order == [TEXT]  # what was called off in the queue never ran
    slow.gate.set()
    assert server.post("/read", {"text": TEXT})[0] == 200


def test_a_model_that_fails_is_a_sentence_and_the_server_goes_on(slow, start, monkeypatch):
    server = start(serve_app(slow))
    slow.gate.set()

    def fail(*_):
        raise RuntimeError("not enough memory: you tried to allocate 1 TB")

    with monkeypatch.context() as broken:
        broken.setattr("headscope.serve.live.stream_attention", fail)
        status, answer = server.post("/read", {"text": "another text"})
    assert (status, list(answer)) == (500, ["error"])
    assert "not enough memory" in answer["error"]
    assert server.post("/read", {"text": "another text"})[0] == 200


def test_models_of_other_shapes_are_not_compared(live, tokenizer, tmp_path):
    from tests.helpers.models import save_model

    deeper = Live(load_model(str(save_model("gpt2", tokenizer, tmp_path, layers=3))))
    with pytest.raises(HeadscopeError, match=r"2 x 4 layers and heads, .* 3 x 4"):
        serve_app(live, deeper)


def test_a_model_that_is_away_is_a_sentence(tmp_path):
    with pytest.raises(ModelError, match="gone"):
        live_of(str(tmp_path / "gone"))
    done = headscope("serve", tmp_path / "gone", "--no-open")
    assert done.returncode == 2
    assert "gone" in done.stderr
    assert done.stderr.startswith("headscope: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_port_that_is_taken_is_a_sentence():
    with (
        bind("127.0.0.1", 0) as taken,
        pytest.raises(HeadscopeError, match="choose another with --port"),
    ):
        bind("127.0.0.1", taken.getsockname()[1])
