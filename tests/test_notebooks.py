"""Every notebook runs from top to bottom on `mini`, with no network, and shows something."""

from __future__ import annotations

import ast
import json
import re
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_notebook_runs(path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), (
        "commit notebooks without output"
    )
    client = nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3")
    client.execute(cwd=path.parent)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    kinds = {kind for cell in code for out in cell.outputs for kind in out.get("data", {})}
    assert kinds & {"text/html", "image/png"}
    assert not any(out.output_type == "error" for cell in code for out in cell.outputs)


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 5


ROOT = Path(__file__).parents[1]
KNOWN = {"headscope", "numpy", "pandas", "matplotlib", "torch"} | sys.stdlib_module_names
CELLS = {
    f"{path.stem}, cell {number}": "".join(cell["source"])
    for path in NOTEBOOKS
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"])
    if cell["cell_type"] == "code"
}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
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


def test_an_inner_import_would_be_seen():
    assert imported("def f():\n    from headscope.runs.store import load") - KNOWN
    assert not imported("import headscope as hs\nimport matplotlib.pyplot as plt") - KNOWN
    assert len(CELLS) > 25
