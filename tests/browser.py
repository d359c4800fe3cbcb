"""The system's Chromium without a network, driven by Playwright."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser as Chromium
from playwright.sync_api import ConsoleMessage, Dialog, Request, sync_playwright
from playwright.sync_api import Page as PlaywrightPage

NAMES = ("chromium", "chromium-browser", "google-chrome")
# no address is found but those of this machine
ARGUMENTS = ["--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
# what the scripts of tests use
TOOLS = """
  const tick = (ms = 60) => new Promise((go) => setTimeout(go, ms));
  const go = async (hash) => { location.hash = hash; await tick(150); };
  const $ = (q) => document.querySelector(q);
  const $$ = (q) => [...document.querySelectorAll(q)];
  const settled = async (holds) => {
    for (let i = 0; i < 400 && !holds(); i++) await tick(25);
    if (!holds()) throw new Error("never: " + holds);
  };
"""
AXE = """
  const faults = {};
  for (const hash of places) {
    if (hash !== null) await go(hash);
    await tick(300);
    const result = await axe.run(document, { exclude: [[".circuit"]] });
    const found = result.violations.map((violation) => {
      const node = violation.nodes[0];
      return `${violation.id}: ${node.html.slice(0, 160)} ${node.failureSummary}`;
    });
    if (found.length) faults[hash ?? ""] = found;
  }
  return faults;
"""


@dataclass
class Visit:
    """Result of a script in a page, the page's errors, and its requests."""

    found: Any
    errors: list[str]
    requests: list[str]


@dataclass
class Page:
    """A page, its errors and its requests from before its first script."""

    page: PlaywrightPage
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._add_message)
        self.page.on("dialog", self._add_dialog)
        self.page.on("request", self._add_request)

    def run(self, script: str, values: dict[str, Any] | None = None) -> Visit:
        """Result of the body of an asynchronous function of `values`."""
        names = ", ".join(values or {})
        function = f"async ({{ {names} }}) => {{ {TOOLS} await tick(150); {script} }}"
        found = self.page.evaluate(function, values or {})
        return Visit(found, self.errors, self.requests)

    def read(self, expression: str, *, after: int = 150) -> Any:
        """Value of an expression in the page, so many milliseconds after the last key."""
        self.page.wait_for_timeout(after)
        return self.page.evaluate(expression)

    def press(self, key: str, times: int = 1) -> None:
        """A key down and up again."""
        for _ in range(times):
            self.page.keyboard.press(key)

    def tab_to(self, selector: str, most: int = 80) -> None:
        """Press Tab until the focus is on what a selector names."""
        for _ in range(most):
            self.press("Tab")
            if self.page.locator(":focus").and_(self.page.locator(selector)).count():
                return
        raise AssertionError(f"{selector} is not reached by {most} presses of Tab")

    def axe_faults(self, places: Sequence[str | None] = (None,)) -> dict[str, list[str]]:
        """Faults that axe-core finds in a page as it is, or at each of its addresses."""
        source = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
        self.page.evaluate(f"{source}; 0")
        seen = self.run(AXE, {"places": list(places)})
        assert seen.errors == []
        return dict(seen.found)

    def _add_message(self, message: ConsoleMessage) -> None:
        # the answer of a server is no fault of the page
        if message.type == "error" and not message.text.startswith("Failed to load resource"):
            self.errors.append(message.text)

    def _add_dialog(self, dialog: Dialog) -> None:
        self.errors.append(f"{dialog.type}: {dialog.message}")
        dialog.dismiss()

    def _add_request(self, request: Request) -> None:
        if not request.is_navigation_request():
            self.requests.append(request.url)


@dataclass
class Browser:
    """A browser that shows one page at a time."""

    chromium: Chromium
    folder: Path

    def open_at(self, address: str, *, width: int = 1280, scheme: Any = "light") -> Page:
        """Open a file, or what a server of this machine answers."""
        for context in self.chromium.contexts:
            context.close()
        screen: Any = {"width": width, "height": 900}
        page = Page(self.chromium.new_page(viewport=screen, color_scheme=scheme))
        page.page.goto(address)
        return page

    def open(self, html: str, **how: Any) -> Page:
        """Open an HTML page."""
        file = self.folder / "opened.html"
        file.write_text(html, encoding="utf-8")
        return self.open_at(file.as_uri(), **how)

    def visit(self, html: str, script: str, **how: Any) -> Visit:
        """Open an HTML page, and run a script that returns something."""
        return self.open(html, **how).run(script)


def find_browser() -> str:
    for name in NAMES:
        if path := shutil.which(name):
            return path
    pytest.skip(f"needs a browser ({', '.join(NAMES)})")


@contextmanager
def browser_session() -> Iterator[Browser]:
    """A browser that ends with the block.

    Within the block the thread has an event loop, so that `asyncio.run` fails there.
    """
    path = find_browser()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        chromium = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield Browser(chromium, Path(folder))
        chromium.close()
