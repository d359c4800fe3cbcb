"""A headless browser without a network: it opens a page, runs a script in it, and tells the end."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from typing import Any

import pytest

NARROWEST = 500
"""Pixels of a window; a narrower screen has to be emulated."""
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


DARK = ["--blink-settings=preferredColorScheme=0", "--force-dark-mode"]
AXE = """
  const faults = {};
  for (const hash of %s) {
    await go(hash); await tick(300);
    const result = await axe.run(document, { exclude: [[".circuit"]] });
    faults[hash] = result.violations.map((v) => `${v.id}: ${v.nodes[0].html.slice(0, 160)} ${v.nodes[0].failureSummary}`);
  }
  return { faults, dark: matchMedia("(prefers-color-scheme: dark)").matches };
"""


def axe_script() -> str:
    """The checks of axe-core, as JavaScript."""
    spec = importlib.util.find_spec("axe_core_python")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("needs axe-core-python")
    return (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")


def axe_faults(
    page: str, places: Sequence[str], folder: Path, *, scheme: str = "light", width: int = 1280
) -> dict[str, list[str]]:
    """What axe-core finds wrong with a page at each of these addresses; empty if nothing."""
    script = axe_script().replace("</script", "<\\/script")
    watched = page.replace("</head>", f"<script>{script}</script></head>", 1)
    asked = AXE % json.dumps(list(places))
    seen = visit(watched, asked, folder, scheme=scheme, width=width)
    assert seen.found is not None, seen.errors
    assert seen.found["dark"] == (scheme == "dark")
    return {place: faults for place, faults in seen.found["faults"].items() if faults}


def visit(
    page: str,
    script: str,
    folder: Path,
    *,
    width: int = 1280,
    scheme: str = "light",
    real_time: bool = False,
) -> Visit:
    """Open an HTML page, run a script that returns something, and close the browser.

    Time flies while a page waits; with `real_time` it does not, as where the browser draws aside.
    """
    browser = find_browser()
    page = page.replace("<head>", f"<head><script>{WATCH}</script>", 1)
    page = page.replace("</body>", f"<script>{DRIVE % script}</script></body>", 1)
    file = folder / f"visited-{abs(hash(script)) % 10**8}-{width}.html"
    file.write_text(page, encoding="utf-8")
    if width < NARROWEST or real_time:
        return narrow(file.as_uri(), folder, width=width, scheme=scheme)
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=60000",
        f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri(),
    ]  # fmt: skip
    if scheme == "dark":
        command[1:1] = DARK
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    result = re.search(r'<pre id="__result">(.*?)</pre>', done.stdout, flags=re.DOTALL)
    assert result, done.stdout[-500:] + done.stderr[-2000:]
    return Visit(**{"found": None} | json.loads(unescape(result[1])))


def narrow(address: str, folder: Path, *, width: int, scheme: str = "light") -> Visit:
    """What a page with a driver in it tells on a screen that is narrower than any window."""
    from tests.keyboard import opened_at

    with opened_at(address, folder, width=width, scheme=scheme) as keys:
        keys.wait_for("Boolean(document.getElementById('__result'))", seconds=120)
        told = json.loads(keys.read("document.getElementById('__result').textContent"))
    return Visit(**{"found": None} | told)
