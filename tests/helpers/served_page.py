"""The live page in a real browser, which nobody but its own server answers."""

from __future__ import annotations

import json
import re
import subprocess
from html import unescape

from starlette.responses import Response

from tests.browser import DARK, DRIVE, NARROWEST, WATCH, Visit, find_browser, narrow
from tests.helpers.served import Served

SETTLED = """
  const settled = async (holds) => { for (let i = 0; i < 400 && !holds(); i++) await tick(25); if (!holds()) throw new Error("never: " + holds); };
  const type = async (text) => { $("#text").value = text; $("#go").click(); await settled(() => $("#status").textContent.includes("read in") || $("#status").classList.contains("wrong")); };
  await settled(() => $$("canvas.thumb").length === 8);
"""


class Watched:
    """The server's own page with a driver after its last script, under the same policy."""

    def __init__(self, app):
        self.app, self.scripts = app, {"/watch.js": WATCH}

    async def __call__(self, scope, receive, send):
        path = scope.get("path", "")
        if path in self.scripts:
            answer = Response(self.scripts[path], media_type="text/javascript")
            await answer(scope, receive, send)
            return
        if scope["type"] != "http" or path != "/":
            await self.app(scope, receive, send)
            return
        query = scope["query_string"].decode()

        async def with_driver(message):
            if message["type"] == "http.response.start":
                own = [pair for pair in message["headers"] if pair[0] != b"content-length"]
                message = {**message, "headers": own}
            elif message["type"] == "http.response.body":
                body = message["body"].replace(
                    b"<head>", b'<head><script src="/watch.js"></script>', 1
                )
                end = f'<script src="/{query}.js"></script></body>'.encode()
                message = {**message, "body": body.replace(b"</body>", end, 1)}
            await send(message)

        await self.app(scope, receive, with_driver)


def drive(
    served: Served,
    name: str,
    script: str,
    folder,
    *,
    at: str = "",
    width: int = 1280,
    scheme: str = "light",
):
    """Open the page in a browser of its own, run a script there, and tell the end."""
    served.app.scripts[f"/{name}.js"] = DRIVE % (SETTLED + script)
    address = f"{served.address}/?{name}#{at}"
    if width < NARROWEST:
        return narrow(address, folder, width=width, scheme=scheme)
    command = [
        find_browser(), "--headless", "--no-sandbox", "--disable-gpu",
        f"--window-size={width},900", "--virtual-time-budget=60000",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={folder / name}", "--dump-dom", address,
    ]  # fmt: skip
    if scheme == "dark":
        command[1:1] = DARK
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    result = re.search(r'<pre id="__result">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert result, done.stdout[-500:] + done.stderr[-2000:]
    return Visit(**{"found": None} | json.loads(unescape(result[1])))
