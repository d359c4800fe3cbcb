"""A headless browser without a network, driven through its debugging pipe: scripts run in its page, and keys are pressed.

All tests of a process share one browser.
"""

from __future__ import annotations

import atexit
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
KEYS = {
    "Tab": ("Tab", 9, None), "Enter": ("Enter", 13, "\r"), "ArrowRight": ("ArrowRight", 39, None),
    "ArrowDown": ("ArrowDown", 40, None),
}  # fmt: skip
# the page is watched from before its first script
WATCH = """
window.__errors = [];
addEventListener("error", (e) => __errors.push(String(e.message)));
addEventListener("unhandledrejection", (e) => __errors.push(String(e.reason)));
addEventListener("securitypolicyviolation", (e) => __errors.push("request: " + e.blockedURI));
const __error = console.error;
console.error = (...rest) => { __errors.push(rest.map(String).join(" ")); __error(...rest); };
window.alert = (text) => __errors.push("alert: " + text);
"""
DRIVE = """(async () => {
  const tick = (ms = 60) => new Promise((go) => setTimeout(go, ms));
  const go = async (hash) => { location.hash = hash; await tick(150); };
  const $ = (q) => document.querySelector(q), $$ = (q) => [...document.querySelectorAll(q)];
  const settled = async (holds) => { for (let i = 0; i < 400 && !holds(); i++) await tick(25); if (!holds()) throw new Error("never: " + holds); };
  await tick(150);
  let found;
  try { found = await (async () => { %s })(); } catch (error) { __errors.push("driver: " + error.stack); }
  return { found, errors: __errors, requests: performance.getEntriesByType("resource").map((e) => e.name) };
})()"""
AXE = """
  const faults = {};
  for (const hash of %s) {
    if (hash !== null) await go(hash);
    await tick(300);
    const result = await axe.run(document, { exclude: [[".circuit"]] });
    const said = result.violations.map((v) => `${v.id}: ${v.nodes[0].html.slice(0, 160)} ${v.nodes[0].failureSummary}`);
    if (said.length) faults[hash ?? ""] = said;
  }
  return faults;
"""


@dataclass
class Visit:
    """Result of a script in a page, the page's errors, and its requests."""

    found: Any
    errors: list[str]
    requests: list[str]


def find_browser() -> str:
    for name in NAMES:
        if path := shutil.which(name):
            return path
    pytest.skip(f"needs a browser ({', '.join(NAMES)})")


