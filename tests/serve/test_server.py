"""The server as its clients see it: messages, one query at a time, no other origins."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest

from headscope.models.load import load_model
from headscope.serve.live import Live
from headscope.serve.server import open_page, serve, serve_app
from tests.serve.served import TOKEN

TEXT = "the old keys were in the house"


class Slow(Live):
    """Waits until it is let go, and notes who is inside."""

    def __init__(self, model):
        super().__init__(model)
        self.gate, self.inside, self.at_once, self.order = threading.Event(), 0, 0, []

    def read(self, text):
        self.inside += 1
        self.at_once = max(self.at_once, self.inside)
        self.order.append(text)
        try:
            assert self.gate.wait(20)
            return super().read(text)
        finally:
            self.inside -= 1


@pytest.fixture
def slow(gpt2_folder):
    return Slow(load_model(str(gpt2_folder)))


@pytest.mark.parametrize(
    ("path", "content", "status", "said"),
    [
        ("/read", {"text": ""}, 400, "the text is empty"),
        ("/read", {}, 400, "text: Field required"),
        ("/read", b"[" * 60_000, 400, "Invalid JSON"),
        ("/read", {"text": "x" * 400}, 400, "reads 256 at most"),
        ("/read", {"text": "x" * 500_000}, 400, "500,000"),
        ("/read", {"text": "x" * 3_000_000}, 413, "1,048,576"),
        ("/head", {"text": TEXT, "head": "L7H1"}, 400, "no head L7H1"),
        ("/ablate", {"text": TEXT, "heads": [], "method": "loud"}, 400, "'mean' or 'zero'"),
    ],
)
def test_what_is_wrong_is_one_sentence(served, path, content, status, said):
    found, answer = served.post(path, content)
    assert found == status
    assert list(answer) == ["error"]
    assert said in answer["error"]


@pytest.mark.parametrize("token", [None, "", TOKEN[:-1], f"{TOKEN}0", "é"])
def test_each_request_needs_the_token(live, start, token):
    server = start(serve_app(live, TOKEN))
    stranger = replace(server, token=quote(token or ""))
    paths = [("GET", "/"), ("HEAD", "/"), ("GET", "/assets/start.js"), ("GET", "/nothing")]
    paths += [("POST", "/read"), ("POST", "/head"), ("POST", "/ablate"), ("POST", "/random")]
    for method, path in paths:
        content = {"text": TEXT} if method == "POST" else None
        status, answer = stranger.send(method, path, content, bare=token is None)
        assert status == 403
        assert TOKEN not in str(answer)
    assert server.send("GET", "/")[0] == 200


def test_the_server_prints_an_address_that_answers_and_another_each_time(live, monkeypatch):
    monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: None)
    addresses = []
    for _ in range(2):
        serve(live, on_start=addresses.append)
    tokens = [parse_qs(urlsplit(address).query)["token"][0] for address in addresses]
    assert len({*tokens}) == 2
    assert min(map(len, tokens)) >= 32


def test_the_browser_is_not_called_with_the_token(tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr("webbrowser.open", called.append)
    open_page(f"http://127.0.0.1:1/?token={TOKEN}", tmp_path)
    (address,) = called
    assert TOKEN not in address
    assert f"http://127.0.0.1:1/?token={TOKEN}" in Path(urlsplit(address).path).read_text()


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
    assert served.send("GET", "/", Host=f"evil.example:{served.port}")[0] == 400
    assert served.post("/read", body, Host="evil.example", Origin="http://evil.example")[0] == 400
    assert served.send("GET", "/", Host=f"localhost:{served.port}")[0] == 200


def test_the_page_may_load_nothing_from_elsewhere(served):
    from http.client import HTTPConnection

    for path in ("/", "/assets/start.js", "/nothing"):
        client = HTTPConnection("127.0.0.1", served.port)
        client.request("GET", served.path(path))
        answer = client.getresponse()
        answer.read()
        policy = str(answer.getheader("content-security-policy"))
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.getheader("x-content-type-options") == "nosniff"


def test_two_clients_are_served_one_after_the_other_and_both_right(slow, start):
    server = start(serve_app(slow, TOKEN))
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


def until(holds) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def waiting(server) -> int:
    return server.app.state.limiter.statistics().tasks_waiting


def test_a_model_that_fails_is_a_sentence_and_the_server_goes_on(slow, start, monkeypatch):
    server = start(serve_app(slow, TOKEN))
    slow.gate.set()

    def fail(*_):
        raise RuntimeError("not enough memory: you tried to allocate 1 TB")

    with monkeypatch.context() as broken:
        broken.setattr("headscope.serve.live.stream_attention", fail)
        status, answer = server.post("/read", {"text": "another text"})
    assert (status, list(answer)) == (500, ["error"])
    assert "not enough memory" in answer["error"]
    assert server.post("/read", {"text": "another text"})[0] == 200
