"""A headless browser without a network: it opens a page, runs a script in it, and tells the end."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
# the page is watched from before its first script; the driver runs after its last
WATCH = """
window.__errors = [];
addEventListener("error", (e) => __errors.push(String(e.message)));
addEventListener("unhandledrejection", (e) => __errors.push(String(e.reason)));
addEventListener("securitypolicyviolation", (e) => __errors.push("request: " + e.blockedURI));
const __error = console.error;
console.error = (...rest) => { __errors.push(rest.map(String).join(" ")); __error(...rest); };
window.alert = (text) => __errors.push("alert: " + text);
"""
DRIVE = """
addEventListener("load", async () => {
  const tick = (ms = 60) => new Promise((go) => setTimeout(go, ms));
  const go = async (hash) => { location.hash = hash; await tick(150); };
  const $ = (q) => document.querySelector(q), $$ = (q) => [...document.querySelectorAll(q)];
  // without frames the browser sends no scroll event of its own
  const look = async (at) => { at.scrollIntoView(); dispatchEvent(new Event("scroll")); await tick(1500); };
  let found;
  try { found = await (async () => { %s })(); } catch (error) { __errors.push("driver: " + error.stack); }
  const requests = performance.getEntriesByType("resource").map((e) => e.name);
  const out = document.createElement("pre");
  out.id = "__result";
  out.textContent = JSON.stringify({ found, errors: __errors, requests });
  document.body.append(out);
});
"""


@dataclass
class Visit:
    """What came of it."""

    found: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


def find_browser() -> str:
    for name in NAMES:
        if path := shutil.which(name):
            return path
    pytest.skip(f"needs a browser ({', '.join(NAMES)})")


def visit(
    page: str, script: str, folder: Path, *, width: int = 1280, scheme: str = "light"
) -> Visit:
    """Open an HTML page, run a script that returns something, and close the browser."""
    browser = find_browser()
    page = page.replace("<head>", f"<head><script>{WATCH}</script>", 1)
    page = page.replace("</body>", f"<script>{DRIVE % script}</script></body>", 1)
    file = folder / f"visited-{abs(hash(script)) % 10**8}-{width}.html"
    file.write_text(page, encoding="utf-8")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=60000",
        f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    if scheme == "dark":
        command.insert(1, "--force-dark-mode")
        command.insert(1, "--blink-settings=preferredColorScheme=0")
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    result = re.search(r'<pre id="__result">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert result, done.stdout[-500:] + done.stderr[-2000:]
    return Visit(**json.loads(unescape(result[1])))
