"""Every notebook runs from top to bottom on `mini`, with no network, and shows something."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


SHARED = """
def remembered(classify):
    runs = {}
    def once(*asked, out=None, **how):
        key = repr((asked, how))
        if key not in runs:
            runs[key] = classify(*asked, **how)
        if out is not None:
            runs[key].save(out)
        return runs[key]
    return once

import headscope as hs
from headscope.studies import ablate
hs.classify = remembered(hs.classify)
ablate.CONTROLS = 2
"""
"""What notebooks ask alike is read once: most begin with the same run. Two control heads are
ablated beside each head, instead of five: they take most of the time."""
FORGET = "%reset -f"


def quarter(code: str) -> str:
    """A cell that reads a quarter of the text, or half of the windows where they are counted."""
    parts = {"max_tokens": 4, "windows": 2}
    return re.sub(
        r"\b(max_tokens|windows)=([\d_]+)",
        lambda found: f"{found[1]}={int(found[2]) // parts[found[1]]}",
        code,
    )


@pytest.fixture(scope="module")
def executed() -> dict[str, list[Any]]:
    """The code cells of every notebook with their outputs, of one kernel that forgets between them."""
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    cell = nbformat.v4.new_code_cell
    cells = {}
    for path in NOTEBOOKS:
        code = [c for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code"]
        assert not any(c.outputs for c in code), "commit notebooks without output"
        cells[path.stem] = [cell(quarter(c.source)) for c in code]
    whole = [cell(SHARED), *(c for some in cells.values() for c in (cell(FORGET), *some))]
    notebook = nbformat.v4.new_notebook(cells=whole)
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", allow_errors=True
    )
    client.execute(cwd=NOTEBOOKS[0].parent)
    assert not [out for out in whole[0].outputs if out.output_type == "error"], whole[0].outputs
    return cells


@pytest.mark.parametrize("name", [path.stem for path in NOTEBOOKS])
def test_the_notebook_runs(executed, name):
    outputs = [out for cell in executed[name] for out in cell.outputs]
    assert ["\n".join(out.traceback) for out in outputs if out.output_type == "error"] == []
    assert {kind for out in outputs for kind in out.get("data", {})} & {"text/html", "image/png"}


def test_the_notebook_on_an_encoder_has_the_published_numbers():
    (code,) = (code for cell, code in CELLS.items() if "12_a_real" in cell and "CLARK" in code)
    written = ast.literal_eval(
        next(x for x in ast.parse(code).body if "CLARK" in ast.unparse(x)).value
    )
    known = pd.read_csv(ROOT / "data" / "known_heads.csv")
    bert = known[known["model"] == "bert-base"].assign(
        relation=lambda rows: rows["relation"].str.partition("/")[2],
        offset=lambda rows: rows["source"].str.extract(r"offset (\d\.\d+)", expand=False),
    )
    published = bert.set_index("relation")[["score", "offset"]].astype(float)
    for relation, numbers in written.items():
        assert published.loc[relation].tolist() == pytest.approx(
            [float("nan") if number is None else number for number in numbers], nan_ok=True
        )


ROOT = Path(__file__).parents[1]
OTHER_PROGRAMS = {"transformer_lens", "transformers"}
"""What the page on exporting hands files and hooks to, and what loads a model into memory."""
KNOWN = {"headscope", "numpy", "pandas", "matplotlib", "torch", *OTHER_PROGRAMS}
KNOWN |= sys.stdlib_module_names
# a stimulus with gold links, on the page about extending
KNOWN |= {
    f"headscope.{name}"
    for name in ("corpus.gold_links", "corpus.text", "relations.annotated_links")
}
CELLS = {
    f"{path.stem}, cell {number}": "".join(cell["source"])
    for path in NOTEBOOKS
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"])
    if cell["cell_type"] == "code"
}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = {
    f"{path.name}, block {number}": block
    for path in PAGES
    for number, block in enumerate(
        re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    )
}


def imported(code: str) -> set[str]:
    """What a piece of code imports: packages by their first name, and inner modules of headscope."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return {name if name.startswith("headscope.") else name.split(".")[0] for name in found}


@pytest.mark.parametrize("code", [*CELLS.values(), *BLOCKS.values()], ids=[*CELLS, *BLOCKS])
def test_a_reader_is_shown_one_import(code):
    """`import headscope as hs` gives everything that notebooks and pages need of headscope."""
    assert imported(code) <= KNOWN
