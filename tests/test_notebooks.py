"""Every notebook runs from top to bottom on `mini`, with no network, and shows something."""

from __future__ import annotations

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
