"""A server of the live page, as its clients see it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Any

from tests.browser import Browser, Visit

READY = """
  const status = () => $("#status").textContent;
  const isWrong = () => $("#status").classList.contains("wrong");
  const type = async (text) => {
    $("#text").value = text;
    $("#go").click();
    await settled(() => status().includes("read in") || isWrong());
  };
  await settled(() => $$("canvas.thumb").length === 8);
"""


TOKEN = "0123abcd"


@dataclass
class Served:
    """A server that answers, as its clients see it."""

    app: Any
    port: int
    token: str

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def send(
        self, method: str, path: str, content: Any = None, *, bare: bool = False, **headers: str
    ) -> tuple[int, Any]:
        """The status, and the JSON or the text of an answer; `bare` leaves the token out."""
        data = content if content is None or isinstance(content, bytes) else json.dumps(content)
        kind = {"Content-Type": "application/json"} if data is not None else {}
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        client = HTTPConnection("127.0.0.1", self.port, timeout=60)
        client.request(method, path if bare else self.path(path), data, kind | own)
        answer = client.getresponse()
        text = answer.read().decode()
        client.close()
        is_json = "json" in str(answer.getheader("content-type"))
        return answer.status, json.loads(text) if is_json and text else text

    def page(self, state: str) -> str:
        """The address of the page in a state."""
        return f"{self.address}{self.path('/')}#{state}"

    def path(self, path: str) -> str:
        """A path of the server with its token."""
        return f"{path}?token={self.token}"

    def post(self, path: str, content: Any = None, **headers: str) -> tuple[int, Any]:
        return self.send("POST", path, {} if content is None else content, **headers)

    def drive(self, browser: Browser, script: str, *, at: str = "") -> Visit:
        """Open the page in a browser, and run a script there."""
        return browser.open_at(self.page(at)).run(READY + script)
