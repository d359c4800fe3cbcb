"""The report of a model of 1,024 heads: how large it is, and when a browser has laid it out.

python benchmarks/page.py RUN

A run's heads, with their evidence, pictures and examples, are dealt to 32 layers × 32 heads; the
examples' attention gets 5 % of noise, so that no two heads are deflated as one.
"""

from __future__ import annotations

import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from side_by_side import save

import headscope as hs
from headscope.run import Run
from headscope.views.report import report_html

LAYERS, HEADS, TIMES = 32, 32, 5
NOISE = 0.05
TOLD = """<script>addEventListener("load", () => {
  const high = document.body.offsetHeight, out = document.createElement("pre");
  out.id = "__told";
  out.textContent = performance.now();
  document.body.append(out);
})</script></body>"""


def main() -> None:
    run = tiled(hs.load(sys.argv[1]))
    pages = {light: report_html(run, light=light) for light in (False, True)}
    rows = {
        "heads": len(run.heads),
        "examples": len(run.examples),
        "megabytes": round(len(pages[False].encode()) / 1e6, 2),
        "megabytes without circuitsvis": round(len(pages[True].encode()) / 1e6, 2),
    }
    if (browser := shutil.which("chromium")) is not None:
        rows["seconds until laid out"] = round(laid_out(browser, pages[False]), 2)
    save("page", rows)


def tiled(run: Run) -> Run:
    """The run with its heads dealt to more layers and heads, each layer to those of its depth."""
    depth, width = (int(run.heads[axis].max()) + 1 for axis in ("layer", "head"))
    of = {
        (layer, head): (layer * depth // LAYERS, (head + 3 * layer) % width)
        for layer in range(LAYERS)
        for head in range(HEADS)
    }
    rng = np.random.default_rng(0)
    examples = [
        replace(each, layer=layer, head=head, pattern=_shaken(each.pattern, rng))
        for (layer, head), source in of.items()
        for each in run.examples
        if (each.layer, each.head) == source
    ]
    heads = _dealt(run.heads.reset_index(drop=True), of)
    heads.index = pd.Index([f"L{row.layer}H{row.head}" for row in heads.itertuples()], name="name")
    info = json.loads(json.dumps(run.info))
    info["model"] |= {"layers": LAYERS, "heads": HEADS, "key_value_heads": HEADS}
    means = None
    if run.means is not None:
        means = np.stack([run.means[source] for source in of.values()])
        means = means.reshape(LAYERS, HEADS, *means.shape[1:])
    evidence = _dealt(run.evidence, of)
    return replace(run, heads=heads, evidence=evidence, examples=examples, info=info, means=means)


def _shaken(pattern: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    shaken = pattern.astype(np.float32) * (1 + NOISE * rng.standard_normal(pattern.shape))
    return np.asarray(shaken.clip(0, 1).astype(np.float16))


def _dealt(table: pd.DataFrame, of: dict[tuple[int, int], tuple[int, int]]) -> pd.DataFrame:
    own = dict(iter(table.groupby(["layer", "head"])))
    parts = [own[source].assign(layer=at[0], head=at[1]) for at, source in of.items()]
    return pd.concat(parts, ignore_index=True)


def laid_out(browser: str, page: str) -> float:
    """The median time in seconds from the start of loading to a page that is laid out."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(page.replace("</body>", TOLD, 1), encoding="utf-8")
        command = [
            browser, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,900",
            f"--user-data-dir={folder}/profile", "--dump-dom", file.as_uri(),
        ]  # fmt: skip
        found = []
        for _ in range(TIMES):
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            told = re.search(r'id="__told">([\d.]+)<', done.stdout)
            found.append(float(told[1]) / 1000 if told else float("nan"))
    return statistics.median(found)


if __name__ == "__main__":
    main()
