"""Take the pictures of the documentation: `make pictures`, or `python -m docs.pictures NAME…`.

A headless browser shows pages of the atlases that ship. `report-atlas` classifies SmolLM2 as
`make demo` does, and `live` loads it.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import FloatRect

from tests.browser import Browser, Page, browser_session

DOCS = Path(__file__).parent
ATLASES = ("smollm2", "minilm", "mini")
SENTENCE = "When Mary and John went to the store, John gave a drink to Mary."
INDUCTION_HEAD = "L18H6"
"""The induction head of SmolLM2 with the largest lift."""
OBJECT_HEAD = "L10H1"
"""The head of SmolLM2 in README."""
DEMO = ("classify", "smollm2", "--max-tokens", "10000", "--overwrite")
"""The command of `make demo`, without its folder."""

Maker = Callable[[Browser, Path], None]
MAKERS: dict[str, Maker] = {}


def picture(maker: Maker) -> Maker:
    """Add the maker of one picture, by the name of its file."""
    MAKERS[maker.__name__.replace("_", "-")] = maker
    return maker


@picture
def report_atlas(browser: Browser, out: Path) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        run = Path(folder, "smollm2")
        headscope(*DEMO, "--out", run)
        page = _page(browser, run / "report.html", width=1180)
        page.page.set_viewport_size({"width": 1180, "height": 2000})  # nothing is scrolled away
        shot(page, out, element="main", height=1760)


@picture
def report_head(browser: Browser, out: Path) -> None:
    with _report(browser, "smollm2", INDUCTION_HEAD, width=792) as page:
        shot(page, out, height=1000)


@picture
def report_type(browser: Browser, out: Path) -> None:
    with _report(browser, "smollm2", "type=syntactic") as page:
        shot(page, out, height=860)


@picture
def figure_layers(browser: Browser, out: Path) -> None:
    headscope(
        "draw",
        "atlas",
        "atlas:smollm2",
        "--kind",
        "layers",
        "--width",
        "6",
        "--overwrite",
        "--out",
        out,
    )


@picture
def prune(browser: Browser, out: Path) -> None:
    command = ("study", "prune", "mini", "--max-tokens", "2048")
    headscope(*command, "--overwrite", "--figure", out)


@picture
def gallery(browser: Browser, out: Path) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        site = Path(folder, "site")
        headscope(
            "export", "gallery", *(f"atlas:{name}" for name in ATLASES), "--out", site, "--light"
        )
        shot(_page(browser, site / "index.html"), out, height=840)


@picture
def live(browser: Browser, out: Path) -> None:
    state = f"text={quote(SENTENCE)}&head={OBJECT_HEAD}&pin=13&ablate=induction"
    command = [sys.executable, "-m", "headscope", "serve", "atlas:smollm2", "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = server.stdout.readline().split(" ")[0].strip()
        page = browser.open_at(f"{address}#?{state}")
        page.page.wait_for_selector("#change strong + strong", timeout=300_000)
        shot(page, out, height=1420)
        server.terminate()


def headscope(*words: str | Path) -> None:
    """Run a command."""
    subprocess.run([sys.executable, "-m", "headscope", *map(str, words)], check=True)


def shot(page: Page, out: Path, *, height: int, element: str | None = None) -> None:
    """Write a page's top, or one element of it, as a small file."""
    box = page.page.locator(element or "html").first.bounding_box()
    assert box is not None
    clip = FloatRect(**(box | {"height": min(height, box["height"])}))
    taken = Image.open(io.BytesIO(page.page.screenshot(clip=clip, full_page=True)))
    taken.convert("RGB").save(out, optimize=True)


@contextmanager
def _report(browser: Browser, atlas: str, at: str = "", *, width: int = 1280) -> Iterator[Page]:
    """The report of an atlas, open at one of its pages."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = Path(folder, "report.html")
        headscope("report", f"atlas:{atlas}", "--out", file, "--light")
        yield _page(browser, file, at, width=width)


def _page(browser: Browser, file: Path, at: str = "", *, width: int = 1280) -> Page:
    address = f"{file.resolve().as_uri()}{'#' if at else ''}{at}"
    page = browser.open_at(address, width=width)
    page.page.wait_for_timeout(1500)
    return page


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *MAKERS], help="all if none")
    names = parser.parse_args().names or [*MAKERS]
    for name in names:
        out = DOCS / f"{name}.png"
        with browser_session() as browser:
            MAKERS[name](browser, out)
        print(f"written to {out}")


if __name__ == "__main__":
    main()
