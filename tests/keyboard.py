"""A headless browser that is given real keys, through its debugging pipe, as a hand would press them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from tests.browser import DARK, WATCH, find_browser

KEYS = {
    "Tab": ("Tab", 9, None), "Enter": ("Enter", 13, "\r"), "ArrowRight": ("ArrowRight", 39, None),
    "ArrowDown": ("ArrowDown", 40, None), "ArrowUp": ("ArrowUp", 38, None), "Space": (" ", 32, " "),
}  # fmt: skip


class Keyboard:
    """One page and its keys."""

    def __init__(self, to: int, back: int, address: str, width: int = 1280) -> None:
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
        self.resize(width)
        # else a page of a window that is not in front has no focus to give
        self._ask("Emulation.setFocusEmulationEnabled", {"enabled": True})
        self._ask("Page.enable")
        self.go_to(address)

    _session = ""

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

    def press(self, key: str, times: int = 1) -> None:
        """A key down and up again."""
        name, code, text = KEYS[key]
        for _ in range(times):
            facts = {"key": name, "code": key, "windowsVirtualKeyCode": code}
            down = {"type": "keyDown" if text else "rawKeyDown", **facts}
            self._ask("Input.dispatchKeyEvent", down | ({"text": text} if text else {}))
            self._ask("Input.dispatchKeyEvent", {"type": "keyUp", **facts})

    def write(self, text: str) -> None:
        """Type into what has the focus."""
        self._ask("Input.insertText", {"text": text})

    def wait_for(self, holds: str, seconds: float = 20) -> None:
        """Until an expression is true in the page."""
        end = time.monotonic() + seconds
        while not self.read(holds):
            assert time.monotonic() < end, f"never: {holds}"

    def scheme(self, name: str) -> None:
        """Let the page think that its reader likes it `light` or `dark`."""
        features = [{"name": "prefers-color-scheme", "value": name}]
        self._ask("Emulation.setEmulatedMedia", {"features": features})

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self._ask("Page.printToPDF")["data"])

    def medium(self, name: str) -> None:
        """Let the page think that it is drawn on a `screen` or in `print`."""
        self._ask("Emulation.setEmulatedMedia", {"media": name})

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

    def read(self, script: str, *, after: int = 150) -> Any:
        """What an expression is in the page, so many milliseconds after the last key."""
        asked = {"expression": f"(async () => {{ await new Promise((go) => setTimeout(go, {after})); "
                 f"return ({script}); }})()", "awaitPromise": True, "returnByValue": True}  # fmt: skip
        found = self._ask("Runtime.evaluate", asked)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def tab_to(self, selector: str, most: int = 80) -> int:
        """Press Tab until the focus is on what a selector names; how many presses that took."""
        for pressed in range(1, most + 1):
            self.press("Tab")
            if self.read(f"document.activeElement.matches({json.dumps(selector)})", after=10):
                return pressed
        raise AssertionError(f"{selector} is not reached by {most} presses of Tab")

    def _ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        number = next(self._numbers)
        asked = {"id": number, "method": method, "params": params or {}}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._to, json.dumps(asked).encode() + b"\0")
        while True:
            answer = self._answer()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _answer(self) -> dict[str, Any]:
        answer = json.loads(self._line())
        self._events.add(answer.get("method"))
        return dict(answer)

    def _line(self) -> bytes:
        while b"\0" not in self._rest:
            more = self._back.read(2**16)
            assert more, "the browser has ended"
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\0")
        return line


@contextmanager
def opened(page: str, folder: Path, *, width: int = 1280) -> Iterator[Keyboard]:
    """Open an HTML page for the keyboard; the browser ends with the block."""
    file = folder / "keyed.html"
    watched = page.replace("<head>", f"<head><script>{WATCH}</script>", 1)
    file.write_text(watched, encoding="utf-8")
    with opened_at(file.as_uri(), folder, width=width) as keyboard:
        yield keyboard


@contextmanager
def opened_at(
    address: str, folder: Path, *, width: int = 1280, scheme: str = "light"
) -> Iterator[Keyboard]:
    """Open what a server of this machine answers; no other address is found."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    command = [
        find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe",
        f"--window-size={width},900", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        f"--user-data-dir={folder / 'keyed'}", "about:blank",
    ]  # fmt: skip
    if scheme == "dark":
        command[1:1] = DARK
    # the browser reads its file 3 and writes its file 4
    swap = f"{theirs_in}, 100, {theirs_out}, 101, 100, 3, 101, 4"
    code = f"import os, sys; a = iter([{swap}]); [os.dup2(x, y) for x, y in zip(a, a)]"
    start = [sys.executable, "-c", f"{code}; os.execvp(sys.argv[1], sys.argv[1:])", *command]
    with subprocess.Popen(
        start, pass_fds=(theirs_in, theirs_out), stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as browser:  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            yield Keyboard(ours_out, ours_in, address, width)
        finally:
            browser.kill()
            os.close(ours_out)