class Page:
    """One page and its keys."""

    _session = ""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back = to, os.fdopen(back, "rb", 0)
        self._numbers = count(1)
        self._rest = b""
        self._events = set[str | None]()
        (page,) = (
            target["targetId"]
            for target in self._ask("Target.getTargets")["targetInfos"]
            if target["type"] == "page"
        )
        attached = self._ask("Target.attachToTarget", {"targetId": page, "flatten": True})
        self._session = str(attached["sessionId"])
        # else a page of a window that is not in front has no focus to give
        self._ask("Emulation.setFocusEmulationEnabled", {"enabled": True})
        self._ask("Page.enable")
        self._ask("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})

    def resize(self, width: int) -> None:
        """Give the page a screen of another width, in pixels."""
        self._width = width
        # a window is never narrower than 500 pixels, whatever is asked; a device's screen is
        screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", screen)

    def go_to(self, address: str) -> None:
        """Load another page."""
        self._events.discard("Page.loadEventFired")
        self._ask("Page.navigate", {"url": address})
        while "Page.loadEventFired" not in self._events:
            self._answer()

    def run(self, script: str) -> Visit:
        """Result of the body of an asynchronous function in the page."""
        return Visit(**({"found": None} | self._evaluate(DRIVE % script)))

    def read(self, script: str, *, after: int = 150) -> Any:
        """Value of an expression in the page, so many milliseconds after the last key."""
        wait = f"await new Promise((go) => setTimeout(go, {after}));"
        return self._evaluate(f"(async () => {{ {wait} return ({script}); }})()")

    def wait_for(self, holds: str, seconds: float = 20) -> None:
        """Until an expression is true in the page."""
        end = time.monotonic() + seconds
        while not self.read(holds):
            assert time.monotonic() < end, f"never: {holds}"

    def press(self, key: str, times: int = 1) -> None:
        """A key down and up again."""
        name, code, text = KEYS[key]
        for _ in range(times):
            facts = {"key": name, "code": key, "windowsVirtualKeyCode": code}
            down = {"type": "keyDown" if text else "rawKeyDown", **facts}
            self._ask("Input.dispatchKeyEvent", down | ({"text": text} if text else {}))
            self._ask("Input.dispatchKeyEvent", {"type": "keyUp", **facts})

    def tab_to(self, selector: str, most: int = 80) -> int:
        """Press Tab until the focus is on what a selector names; how many presses that took."""
        for pressed in range(1, most + 1):
            self.press("Tab")
            if self.read(f"document.activeElement.matches({json.dumps(selector)})", after=10):
                return pressed
        raise AssertionError(f"{selector} is not reached by {most} presses of Tab")

    def scheme(self, name: str, medium: str = "") -> None:
        """Let the page think that its reader likes it `light` or `dark`, and that it is in `print`."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self._ask("Emulation.setEmulatedMedia", {"features": features, "media": medium})

    def picture(self, *, height: int = 900, element: str | None = None) -> bytes:
        """The top of the page as a PNG, or of the first element that a selector names."""
        # else the page is laid out anew for the picture, without them
        self.read("document.documentElement.style.scrollbarWidth = 'none'")
        box = (
            {"x": 0, "y": 0, "width": self._width, "height": height}
            if element is None
            else self.read(
                f"(({{ x, y, width, height }}) => ({{ x: x + scrollX, y: y + scrollY, width, height }}))"
                f"(document.querySelector({json.dumps(element)}).getBoundingClientRect())"
            )
        )
        box = box | {"height": min(height, box["height"])}
        asked = {"format": "png", "captureBeyondViewport": True, "clip": box | {"scale": 1}}
        return base64.b64decode(self._ask("Page.captureScreenshot", asked)["data"])

    def _evaluate(self, expression: str) -> Any:
        asked = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        found = self._ask("Runtime.evaluate", asked)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def _ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        number = next(self._numbers)
        asked = {"id": number, "method": method, "params": params or {}}
        if self._session:
            asked["sessionId"] = self._session
        data = memoryview(json.dumps(asked).encode() + b"\0")
        while data:
            data = data[os.write(self._to, data) :]
        while True:
            answer = self._answer()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _answer(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            more = self._back.read(2**16)
            assert more, "the browser has ended"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        answer = json.loads(line)
        self._events.add(answer.get("method"))
        return dict(answer)


@cache
def _browser() -> Page:
    """The browser of this process, which ends with it."""
    folder = tempfile.mkdtemp()
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    command = [
        find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={folder}", "about:blank",
    ]  # fmt: skip
    # the browser reads its file 3 and writes its file 4
    swap = f"{theirs_in}, 100, {theirs_out}, 101, 100, 3, 101, 4"
    code = f"import os, sys; a = iter([{swap}]); [os.dup2(x, y) for x, y in zip(a, a)]"
    browser = subprocess.Popen(
        [sys.executable, "-c", f"{code}; os.execvp(sys.argv[1], sys.argv[1:])", *command],
        pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)

    def end() -> None:
        browser.kill()
        browser.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return Page(ours_out, ours_in)


def opened_at(address: str, *, width: int = 1280, scheme: str = "light") -> Page:
    """Open a file, or what a server of this machine answers; no other address is found."""
    page = _browser()
    page.resize(width)
    page.scheme(scheme)
    page.go_to("about:blank")  # from an address to another part of it no page is loaded
    page.go_to(address)
    return page


def opened(html: str, folder: Path, **how: Any) -> Page:
    """Open an HTML page."""
    file = folder / "opened.html"
    file.write_text(html, encoding="utf-8")
    return opened_at(file.as_uri(), **how)


def visit(html: str, script: str, folder: Path, **how: Any) -> Visit:
    """Open an HTML page, and run a script that returns something."""
    return opened(html, folder, **how).run(script)


def axe_faults(page: Page, places: Sequence[str | None] = (None,)) -> dict[str, list[str]]:
    """Faults that axe-core finds in a page as it is, or at each of its addresses."""
    script = files("axe_core_python") / "axe.min.js"
    page._evaluate(script.read_text(encoding="utf-8") + "; 0")
    seen = page.run(AXE % json.dumps(list(places)))
    assert seen.errors == []
    return dict(seen.found)
